"""A UNIX socket of an SSH host, made available on this computer."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tare.errors import TareError
from tare.hosts.contract import Host

AT_ONCE = 1 << 16


@asynccontextmanager
async def carried_socket(host: Host, there: str) -> AsyncIterator[str]:
    """Forward a socket of a host to this computer.

    If the host cannot be reached, connections to the socket break.

    Args:
        host: The host with the socket.
        there: The socket's path on that host.

    Yields:
        The socket's path on this computer; the same path if this computer is the host.
    """
    if host.local:
        yield there
        return
    tasks = set[asyncio.Task[None]]()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await host.connect_unix(there)
        except (OSError, TareError):
            writer.transport.abort()
            return
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(_pass(source, sink))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    with tempfile.TemporaryDirectory(prefix="tare-socket-") as folder:
        here = Path(folder) / "socket"
        server = await asyncio.start_unix_server(carry, here)
        try:
            yield str(here)
        finally:
            server.close()
            under_way = tuple(tasks)
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, then close the other side."""
    try:
        while data := await source.read(AT_ONCE):
            sink.write(data)
            await sink.drain()
    except OSError:
        return
    finally:
        with contextlib.suppress(OSError):
            sink.close()
