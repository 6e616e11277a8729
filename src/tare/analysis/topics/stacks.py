"""The kernel stacks recorded in the gaps of a cell: who held the CPU, and where.

Stacks are recorded with the clock of the kernel that recorded them. The host's are compared with
the gaps on the host's clock, the guest's with the same gaps on the guest's, so that the alignment
of the two clocks plays no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tare.analysis.topics.host_track import Cause
from tare.events.host_schedule import HostEvent
from tare.events.stacks import SAME_KERNEL, Sight

__all__ = [
    "SAME_KERNEL",
    "CellStacks",
    "HeldGap",
    "Holder",
    "Side",
    "cpus_of",
    "holders_in",
    "merged",
    "sights_of",
]

Side = Literal["host", "guest"]
Columns = Mapping[str, NDArray[Any]]

STEP_NS = 1_000
"""The resolution of the tracer's text, which has microseconds."""
MOST_SHOWN = 8
"""The most functions that are kept of each stack."""


@dataclass(frozen=True)
class HeldGap:
    """A gap on the clock of one side, in ns, with its cause, and the CPUs of its thread."""

    begin_ns: int
    end_ns: int
    excess_ns: int
    cause: Cause
    cpus: frozenset[int]
    """The CPUs to look at; empty: all."""


@dataclass(frozen=True)
class Holder:
    """An event that was seen on the CPU during gaps.

    Args:
        side: The side whose kernel recorded it.
        what: The event, with its interrupt or softirq by name.
        comm: The thread that ran.
        frames: The kernel functions of that thread, the innermost first; empty: it was not in the
            kernel.
        gaps: The number of gaps in which it was seen.
        seen: The number of times that it was seen in these gaps.
        longest_ns: The longest of these gaps.
        cause: The cause of the longest gap.
    """

    side: Side
    what: str
    comm: str
    frames: tuple[str, ...]
    gaps: int
    seen: int
    longest_ns: int
    cause: Cause


@dataclass(frozen=True)
class CellStacks:
    """The stacks of a cell's gaps.

    Args:
        holders: The events that were seen, the one in the longest gap first.
        missing: Why a side recorded nothing, by side.
        lost: Events that found no room in the tracers' buffers.
        trace_cost: The share of the watched CPUs' time that recording took on the host; None:
            unknown.
    """

    holders: tuple[Holder, ...] = ()
    missing: Mapping[str, str] | None = None
    lost: int = 0
    trace_cost: float | None = None


def sights_of(facts: Mapping[str, Any]) -> tuple[Sight, ...]:
    """Return the distinct sights of one side's facts.

    Raises:
        LookupError, TypeError, ValueError: The facts have another form.
    """
    symbols = [str(each) for each in facts["symbols"]]
    return tuple(
        Sight(
            str(each["what"]),
            str(each["comm"]),
            tuple(symbols[int(place)] for place in each["frames"]),
        )
        for each in facts["sights"]
    )


def holders_in(
    side: Side, gaps: Sequence[HeldGap], series: Columns, sights: Sequence[Sight]
) -> list[Holder]:
    """Return the events that one side's stacks show in gaps.

    Args:
        side: The side that recorded the stacks.
        gaps: The gaps.
        series: The recorded stacks; see :mod:`tare.events.stacks`.
        sights: The distinct sights.
    """
    found: dict[tuple[str, str, tuple[str, ...]], Holder] = {}
    times = series["time_ns"].astype(np.int64)
    cpus, places = series["cpu"].tolist(), series["sight"].tolist()
    for gap in gaps:
        first = int(np.searchsorted(times, gap.begin_ns - STEP_NS, "left"))
        last = int(np.searchsorted(times, gap.end_ns + STEP_NS, "right"))
        keys = Counter(
            _key(sights[places[row]])
            for row in range(first, last)
            if places[row] < len(sights) and (not gap.cpus or cpus[row] in gap.cpus)
        )
        for key, times_seen in keys.items():
            one = Holder(side, *key, 1, times_seen, gap.excess_ns, gap.cause)
            found[key] = _merge_holders(found[key], one) if key in found else one
    return list(found.values())


def _key(sight: Sight) -> tuple[str, str, tuple[str, ...]]:
    return sight.what, sight.comm, sight.own_frames[:MOST_SHOWN]


def _merge_holders(one: Holder, other: Holder) -> Holder:
    worst = max(one, other, key=lambda each: each.longest_ns)
    return replace(worst, gaps=one.gaps + other.gaps, seen=one.seen + other.seen)


def merged(cells: Iterable[CellStacks]) -> tuple[Holder, ...]:
    """Return the events in the gaps of several cells, the one in the longest gap first."""
    found: dict[tuple[Side, str, str, tuple[str, ...]], Holder] = {}
    for cell in cells:
        for each in cell.holders:
            key = (each.side, each.what, each.comm, each.frames)
            found[key] = _merge_holders(found[key], each) if key in found else each
    return tuple(sorted(found.values(), key=lambda one: (-one.longest_ns, -one.seen, one.what)))


def cpus_of(thread: int, host: Columns, begin_ns: int, end_ns: int) -> frozenset[int]:
    """Return the CPUs that a thread left or came to in a gap, and the last one before it.

    Args:
        thread: The measuring thread.
        host: The series ``host-sched``.
        begin_ns: The begin of the gap.
        end_ns: The end of the gap.
    """
    times, cpus = host["time_ns"], host["cpu"]
    involved = (host["kind"] == HostEvent.SWITCH) & (
        (host["who"] == thread) | (host["other"] == thread)
    )
    times, cpus = times[involved].astype(np.int64), cpus[involved]
    first = max(0, int(np.searchsorted(times, begin_ns, "left")) - 1)
    last = int(np.searchsorted(times, end_ns, "right"))
    return frozenset(cpus[first:last].tolist())
