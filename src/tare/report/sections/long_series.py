"""The figures and tables of a workload's long series, if it recorded any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tare.analysis import group_series, summarise_series
from tare.analysis.model import Comparison, Flag, Interval, SeriesSummary
from tare.analysis.series.close_up import close_up
from tare.analysis.series.summaries import platform_bound
from tare.analysis.statistics.pareto import ReturnLevel, Tail, Threshold
from tare.report.figures.frame import Figure
from tare.report.figures.palette import ArmStyle
from tare.report.figures.series import NANO, scatter_figure, tail_figure
from tare.report.page.links import Links
from tare.report.page.tables import Column, Table
from tare.report.page.words import Names, Part, marked, percent
from tare.units import format_quantity

CLOSE_UP_NOTE = (
    "Each dot is one sample: two periods of the kernel’s clock tick, from half a period before the "
    "first sample that was interrupted."
)

Pooled = Mapping[Part, Mapping[str, SeriesSummary]]
"""Summaries by part and arm, each over all boots."""


@dataclass(frozen=True)
class Quantile:
    """One quantile of one arm's samples, or their maximum (``q`` = 1)."""

    part: Part
    arm: str
    emulated: bool
    boots: int
    samples: int
    q: float
    value_s: float
    interval_s: tuple[float, float] | None
    population_s: float | None = None
    population_interval_s: tuple[float, float] | None = None


def pooled_series(comparison: Comparison) -> Pooled:
    """Read and summarise all series that hold durations. Unreadable series are left out."""
    arms = {arm: place for place, arm in enumerate(comparison.arms)}
    found: dict[Part, dict[str, SeriesSummary]] = {}
    groups = group_series(comparison.runs)
    for key in sorted(groups, key=lambda key: arms.get(key.arm, len(arms))):
        bound = platform_bound(comparison.runs, key.arm)
        summary = summarise_series(groups[key], comparison.confidence, bound)
        if summary is not None:
            part = Part(key.scenario, key.workload, key.parameters, key.role)
            found.setdefault(part, {})[key.arm] = summary
    return found


def emulated_arms(comparison: Comparison) -> frozenset[str]:
    """Return the arms that any of the runs found to be emulated."""
    return frozenset().union(*(run.emulated_arms for run in comparison.runs))


def series_figures(
    series: Mapping[str, SeriesSummary],
    looks: Mapping[str, ArmStyle],
    emulated: frozenset[str],
    *,
    name: str,
    stem: str,
    rates: Mapping[str, float],
    links: Links | None = None,
    about: Part | None = None,
) -> list[tuple[Figure, str]]:
    """Return scatter, close-up and tails of one part with their captions.

    Args:
        series: Summaries by arm.
        looks: The style of each arm.
        emulated: The emulated arms.
        name: The part's name.
        stem: The beginning of the figures' names.
        rates: Clock ticks per second of the arms' kernels, as far as known.
        links: Finds link targets: an effect for marks of all boots, a block for marks of one boot.
        about: The part.
    """
    figures = []
    # A logarithmic axis cannot show a time of 0.
    over_time = {
        arm: s
        for arm, s in series.items()
        if s.envelope_block is not None and max(s.envelope_greatest_ns, default=0.0) > 0
    }
    whole: dict[str, str] = {}
    blocks: dict[str, str] = {}
    if links is not None and about is not None:
        whole = {arm: links.part(about, arm) for arm in series}
        blocks = blocks_of(over_time, links, about)
    if over_time:
        figures.append(
            (
                scatter_figure(
                    over_time, looks, emulated, name=f"{stem}-scatter", part=name, links=blocks
                ),
                "Each bar spans the least and the greatest sample of a stretch of time, the dot is "
                "the greatest; of each arm, the boot with its longest sample is shown.",
            )
        )
    near = {
        arm: close_up(s, 0.0, rates.get(arm))
        for arm, s in over_time.items()
        if not s.envelope_first
    }
    ticks = {arm: s for arm, s in near.items() if s is not None and _holds_a_tick(s, arm, rates)}
    if ticks:
        title = f"{name}, around a tick"
        figure = scatter_figure(
            ticks, looks, emulated, name=f"{stem}-tick", part=title, links=blocks
        )
        figures.append((figure, CLOSE_UP_NOTE))
    samples = {arm: s for arm, s in series.items() if s.count and s.greatest > 0}
    if samples:
        figures.append(
            (
                tail_figure(samples, looks, emulated, name=f"{stem}-tails", part=name, links=whole),
                "All samples of all boots; a line that reaches further right has longer tails.",
            )
        )
    return figures


def blocks_of(
    series: Mapping[str, SeriesSummary], links: Links | None, part: Part
) -> dict[str, str]:
    """Return by arm the link target of the block whose samples are drawn over time."""
    return {
        arm: links.cell(part, arm, each.envelope_run, each.envelope_block)
        for arm, each in series.items()
        if links is not None and each.envelope_block is not None
    }


def _holds_a_tick(summary: SeriesSummary, arm: str, rates: Mapping[str, float]) -> bool:
    # A series without any interruption has a single sample.
    return arm in rates and len(summary.envelope_time_s) > 1


def series_flags(
    series: Mapping[str, SeriesSummary], emulated: frozenset[str]
) -> list[tuple[str, Flag]]:
    """Return the warnings about the series, each with the arm's marked name."""
    return [
        (marked(arm, arm in emulated), flag)
        for arm, summary in series.items()
        for flag in summary.flags
    ]


def tails_table(comparison: Comparison, series: Pooled) -> Table[Quantile]:
    """Return the quantiles of all series, arm by arm, with the longest sample last."""
    emulated = emulated_arms(comparison)
    names = Names(Part.of(summary.key) for summary in comparison.summaries)
    rows = tuple(
        row
        for part, arms in series.items()
        for arm, summary in arms.items()
        for row in _rows(part, arm, arm in emulated, summary)
    )

    def seconds(value: float) -> str:
        return format_quantity(value, "s", digits=4)

    def ends(interval: tuple[float, float] | None) -> str:
        return "–" if interval is None else " to ".join(map(seconds, interval))

    columns: tuple[Column[Quantile], ...] = (
        Column("what", lambda t: names.name(t.part), "What"),
        Column("scenario", lambda t: t.part.scenario),
        Column("workload", lambda t: t.part.workload),
        Column("parameters", lambda t: t.part.parameters),
        Column("arm", lambda t: t.arm, "Arm", lambda t: marked(t.arm, t.emulated)),
        Column("emulated", lambda t: t.emulated),
        Column("boots", lambda t: t.boots, "Boots", numeric=True),
        Column("samples", lambda t: t.samples, "Samples", lambda t: f"{t.samples:,}", numeric=True),
        Column(
            "q",
            lambda t: t.q,
            "Share within",
            lambda t: "longest" if t.q == 1 else f"{100 * t.q:.10g} %",
            numeric=True,
        ),
        Column("value_s", lambda t: t.value_s, "Typical boot", lambda t: seconds(t.value_s), True),
        Column(
            "low_s",
            lambda t: _end(t.interval_s, 0),
            "Interval",
            lambda t: ends(t.interval_s),
            numeric=True,
        ),
        Column("high_s", lambda t: _end(t.interval_s, 1)),
        Column(
            "population_s",
            lambda t: t.population_s,
            "All samples",
            lambda t: "–" if t.population_s is None else seconds(t.population_s),
            numeric=True,
        ),
        Column(
            "population_low_s",
            lambda t: _end(t.population_interval_s, 0),
            "Interval",
            lambda t: ends(t.population_interval_s),
            numeric=True,
        ),
        Column("population_high_s", lambda t: _end(t.population_interval_s, 1)),
    )
    tone = lambda t: "emulated" if t.emulated else ""  # noqa: E731
    caption = (
        "How long samples were: of the typical boot, the median of the boots’ quantiles; of all "
        "samples, whichever boot they are from. Intervals are over boots"
    )
    return Table("tails", caption, columns, rows, tone=tone)


def _rows(part: Part, arm: str, emulated: bool, summary: SeriesSummary) -> list[Quantile]:
    of = (part, arm, emulated, summary.boots, summary.count)
    found = [
        Quantile(
            *of, q.q, q.value * NANO, _finite(q.interval),
            None if q.population is None else q.population * NANO, _finite(q.population_interval),
        )
        for q in summary.quantiles
    ]  # fmt: skip
    return [*found, Quantile(*of, 1.0, summary.greatest * NANO, None)]


def _end(interval: tuple[float, float] | None, which: int) -> float | None:
    return None if interval is None else interval[which]


def _finite(interval: Interval | None) -> tuple[float, float] | None:
    if interval is None:
        return None
    ends = interval.low * NANO, interval.high * NANO
    return ends if all(abs(end) < float("inf") for end in ends) else None


FAR = (
    "The value that one sample in so many exceeds, extrapolated beyond all observed samples by a "
    "generalised Pareto tail above the lowest threshold from which its shape is stable. Intervals "
    "are over boots. If no such tail can be stated, the cell has the reason"
)
SHAPES = (
    "The shape of the tail beyond each threshold, with its interval over boots: above 0 it is "
    "heavier than an exponential one, below 0 it has an upper end. The tail is extrapolated only "
    "if the shape stays the same"
)


@dataclass(frozen=True)
class FarTail:
    """An estimate of one arm's tail beyond its samples: at one level, or above one threshold."""

    part: Part
    arm: str
    emulated: bool
    tail: Tail
    level: ReturnLevel | None = None
    threshold: Threshold | None = None
    used: bool = False


def far_tail_tables(comparison: Comparison, series: Pooled) -> tuple[Table[FarTail], ...]:
    """Return the tables of levels and of shapes; empty if no series was long enough.

    Args:
        comparison: The comparison.
        series: The series' summaries.
    """
    emulated = emulated_arms(comparison)
    asked = [
        FarTail(part, arm, arm in emulated, summary.tail)
        for part, arms in series.items()
        for arm, summary in arms.items()
        if summary.tail is not None and summary.tail.thresholds
    ]
    if not asked:
        return ()
    names = Names(Part.of(summary.key) for summary in comparison.summaries)
    # Refused tails have no thresholds. They are listed with the rest.
    asked += [
        FarTail(part, arm, arm in emulated, summary.tail)
        for part, arms in series.items()
        for arm, summary in arms.items()
        if summary.tail is not None and not summary.tail.thresholds
    ]
    return _levels(asked, names), _shapes(asked, names)


def _whose(names: Names) -> tuple[Column[FarTail], ...]:
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


def _levels(asked: list[FarTail], names: Names) -> Table[FarTail]:
    rows = tuple(
        FarTail(row.part, row.arm, row.emulated, row.tail, level=level)
        for row in asked
        for level in (row.tail.levels or (None,))
    )
    columns: tuple[Column[FarTail], ...] = (
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
            "Largest error at observed quantiles",
            lambda r: "–" if r.tail.misses is None else percent(r.tail.misses),
            numeric=True,
        ),
        Column("reason", lambda r: r.tail.reason, "Why not", lambda r: r.tail.reason or "–"),
    )
    return Table("far-tails", FAR, columns, rows, tone=_tone)


def _shapes(asked: list[FarTail], names: Names) -> Table[FarTail]:
    rows = tuple(
        FarTail(row.part, row.arm, row.emulated, row.tail, None, each, number == row.tail.chosen)
        for row in asked
        for number, each in enumerate(row.tail.thresholds)
    )
    columns: tuple[Column[FarTail], ...] = (
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


def _tone(row: FarTail) -> str:
    return "emulated" if row.emulated else ""
