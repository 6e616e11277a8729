"""The table that says what recording the host's side cost the subject."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.recording_cost import RecordingCost
from tare.report.svg import legible
from tare.report.tables import Column, Table
from tare.report.words import (
    NONE,
    marked,
    metric_name,
    percent,
    ratio,
    ratio_interval,
)
from tare.units import format_quantity

UNKNOWN = (
    "What recording itself cost the subject cannot be told from this run: no arm was left "
    "unrecorded beside one like it (`host-trace: false`). `python -m benchmarks trace_cost` "
    "measures it."
)


def recording_cost_table(costs: Sequence[RecordingCost]) -> Table[RecordingCost]:
    """Return one row for each pair of arms, scenario and metric."""
    columns: tuple[Column[RecordingCost], ...] = (
        Column("scenario", lambda c: c.key.scenario, "Scenario"),
        Column("arm", lambda c: c.recorded, "Arm", lambda c: marked(c.recorded, c.emulated)),
        Column("without", lambda c: c.without, "Not recorded", lambda c: legible(c.without)),
        Column("emulated", lambda c: c.emulated),
        Column("workload", lambda c: c.key.workload, "Workload"),
        Column("parameters", lambda c: c.key.parameters),
        Column("metric", lambda c: c.key.metric, "Metric", lambda c: metric_name(c.key.metric)),
        Column("blocks", lambda c: c.blocks),
        Column("with_value", lambda c: c.with_it, "With", lambda c: _value(c.with_it), True),
        Column(
            "without_value", lambda c: c.without_it, "Without", lambda c: _value(c.without_it), True
        ),
        Column("ratio", lambda c: c.ratio, "With ÷ without", lambda c: ratio(c.ratio), True),
        Column(
            "low", lambda c: c.interval.low if c.interval else None, "Interval", _interval, True
        ),
        Column("high", lambda c: c.interval.high if c.interval else None),
        Column(
            "noise_floor",
            lambda c: c.noise_floor,
            "A/A pair within",
            lambda c: NONE if c.noise_floor is None else percent(c.noise_floor),
            True,
        ),
    )
    caption = "What recording the host’s side cost the subject: the same arm with and without"
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    return Table("recording-cost", caption, columns, tuple(costs), tone=tone)


def _interval(cost: RecordingCost) -> str:
    ends = cost.interval
    return ratio_interval(None if ends is None else (ends.low, ends.high))


def _value(value: float) -> str:
    return format_quantity(value, "1", digits=4)
