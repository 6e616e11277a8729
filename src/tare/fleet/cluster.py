"""A cluster of Dask's as a run's controller needs it: hosts, attempts on them, messages."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tare.fleet.faults import ClusterGone, HostGone, PartFailed, PartRefused
from tare.fleet.hosts_part import carry_out_part
from tare.fleet.inbox import Inbox
from tare.fleet.wire import FROM_HOST, Assignment, FromHost, Message, Said, StillThere

if TYPE_CHECKING:
    from distributed import Client, Future, Queue

RESOURCE = "tare-host-"
"""A worker states ``tare-host-NAME: 1``; an attempt takes it whole: a host has one at a time."""
Task = Callable[..., Coroutine[Any, Any, None]]
LOOK_S = 2.0
"""Seconds between two looks at whether the worker of an attempt is still there."""
HEARTBEAT_S = 5.0
"""So often a host hears that the controller is still there."""


BUSY_S = 30.0
"""How long a worker may take to begin until that is reported, in seconds."""


@contextmanager
def _asking() -> Iterator[None]:
    """Ask the scheduler for something.

    Raises:
        ClusterGone: It does not answer, or knows nothing of this run any more.
    """
    from distributed.client import ClosedClientError

    try:
        yield
    except (OSError, KeyError, ClosedClientError) as error:
        raise ClusterGone(f"the scheduler does not answer any more: {error}") from error


class Attempt:
    """One go at a host's part of a run.

    Args:
        cluster: Where it runs.
        host: The host's name.
        future: Dask's word on it.
        up: What the host says.
        down: What is sent to it.
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
        self._asked = self._told = time.monotonic()

    @property
    def begun(self) -> bool:
        """Whether the host's worker has reported that it runs the attempt."""
        return bool(self._worker)

    def withdraw(self) -> None:
        """Wait no longer for a worker that has not begun: it may have other work for hours."""
        self._withdrawn = self._withdrawn or not self.begun

    async def tell(self, message: Message) -> None:
        """Say something to the host.

        Raises:
            ClusterGone: The scheduler is gone.
        """
        self._told = time.monotonic()
        with _asking():
            await self._down.put(message.model_dump(mode="json"))

    async def messages(self) -> AsyncIterator[FromHost]:
        """Yield what the host says, until it is left, or withdrawn before it began.

        Raises:
            HostGone: Its worker is gone.
            PartFailed: Its worker cannot carry the attempt out.
            PartRefused: It says what this version of Tare does not know.
            ClusterGone: The scheduler is gone.
        """
        late = False
        while not self._withdrawn:
            await self._remind()
            for said in await self._next():
                message = _understood(said)
                if self._withdrawn:
                    return
                if message.kind == "hello":
                    self._welcome(message.worker)
                self._ended = self._ended or message.kind == "ended"
                yield message
            if not late and not self.begun and time.monotonic() - self._asked > BUSY_S:
                late = True
                yield Said(
                    sentence="its worker has not begun yet, and may carry another run out; "
                    "it is waited for until it is free, or until Ctrl-C"
                )

    def _welcome(self, worker: str) -> None:
        """Take note of who carries the attempt out; Dask may have given it to another worker."""
        if self._worker and worker != self._worker:
            raise HostGone(f"the worker of {self.host} died, and Dask began its work again")
        self._worker = worker

    async def _next(self) -> Sequence[Any]:
        """Return the host's next message; nothing if none came for a while.

        It is looked meanwhile whether it is still there.
        """
        with _asking():
            if await self._inbox.ready(LOOK_S):
                return [message for batch in await self._inbox.take() for message in batch]
        await self._look()
        return ()

    async def _remind(self) -> None:
        if time.monotonic() - self._told > HEARTBEAT_S:
            await self.tell(StillThere())

    async def _look(self) -> None:
        """See that the worker is still there, and does what it was given.

        Raises:
            HostGone: It is not.
            PartFailed: It could not.
        """
        shared = await self._cluster.hosts(LOOK_S)
        # The shared answer may be older than the worker.
        if not self._stands(shared) and not self._stands(await self._cluster.hosts()):
            what = "the worker of {} is gone" if self._worker else "no worker stands for {}"
            raise HostGone(what.format(self.host))
        if self._future.status in ("cancelled", "lost"):
            raise HostGone(f"the scheduler dropped the work of {self.host}")
        if self._future.status == "error":
            raise await self._fault()

    async def _fault(self) -> HostGone | PartFailed:
        """Return why Dask took the attempt for failed."""
        from distributed.scheduler import KilledWorker

        with _asking():
            error = await self._future.exception()
        if isinstance(error, KilledWorker):
            return HostGone(f"the worker of {self.host} died")
        return PartFailed(
            f"its worker could not carry its part out: {error}",
            "see that it is one of `tare worker`, of this version of Tare",
        )

    def _stands(self, hosts: Mapping[str, str]) -> bool:
        """Return whether the attempt's worker is among those that stand for hosts."""
        return hosts.get(self.host, "") == self._worker if self._worker else self.host in hosts

    async def leave(self) -> None:
        """Forget the attempt; whatever of it still runs ends by itself."""
        self._inbox.close()
        if self._ended:
            # The scheduler would tell all clients of it, and complain of each that is gone by now.
            return
        with suppress(ClusterGone), _asking():
            await self._future.cancel(force=True)


class Cluster:
    """The connection to a scheduler.

    Args:
        client: Dask's own.
        program: What carries a host's part out; Tare's own if empty.
        task: What Dask is given for each attempt.
    """

    def __init__(
        self, client: Client, program: Sequence[str] = (), task: Task = carry_out_part
    ) -> None:
        self._client = client
        self._program = tuple(program)
        self._task = task
        self._asked: asyncio.Task[Mapping[str, str]] | None = None
        self._asked_at = 0.0

    async def hosts(self, age_s: float = 0.0) -> Mapping[str, str]:
        """Return the address of each host's worker, by the host's name.

        The scheduler's answer grows with the hosts, and so do those who want to know. Whoever asks
        while another does shares the answer.

        Args:
            age_s: Seconds that the answer may be old.

        Raises:
            ClusterGone: The scheduler does not answer.
        """
        asked = self._asked
        if asked is None or (asked.done() and self._is_old(asked, age_s)):
            self._asked_at = time.monotonic()
            asked = self._asked = asyncio.ensure_future(self._hosts())
        # Whoever gives up waiting takes the answer from nobody else.
        return await asyncio.shield(asked)

    def _is_old(self, answer: asyncio.Task[Mapping[str, str]], age_s: float) -> bool:
        failed = answer.cancelled() or answer.exception() is not None
        return failed or time.monotonic() - self._asked_at >= age_s

    async def _hosts(self) -> Mapping[str, str]:
        scheduler = self._client.scheduler
        if scheduler is None or self._client.status != "running":
            raise ClusterGone("the scheduler does not answer any more")
        with _asking():
            known = await scheduler.identity(n_workers=-1)
        found: dict[str, str] = {}
        for address, worker in known["workers"].items():
            for resource in worker["resources"]:
                if resource.startswith(RESOURCE):
                    found[resource.removeprefix(RESOURCE)] = address
        return found

    async def begin(self, host: str, assignment: Assignment) -> Attempt:
        """Have a host's worker carry an assignment out.

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
        return Attempt(self, host, future, up, down)


def _understood(said: Any) -> FromHost:
    """Return a host's message.

    Raises:
        PartRefused: This version of Tare knows none like it.
    """
    try:
        return FROM_HOST.validate_python(said)
    except ValidationError as error:
        raise PartRefused(
            "its worker says what this version of Tare does not know",
            "install the same version there",
        ) from error
