"""The sockets that a QEMU which was just started will listen at."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts import Host
from tare.platforms.qemu.qmp import Streams

_CONNECT_S = 20.0
_RETRY_S = 0.004


async def reached(host: Host, path: Path, died: asyncio.Future[MachineFault]) -> Streams:
    """Return the streams of the socket at ``path`` as soon as QEMU listens there.

    Raises:
        MachineFault: ``died`` was set before.
        TimeoutError: It did not listen within 20 s.
    """
    try:
        async with asyncio.timeout(_CONNECT_S):
            while True:
                # QEMU tells nobody when it begins to listen.
                try:
                    return await host.connect_unix(path)
                except (FileNotFoundError, ConnectionRefusedError):
                    if died.done():
                        raise died.result() from None
                    await asyncio.sleep(_RETRY_S)
    except TimeoutError as error:
        # By itself it has no words, and those who tell of it would end in a colon.
        words = f"it did not listen at {path.name} within {_CONNECT_S:g} s"
        raise TimeoutError(words) from error
