"""The use of machines and hosts in one step of a job: one value per block, for each arm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.topics.job_phases import SLAVE
from tare.analysis.topics.monitoring import CounterTrack, Monitor

Whose = Literal["machines", "host"]
"""The owners of counters: the machines that hold data and run tasks, or their host."""
USED = "used"
"""User and system time together. I/O wait is idle time, so it is not included."""


@dataclass(frozen=True)
class CounterValue:
    """One quantity of an arm's cells with the same work, over the blocks.

    Args:
        scenario: The scenario.
        workload: The workload, by the study's label.
        parameters: Its parameters as canonical JSON.
        arm: The arm.
        emulated: Whether it is emulated.
        mean: The mean over the blocks.
        ends: The interval of the mean by Student's t; None with one block.
        blocks: The number of blocks.
    """

    scenario: str
    workload: str
    parameters: str
    arm: str
    emulated: bool
    mean: float
    ends: tuple[float, float] | None
    blocks: int


def counter_values(
    monitors: Iterable[Monitor], quantity: str, whose: Whose, step: str, confidence: float
) -> tuple[CounterValue, ...]:
    """Return a quantity's mean for each arm and work, in the order of the cells.

    Args:
        monitors: The cells; those that lack the quantity are left out.
        quantity: The name of a track's quantity, or ``KIND-used``.
        whose: The owners of the counters.
        step: The step of the job whose phases count; empty: the whole cell.
        confidence: The confidence of the intervals.
    """
    found: dict[tuple[str, str, str, str, bool], dict[int, list[float]]] = {}
    for each in monitors:
        value = value_of(each, quantity, whose, step)
        if value is not None:
            key = (each.scenario, each.workload, each.parameters, each.arm, each.emulated)
            found.setdefault(key, {}).setdefault(each.block, []).append(value)
    return tuple(
        CounterValue(
            *key, *_mean_over_blocks([fmean(values) for values in blocks.values()], confidence)
        )
        for key, blocks in found.items()
    )


def _mean_over_blocks(
    values: Sequence[float], confidence: float
) -> tuple[float, tuple[float, float] | None, int]:
    if len(values) < 2:
        return values[0], None, 1
    whole = mean_interval(values, confidence)
    return float(whole.mean), (float(whole.low), float(whole.high)), len(values)


def value_of(monitor: Monitor, quantity: str, whose: Whose, step: str) -> float | None:
    """Return a quantity's mean over a cell's machines or hosts; None if it is missing."""
    means = [
        value
        for track in tracks_of(monitor, whose)
        if (value := _mean(track, quantity, _stretches(monitor, step))) is not None
    ]
    return fmean(means) if means else None


def tracks_of(monitor: Monitor, whose: Whose) -> tuple[CounterTrack, ...]:
    """Return the tracks of a cluster's slaves, or of their hosts."""
    if whose == "host":
        return monitor.hosts
    slaves = tuple(track for track in monitor.tracks if track.role.startswith(SLAVE))
    subject = monitor.track("subject")
    # A master that is a slave too has no other role.
    return slaves or (() if subject is None else (subject,))


def _stretches(monitor: Monitor, step: str) -> list[tuple[float, float]]:
    if not step:
        return [(0.0, float("inf"))]
    return [
        (phase.begin_s, phase.end_s)
        for phase in monitor.phases
        if phase.name.rpartition(" ")[0] == step
    ]


def _mean(
    track: CounterTrack, quantity: str, within: Sequence[tuple[float, float]]
) -> float | None:
    """Return the mean over time; an interval's weight is the part of it within the stretches."""
    values = _values(track, quantity)
    begins = (0.0, *track.time_s)
    whole = weight = 0.0
    for begin, end, value in zip(begins, track.time_s, values or (), strict=False):
        shared = sum(max(0.0, min(end, high) - max(begin, low)) for low, high in within)
        whole, weight = whole + value * shared, weight + shared
    return whole / weight if weight > 0 else None


def _values(track: CounterTrack, quantity: str) -> Sequence[float] | None:
    kind, _, state = quantity.rpartition("-")
    if state != USED:
        return track.values.get(quantity)
    parts: Mapping[str, Sequence[float]] = track.values
    user, system = parts.get(f"{kind}-user"), parts.get(f"{kind}-system")
    if user is None or system is None:
        return None
    return [one + other for one, other in zip(user, system, strict=True)]
