"""The addresses that a command line says of schedulers and their workers."""

from __future__ import annotations

import importlib.util
import ipaddress
import sys
from typing import TYPE_CHECKING

from tare.errors import InputError

if TYPE_CHECKING:
    from tare.fleet.connecting import Place


def require_address(address: str, option: str = "", other: str = "") -> None:
    """See that an address is one of a scheduler.

    Args:
        address: As it was typed.
        option: The option that precedes it; empty: it is an argument.
        other: What else may be written there.

    Raises:
        InputError: It is not.
    """
    protocol, _, place = address.partition("://")
    name, port = _parted(place)
    if protocol not in ("tcp", "tls") or not _is_port(port):
        raise InputError(
            f"{option}{address or repr(address)} is no address of a scheduler",
            f"write tcp://NAME:PORT or tls://NAME:PORT{other}",
        )
    if not name:
        raise InputError(
            f"{option}{address} names no host, and stands for every address of this computer",
            f"write the one that is meant, as {protocol}://127.0.0.1:{port} for this computer "
            "alone",
        )
    if ":" in name and not place.startswith("["):
        raise InputError(
            f"{option}{address} is no address of a scheduler",
            f"write an IPv6 address in brackets, as {protocol}://[{name}]:{port}",
        )


def _parted(place: str) -> tuple[str, str]:
    """Return the name, without an IPv6 address's brackets, and the port of a place."""
    name, _, port = place.rpartition(":")
    return name.strip("[]"), port


def _is_port(said: str) -> bool:
    return said.isascii() and said.isdigit() and int(said) < 1 << 16


def listening_place(said: str) -> Place | None:
    """Return where a worker is to listen; None if that is not given.

    Raises:
        InputError: It is not an address of this computer.
    """
    from tare.fleet.connecting import Place

    if not said:
        return None
    name, colon, port = said.rpartition(":") if not said.endswith("]") else (said, "", "")
    if not colon:
        name, port = said, "0"
    bare = name.removeprefix("[").removesuffix("]")
    if not bare or "/" in said or (":" in bare and bare == name) or not _is_port(port):
        raise InputError(
            f"--listen {said} is no address to listen at",
            "write an address of this computer, as 10.0.0.2, 10.0.0.2:9000 or [fd00::2]:9000",
        )
    return Place(bare, int(port))


def require_dashboard(place: str) -> None:
    """See that Dask's page can be shown, and that its place names a host: else it is every one."""
    name, port = _parted(place)
    if not name or not _is_port(port):
        raise InputError(
            f"--dashboard {place} names no host and port",
            "write both, as 127.0.0.1:8787 for this computer alone",
        )
    if importlib.util.find_spec("bokeh") is None:
        raise InputError("Dask's page needs Bokeh, which is not installed", "pip install bokeh")


def tell_if_open(address: str) -> None:
    """Say who can use what listens at an address, where that is not this computer alone.

    Args:
        address: Where it listens, as Dask writes it.
    """
    protocol, _, place = address.partition("://")
    name, _ = _parted(place)
    try:
        alone = ipaddress.ip_address(name).is_loopback
    except ValueError:
        alone = name == "localhost"
    if protocol == "tls" or alone:
        return
    print(
        f"tare: whoever reaches {address} can run programs here, and is asked for nothing; "
        "tls:// lets in those with a certificate alone (`tare help fleet`)",
        file=sys.stderr,
    )
