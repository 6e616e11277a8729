"""The host's own counters during a cell, sampled by the same code as the machine's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.errors import TareError
from tare.events.cell_facts import CellFacts, HostCounters
from tare.events.parts import ARMS_HOST, host_role, is_host
from tare.hosts import start_owned
from tare.platforms.contract import SUBJECT
from tare.probes import Probe
from tare.run.cells.liveness import given_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tare.agent.clocktrust import ClockReading
    from tare.agent.series import Series
    from tare.platforms.contract import Context, Machine

LEAST_COUNTED_S = 2.0
"""The shortest cell during which a host is sampled."""
READY_S = 20.0
GRACE_S = 2.0


@dataclass
class HostSampler:
    """An agent on a host that samples its counters; ``reason`` is set if there is none.

    ``name`` is the study's name of a host other than the arm's own.
    """

    name: str = ""
    agent: AgentClient | None = None
    reason: str = ""

    @property
    def role(self) -> str:
        """The role of these counters."""
        return host_role(self.name)

    def lose(self, error: Exception) -> None:
        """Continue without the counters: the cell remains valid."""
        whose = f"the counters of {self.name}" if self.name else "the host's counters"
        self.agent, self.reason = None, f"{whose} could not be sampled: {error}"


@asynccontextmanager
async def host_sampler(
    context: Context, apart: Sequence[int], name: str = ""
) -> AsyncIterator[HostSampler]:
    """Hold an agent on the host for one batch; a failed start is recorded, not raised.

    Args:
        context: The host, its ledger and the agent's program there.
        apart: CPUs that it avoids, as far as there are others.
        name: The study's name of a host other than the arm's own.
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


class Counters(Probe):
    """Samples the counters of a cell's machines and of their hosts, from before its common start.

    Args:
        subject: The machine that is measured.
        others: Further machines that work for the cell, by role.
        hosts: The samplers of the hosts.
        clock: Returns an earlier reading of the subject's clock.
    """

    def __init__(
        self,
        subject: Machine,
        others: Mapping[str, Machine],
        hosts: Sequence[HostSampler],
        clock: Callable[[], ClockReading],
    ) -> None:
        self._subject = subject
        self._others = others
        self._hosts = {host.role: host for host in hosts}
        self._clock = clock
        self._start_ns = 0
        self._agents: dict[str, AgentClient] = {}
        self._clocks: dict[str, ClockReading] = {}

    async def open(self) -> None:
        """Start to sample.

        Raises:
            MachineFault: The machine's agent is lost.
        """
        await self._subject.agent.counters_start()
        self._agents[SUBJECT], self._clocks[SUBJECT] = self._subject.agent, self._clock()
        for role, machine in self._others.items():
            self._clocks[role] = await machine.agent.clock()
            await machine.agent.counters_start()
            self._agents[role] = machine.agent
        for role, host in self._hosts.items():
            if host.agent is None:
                continue
            try:
                self._clocks[role] = await host.agent.clock()
                await host.agent.counters_start()
                self._agents[role] = host.agent
            except TareError as error:
                host.lose(error)

    async def begin(self) -> None:
        """Record the common start, on the clock of this computer (CLOCK_MONOTONIC_RAW)."""
        self._start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    async def close(self) -> None:
        """Sample a last time, and collect all samples.

        Raises:
            MachineFault: The machine's agent is lost.
        """
        series: list[tuple[str, Series]] = []
        for role, agent in list(self._agents.items()):
            del self._agents[role]
            try:
                series += [(role, each) for each in (await agent.counters_stop()).series]
            except TareError as error:
                if role not in self._hosts:
                    raise
                self._hosts[role].lose(error)
        sampled = {role for role, _ in series if is_host(role)}
        reasons = [host.reason for role, host in self._hosts.items() if role not in sampled]
        host = HostCounters(sampled=ARMS_HOST in sampled, reason="; ".join(filter(None, reasons)))
        origins = {role: self._origin(role) for role, _ in series}
        self.facts = CellFacts(host_counters=host, origins_ns=origins)
        self.series = series

    async def abandon(self, limit_s: float) -> None:
        """Stop sampling within the given seconds."""
        stopping = [agent.counters_stop(limit_s) for agent in self._agents.values()]
        self._agents.clear()
        await given_up(stopping)

    def _origin(self, role: str) -> int:
        clock = self._clocks[role]
        ahead = clock.guest_ns - (clock.host_before_ns + clock.host_after_ns) // 2
        return self._start_ns + ahead
