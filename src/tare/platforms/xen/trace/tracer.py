"""Record how Xen schedules its vCPUs, by ``xentrace`` in dom0: dom0's kernel does not see it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.processes import OwnedProcess, start_owned
from tare.hosts.trace.tracefs import NoTracing
from tare.platforms.xen.trace.records import SCHED_MIN, LostRecords, RunstateChange, records

T = TypeVar("T")
PROGRAM = "xentrace"
PAGES = 256
"""The size of each CPU's buffer: 1 MiB, which slices of 1 ms fill in 16 s. Xen keeps the size of
its boot's first recording, whatever is asked for later (xc_tbuf_enable,
tools/libs/ctrl/xc_tbuf.c)."""
_READY_S = 30.0
_LOOK_S = 0.1
_END_S = 30.0


class XenTracer:
    """One recording of Xen's scheduler.

    Args:
        host: The host's dom0.
        ledger: Records each process before it is started there.
        folder: Where the recording is kept until it is read.
        events: The classes of events to record.
    """

    def __init__(self, host: Host, ledger: Ledger, folder: Path, events: int = SCHED_MIN) -> None:
        self._events = events
        self._host = host
        self._ledger = ledger
        self._file = folder / "xentrace"
        self._log = folder / "xentrace.log"
        self._process: OwnedProcess | None = None

    async def begin(self) -> None:
        """Begin to record; what happened before is left out.

        Raises:
            NoTracing: It cannot be done here; what was begun has been ended.
        """
        # Only what a vCPU does, lest the trace itself loads the CPUs.
        what = ["-D", "-e", hex(self._events), "-S", str(PAGES)]
        try:
            await self._host.remove(self._file)
            self._process = await start_owned(
                self._host, self._ledger, [PROGRAM, *what, str(self._file)], log=self._log
            )
            await self._await_first_records(self._process)
        except InputError as error:
            raise NoTracing(
                f"Xen's scheduler is recorded by {PROGRAM}, which is not installed in dom0 "
                "(package xen-utils-common)"
            ) from error
        except OSError as error:
            raise NoTracing(f"{PROGRAM} cannot be started: {error}") from error
        except BaseException:
            await self.abandon()
            raise

    async def _await_first_records(self, process: OwnedProcess) -> None:
        deadline = time.monotonic() + _READY_S
        look = ["sh", "-c", 'test -s "$1"', "sh", str(self._file)]
        # dom0's own vCPUs come and go all the time, so the first records are there at once.
        while not (await self._host.run(look, timeout_s=_READY_S)).ok:
            if process.returncode is not None:
                raise NoTracing(f"{PROGRAM} ended at once{await self._words()}")
            if time.monotonic() > deadline:
                raise NoTracing(f"{PROGRAM} recorded nothing within {_READY_S:g} s")
            await asyncio.sleep(_LOOK_S)

    async def _words(self) -> str:
        with contextlib.suppress(OSError):
            log = (await self._host.read(self._log)).decode(errors="replace").strip()
            return f": {log.splitlines()[-1]}" if log else ""
        return ""

    async def end(self) -> tuple[RunstateChange | LostRecords, ...]:
        """Stop recording, and return what was recorded of the scheduler.

        Raises:
            NoTracing: It cannot be read; the text says why.
        """
        return await self.end_with(records)

    async def end_with(self, read: Callable[[bytes], Iterable[T]]) -> tuple[T, ...]:
        """Stop recording, and return what a reader makes of the recording.

        Args:
            read: The reader; raises ValueError if it is none.

        Raises:
            NoTracing: It cannot be read; the text says why.
        """
        process, self._process = self._process, None
        if process is None:
            raise NoTracing("nothing was being recorded")
        ended_before = process.returncode
        # At the signal it stops Xen's tracing and writes what is left in the buffers.
        await process.terminate()
        await process.end(_END_S)
        if ended_before is not None:
            raise NoTracing(f"{PROGRAM} ended meanwhile{await self._words()}")
        try:
            data = await self._host.read(self._file)
            await self._host.remove(self._file)
            return await asyncio.to_thread(lambda: tuple(read(data)))
        except (OSError, ValueError) as error:
            raise NoTracing(f"what {PROGRAM} recorded cannot be read: {error}") from error

    async def abandon(self) -> None:
        """Stop recording, and forget what was recorded."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(MachineFault, OSError):
                await process.terminate()
                await process.end(_END_S)
