"""The task of a Dask worker, which runs one host's part of a run in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.fleet.faults import fleet_versions
from tare.fleet.file_transfer import Shipper
from tare.fleet.scratch import Scratch, scratch
from tare.fleet.site import CPUS, LONGEST_LINE
from tare.fleet.wire import (
    FROM_HOST,
    TO_HOST,
    Ended,
    FilePiece,
    Happened,
    Hello,
    Inbox,
    Message,
    StillThere,
)

if TYPE_CHECKING:
    from distributed import Queue

SILENCE_S = 60.0
"""Seconds without a message after which the controller is considered gone."""
FAREWELL_S = 120.0
"""Seconds that a part may take to clean up before it is killed."""
SENT_AFTER_FILES = frozenset({"series", "cell_finished", "machine_stopped", "block_finished"})
"""Events that refer to files: the files are sent first, so that no event names a missing file."""
MOST_AT_ONCE = 32
"""The most messages per request, which limits the pieces of files that are in transit."""
TAIL = 20


async def run_part(assignment: str, up: str, down: str, program: Sequence[str] = ()) -> None:
    """Run an assignment: the Dask task of each attempt on a host.

    Args:
        assignment: The assignment as JSON.
        up: The name of the queue for messages to the controller.
        down: The name of the queue for messages from it.
        program: The program that runs it as a separate process; Tare's own if empty.
    """
    from distributed import Client, Queue, get_worker

    from tare.fleet.servers import HostWorker, WorkersHost

    worker = get_worker()
    host = worker.stands_for if isinstance(worker, HostWorker) else WorkersHost()
    given = json.loads(assignment)
    if host.spec is not None:
        given["host"] = dict(host.spec)
    client = Client(
        worker.scheduler.address, asynchronous=True, security=worker.security, set_as_default=False
    )
    async with client:
        queues = await Queue(up, client=client), await Queue(down, client=client)
        await _Attempt(worker.address, *queues, host.cpus).run(json.dumps(given), list(program))


class _Attempt:
    """One attempt at a host's part."""

    def __init__(self, worker: str, up: Queue, down: Queue, cpus: Sequence[int]) -> None:
        self._worker = worker
        self._up = up
        self._down = down
        self._cpus = cpus
        self._waiting: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(maxsize=1000)
        self._orders: asyncio.StreamWriter | None = None

    async def run(self, assignment: str, program: list[str]) -> None:
        with scratch("part") as place:
            sending = asyncio.create_task(self._send())
            try:
                await self._enqueue(Hello(worker=self._worker, versions=fleet_versions()))
                await self._enqueue(await self._follow(assignment, program, place))
            finally:
                await self._waiting.put(None)
                await sending

    async def _follow(self, assignment: str, program: list[str], place: Scratch) -> Ended:
        """Let the process measure, and forward its messages; return how it ended."""
        folder = place.folder / "run"
        async with self._process(program, folder, place.lock) as (process, errors):
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(assignment.encode() + b"\n")
            self._orders = process.stdin
            listening = asyncio.create_task(self._listen(process.stdin))
            shipper, ended = Shipper(folder), None
            try:
                async for line in process.stdout:
                    message = FROM_HOST.validate_json(line)
                    if isinstance(message, Ended):
                        ended = message
                        continue
                    if isinstance(message, Happened) and message.event.type in SENT_AFTER_FILES:
                        await self._ship(shipper)
                    await self._enqueue(message)
                await self._ship(shipper)
                status = await process.wait()
            finally:
                listening.cancel()
            return ended or Ended(reason=_end_reason(status, errors))

    async def _ship(self, shipper: Shipper) -> None:
        for piece in shipper.news():
            await self._enqueue(piece)

    @asynccontextmanager
    async def _process(
        self, program: list[str], folder: Path, lock: int
    ) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
        errors = folder.parent / "errors"
        words = program or [sys.executable, "-m", "tare.fleet.site"]
        with errors.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *words,
                str(folder),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
                env={**os.environ, CPUS: json.dumps(list(self._cpus))},
                limit=LONGEST_LINE,
                start_new_session=True,
                # If this worker is killed, the process still needs the folder for its clean-up.
                pass_fds=(lock,),
            )
        try:
            yield process, errors
        finally:
            await _end(process)

    async def _listen(self, orders: asyncio.StreamWriter) -> None:
        """Forward the controller's messages; close the process's input once it is gone."""
        inbox = Inbox(self._down)
        try:
            while await inbox.ready(SILENCE_S):
                for received in await inbox.take():
                    if not isinstance(TO_HOST.validate_python(received), StillThere):
                        orders.write(json.dumps(received).encode() + b"\n")
                        await orders.drain()
        finally:
            inbox.close()
            orders.close()

    async def _enqueue(self, message: Message) -> None:
        # Dask's queues transport bytes unchanged.
        mode = "python" if isinstance(message, FilePiece) else "json"
        await self._waiting.put(message.model_dump(mode=mode))

    async def _send(self) -> None:
        """Send all waiting messages in one request: each is a round trip to the scheduler.

        Raises:
            OSError: A message could not be sent; the process was stopped, and its later messages
                are dropped.
        """
        over = False
        lost: OSError | None = None
        while not over:
            batch = [await self._waiting.get()]
            while not self._waiting.empty() and len(batch) < MOST_AT_ONCE:
                batch.append(self._waiting.get_nowait())
            over = batch[-1] is None
            messages = [message for message in batch if message is not None]
            if not messages or lost is not None:
                continue
            try:
                await self._up.put(messages)
            except OSError as error:
                # Messages after a gap are useless, but their sender must not block.
                lost = error
                if self._orders is not None:
                    self._orders.close()
        if lost is not None:
            raise lost


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process that Tare started, and give it time to clean up."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), FAREWELL_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _end_reason(status: int, errors: Path) -> str:
    """Return the reason for a process that ended without its last message."""
    lines = errors.read_text(errors="replace").splitlines()[-TAIL:]
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    last_line = f": {lines[-1]}" if lines else ""
    return f"its process ended {how}{last_line}"
