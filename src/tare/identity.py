"""The TLS identity of this process: a key and a certificate, which peers recognise by its hash."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from typing import Literal

Key = Literal["ecdsa-p256", "rsa-2048"]
NAME = "tare"
"""The name in certificates. Clients recognise a certificate by its hash, not by this name."""
LIFE = datetime.timedelta(days=30)
_EXPONENT = 65537


@dataclass(frozen=True)
class Identity:
    """A key with its certificate.

    Args:
        pem: The key followed by the certificate, as PEM.
        digest: SHA-256 (hex) of the certificate (DER), by which clients recognise it.
    """

    pem: str
    digest: str


def identity(kind: Key) -> Identity:
    """Generate a key and a self-signed certificate; neither is stored.

    Args:
        kind: The key's algorithm, and its curve or its size in bits.
    """
    # Imported here, because most studies do not need it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.x509.oid import NameOID

    key = (
        ec.generate_private_key(ec.SECP256R1())
        if kind == "ecdsa-p256"
        else rsa.generate_private_key(_EXPONENT, 2048)
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A guest's clock may be wrong.
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
    der = made.public_bytes(serialization.Encoding.DER)
    return Identity(pem.decode("ascii"), hashlib.sha256(der).hexdigest())
