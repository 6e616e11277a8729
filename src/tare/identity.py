"""What Tare shows by TLS: a key and a certificate of this process alone, known by its hash."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from typing import Literal

Key = Literal["ecdsa-p256", "rsa-2048"]
NAME = "tare"
"""The name that certificates are for; whoever connects knows them by their hash."""
LIFE = datetime.timedelta(days=30)
_EXPONENT = 65537


@dataclass(frozen=True)
class Identity:
    """A key with its certificate.

    Args:
        pem: Both, the key first.
        digest: SHA-256 (hex) of the certificate (DER), by which whoever connects knows it.
    """

    pem: str
    digest: str


def identity(kind: Key) -> Identity:
    """Make a key and a certificate that it has signed itself; neither is kept anywhere.

    Args:
        kind: The key's algorithm, and its curve or its bits.
    """
    # Loaded here: most studies have no use for it.
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
