"""Start machines of a platform under test as a run does."""

from __future__ import annotations

import itertools
import secrets
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.platforms.contract import SUBJECT, Context, Machine, MachineSpec, Platform, Shape
from tare.testing.leftovers import NETWORK, remains_in, remains_of

if TYPE_CHECKING:
    from tare.agent.client import Hello, Outcome
    from tare.platforms.contract import PlatformOptions
    from tare.run.topologies.peers import Connection

WORK = "numeric-sort"
"""A workload that every agent runs, anywhere."""
SECOND = "neighbour-1"
"""The role of the machine next to the subject."""


@dataclass(frozen=True)
class Started:
    """A started machine, whose hello may not have arrived yet.

    Args:
        machine: The machine.
        spec: The specification that it was started with.
        context: The context of its host.
        entries: The numbers of the ledger's entries for it.
    """

    machine: Machine
    spec: MachineSpec
    context: Context
    entries: range

    async def remains(self) -> list[str]:
        """Return descriptions of the machine's remains on its host, except its network."""
        host, ledger = self.context.host, self.context.ledger
        return [
            *await remains_of(host, self.spec),
            *await remains_in(host, ledger, self.entries, NETWORK),
        ]


@dataclass(frozen=True)
class RunningMachine(Started):
    """A machine whose agent has sent its hello.

    Args:
        hello: The agent's hello.
        patience_s: Seconds within which the agent has to answer.
    """

    hello: Hello
    patience_s: float

    async def measure(self, seconds: float = 0.2) -> Outcome:
        """Run a workload for ``seconds``, and return its outcome."""
        return await self.machine.agent.run(WORK, {"seconds": seconds}, deadline_s=self.patience_s)


class Machines:
    """Starts machines of one platform, and stops them all in the end.

    Args:
        platform: The platform.
        options: The platform's options.
        context: The context of the machines' host.
        shape: The machines' size.
        cpus: The host CPUs to pin them to; empty: anywhere.
        patience_s: Seconds that a machine may take until its hello arrives.
        connection: The network that the subject and the second machine share; None: no network.
    """

    def __init__(
        self,
        platform: Platform[Any],
        options: PlatformOptions,
        context: Context,
        *,
        shape: Shape,
        cpus: tuple[int, ...],
        patience_s: float,
        connection: Connection | None = None,
    ) -> None:
        self._platform = platform
        self._options = options
        self._context = context
        self._shape = shape
        self._cpus = cpus
        self._patience_s = patience_s
        self.connection = connection
        self._shared: dict[str, RunningMachine] = {}
        self._held = AsyncExitStack()
        self._numbers = itertools.count(1)
        self._run = f"tare-test-{secrets.token_hex(3)}"

    async def subject(self) -> RunningMachine:
        """Return the subject that cases share. The first request starts it."""
        return await self._share(SUBJECT)

    async def second(self) -> RunningMachine:
        """Return the second machine that cases share, on the same network as the subject."""
        return await self._share(SECOND)

    async def _share(self, role: str) -> RunningMachine:
        if role not in self._shared:
            self._shared[role] = await self._start(role, self._shape, self.connection)
        return self._shared[role]

    def take(self, running: RunningMachine) -> RunningMachine:
        """Hand a shared machine to a case that ends it. The next request starts a new one."""
        self._shared.pop(running.spec.role, None)
        return running

    async def fresh(
        self, role: str = SUBJECT, connection: Connection | None = None
    ) -> RunningMachine:
        """Start a machine for one case, without a disk; without a network unless one is given."""
        return await self._start(role, Shape(self._shape.vcpus, self._shape.memory), connection)

    async def _start(
        self, role: str, shape: Shape, connection: Connection | None
    ) -> RunningMachine:
        try:
            return await self._boot(role, shape, connection)
        except MachineFault as fault:
            # A run does the same if a guest fails while it boots on an emulated computer.
            if not fault.transient:
                raise
        return await self._boot(role, shape, connection)

    async def _boot(self, role: str, shape: Shape, connection: Connection | None) -> RunningMachine:
        begun = await self.begin(role, shape, connection)
        try:
            hello = await begun.machine.ready(self._patience_s)
        except MachineFault:
            await begun.machine.stop()
            raise
        # Some of the machine's objects are created and recorded only while it becomes ready.
        entries = range(begun.entries.start, begun.context.ledger.next_number)
        spec, context = begun.spec, begun.context
        return RunningMachine(begun.machine, spec, context, entries, hello, self._patience_s)

    async def begin(
        self,
        role: str = SUBJECT,
        shape: Shape | None = None,
        connection: Connection | None = None,
    ) -> Started:
        """Start a machine without waiting for its agent; without a network unless one is given."""
        context, name = self._context, f"{self._run}-{next(self._numbers)}-{role}"
        size = shape or self._shape
        prepared = await self._platform.prepare(context, self._options, size, False)
        first = context.ledger.next_number
        spec = MachineSpec(
            name,
            size,
            self._cpus,
            # The path is short, because sockets in the folder have a limited path length.
            Path(tempfile.gettempdir()) / name,
            realtime=False,
            role=role,
            network=None if connection is None else connection.network,
            way="" if connection is None else connection.way,
        )
        machine = await self._platform.start(context, self._options, prepared, spec)
        self._held.push_async_callback(machine.stop)
        return Started(machine, spec, context, range(first, context.ledger.next_number))

    async def close(self) -> None:
        """Stop all machines that were started; may be called again."""
        await self._held.aclose()
