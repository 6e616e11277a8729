"""The cost of recording the host's side: a recorded arm compared with one that was not recorded.

The two arms differ only in `host-trace`, so they are compared like an A/A pair: within each block,
and with the difference within the study's own A/A pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import ArmSummary, Interval, Key
from tare.analysis.statistics.logratio import error_of_mean
from tare.events.cell_facts import CellFacts

METRICS = ("slowdown", "stolen-share")
"""All lost time, including delays that are too short to be gaps; and the time lost to gaps."""


@dataclass(frozen=True)
class RecordingCost:
    """One metric with and without recording.

    Args:
        key: What was measured.
        recorded: The arm that was recorded.
        without: The same arm, not recorded.
        emulated: Whether both carry the mark of emulation.
        blocks: The number of blocks that both have.
        with_it: Mean over these blocks with recording, in the metric's unit.
        without_it: The same without.
        ratio: Geometric mean of the ratios within blocks, with ÷ without.
        interval: Student's t over the log-ratios of blocks; None with one block.
        noise_floor: The noise floor of the A/A pair for the same key, relative; None without one.
    """

    key: Key
    recorded: str
    without: str
    emulated: bool
    blocks: int
    with_it: float
    without_it: float
    ratio: float
    interval: Interval | None
    noise_floor: float | None


def recording_costs(runs: Sequence[RunData], comparison: Comparison) -> tuple[RecordingCost, ...]:
    """Return the cost of recording, for each pair of arms that shows it.

    Args:
        runs: The runs.
        comparison: Their comparison.
    """
    summaries = {
        (each.key, each.arm): each
        for each in comparison.summaries
        if each.key.role == "subject" and each.key.metric in METRICS
    }
    floors = {each.key: each.noise_floor for each in (*comparison.effects, *comparison.aa)}
    recorded = {
        (cell.arm, cell.scenario, cell.workload, cell.parameters)
        for run in runs
        for cell in run.cells
        if cell.status == "ok" and _recorded(cell.facts)
    }
    found = []
    for one, other in dict.fromkeys(pair for run in runs for pair in _pairs(run.study)):
        for key in dict.fromkeys(key for key, _ in summaries):
            what = (key.scenario, key.workload, key.parameters)
            if (one, *what) not in recorded or (other, *what) in recorded:
                continue
            if (key, one) in summaries and (key, other) in summaries:
                cost = _cost(
                    summaries[key, one],
                    summaries[key, other],
                    comparison.confidence,
                    floors.get(key),
                )
                found += [cost] if cost else []
    return tuple(sorted(found, key=lambda each: (each.key, each.recorded)))


def _recorded(facts: CellFacts) -> bool:
    trace = facts.get("host_trace")
    return trace is not None and bool(trace.get("recorded"))


def _pairs(study: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield pairs of arms that differ only in that the second one is never recorded."""
    arms: Mapping[str, Mapping[str, Any]] = study.get("arms", {})
    for other, asked in arms.items():
        if asked.get("host_trace") is not False:
            continue
        for one, twin in arms.items():
            original = not twin.get("twin_of")
            if original and twin.get("host_trace") is not False and _has_same_settings(twin, asked):
                yield one, other


def _has_same_settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    left_out = ("host_trace", "twin_of")
    return all(one.get(name) == other.get(name) for name in {*one, *other} if name not in left_out)


def _cost(
    one: ArmSummary, other: ArmSummary, confidence: float, floor: float | None
) -> RecordingCost | None:
    without = {(each.run, each.block): each.value for each in other.blocks}
    both = [
        (each.value, without[each.run, each.block])
        for each in one.blocks
        if each.value > 0 and without.get((each.run, each.block), 0.0) > 0
    ]
    if not both:
        return None
    logs = [math.log(a / b) for a, b in both]
    centre = math.fsum(logs) / len(logs)
    interval = None
    if len(logs) >= 2:
        error = error_of_mean(logs, confidence)
        interval = Interval(
            math.exp(centre - error), math.exp(centre + error), "student-t", confidence
        )
    return RecordingCost(
        key=one.key,
        recorded=one.arm,
        without=other.arm,
        emulated=one.emulated,
        blocks=len(both),
        with_it=math.fsum(a for a, _ in both) / len(both),
        without_it=math.fsum(b for _, b in both) / len(both),
        ratio=math.exp(centre),
        interval=interval,
        noise_floor=floor,
    )
