"""Exits of the subject's vCPUs during a cell, by reason, and the cost of recording them."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tare.errors import TareError
from tare.events.parts import SUBJECT
from tare.hosts.trace.drain import is_set_within
from tare.hosts.trace.exits import (
    POLLED_NS,
    ExitCounters,
    Exits,
    exit_counters,
    exit_recorder,
    runs_on_kvm,
)
from tare.hosts.trace.threads import thread_times, vhost_threads
from tare.hosts.trace.tracefs import NoTracing
from tare.platforms.xen.trace.exits import XenExitRecorder
from tare.probes import Probe, ProbedCell, ProbeKind

if TYPE_CHECKING:
    from tare.agent.client import AgentClient, Outcome
    from tare.hosts import Host
    from tare.platforms.contract import Machine

TRACEPOINTS, XENTRACE, COUNTERS = "tracepoints", "xentrace", "counters"
MOST_COST = 0.02
"""The share of a vCPU's time that recording may take; above it, only a part is recorded."""
LOOK_S = 1.0
"""Seconds of recording before its cost is known, and of each later uninterrupted recording."""
LEAST_SHARE = 0.01
_PAIRS, _XEN_PAIRS, _CPUIDS = 5, 3, 2_000
"""xentrace takes some time to start, so there are fewer pairs on Xen."""
_CALIBRATED_S = 10.0


class Recorder(Protocol):
    """Records exits: by the kernel's histograms on KVM, by xentrace on Xen."""

    async def begin(self, threads: Sequence[int]) -> None:
        """Start recording."""

    async def end(self) -> Exits:
        """Stop recording, and return the exits."""


@dataclass(frozen=True)
class ExitCost:
    """The cost of one exit to a guest, in addition to the time that is recorded for it.

    Args:
        recording_s: Seconds that recording the exit takes.
        switch_s: Seconds of a recorded exit that the recorded time does not cover. These are the
            switch from the guest to the host and back, and the recording outside the two time
            stamps.
    """

    recording_s: float
    switch_s: float


async def measure_exit_cost(
    agent: AgentClient, recorder: Recorder, threads: Sequence[int], pairs: int = _PAIRS
) -> ExitCost:
    """Measure the cost of an exit to the guest: run `cpuid` with and without recording, in pairs.

    Args:
        agent: The guest's agent.
        recorder: The recorder, which is not recording yet.
        threads: The threads of the guest's vCPUs.
        pairs: The number of pairs.

    Raises:
        NoTracing: Recording is not possible.
        TareError: The guest has no CPUID, or does not answer.
    """

    async def once() -> float:
        done = await agent.run("exits", {"cpuid": _CPUIDS}, deadline_s=_CALIBRATED_S)
        return float(done.value["seconds"]["cpuid"]) / _CPUIDS

    recording, switching = [], []
    for _ in range(pairs):
        without = await once()
        await recorder.begin(threads)
        recorded = await once()
        taken = await recorder.end()
        recording.append(recorded - without)
        if taken.counts:
            # No other thread and reason has as many exits as the thread that executes CPUID all the
            # time.
            most = max(taken.counts, key=lambda each: each.count)
            switching.append(recorded - most.seconds / most.count)
    switch = statistics.median(switching) if switching else 0.0
    return ExitCost(max(0.0, statistics.median(recording)), max(0.0, switch))


async def helper_threads(host: Host, machine: Machine) -> dict[int, str]:
    """Return the host's threads that work for a KVM machine, except its vCPUs, by id.

    Args:
        host: The machine's host.
        machine: The machine.

    Returns:
        Their names; those that carry packets (vhost-net) are all named ``vhost``.
    """
    threads = await machine.threads()
    if not threads:
        return {}
    carrying = dict.fromkeys(await vhost_threads(host, threads), "vhost")
    vcpus = await machine.vcpu_threads()
    return {id_: name for id_, name in {**threads, **carrying}.items() if id_ not in vcpus}


class ExitsProbe(Probe):
    """Counts the exits of a cell's subject; see :class:`ExitsKind`.

    Args:
        cell: The cell.
        costs: The cost of an exit to each machine, by its name, or the reason why it is unknown.
            This probe adds its own measurement.
    """

    def __init__(self, cell: ProbedCell, costs: dict[str, ExitCost | str]) -> None:
        self._host, self._ledger = cell.context.host, cell.context.ledger
        self._machine, self._costs = cell.machines[SUBJECT], costs
        self._may_ask, self._traced = cell.may_ask, cell.traced
        self._held = AsyncExitStack()
        self._recorder: Recorder | None = None
        self._counters: ExitCounters | None = None
        self._threads: tuple[int, ...] = ()
        self._before: dict[str, int] = {}
        self._helpers: dict[int, str] = {}
        self._helped: dict[int, tuple[float, float]] = {}
        self._taken = Exits()
        self._began = 0.0
        self._sampling: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._recording = False
        self._reason = ""

    async def open(self) -> None:
        """Set the recorder up, and measure its cost once for each machine."""
        below = self._machine.traced_below()
        if below is None:
            await self._open_kvm()
        else:
            if self._traced:
                raise NoTracing("Xen's trace already records the scheduler for this cell")
            self._threads = below.ids
            xen = XenExitRecorder(below)
            self._held.push_async_callback(xen.abandon)
            self._recorder = xen
        name = self._machine.name
        if self._recorder is None or name in self._costs:
            return
        if not self._may_ask:
            self._costs[name] = "the host is left alone, because its time counts instructions"
        elif below is not None and below.raw_counter:
            self._costs[name] = "it is measured with CPUID, at which PV guests do not leave"
        else:
            await self._measure_cost(name, _PAIRS if below is None else _XEN_PAIRS)

    async def _measure_cost(self, name: str, pairs: int) -> None:
        agent = self._machine.agent
        if self._recorder is None:
            return
        try:
            cost = await measure_exit_cost(agent, self._recorder, self._threads, pairs)
            self._costs[name] = cost
        except TareError as error:
            self._costs[name] = error.message

    async def _open_kvm(self) -> None:
        self._threads = await self._machine.vcpu_threads()
        if not self._threads:
            raise NoTracing("no thread of this host is a vCPU of the machine")
        if not await runs_on_kvm(self._host, self._threads[0]):
            raise NoTracing("KVM does not run the machine")
        with contextlib.suppress(NoTracing):
            counting = exit_counters(self._host, self._ledger, self._threads[0])
            self._counters = await self._held.enter_async_context(counting)
        try:
            recording = exit_recorder(self._host, self._ledger)
            self._recorder = await self._held.enter_async_context(recording)
            self._helpers = await helper_threads(self._host, self._machine)
        except NoTracing as refused:
            if self._counters is None:
                raise
            self._reason = str(refused)

    async def begin(self) -> None:
        """Begin to record."""
        if self._counters is not None:
            self._before = await self._counters.read()
        self._helped = await thread_times(self._host, tuple(self._helpers))
        self._began = time.monotonic()
        if self._recorder is not None:
            await self._record()
            if self._may_ask and isinstance(self._costs.get(self._machine.name), ExitCost):
                self._sampling = asyncio.create_task(self._sample())

    async def end(self, outcome: Outcome) -> None:
        """Stop recording, and keep the recorded exits.

        Args:
            outcome: The result of the work.
        """
        await self._stop_sampling()
        await self._pause()
        # If time counts instructions, this computer's clock does not measure the cell: use the
        # recorder's time.
        seconds = time.monotonic() - self._began if self._may_ask else self._taken.seconds
        after = await self._counters.read() if self._counters is not None else {}
        helped = await thread_times(self._host, tuple(self._helpers))
        counted = {name: after[name] - self._before.get(name, 0) for name in after}
        polled = [counted.pop(name) for name in POLLED_NS if name in counted]
        self.facts = self._facts(seconds, counted)
        if polled:
            self.facts = {**self.facts, "polled_s": sum(polled) / 1e9}
        if helped:
            self.facts = {**self.facts, "helpers": self._by_name(helped)}

    async def close(self) -> None:
        """Remove the recorder."""
        await self._held.aclose()

    async def abandon(self, limit_s: float) -> None:
        """Stop recording, and remove the recorder."""
        await self._stop_sampling()
        await self._held.aclose()

    def _by_name(self, after: Mapping[int, tuple[float, float]]) -> list[dict[str, Any]]:
        """Return the seconds that the machine's other threads ran and waited, by their name."""
        found: dict[str, tuple[float, float]] = {}
        for thread, (ran, waited) in after.items():
            name, before = self._helpers[thread], self._helped.get(thread, (0.0, 0.0))
            had = found.get(name, (0.0, 0.0))
            found[name] = (had[0] + ran - before[0], had[1] + waited - before[1])
        return [
            {"name": name, "ran_s": max(0.0, ran), "waited_s": max(0.0, waited)}
            for name, (ran, waited) in sorted(found.items())
        ]

    async def _record(self) -> None:
        if self._recorder is not None:
            await self._recorder.begin(self._threads)
            self._recording = True

    async def _pause(self) -> None:
        if self._recorder is not None and self._recording:
            self._recording = False
            self._taken += await self._recorder.end()

    async def _sample(self) -> None:
        """Record only a part of the time, if all of it would cost too much."""
        rest = LOOK_S
        while not await is_set_within(self._over, rest):
            await self._pause()
            share = share_to_record(self._cost_share() or 0.0)
            if share < 1 and await is_set_within(self._over, LOOK_S * (1 / share - 1)):
                return
            await self._record()
            # A low rate needs no further check soon.
            rest = LOOK_S if share < 1 else 10 * LOOK_S

    async def _stop_sampling(self) -> None:
        task, self._sampling = self._sampling, None
        self._over.set()
        if task is not None:
            # Wait for the task's own end: cancelling it would lose the current recording.
            await task

    def _cost_share(self) -> float | None:
        """Return the share of a vCPU's time that recording takes while it is on; None: unknown."""
        cost = self._costs.get(self._machine.name)
        if not isinstance(cost, ExitCost) or not self._taken.seconds:
            return None
        busiest = max(
            sum(each.count for each in self._taken.counts if each.thread == thread)
            for thread in self._threads
        )
        return cost.recording_s * busiest / self._taken.seconds

    def _facts(self, seconds: float, counted: dict[str, int]) -> dict[str, Any]:
        facts: dict[str, Any] = {"vcpus": len(self._threads), "seconds": seconds}
        if counted:
            facts["counters"] = counted
        if self._recorder is None:
            return {**facts, "by": COUNTERS, "reason": self._reason}
        places = {thread: place for place, thread in enumerate(self._threads)}
        cost, share = self._costs.get(self._machine.name), self._cost_share()
        facts |= {
            "by": XENTRACE if isinstance(self._recorder, XenExitRecorder) else TRACEPOINTS,
            "recorded_s": self._taken.seconds,
            "dropped": self._taken.dropped,
            "exits": [
                {
                    "vcpu": places.get(each.thread, -1),
                    "isa": each.isa,
                    "reason": each.reason,
                    "count": each.count,
                    "seconds": each.seconds,
                }
                for each in self._taken.counts
            ],
        }
        if self._taken.run_delay_s is not None:
            facts["run_delay_s"] = self._taken.run_delay_s
            facts["waited_s"] = self._taken.waited_s
        if isinstance(cost, ExitCost):
            facts["cost_per_exit_s"] = cost.recording_s
            facts["switch_s"] = cost.switch_s
            facts["trace_cost"] = (share or 0.0) * min(1.0, self._taken.seconds / seconds)
        else:
            facts["cost_unknown"] = cost or "it was not measured"
        return facts


def share_to_record(cost: float) -> float:
    """Return the share of the time to record, if recording takes this share of the vCPU's time."""
    return 1.0 if cost <= MOST_COST else max(LEAST_SHARE, MOST_COST / cost)


class ExitsKind(ProbeKind):
    """Counts exits of KVM's and Xen's machines by reason, on the subject's host."""

    name = "exits"
    on_request = True

    def __init__(self) -> None:
        self._costs: dict[str, ExitCost | str] = {}

    def probe(self, cell: ProbedCell) -> Probe | None:
        """Return the probe of a cell."""
        return ExitsProbe(cell, self._costs)
