"""The host's own counters over a cell, sampled by the code that samples the machine's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.errors import TareError
from tare.events.cell_facts import CellFacts, HostCounters
from tare.events.parts import ARMS_HOST, host_role, is_host
from tare.hosts import start_owned
from tare.run.alive import ANSWER_S, given_up
from tare.run.cost import MEMORY, cost_together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tare.agent.clocktrust import ClockReading
    from tare.agent.series import Series
    from tare.platforms.contract import Context, Machine

READY_S = 20.0
GRACE_S = 2.0
LOOK_S = 1.0
ORIGINS: Final = "origins_ns"
"""The fact that says when the common start was, on the clock of each role's counters."""
HOST: Final = "host_counters"
"""The fact that says whether the host's counters were sampled, and why not."""


@dataclass
class HostSampler:
    """An agent on a host that samples its counters; ``reason`` says why there is none.

    ``name`` is the study's name of a host beside the arm's own.
    """

    name: str = ""
    agent: AgentClient | None = None
    reason: str = ""

    @property
    def role(self) -> str:
        """Whose counters they are."""
        return host_role(self.name)

    def lose(self, error: Exception) -> None:
        """Do without from now on: a cell is not worth less for it."""
        whose = f"the counters of {self.name}" if self.name else "the host's counters"
        self.agent, self.reason = None, f"{whose} could not be sampled: {error}"


@asynccontextmanager
async def host_sampler(
    context: Context, apart: Sequence[int], name: str = ""
) -> AsyncIterator[HostSampler]:
    """Hold an agent on the host for one batch; one that does not start is told of, not raised.

    Args:
        context: The host, its ledger and the agent's program there.
        apart: CPUs that it is to keep off, as far as there are others.
        name: The study's name of a host beside the arm's own.
    """
    host = context.host.topology()
    cpus = host.apart_from(apart) or host.online
    watch = HostSampler(name)
    try:
        process = await start_owned(
            context.host, context.ledger, [str(context.host_agent), "serve"], cpus=cpus
        )
    except (TareError, OSError) as error:
        watch.lose(error)
        yield watch
        return
    agent = AgentClient(StreamChannel(process.stdout, process.stdin), name=name or "the host")
    try:
        try:
            await agent.hello(READY_S)
            watch.agent = agent
        except TareError as error:
            watch.lose(error)
        yield watch
    finally:
        with suppress(TareError, OSError):
            await agent.shutdown()
            await agent.close()
        await process.end(GRACE_S)


@dataclass(frozen=True)
class Counted:
    """What the counters of a cell came to: series by role, and the facts they are read by."""

    series: tuple[tuple[str, Series], ...] = ()
    facts: CellFacts = field(default_factory=CellFacts)


@dataclass
class Counters:
    """Samples the counters of a cell's machines and of their hosts, from before its common start.

    Args:
        subject: The machine.
        hosts: Where those of hosts are sampled.
        wanted: Whether any are; not beside real-time work, in whose loop every wake-up would show.
        others: Further machines that work for the cell, by role.
        carriers: Those whose cost is looked at meanwhile, for the most bytes that they had.
    """

    subject: Machine
    hosts: Sequence[HostSampler]
    wanted: bool
    others: Mapping[str, Machine] = field(default_factory=dict)
    carriers: Sequence[Machine] = ()
    start_ns: int = 0
    """The common start, on the clock of this computer (CLOCK_MONOTONIC_RAW)."""
    resident: float = 0.0
    """The most bytes that they were seen to have resident on the host, all together."""
    _looking: asyncio.Task[None] | None = None
    _agents: dict[str, AgentClient] = field(default_factory=dict)
    _clocks: dict[str, ClockReading] = field(default_factory=dict)

    async def begin(self, clock: ClockReading) -> None:
        """Begin to sample.

        Args:
            clock: A reading of the machine's clock, made just now.

        Raises:
            MachineFault: The machine's agent is lost.
        """
        if not self.wanted:
            return
        await self.subject.agent.counters_start()
        if self.carriers:
            self._looking = asyncio.create_task(self._look())
        self._agents["subject"], self._clocks["subject"] = self.subject.agent, clock
        for role, machine in self.others.items():
            self._clocks[role] = await machine.agent.clock()
            await machine.agent.counters_start()
            self._agents[role] = machine.agent
        for host in self.hosts:
            if host.agent is None:
                continue
            try:
                self._clocks[host.role] = await host.agent.clock()
                await host.agent.counters_start()
                self._agents[host.role] = host.agent
            except TareError as error:
                host.lose(error)

    async def end(self) -> Counted:
        """Sample a last time, and return everything.

        Raises:
            MachineFault: The machine's agent is lost.
        """
        await self._look_away()
        if not self.wanted:
            return Counted()
        series: list[tuple[str, Series]] = []
        hosts = {host.role: host for host in self.hosts}
        for role, agent in list(self._agents.items()):
            del self._agents[role]
            try:
                series += [(role, each) for each in (await agent.counters_stop()).series]
            except TareError as error:
                if role not in hosts:
                    raise
                hosts[role].lose(error)
        sampled = {role for role, _ in series if is_host(role)}
        reasons = [host.reason for role, host in hosts.items() if role not in sampled]
        told: HostCounters = {
            "sampled": ARMS_HOST in sampled,
            "reason": "; ".join(filter(None, reasons)),
        }
        facts: CellFacts = {HOST: told}
        if self.start_ns:
            facts[ORIGINS] = {role: self._origin(role) for role, _ in series}
        return Counted(tuple(series), facts)

    async def _look(self) -> None:
        # What a workload starts has ended when the cell has, and its memory is gone with it.
        with suppress(TareError, OSError):
            while True:
                # Many are together looked at no more often than one is, so that it costs no more.
                await asyncio.sleep(LOOK_S * len(self.carriers))
                cost = await cost_together(self.carriers)
                self.resident = max(self.resident, cost.get(MEMORY, 0.0))

    async def _look_away(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _origin(self, role: str) -> int:
        clock = self._clocks[role]
        ahead = clock.guest_ns - (clock.host_before_ns + clock.host_after_ns) // 2
        return self.start_ns + ahead

    async def abandon(self, limit_s: float = ANSWER_S) -> None:
        """Stop sampling after the cell has failed, in so many seconds at most."""
        await self._look_away()
        stopping = [agent.counters_stop(limit_s) for agent in self._agents.values()]
        self._agents.clear()
        await given_up(stopping)
