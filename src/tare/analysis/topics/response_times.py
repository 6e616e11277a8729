"""Response times over a cell, and the effect of each phase of its neighbours on them.

All times are seconds since the common start of subject and neighbours, so that a phase can be
compared with the requests that were due in it (hwang2013, figure 9).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.analysis.data.parquet import UnreadableSeries, floats
from tare.analysis.data.rundata import RunData
from tare.analysis.data.series_file import read_series
from tare.analysis.effects.results import Interval
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.bootstrap import seed_from
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.maxt import family_p, least_blocks
from tare.analysis.topics.monitoring import Phase, phases_of
from tare.events.results import CellResult, SeriesEntry

SERIES = "responses"
QUIET = "quiet"
SETTLE_S = 0.5
"""The time after a phase that counts as neither, because its last requests are still answered."""
_COLUMNS = ("time_ns", "completed", "failed", "mean_ns", "median_ns", "p99_ns", "max_ns")


@dataclass(frozen=True)
class TimeStep:
    """The requests that were due within one interval.

    Args:
        begin_s: The beginning of the interval.
        completed: The number of requests that were answered.
        failed: The number of requests that failed.
        mean_s: Mean response time; a request that was given up counts with the time until then.
        median_s: Median response time.
        p99_s: The 99th percentile of response times.
        max_s: The longest response time.
    """

    begin_s: float
    completed: int
    failed: int
    mean_s: float
    median_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True)
class Timeline:
    """One cell's response times over time.

    Args:
        interval_s: The length of a step.
        steps: The steps in order, without those in which nothing was due.
        phases: The phases of the neighbours.
    """

    run: str
    cell: str
    block: int
    arm: str
    scenario: str
    workload: str
    parameters: str
    emulated: bool
    interval_s: float
    steps: tuple[TimeStep, ...]
    phases: tuple[Phase, ...] = ()

    @property
    def length_s(self) -> float:
        """The end of its last step, in seconds."""
        return self.steps[-1].begin_s + self.interval_s

    def within(self, phase: Phase) -> tuple[TimeStep, ...]:
        """Return the steps that are completely within a phase."""
        return tuple(
            step
            for step in self.steps
            if phase.begin_s <= step.begin_s and step.begin_s + self.interval_s <= phase.end_s
        )

    def quiet(self) -> tuple[TimeStep, ...]:
        """Return the steps outside all phases and outside the moments after them."""
        return tuple(
            step
            for step in self.steps
            if not any(
                step.begin_s < phase.end_s + SETTLE_S
                and step.begin_s + self.interval_s > phase.begin_s
                for phase in self.phases
            )
        )


@dataclass(frozen=True)
class PhaseEffect:
    """The effect of one phase on one arm's response times.

    Args:
        phase: The load's name; ``quiet`` for the time between phases.
        mean_s: Mean response time, geometric mean over blocks.
        mean_interval: The interval of that mean, in seconds: Student's t over blocks' logarithms;
            None with one block.
        p99_s: The highest 99th percentile of any interval, median over blocks.
        failed_share: Share of requests that failed, over all blocks.
        slowdown: Mean time over that of the quiet time in the same cell, geometric mean of blocks.
        interval: The interval of the slowdown: Student's t over blocks' logarithms; None with one
            block.
        blocks: The number of blocks.
        p: The p-value of the slowdown, corrected over all phases of the arm (max-T); None with too
            few blocks.
        decided: Whether both ``p`` and the interval exclude that there is no effect.
    """

    arm: str
    emulated: bool
    scenario: str
    workload: str
    parameters: str
    phase: str
    mean_s: float
    p99_s: float
    failed_share: float
    slowdown: float | None
    interval: Interval | None
    blocks: int
    p: float | None = None
    decided: bool = False
    mean_interval: Interval | None = None


def timelines(runs: Iterable[RunData], series: str = SERIES) -> tuple[Timeline, ...]:
    """Return the timelines of all cells that count, from the series of one name."""
    found: list[Timeline] = []
    for run in runs:
        cells = {cell.cell: cell for cell in run.cells if cell.status == "ok"}
        for entry in run.series:
            if entry.name == series and entry.cell in cells:
                timeline = _timeline(cells[entry.cell], entry, run.emulated_arms)
                if timeline is not None:
                    found.append(timeline)
    return tuple(found)


def _timeline(cell: CellResult, entry: SeriesEntry, emulated: frozenset[str]) -> Timeline | None:
    try:
        table = read_series(entry)
    except UnreadableSeries:
        return None
    if any(name not in table for name in _COLUMNS) or len(table["time_ns"]) < 2:
        return None
    times = floats(table["time_ns"]) * 1e-9
    if not np.all(np.diff(times) > 0):
        return None
    steps = tuple(
        TimeStep(
            begin * 1e-9, int(completed), int(failed), *(float(value) * 1e-9 for value in rest)
        )
        for begin, completed, failed, *rest in zip(
            *(table[name].tolist() for name in _COLUMNS), strict=True
        )
        if completed or failed
    )
    if not steps:
        return None
    return Timeline(
        run=cell.run,
        cell=cell.cell,
        block=cell.block,
        arm=cell.arm,
        scenario=cell.scenario,
        workload=cell.workload,
        parameters=cell.parameters,
        emulated=cell.arm in emulated,
        interval_s=float(np.median(np.diff(times))),
        steps=steps,
        phases=phases_of(cell.facts),
    )


def phase_effects(
    found: Sequence[Timeline], confidence: float, level: float = LEVEL
) -> tuple[PhaseEffect, ...]:
    """Return the effect of each phase by arm, scenario and workload, in the order of the cells.

    Args:
        found: Timelines of all blocks; those without phases are left out.
        confidence: Nominal coverage of the intervals.
        level: The rate at which an arm that no phase affects may be reported with an effect.
    """
    groups: dict[tuple[str, str, str, str], list[Timeline]] = {}
    for timeline in found:
        if timeline.phases and timeline.quiet():
            key = (timeline.arm, timeline.scenario, timeline.workload, timeline.parameters)
            groups.setdefault(key, []).append(timeline)
    effects: list[tuple[PhaseEffect, _Ratios]] = []
    for members in groups.values():
        names = dict.fromkeys(phase.name for timeline in members for phase in timeline.phases)
        for name in (QUIET, *names):
            effect = _effect(members, name, confidence)
            if effect is not None:
                effects.append(effect)
    return _judged(effects, level)


_Ratios = Mapping[tuple[str, int], float]
"""The logarithm of a slowdown, by run and block."""


def _judged(
    effects: Sequence[tuple[PhaseEffect, _Ratios]], level: float
) -> tuple[PhaseEffect, ...]:
    """Return the effects with their p: all of one arm are one family."""
    judged = [effect for effect, _ in effects]
    for arm in dict.fromkeys(effect.arm for effect in judged):
        own = [n for n, each in enumerate(judged) if each.arm == arm and each.phase != QUIET]
        blocks = sorted({block for n in own for block in effects[n][1]})
        values = [[effects[n][1].get(block, math.nan) for block in blocks] for n in own]
        if not own:
            continue
        seed = seed_from(blocks[0][0], "phases")
        for n, p in zip(
            own, family_p(values, seed=seed, least=least_blocks(level)).adjusted, strict=True
        ):
            ends = judged[n].interval
            sure = bool(p < level) and ends is not None and not ends.holds(1.0)
            judged[n] = replace(judged[n], p=None if math.isnan(p) else float(p), decided=sure)
    return tuple(judged)


def _effect(
    members: Sequence[Timeline], name: str, confidence: float
) -> tuple[PhaseEffect, _Ratios] | None:
    blocks: dict[tuple[str, int], list[tuple[float, float]]] = {}
    tails: list[float] = []
    done = failed = 0
    for timeline in members:
        steps = _steps_of_phase(timeline, name)
        mean, quiet = mean_of(steps), mean_of(timeline.quiet())
        if mean is None or quiet is None:
            continue
        blocks.setdefault((timeline.run, timeline.block), []).append(
            (math.log(mean), math.log(quiet))
        )
        tails.append(max(step.p99_s for step in steps))
        done += sum(step.completed for step in steps)
        failed += sum(step.failed for step in steps)
    if not blocks:
        return None
    means = [float(np.mean([mean for mean, _ in each])) for each in blocks.values()]
    by_block = {
        block: float(np.mean([mean - quiet for mean, quiet in each]))
        for block, each in blocks.items()
    }
    ratios = list(by_block.values())
    interval = None if name == QUIET else _interval(ratios, confidence)
    first = members[0]
    effect = PhaseEffect(
        arm=first.arm,
        emulated=first.emulated,
        scenario=first.scenario,
        workload=first.workload,
        parameters=first.parameters,
        phase=name,
        mean_s=math.exp(float(np.mean(means))),
        p99_s=float(np.median(tails)),
        failed_share=failed / max(1, done + failed),
        slowdown=None if name == QUIET else math.exp(float(np.mean(ratios))),
        interval=interval,
        blocks=len(blocks),
        mean_interval=_interval(means, confidence),
    )
    return effect, by_block


def _interval(logs: Sequence[float], confidence: float) -> Interval | None:
    """Return the interval of a geometric mean from blocks' logarithms; None with one block."""
    if len(logs) < 2:
        return None
    ends = mean_interval(logs, confidence)
    return Interval(math.exp(ends.low), math.exp(ends.high), "student-t", confidence)


def _steps_of_phase(timeline: Timeline, name: str) -> tuple[TimeStep, ...]:
    if name == QUIET:
        return timeline.quiet()
    return tuple(
        step for phase in timeline.phases if phase.name == name for step in timeline.within(phase)
    )


def mean_of(steps: Sequence[TimeStep]) -> float | None:
    """Return the mean response time over steps, weighted by their requests; None without any."""
    weights = [max(1, step.completed) for step in steps if step.mean_s > 0]
    means = [step.mean_s for step in steps if step.mean_s > 0]
    if not means:
        return None
    return math.fsum(w * m for w, m in zip(weights, means, strict=True)) / sum(weights)


def latest(found: Sequence[Timeline]) -> Mapping[tuple[str, str, str], tuple[Timeline, ...]]:
    """Return by scenario, workload and parameters the last block's timeline of each arm."""
    last: dict[tuple[str, str, str], dict[str, Timeline]] = {}
    for timeline in found:
        key = (timeline.scenario, timeline.workload, timeline.parameters)
        known = last.setdefault(key, {}).get(timeline.arm)
        if known is None or timeline.block > known.block:
            last[key][timeline.arm] = timeline
    return {key: tuple(by_arm.values()) for key, by_arm in last.items()}
