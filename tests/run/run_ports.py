"""The ports that workloads serve, at this computer's own addresses: one test at a time has them.

Where machines are local agents or an sshd on loopback, and nothing of Tare's isolates them, all
of them have this computer's loopback. Tests of other workers and checkouts wait here.
"""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

FILE = Path(tempfile.gettempdir()) / "tare-test-served-ports"


@contextmanager
def served_ports() -> Iterator[None]:
    """Wait until no other process holds the ports, and hold them."""
    with FILE.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@asynccontextmanager
async def ports_held() -> AsyncIterator[None]:
    """Hold the ports; other tasks of this loop continue while this waits."""

    def locked() -> IO[bytes]:
        lock = FILE.open("ab")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    lock = await asyncio.to_thread(locked)
    with lock:
        yield
