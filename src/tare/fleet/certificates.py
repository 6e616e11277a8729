"""Checks of TLS certificates before Dask uses them, whose errors do not name the wrong file."""

from __future__ import annotations

import ssl
from pathlib import Path

from tare.errors import InputError

MAKING = "see `tare help fleet` for how to make them"


def require_usable(ca: Path, cert: Path, key: Path) -> None:
    """Check that three files are a CA, a certificate and its key.

    Whether the CA signed the certificate is only checked when two sides connect.

    Args:
        ca: The CA to trust.
        cert: The own certificate.
        key: Its key.

    Raises:
        InputError: One does not exist or is not valid; the message names its option.
    """
    for option, path in (("--tls-ca", ca), ("--tls-cert", cert), ("--tls-key", key)):
        if not path.is_file():
            raise InputError(f"{option} {path}: there is no such file", MAKING)
    _require_certificate("--tls-ca", ca)
    _require_certificate("--tls-cert", cert)
    _require_key_of(cert, key)


def _require_certificate(option: str, path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise InputError(f"{option} {path} holds no certificate in PEM form", MAKING) from error
    except OSError as error:
        raise _unreadable(option, path, error) from error


def _require_key_of(cert: Path, key: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asked = []

    def passphrase() -> str:
        # Without this, OpenSSL asks the terminal for it.
        asked.append(True)
        return ""

    try:
        context.load_cert_chain(cert, key, password=passphrase)
    except ssl.SSLError as error:
        if asked:
            raise InputError(
                f"--tls-key {key} is protected by a passphrase, which Tare cannot ask for",
                f"write it without a passphrase: openssl pkey -in {key} -out FILE",
            ) from error
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InputError(
                f"--tls-key {key} is not the key of --tls-cert {cert}",
                "name a certificate and its own key",
            ) from error
        raise InputError(f"--tls-key {key} holds no key in PEM form", MAKING) from error
    except OSError as error:
        raise _unreadable("--tls-key", key, error) from error


def _unreadable(option: str, path: Path, error: OSError) -> InputError:
    return InputError(
        f"{option} {path} cannot be read: {error.strerror or error}", "let this user read it"
    )
