"""The sockets on which a hypervisor listens soon after its start."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts import Host

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# A busy lab that reads QEMU from its disk took over 20 s.
_CONNECT_S = 60.0
_FIRST_RETRY_S = 0.004
# Each attempt costs the host processor time, and most on an emulated host.
_LAST_RETRY_S = 0.064


async def reached(host: Host, path: Path, died: asyncio.Future[MachineFault]) -> Streams:
    """Connect to the UNIX socket at ``path`` as soon as a program listens there.

    Raises:
        MachineFault: ``died`` was set first.
        TimeoutError: No program listened within 60 s.
    """
    try:
        async with asyncio.timeout(_CONNECT_S):
            pause_s = _FIRST_RETRY_S
            while True:
                # Nothing announces that a program begins to listen.
                try:
                    return await host.connect_unix(path)
                except (FileNotFoundError, ConnectionRefusedError):
                    if died.done():
                        raise died.result() from None
                    await asyncio.sleep(pause_s)
                    pause_s = min(1.25 * pause_s, _LAST_RETRY_S)
    except TimeoutError as error:
        # asyncio's own error has no text.
        words = f"it did not listen at {path.name} within {_CONNECT_S:g} s"
        raise TimeoutError(words) from error
