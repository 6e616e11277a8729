"""TLS: a hypervisor's certificate is always verified; Tare's own, for the way back, is pinned."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.identity import identity


def verifying(ca: str | None) -> ssl.SSLContext:
    """Return how a hypervisor's certificate is verified.

    Args:
        ca: A file of PEM certificates to trust instead of the system's; None: the system's.

    Raises:
        InputError: There are none in that file.
    """
    if ca is None:
        return ssl.create_default_context()
    path = Path(ca).expanduser()
    try:
        context = ssl.create_default_context(cafile=str(path))
    except OSError as error:
        # ssl.SSLError is one, and says nothing of the file.
        said = (
            "it holds no certificate (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
        )
        raise InputError(
            f"the certificates of {path} cannot be used: {said}",
            "name the CA's certificate, or the server's own, in PEM form by `ca`",
        ) from None
    # What is named is trusted by itself, whoever signed it: ESXi's own certificate is signed by its
    # installer's or vCenter's CA. And makers' certificates leave out what RFC 5280 asks of them,
    # which Python looks for since 3.13; name, dates and signature are checked all the same.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@dataclass(frozen=True)
class OwnCertificate:
    """What Tare shows to an agent that dials back.

    Args:
        context: For a server, TLS 1.3 alone.
        digest: SHA-256 (hex) of the certificate (DER), by which the agent knows it.
    """

    context: ssl.SSLContext
    digest: str


def own_certificate() -> OwnCertificate:
    """Make a key and a certificate for it, which are nowhere but in this process."""
    made = identity("ecdsa-p256")
    return OwnCertificate(served(made.pem), made.digest)


def served(pem: str) -> ssl.SSLContext:
    """Return how a server shows a certificate to agents, by TLS 1.3 alone.

    Args:
        pem: Its key and the certificate.

    Raises:
        OSError: They are none, or not of one another.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Python takes them from a file alone: this one is in memory, and has no name.
    descriptor = os.memfd_create("tare-certificate")
    try:
        os.write(descriptor, pem.encode("ascii"))
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
