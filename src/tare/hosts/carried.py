"""A unix socket of a host that is reached over SSH, seen on this computer."""

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
    """Hold a way to a socket of a host.

    Whoever connects while the host cannot be reached notices by a connection that breaks.

    Args:
        host: Where the socket is.
        there: Its path on that host.

    Yields:
        Its path on this computer, which is the same where this is the host.
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
