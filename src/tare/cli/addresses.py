"""Checks of the addresses of schedulers and workers on a command line."""

from __future__ import annotations

import importlib.util
import ipaddress
import sys
from typing import TYPE_CHECKING

from tare.errors import InputError

if TYPE_CHECKING:
    from tare.fleet.connecting import Place


def require_address(address: str, option: str = "", other: str = "") -> None:
    """Check that an address is one of a scheduler.

    Args:
        address: The address, as typed.
        option: The option that precedes it; empty for an argument.
        other: The alternatives that the message offers.

    Raises:
        InputError: It is not.
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


def listening_place(text: str) -> Place | None:
    """Return where a worker listens; None if no address is given.

    Raises:
        InputError: It is not an address of this computer.
    """
    from tare.fleet.connecting import Place

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
    return Place(bare, int(port))


def require_dashboard(place: str) -> None:
    """Check that Dask's dashboard can be shown, and that its address names a host.

    Without a host name it would listen on every address.

    Raises:
        InputError: It cannot, or the address lacks a name or a port.
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
        address: Where it listens, as Dask writes it.
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
