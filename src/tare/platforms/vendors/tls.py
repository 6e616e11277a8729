"""TLS contexts: servers' certificates are always verified; Tare's own, for callbacks, is pinned."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.identity import identity


def verifying(ca: str | None) -> ssl.SSLContext:
    """Return a TLS context that verifies a server's certificate.

    Args:
        ca: A file of PEM certificates to trust instead of the system's; None: the system's.

    Raises:
        InputError: The file contains no certificate.
    """
    if ca is None:
        return ssl.create_default_context()
    path = Path(ca).expanduser()
    try:
        context = ssl.create_default_context(cafile=str(path))
    except OSError as error:
        # ssl.SSLError is an OSError, and does not name the file.
        why = (
            "it contains no certificate (PEM)"
            if isinstance(error, ssl.SSLError)
            else error.strerror
        )
        raise InputError(
            f"the certificates of {path} cannot be used: {why}",
            "name the CA's certificate, or the server's own, in PEM form by `ca`",
        ) from None
    # A certificate that the user names is trusted by itself, whoever signed it: ESXi's certificate
    # is signed by its installer's or vCenter's CA. Vendors' certificates omit fields that RFC 5280
    # requires, which Python checks since 3.13. Name, dates and signature are still checked.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@dataclass(frozen=True)
class OwnCertificate:
    """The certificate that Tare shows to an agent that dials back.

    Args:
        context: The server's TLS context; TLS 1.3 only.
        digest: SHA-256 (hex) of the certificate (DER), which the agent pins.
    """

    context: ssl.SSLContext
    digest: str


def own_certificate() -> OwnCertificate:
    """Create a key and its certificate, which exist only in this process."""
    made = identity("ecdsa-p256")
    return OwnCertificate(served(made.pem), made.digest)


def served(pem: str) -> ssl.SSLContext:
    """Return a server's TLS context that shows a certificate to agents; TLS 1.3 only.

    Args:
        pem: The key and the certificate.

    Raises:
        OSError: They are invalid, or do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Python reads them only from a file: this file is in memory, and has no name.
    descriptor = os.memfd_create("tare-certificate")
    try:
        os.write(descriptor, pem.encode("ascii"))
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
