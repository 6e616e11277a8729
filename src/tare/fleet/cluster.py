"""A Dask cluster as a run's controller uses it: hosts, attempts on them, messages."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tare.fleet.faults import ClusterGone, HostGone, PartFailed, PartRefused
from tare.fleet.wire import FROM_HOST, Assignment, FromHost, Inbox, Message, Notice, StillThere
from tare.fleet.worker_task import run_part

if TYPE_CHECKING:
    from distributed import Client, Future, Queue

RESOURCE = "tare-host-"
"""A worker declares ``tare-host-NAME: 1``; an attempt takes all of it: one at a time per host."""
Task = Callable[..., Coroutine[Any, Any, None]]
LOOK_S = 2.0
"""Seconds between two checks whether the worker of an attempt still exists."""
HEARTBEAT_S = 5.0
"""Seconds between two messages to a host that the controller is alive."""
BUSY_S = 30.0
"""Seconds until a worker that has not begun is reported."""


@contextmanager
def _asking() -> Iterator[None]:
    """Translate faults of a request to the scheduler.

    Raises:
        ClusterGone: It does not answer, or does not know this run any more.
    """
    from distributed.client import ClosedClientError

    try:
        yield
    except (OSError, KeyError, ClosedClientError) as error:
        raise ClusterGone(f"the scheduler no longer answers: {error}") from error


class PartAttempt:
    """One attempt at a host's part of a run.

    Args:
        cluster: The cluster.
        host: The host's name.
        future: Dask's state of the attempt.
        up: The messages from the host.
        down: The messages to it.
    """

    def __init__(
        self, cluster: Cluster, host: str, future: Future[Any], up: Queue, down: Queue
    ) -> None:
        self.host = host
        self._cluster = cluster
        self._future = future
        self._inbox = Inbox(up)
        self._down = down
        self._worker = ""
        self._withdrawn = self._ended = False
        self._asked = self._sent_at = time.monotonic()

    @property
    def begun(self) -> bool:
        """Whether the host's worker has reported that it runs the attempt."""
        return bool(self._worker)

    def withdraw(self) -> None:
        """Stop waiting for a worker that has not begun: it may be busy for hours."""
        self._withdrawn = self._withdrawn or not self.begun

    async def send(self, message: Message) -> None:
        """Send a message to the host.

        Raises:
            ClusterGone: The scheduler is gone.
        """
        self._sent_at = time.monotonic()
        with _asking():
            await self._down.put(message.model_dump(mode="json"))

    async def messages(self) -> AsyncIterator[FromHost]:
        """Yield the host's messages, until it is left, or withdrawn before it began.

        Raises:
            HostGone: Its worker is gone.
            PartFailed: Its worker cannot run the attempt.
            PartRefused: It sends a message that this version of Tare does not know.
            ClusterGone: The scheduler is gone.
        """
        late = False
        while not self._withdrawn:
            await self._remind()
            for received in await self._next():
                message = _parsed(received)
                if self._withdrawn:
                    return
                if message.kind == "hello":
                    self._welcome(message.worker)
                self._ended = self._ended or message.kind == "ended"
                yield message
            if not late and not self.begun and time.monotonic() - self._asked > BUSY_S:
                late = True
                yield Notice(
                    sentence="its worker has not begun yet, and may be busy with another run; "
                    "Tare waits until it is free, or until Ctrl-C"
                )

    def _welcome(self, worker: str) -> None:
        """Record the worker of the attempt; fail if Dask has moved it to another worker."""
        if self._worker and worker != self._worker:
            raise HostGone(f"the worker of {self.host} died, and Dask began its work again")
        self._worker = worker

    async def _next(self) -> Sequence[Any]:
        """Return the host's next messages; none if none came for a while.

        In that case this checks whether its worker still exists.
        """
        with _asking():
            if await self._inbox.ready(LOOK_S):
                return [message for batch in await self._inbox.take() for message in batch]
        await self._look()
        return ()

    async def _remind(self) -> None:
        if time.monotonic() - self._sent_at > HEARTBEAT_S:
            await self.send(StillThere())

    async def _look(self) -> None:
        """Check that the worker still exists and runs the attempt.

        Raises:
            HostGone: It does not exist.
            PartFailed: It failed to run the attempt.
        """
        shared = await self._cluster.hosts(LOOK_S)
        # The shared answer may be older than the worker.
        if not self._is_in(shared) and not self._is_in(await self._cluster.hosts()):
            what = "the worker of {} is gone" if self._worker else "there is no worker for {}"
            raise HostGone(what.format(self.host))
        if self._future.status in ("cancelled", "lost"):
            raise HostGone(f"the scheduler dropped the work of {self.host}")
        if self._future.status == "error":
            raise await self._fault()

    async def _fault(self) -> HostGone | PartFailed:
        """Return why the attempt failed in Dask."""
        from distributed.scheduler import KilledWorker

        with _asking():
            error = await self._future.exception()
        if isinstance(error, KilledWorker):
            return HostGone(f"the worker of {self.host} died")
        return PartFailed(
            f"its worker could not run its part: {error}",
            "check that it was started by `tare worker`, with this version of Tare",
        )

    def _is_in(self, hosts: Mapping[str, str]) -> bool:
        """Return whether the attempt's worker is among the workers of the hosts."""
        return hosts.get(self.host, "") == self._worker if self._worker else self.host in hosts

    async def leave(self) -> None:
        """Cancel the attempt. Processes that still run end once they notice it."""
        self._inbox.close()
        if self._ended:
            # The scheduler would notify all clients, and log an error for each that has left.
            return
        with suppress(ClusterGone), _asking():
            await self._future.cancel(force=True)


class Cluster:
    """The connection to a scheduler.

    Args:
        client: Dask's client.
        program: The program that runs a host's part; Tare's own if empty.
        task: The Dask task of each attempt.
    """

    def __init__(self, client: Client, program: Sequence[str] = (), task: Task = run_part) -> None:
        self._client = client
        self._program = tuple(program)
        self._task = task
        self._asked: asyncio.Task[Mapping[str, str]] | None = None
        self._asked_at = 0.0

    async def hosts(self, age_s: float = 0.0) -> Mapping[str, str]:
        """Return the address of each host's worker, by the host's name.

        The answer and the number of requests both grow with the number of hosts, so concurrent
        requests share one answer.

        Args:
            age_s: The highest age of the answer, in seconds.

        Raises:
            ClusterGone: The scheduler does not answer.
        """
        asked = self._asked
        if asked is None or (asked.done() and self._is_old(asked, age_s)):
            self._asked_at = time.monotonic()
            asked = self._asked = asyncio.ensure_future(self._hosts())
        # Cancelling one waiter must not cancel the request of the others.
        return await asyncio.shield(asked)

    def _is_old(self, answer: asyncio.Task[Mapping[str, str]], age_s: float) -> bool:
        failed = answer.cancelled() or answer.exception() is not None
        return failed or time.monotonic() - self._asked_at >= age_s

    async def _hosts(self) -> Mapping[str, str]:
        scheduler = self._client.scheduler
        if scheduler is None or self._client.status != "running":
            raise ClusterGone("the scheduler no longer answers")
        with _asking():
            known = await scheduler.identity(n_workers=-1)
        found: dict[str, str] = {}
        for address, worker in known["workers"].items():
            for resource in worker["resources"]:
                if resource.startswith(RESOURCE):
                    found[resource.removeprefix(RESOURCE)] = address
        return found

    async def begin(self, host: str, assignment: Assignment) -> PartAttempt:
        """Start an assignment on a host's worker.

        Raises:
            ClusterGone: The scheduler does not answer.
        """
        from distributed import Queue

        name = f"tare-{assignment.run}-{host}-{secrets.token_hex(4)}"
        with _asking():
            up = await Queue(f"{name}-up", client=self._client)
            down = await Queue(f"{name}-down", client=self._client)
        future = self._client.submit(
            self._task,
            assignment.model_dump_json(),
            f"{name}-up",
            f"{name}-down",
            self._program,
            key=name,
            resources={RESOURCE + host: 1},
            retries=0,
            pure=False,
        )
        return PartAttempt(self, host, future, up, down)


def _parsed(received: Any) -> FromHost:
    """Parse a host's message.

    Raises:
        PartRefused: This version of Tare does not know it.
    """
    try:
        return FROM_HOST.validate_python(received)
    except ValidationError as error:
        raise PartRefused(
            "its worker sends messages that this version of Tare does not know",
            "install the same version there",
        ) from error
