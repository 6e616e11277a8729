"""The sockets that a QEMU which was just started will listen at."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts import Host
from tare.platforms.qemu.qmp import Streams

# A lab that reads QEMU anew from its disk, beside other work, was seen to take over 20 s.
_CONNECT_S = 60.0
_FIRST_RETRY_S = 0.004
# Each try costs the host of the starting QEMU processor time, an emulated one much of it.
_LAST_RETRY_S = 0.064


async def reached(host: Host, path: Path, died: asyncio.Future[MachineFault]) -> Streams:
    """Return the streams of the socket at ``path`` as soon as QEMU listens there.

    Raises:
        MachineFault: ``died`` was set before.
        TimeoutError: It did not listen within 60 s.
    """
    try:
        async with asyncio.timeout(_CONNECT_S):
            pause_s = _FIRST_RETRY_S
            while True:
                # QEMU tells nobody when it begins to listen.
                try:
                    return await host.connect_unix(path)
                except (FileNotFoundError, ConnectionRefusedError):
                    if died.done():
                        raise died.result() from None
                    await asyncio.sleep(pause_s)
                    pause_s = min(1.25 * pause_s, _LAST_RETRY_S)
    except TimeoutError as error:
        # By itself it has no words, and those who tell of it would end in a colon.
        words = f"it did not listen at {path.name} within {_CONNECT_S:g} s"
        raise TimeoutError(words) from error
