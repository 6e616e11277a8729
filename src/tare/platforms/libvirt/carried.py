"""The way to libvirt of a host that is reached over SSH: its socket, seen on this computer."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tare.errors import InputError, TareError
from tare.hosts.contract import Host

SOCKETS = ("/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock")
"""Where a host's daemons listen, the one of QEMU's own driver first (libvirt.org, "Daemons")."""
SYSTEM = "/system"
AT_ONCE = 1 << 16


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
    there, tasks = await _socket(host, uri), set[asyncio.Task[None]]()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await host.connect_unix(there)
        except (OSError, TareError):
            # Libvirt's library is told that its connection broke, and tells.
            writer.transport.abort()
            return
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(_pass(source, sink))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    with tempfile.TemporaryDirectory(prefix="tare-libvirt-") as folder:
        here = Path(folder) / "socket"
        server = await asyncio.start_unix_server(carry, here)
        try:
            yield f"qemu+unix://{SYSTEM}?socket={urllib.parse.quote(str(here))}"
        finally:
            server.close()
            under_way = tuple(tasks)
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry one direction to its end, and end the other side with it."""
    try:
        while data := await source.read(AT_ONCE):
            sink.write(data)
            await sink.drain()
    except OSError:
        return
    finally:
        with contextlib.suppress(OSError):
            sink.close()


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
