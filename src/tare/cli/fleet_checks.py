"""Checks of addresses and TLS certificates that are given to ``tare fleet`` on its command line."""

from __future__ import annotations

import importlib.util
import ipaddress
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import InputError

if TYPE_CHECKING:
    from tare.fleet.connections import ListenAddress

MAKING = "see `tare help fleet` for how to make them"


def require_address(address: str, option: str = "", other: str = "") -> None:
    """Check that an address is one of a scheduler.

    Args:
        address: The address, as typed.
        option: The option that precedes it; empty for an argument.
        other: The alternatives that the message offers.

    Raises:
        InputError: It is not a scheduler's address.
    """
    protocol, _, place = address.partition("://")
    name, port = _split_port(place)
    if protocol not in ("tcp", "tls") or not _is_port(port):
        raise InputError(
            f"{option}{address or repr(address)} is not a scheduler's address",
            f"write tcp://NAME:PORT or tls://NAME:PORT{other}",
        )
    if not name:
        raise InputError(
            f"{option}{address} has no host name, so it would mean every address of this computer",
            f"add the name: {protocol}://127.0.0.1:{port} listens for this computer only",
        )
    if ":" in name and not place.startswith("["):
        raise InputError(
            f"{option}{address} is not a scheduler's address",
            f"write an IPv6 address in brackets, such as {protocol}://[{name}]:{port}",
        )


def _split_port(place: str) -> tuple[str, str]:
    """Return the name (without the brackets of an IPv6 address) and the port."""
    name, _, port = place.rpartition(":")
    return name.strip("[]"), port


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < 1 << 16


def listening_place(text: str) -> ListenAddress | None:
    """Return the address at which a worker listens; None if no address is given.

    Raises:
        InputError: It is not an address of this computer.
    """
    from tare.fleet.connections import ListenAddress

    if not text:
        return None
    name, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        name, port = text, "0"
    bare = name.removeprefix("[").removesuffix("]")
    if not bare or "/" in text or (":" in bare and bare == name) or not _is_port(port):
        raise InputError(
            f"--listen {text} is not an address to listen at",
            "write an address of this computer, such as 10.0.0.2, 10.0.0.2:9000 or [fd00::2]:9000",
        )
    return ListenAddress(bare, int(port))


def require_dashboard(place: str) -> None:
    """Check that Dask's dashboard can be shown, and that its address names a host.

    Without a host name it would listen on every address.

    Raises:
        InputError: The dashboard cannot be shown, or the address lacks a name or a port.
    """
    name, port = _split_port(place)
    if not name or not _is_port(port):
        raise InputError(
            f"--dashboard {place} lacks a host name or a port",
            "write both, such as 127.0.0.1:8787 for this computer only",
        )
    if importlib.util.find_spec("bokeh") is None:
        raise InputError(
            "Dask's dashboard needs Bokeh, which is not installed", "pip install bokeh"
        )


def warn_if_open(address: str) -> None:
    """Warn if other computers can connect to an address without a certificate.

    Args:
        address: The address, as Dask writes it.
    """
    protocol, _, place = address.partition("://")
    name, _ = _split_port(place)
    try:
        local = ipaddress.ip_address(name).is_loopback
    except ValueError:
        local = name == "localhost"
    if protocol == "tls" or local:
        return
    print(
        f"tare: anyone who can connect to {address} can run programs here without a password; "
        "with tls:// only owners of a certificate can connect (`tare help fleet`)",
        file=sys.stderr,
    )


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
