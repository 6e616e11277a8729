"""The way to libvirt of a host that is reached over SSH: its socket, seen on this computer."""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tare.errors import InputError
from tare.hosts.carried import carried_socket
from tare.hosts.contract import Host

SOCKETS = ("/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock")
"""Where a host's daemons listen, the one of QEMU's own driver first (libvirt.org, "Daemons")."""
SYSTEM = "/system"


@asynccontextmanager
async def carried(host: Host, uri: str) -> AsyncIterator[str]:
    """Hold a way to a host's libvirt.

    Args:
        host: Where libvirt is.
        uri: Its connection, as it is called on that host.

    Yields:
        The connection, as it is called on this computer; it has to be opened once, and at once.

    Raises:
        InputError: There is no way to that connection.
    """
    if host.local:
        yield uri
        return
    # Libvirt's library is told by a connection that breaks where there is no way, and tells.
    async with carried_socket(host, await _socket(host, uri)) as here:
        yield f"qemu+unix://{SYSTEM}?socket={urllib.parse.quote(here)}"


async def _socket(host: Host, uri: str) -> str:
    parts = urllib.parse.urlsplit(uri)
    if parts.path != SYSTEM:
        raise InputError(
            f"of {host.name}, which is reached over SSH, only libvirt's system connection can be "
            f"used, and not {uri}",
            f"write `uri: qemu://{SYSTEM}`, or run Tare on that host",
        )
    if named := urllib.parse.parse_qs(parts.query).get("socket"):
        return named[0]
    for socket in SOCKETS:
        if await host.exists(socket):
            return socket
    raise InputError(
        f"libvirt does not listen on {host.name}: neither {SOCKETS[0]} nor {SOCKETS[1]} is there",
        "is its daemon running? try there: systemctl start libvirtd",
    )
