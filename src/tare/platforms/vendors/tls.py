"""TLS: a hypervisor's certificate is always verified; Tare's own, for the way back, is pinned."""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tare.errors import InputError

LIFE = datetime.timedelta(days=30)
NAME = "tare"
"""The name that Tare's own certificate is for; agents know it by its hash."""


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
        return ssl.create_default_context(cafile=str(path))
    except OSError as error:
        # ssl.SSLError is one, and says nothing of the file.
        said = (
            "it holds no certificate (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
        )
        raise InputError(
            f"the certificates of {path} cannot be used: {said}",
            "name the CA's certificate, or the server's own, in PEM form by `ca`",
        ) from None


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
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A guest's clock may be wrong, but the agent does not look at the time.
        .not_valid_before(now - LIFE)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + made.public_bytes(serialization.Encoding.PEM)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Python takes them from a file alone: this one is in memory, and has no name.
    descriptor = os.memfd_create("tare-certificate")
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    der = made.public_bytes(serialization.Encoding.DER)
    return OwnCertificate(context, hashlib.sha256(der).hexdigest())
