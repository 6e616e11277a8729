"""Tables of what is to be expected beyond all samples, and of the tail's shape that it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from tare.analysis.model import Comparison
from tare.analysis.statistics.pareto import Level, Tail, Threshold
from tare.report.figures.series import NANO
from tare.report.long_series import Pooled, emulated_arms
from tare.report.tables import Column, Table
from tare.report.words import Names, Part, marked, percent
from tare.units import format_quantity

FAR = (
    "How long one sample in so many is to be expected, beyond all that were seen: a generalised "
    "Pareto tail above the lowest threshold from which on its shape stays the same. Intervals are "
    "over boots; where no such tail can be told of, the reason stands in its place"
)
SHAPES = (
    "The shape of the tail beyond each threshold, with its interval over boots: above 0 it is "
    "heavier than an exponential one, below 0 it comes to an end. Only where it stays the same is "
    "the tail continued"
)


@dataclass(frozen=True)
class _Row:
    part: Part
    arm: str
    emulated: bool
    tail: Tail
    level: Level | None = None
    threshold: Threshold | None = None
    used: bool = False


def far_tables(comparison: Comparison, series: Pooled) -> tuple[Table[_Row], ...]:
    """Return both tables; none where no series was long enough to ask.

    Args:
        comparison: The comparison.
        series: The series' summaries.
    """
    emulated = emulated_arms(comparison)
    asked = [
        _Row(part, arm, arm in emulated, summary.tail)
        for part, arms in series.items()
        for arm, summary in arms.items()
        if summary.tail is not None and summary.tail.thresholds
    ]
    if not asked:
        return ()
    names = Names(Part.of(summary.key) for summary in comparison.summaries)
    # What is refused by name is told beside what is not, whatever its series would have shown.
    asked += [
        _Row(part, arm, arm in emulated, summary.tail)
        for part, arms in series.items()
        for arm, summary in arms.items()
        if summary.tail is not None and not summary.tail.thresholds
    ]
    return _levels(asked, names), _shapes(asked, names)


def _whose(names: Names) -> tuple[Column[_Row], ...]:
    return (
        Column("what", lambda r: names.name(r.part), "What"),
        Column("scenario", lambda r: r.part.scenario),
        Column("workload", lambda r: r.part.workload),
        Column("parameters", lambda r: r.part.parameters),
        Column("arm", lambda r: r.arm, "Arm", lambda r: marked(r.arm, r.emulated)),
        Column("emulated", lambda r: r.emulated),
    )


def _seconds(nanoseconds: float) -> str:
    return format_quantity(nanoseconds * NANO, "s", digits=3)


def _levels(asked: list[_Row], names: Names) -> Table[_Row]:
    rows = tuple(
        _Row(row.part, row.arm, row.emulated, row.tail, level=level)
        for row in asked
        for level in (row.tail.levels or (None,))
    )
    columns: tuple[Column[_Row], ...] = (
        *_whose(names),
        Column(
            "one_in",
            lambda r: r.level and r.level.one_in,
            "One sample in",
            lambda r: "–" if r.level is None else f"{r.level.one_in:,.0f}",
            numeric=True,
        ),
        Column(
            "value_s",
            lambda r: r.level and r.level.value * NANO,
            "is longer than",
            lambda r: "–" if r.level is None else _seconds(r.level.value),
            numeric=True,
        ),
        Column(
            "low_s",
            lambda r: r.level and r.level.low * NANO,
            "Interval",
            lambda r: (
                "–" if r.level is None else f"{_seconds(r.level.low)} to {_seconds(r.level.high)}"
            ),
            numeric=True,
        ),
        Column("high_s", lambda r: r.level and r.level.high * NANO),
        Column(
            "misses",
            lambda r: r.tail.misses,
            "Misses what was seen by",
            lambda r: "–" if r.tail.misses is None else percent(r.tail.misses),
            numeric=True,
        ),
        Column("reason", lambda r: r.tail.reason, "Why not", lambda r: r.tail.reason or "–"),
    )
    return Table("far-tails", FAR, columns, rows, tone=_tone)


def _shapes(asked: list[_Row], names: Names) -> Table[_Row]:
    rows = tuple(
        _Row(row.part, row.arm, row.emulated, row.tail, None, each, number == row.tail.chosen)
        for row in asked
        for number, each in enumerate(row.tail.thresholds)
    )
    columns: tuple[Column[_Row], ...] = (
        *_whose(names),
        Column(
            "threshold_s",
            lambda r: r.threshold and r.threshold.at * NANO,
            "Threshold",
            lambda r: "–" if r.threshold is None else _seconds(r.threshold.at),
            numeric=True,
        ),
        Column(
            "beyond",
            lambda r: r.threshold and r.threshold.beyond,
            "Samples beyond",
            lambda r: "–" if r.threshold is None else f"{r.threshold.beyond:,}",
            numeric=True,
        ),
        Column(
            "shape",
            lambda r: r.threshold and r.threshold.shape,
            "Shape",
            lambda r: (
                "–"
                if r.threshold is None
                else f"{r.threshold.shape:.2f} ({r.threshold.low:.2f} to {r.threshold.high:.2f})"
            ),
            numeric=True,
        ),
        Column("shape_low", lambda r: r.threshold and r.threshold.low),
        Column("shape_high", lambda r: r.threshold and r.threshold.high),
        Column("used", lambda r: r.used, "Used", lambda r: "from here on" if r.used else ""),
    )
    return Table("tail-shapes", SHAPES, columns, rows, tone=_tone)


def _tone(row: _Row) -> str:
    return "emulated" if row.emulated else ""
