"""A neighbour of known pattern on the subject's CPU, and how correctly Tare attributes its time.

In labs whose time counts instructions: this computer's load then changes nothing, and what a
neighbour takes in addition to its pattern, to wake up and to sleep, is as short as on real hosts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lab.lab_inside import PATIENCE_S, SHAPE
from tare.agent.barrier import Barrier
from tare.agent.client import Outcome
from tare.agent.clocktrust import ClockReading
from tare.analysis.topics.host_track import Cause
from tare.analysis.topics.spike_cells import SpikeCell, match_cell
from tare.events.host_schedule import FACTS
from tare.platforms.contract import Machine
from tare.run.probes.host_trace import HostTracing, trace_of_cell
from tare.workloads import WORKLOADS, MachineFacts, fitted

ROLE = "neighbour-1"
FEWEST = 50
"""So many stretches must have met the subject, or nothing is judged."""
RIGHT, WITHIN = 0.95, 0.05
"""The share that must be blamed on the neighbour, and by how much the total may be off."""


@dataclass(frozen=True)
class Pattern:
    """The known pattern: how long the neighbour computes, and from one beginning to the next."""

    length_ns: int
    period_ns: int

    def load(self, seconds: float) -> dict[str, int]:
        """Return what the agent's `hog` is asked for, so that it ends a second before `seconds`."""
        count = round((seconds - 1.0) * 1e9 / self.period_ns)
        both = {"period_ns": self.period_ns, "length_ns": self.length_ns}
        return {**both, "priority": 98, "count": count}


@dataclass(frozen=True)
class Measured:
    """What one measurement gave.

    Args:
        cell: Its gaps with their causes.
        facts: The recorder's facts.
        outcome: What `tick` found.
        hog: The neighbour's own account, where there was one.
        charged_ns: What the host charged the neighbour meanwhile; None where that is not known.
    """

    cell: SpikeCell
    facts: Mapping[str, Any]
    outcome: Outcome
    hog: Outcome | None = None
    charged_ns: float | None = None

    def took(self) -> dict[str, int]:
        """Return the nanoseconds that each cause took of the cell, over all its gaps."""
        took: dict[str, int] = {}
        for spike in self.cell.spikes:
            for cause, taken in spike.parts:
                took[str(cause)] = took.get(str(cause), 0) + taken
        return took


class Known(Protocol):
    """What is known of the neighbour by other means than the recording."""

    @property
    def machine(self) -> Machine:
        """The neighbour."""
        ...

    async def read(self) -> ClockReading:
        """Read its clock and counter."""
        ...

    def recorded_ns(self, reading: ClockReading, done: Measured) -> float:
        """Return when, by the recording's clock, a reading was made."""
        ...

    async def charged_s(self) -> float | None:
        """Return the CPU seconds that its host charged it so far; None: unknown."""
        ...


async def measured(
    tracing: HostTracing,
    subject: Machine,
    seconds: float,
    neighbour: Known | None = None,
    pattern: Pattern | None = None,
) -> Measured:
    """Measure `tick` in the subject during the neighbour's pattern, as a cell of a run does."""
    others = {} if neighbour is None else {ROLE: neighbour.machine}
    side = trace_of_cell(tracing, subject, others)
    tick = WORKLOADS["tick"]
    asked = tick.parameters.model_validate({"duration": seconds, "log": 1_000_000})
    facts = MachineFacts(
        emulated=True, memory=SHAPE.memory, last_level_cache=1 << 20, caches=1 << 20
    )
    request = fitted(tick, tick.request(asked), facts)
    charged: list[float | None] = []

    async def account() -> None:
        charged.append(None if neighbour is None else await neighbour.charged_s())

    async def begin() -> None:
        await side.begin()
        await account()

    async def disturbed_tick() -> Outcome:
        outcome = await subject.agent.run("tick", request, barrier=barrier, deadline_s=PATIENCE_S)
        await account()
        return outcome

    barrier = Barrier(1 + len(others), begin)
    running: list[Awaitable[Outcome]] = [disturbed_tick()]
    if neighbour is not None and pattern is not None:
        agent, load = neighbour.machine.agent, pattern.load(seconds)
        running.append(agent.run("hog", load, barrier=barrier, deadline_s=PATIENCE_S))
    try:
        await side.open()
        outcome, *rest = await asyncio.gather(*running)
        await side.end(outcome)
    except BaseException:
        await side.abandon(PATIENCE_S)
        raise
    facts_of_trace = side.facts[FACTS]
    assert facts_of_trace["recorded"], facts_of_trace
    ((_, series),) = side.series
    kept = json.loads(json.dumps(facts_of_trace))
    gaps = next((each.columns for each in outcome.series if each.name == "gaps"), None)
    whose = dict.fromkeys(("run", "cell", "arm", "scenario", "workload", "parameters"), "")
    cell = match_cell({**whose, "block": 1, "emulated": True}, kept, series.columns, gaps)
    assert cell.matched is not None, cell.reason
    first, last = charged
    passed = None if first is None or last is None else (last - first) * 1e9
    return Measured(cell, kept, outcome, rest[0] if rest else None, passed)


@dataclass(frozen=True)
class Disturbed:
    """A measurement next to a known neighbour; `injected` has its stamps on the subject's clock."""

    done: Measured
    injected: tuple[tuple[float, float], ...]


async def disturbed(
    tracing: HostTracing,
    subject: Machine,
    neighbour: Known,
    pattern: Pattern,
    seconds: float,
) -> Disturbed:
    """Measure the subject next to its neighbour, and place the neighbour's own stamps."""
    first = await neighbour.read()
    done = await measured(tracing, subject, seconds, neighbour, pattern)
    last = await neighbour.read()
    assert done.hog is not None
    begun, ended = (neighbour.recorded_ns(each, done) for each in (first, last))
    rate = (ended - begun) / (last.guest_ns - first.guest_ns)

    def placed(at_ns: int) -> float:
        return begun + (at_ns - first.guest_ns) * rate

    runs = next(each.columns for each in done.hog.series if each.name == "runs")
    stamps = zip(runs["begin_ns"].tolist(), runs["end_ns"].tolist(), strict=True)
    first_ns = done.cell.first_ns
    last_ns = first_ns + round(float(done.outcome.value["seconds"]) * 1e9)
    both = [(placed(begin), placed(end)) for begin, end in stamps]
    whole = tuple((begin, end) for begin, end in both if begin > first_ns and end < last_ns)
    return Disturbed(done, whole)


@dataclass(frozen=True)
class Judged:
    """What was found of what a neighbour injected.

    Args:
        injected: Stretches that it took, and met the measurement whole.
        right: Those that are mostly attributed to the neighbour, in the gap around their middle.
        long: Gaps longer than half of a stretch.
        blamed: Those long gaps that are attributed to the neighbour.
        off: By what share the time attributed to the neighbour is above its own stamps, which
            leave out what it takes to wake up and to fall asleep.
        off_charged: The same against what the host charged it, which holds all of that; None where
            the host does not report it.
        error_ns: How wrong the recording's times can be.
        events: Events of the recording.
        lost: Events that it lost.
        took: What each cause took, in ns.
    """

    injected: int
    right: int
    long: int
    blamed: int
    off: float
    off_charged: float | None
    error_ns: int
    events: int
    lost: int
    took: Mapping[str, int]

    def __str__(self) -> str:
        charged = "?" if self.off_charged is None else f"{self.off_charged:+.2%}"
        return (
            f"{self.injected} injected, {self.right} right, "
            f"{self.blamed} of {self.long} long gaps, total {self.off:+.2%} of its stamps, "
            f"{charged} of its charge, "
            f"clocks within {self.error_ns} ns, {self.events} events, "
            f"{self.lost} lost; {dict(self.took)}"
        )

    def require_blamed(self) -> None:
        """Require that enough of the gaps are blamed on the neighbour."""
        assert self.lost == 0
        assert self.injected >= FEWEST
        assert self.right >= RIGHT * self.injected
        assert self.blamed >= RIGHT * self.long

    def require_total(self) -> None:
        """Require that they are as long together as the neighbour itself says."""
        assert abs(self.off) <= WITHIN

    def require_charged(self) -> None:
        """Require that they are as long together as the host's own account says."""
        assert self.off_charged is not None
        assert abs(self.off_charged) <= WITHIN


def judged(neighbour: Disturbed, pattern: Pattern, culprit: Cause) -> Judged:
    """Compare the time attributed to the neighbour with its own stamps."""
    cell = neighbour.done.cell
    assert cell.matched is not None
    theirs = [
        sum(taken for cause, taken in spike.parts if cause == culprit) for spike in cell.spikes
    ]
    right = sum(
        any(
            spike.begin_ns <= (begin + end) / 2 <= spike.end_ns and taken >= (end - begin) / 2
            for spike, taken in zip(cell.spikes, theirs, strict=True)
        )
        for begin, end in neighbour.injected
    )
    long = [spike for spike in cell.spikes if spike.excess_ns > pattern.length_ns / 2]
    injected_ns = sum(end - begin for begin, end in neighbour.injected)
    charged_ns, found_ns = neighbour.done.charged_ns, sum(theirs)
    return Judged(
        injected=len(neighbour.injected),
        right=right,
        long=len(long),
        blamed=sum(spike.cause == culprit for spike in long),
        off=found_ns / injected_ns - 1 if injected_ns else float("nan"),
        off_charged=found_ns / charged_ns - 1 if charged_ns else None,
        error_ns=cell.matched.error_ns,
        events=neighbour.done.facts["events"],
        lost=neighbour.done.facts["lost"],
        took=neighbour.done.took(),
    )
