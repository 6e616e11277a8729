"""Kernel stacks of the tasks that hold a cell's CPUs during its gaps, on host and guest."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from tare.agent.series import Series
from tare.errors import TareError
from tare.events.parts import SUBJECT
from tare.events.stacks import GUEST_SERIES, HOST_SERIES, PROBE, SAME_KERNEL
from tare.hosts.trace.stacks import EVENTS, StackRecorder, Stacks, stack_recorder
from tare.hosts.trace.threads import allowed_cpus
from tare.hosts.trace.tracefs import NoTracing
from tare.probes import Probe, ProbedCell, ProbeKind

if TYPE_CHECKING:
    from tare.agent.client import Outcome

WORKLOAD = "stacks"
"""The agent's name for recording stacks in its own machine."""
TEXT = "text"
GUEST_BUFFER_KIB = 1024
"""KiB of trace buffer for each CPU of the guest. It is small because its text has to cross the
channel to the agent."""
_GUEST_S = 15.0


class StacksProbe(Probe):
    """Records the kernel stacks of a cell; see :class:`StacksKind`.

    Args:
        cell: The cell.
        costs: The cost of recording one stack on each host, in seconds, by the host's name. This
            probe adds its own measurement.
    """

    def __init__(self, cell: ProbedCell, costs: dict[str, float | None]) -> None:
        self._host, self._ledger = cell.context.host, cell.context.ledger
        self._machine, self._costs = cell.machines[SUBJECT], costs
        self._may_ask, self._traced = cell.may_ask, cell.traced
        self._held = AsyncExitStack()
        self._recorder: StackRecorder | None = None
        self._cpus: tuple[int, ...] = ()
        self._in_guest = False
        self._guest: Stacks | None = None
        self._seconds = 0.0
        self._host_facts: Mapping[str, Any] = {}
        self._guest_facts: Mapping[str, Any] = {}

    async def open(self) -> None:
        """Set the recorder of the host up, and measure once the cost of a stack there."""
        if not self._traced:
            raise NoTracing(
                "stacks belong to gaps, so they need a workload that logs gaps, and `host-trace: "
                "true`"
            )
        if self._machine.traced_below() is not None:
            self._host_facts = {"missing": "dom0's kernel does not schedule Xen's vCPUs"}
            return
        try:
            making = stack_recorder(self._host, self._ledger, looks=self._may_ask)
            self._recorder = await self._held.enter_async_context(making)
            if self._may_ask and self._host.name not in self._costs:
                self._costs[self._host.name] = await self._recorder.cost_s()
        except NoTracing as refused:
            self._host_facts = {"missing": str(refused)}

    async def begin(self) -> None:
        """Begin to record, first on the host."""
        if self._recorder is not None:
            threads = await self._machine.measuring_threads()
            cpus = {cpu for thread in threads for cpu in await allowed_cpus(self._host, thread)}
            self._cpus = tuple(sorted(cpus & set(self._host.topology().online)))
            if not self._cpus:
                raise NoTracing("the subject's threads were not found on the host")
            await self._recorder.begin(self._cpus)
        if self._machine.shares_clock:
            self._guest_facts = {"missing": SAME_KERNEL}
            return
        events = [[event, condition] for event, condition in EVENTS.items()]
        asked = {"action": "begin", "events": events, "buffer_kib": GUEST_BUFFER_KIB}
        try:
            await self._machine.agent.run(WORKLOAD, asked, deadline_s=_GUEST_S)
            self._in_guest = True
        except TareError as error:
            self._guest_facts = {"missing": error.message}

    async def end(self, outcome: Outcome) -> None:
        """Stop recording, and keep the guest's stacks.

        Args:
            outcome: The result of the work.
        """
        if self._recorder is not None:
            await self._recorder.stop()
        self._seconds = float(outcome.value.get("seconds") or 0.0)
        if self._in_guest:
            self._in_guest = False
            self._guest = await self._end_guest()
            self._guest_facts = {**_facts(self._guest), "cpu": outcome.value.get("pinned")}

    async def _end_guest(self) -> Stacks:
        done = await self._machine.agent.run(WORKLOAD, {"action": "end"}, deadline_s=_GUEST_S)
        taken = Stacks(lost=int(done.value["lost"]))
        for each in done.series:
            if each.name == TEXT:
                taken.take(each.columns["byte"].tobytes().decode(errors="replace"))
        return taken

    async def close(self) -> None:
        """Read the host's stacks, and remove the recorder."""
        series: list[tuple[str, Series]] = []
        if self._guest is not None:
            series.append((SUBJECT, Series(GUEST_SERIES, self._guest.columns)))
        if self._recorder is not None:
            taken = await self._recorder.end()
            facts = _facts(taken)
            cost_s = self._costs.get(self._host.name)
            if cost_s is not None and self._seconds:
                facts["cost_per_stack_s"] = cost_s
                seconds = max(self._seconds, taken.span_s) * len(self._cpus)
                facts["trace_cost"] = cost_s * len(taken.rows) / seconds
            self._host_facts = facts
            series.append((SUBJECT, Series(HOST_SERIES, taken.columns)))
        self.series = series
        self.facts = {"host": self._host_facts, "guest": self._guest_facts}
        await self._held.aclose()

    async def abandon(self, limit_s: float) -> None:
        """Stop recording, and remove the recorder; a guest's ends with the machine."""
        if self._recorder is not None:
            await self._recorder.abandon()
        await self._held.aclose()


def _facts(taken: Stacks) -> dict[str, Any]:
    return {"stacks": len(taken.rows), "lost": taken.lost, **taken.facts}


class StacksKind(ProbeKind):
    """Records kernel stacks of what holds the CPUs of gap-logging cells, on host and guest."""

    name = PROBE
    on_request = True

    def __init__(self) -> None:
        self._costs: dict[str, float | None] = {}

    def probe(self, cell: ProbedCell) -> Probe | None:
        """Return the probe of a cell; None if its workload logs no gaps."""
        return StacksProbe(cell, self._costs) if cell.workload.logs_gaps else None
