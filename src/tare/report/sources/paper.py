"""A source's own page: its tables and figures in its order, each filled from the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import ArmSummary, Interval, Key
from tare.analysis.series.close_up import close_up
from tare.analysis.series.series_data import SeriesSummary
from tare.analysis.statistics.logratio import error_of_mean
from tare.analysis.topics.kernels import tick_rates
from tare.analysis.topics.load_balancer import Throughput
from tare.analysis.topics.monitoring import Monitor
from tare.analysis.topics.response_times import QUIET, PhaseEffect
from tare.references.arms import counterparts_of
from tare.references.exhibits import Exhibit
from tare.references.measured import longest_views, measured_keys, samples_of
from tare.references.pairing import PairedTable, SideBySide, arms_of, shown_value
from tare.references.scenarios import matching, skipped_in, why_no_scenario
from tare.references.stated import Stated
from tare.report.figures.bars import Bar, bars_figure, common_unit
from tare.report.figures.frame import Captioned, Figure
from tare.report.figures.palette import ArmStyle
from tare.report.figures.series import scatter_figure
from tare.report.figures.svg import legible
from tare.report.page.links import Links
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, Names, Part, counted, joined, marked, metric_name, slug
from tare.report.sections.load_balancer import LoadBalancer
from tare.report.sections.long_series import Pooled, blocks_of, emulated_arms
from tare.report.sections.mapreduce import MapReduce
from tare.report.sections.response_times import ResponseTimes
from tare.report.sources.paper_empty import arms_undrawn, arms_without, why_unfilled
from tare.report.sources.paper_jobs import NOTE as JOBS_NOTE
from tare.report.sources.paper_jobs import bars_of, counters_of
from tare.report.sources.paper_load_balancer import NOTE as THROUGH_NOTE
from tare.report.sources.paper_load_balancer import over_size_of, time_spent_of
from tare.report.sources.published import published_table
from tare.report.sources.stated import PageParts, statement
from tare.units import format_quantity

SAMPLES_NOTE = (
    "Each bar spans the least and the greatest of consecutive samples; of each arm, the boot with "
    "its longest sample is shown."
)
CLOSE_UP_NOTE = (
    "Each dot is one sample: two periods of the kernel’s clock tick where its rate is known, else "
    "from the beginning of a boot. Each arm has its own linear axis."
)
VALUES_NOTE = "Means over blocks, with intervals by Student’s t at the source’s confidence."
OWN_SCALES = " Each test has its own scale, as their units or sizes differ."
PHASES_NOTE = "Geometric means over blocks, with intervals by Student’s t on the logarithms."


@dataclass(frozen=True)
class PagePart:
    """Another part of the page that shows the same data: its id and its title."""

    id: str
    name: str


JOBS = PagePart(MapReduce.name, MapReduce.title)
RESPONSE_TIMES = PagePart(ResponseTimes.name, ResponseTimes.title)
LOAD_BALANCER = PagePart(LoadBalancer.name, LoadBalancer.title)


@dataclass(frozen=True)
class PaperDraft:
    """One exhibit before its figure is drawn.

    Args:
        exhibit: The source's table or figure.
        caption: Its content in words, and the section that contains it.
        table: The run's counterpart, if it is a table.
        figure: The run's counterpart, if it is a figure.
        note: The text below the figure.
        notes: Remarks for the reader, one sentence each.
        above: The part of the page that draws it already.
        empty: Why the run has no counterpart.
        stated: The statements of the source's text about it, and the run's counterparts.
        whole: Its table as written to a file, if it has its own.
    """

    exhibit: Exhibit
    caption: str
    table: ShownTable | None = None
    figure: Figure | None = None
    note: str = ""
    notes: tuple[str, ...] = ()
    above: PagePart | None = None
    empty: str = ""
    stated: tuple[str, ...] = ()
    whole: Table[Any] | None = None


@dataclass(frozen=True)
class PaperItem:
    """One exhibit as the page shows it."""

    id: str
    name: str
    caption: str
    table: ShownTable | None
    figure: Captioned | None
    notes: tuple[str, ...]
    above: PagePart | None
    empty: str
    stated: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunFindings:
    """Data of one run for papers' pages, so that nothing is read or computed twice.

    Args:
        comparison: The runs' comparison.
        looks: The style of each arm.
        series: Summaries of long series by part and arm.
        phases: The effect of each phase of the neighbours.
        watched: The counters of cells.
        links: Finds the link targets of marks.
        proxied: The throughput of each arm through a load balancer, by size.
        missing: By the beginning of a part's title, why the page lacks that part.
    """

    comparison: Comparison
    looks: Mapping[str, ArmStyle]
    series: Pooled
    phases: Sequence[PhaseEffect]
    watched: Sequence[Monitor] = ()
    links: Links | None = None
    proxied: Sequence[Throughput] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


def paper_drafts(
    side: SideBySide, run: RunFindings, stated: Sequence[Stated] = ()
) -> tuple[PaperDraft, ...]:
    """Return a source's tables and figures in its order, with the run's counterpart of each.

    Args:
        side: Published and own values.
        run: The run's other results.
        stated: The numbers of the source's text. Each is shown with its tables and figures.
    """
    drafts = [_draft(side, run, exhibit) for exhibit in side.reference.exhibits]
    page = parts_of(drafts, run.missing)
    found = []
    for draft in drafts:
        of_it = (each for each in stated if draft.exhibit.name in each.fact.of)
        sentences = tuple(statement(each, is_empty=bool(draft.empty), page=page) for each in of_it)
        found.append(replace(draft, stated=sentences))
    return tuple(found)


def parts_of(drafts: Sequence[PaperDraft], missing: Mapping[str, str]) -> PageParts:
    """Return the parts of the page that numbers of the text can refer to.

    Args:
        drafts: The source's tables and figures with the run's counterparts.
        missing: By the beginning of a part's title, why the page lacks that part.
    """
    return PageParts({draft.exhibit.name: draft.empty for draft in drafts}, missing)


def paper_items(side: SideBySide, drafted: Sequence[PaperDraft]) -> tuple[PaperItem, ...]:
    """Return the drafts as the page shows them."""
    return tuple(
        PaperItem(
            id=_id(side, each.exhibit.name),
            name=legible(each.exhibit.name),
            caption=legible(each.caption),
            table=each.table,
            figure=(each.figure, each.note) if each.figure else None,
            notes=tuple(map(legible, each.notes)),
            above=each.above,
            empty=legible(each.empty),
            stated=tuple(map(legible, each.stated)),
        )
        for each in drafted
    )


def _id(side: SideBySide, name: str) -> str:
    return slug(f"{side.reference.reference} {name}")


def _draft(side: SideBySide, run: RunFindings, exhibit: Exhibit) -> PaperDraft:
    """Return the run's counterpart of an exhibit, or a draft with the reason why there is none."""
    written = next((one for one in side.tables if one.table.is_shown_by(exhibit)), None)
    if written is not None:
        return _written(side, run.comparison, exhibit, written)
    section = f" (section {exhibit.section})" if exhibit.section else ""
    plain = PaperDraft(exhibit, f"{exhibit.shows}{section}", notes=_remarks(exhibit))
    if exhibit.none:
        return replace(plain, empty=exhibit.none)
    if exhibit.view in ("timeline", "phases"):
        return _phases(side, run, plain)
    if exhibit.view in ("bars", "counters", "job-phases"):
        return _jobs(side, run, plain)
    if exhibit.view in ("over-size", "time-spent"):
        return _draft_throughput(side, run, plain)
    scenario = _scenario(side, run.comparison, exhibit)
    if scenario is None:
        wanted = side.reference.scenarios[exhibit.scenario]
        return replace(plain, empty=why_no_scenario(run.comparison.runs, exhibit.scenario, wanted))
    keys = _keys(run.comparison, exhibit, scenario)
    if not keys:
        why = skipped_in(run.comparison.runs, scenario)
        where = f" in {scenario}: {why}" if why else ""
        return replace(plain, empty=_unmeasured(exhibit) + where)
    if exhibit.view == "values":
        return _values(side, run, plain, keys)
    return _samples(side, run, plain, keys)


def _counterparts(side: SideBySide, run: RunFindings, exhibit: Exhibit) -> tuple[list[str], str]:
    """Return the run's counterparts of an exhibit's arms, in order, or why there are none."""
    if not exhibit.arms:
        return list(run.comparison.arms), ""
    arms, why = counterparts_of(run.comparison, side.reference, exhibit.arms)
    return list(arms), "" if arms else why


def _jobs(side: SideBySide, run: RunFindings, plain: PaperDraft) -> PaperDraft:
    exhibit, found = plain.exhibit, run.comparison
    if exhibit.view == "job-phases":
        is_shown = any(key.metric in exhibit.metrics for key in _measured(found))
        return (
            replace(plain, above=JOBS) if is_shown else replace(plain, empty=_unmeasured(exhibit))
        )
    name = exhibit.stem(side.reference.reference)
    made = (
        bars_of(found, run.looks, exhibit, name, run.links)
        if exhibit.view == "bars"
        else counters_of(found, run.watched, run.looks, exhibit, name, run.links)
    )
    shown = made.table.shown() if made.table else None
    draft = replace(plain, figure=made.figure, note=JOBS_NOTE, empty=made.empty)
    notes = (*plain.notes, *([made.left_out] if made.left_out else []))
    return replace(draft, table=shown, whole=made.table, notes=notes)


def _draft_throughput(side: SideBySide, run: RunFindings, plain: PaperDraft) -> PaperDraft:
    exhibit, found = plain.exhibit, run.comparison
    if exhibit.view == "time-spent":
        made = time_spent_of(found, run.proxied, side.reference, exhibit)
    else:
        made = over_size_of(found, run.proxied, run.looks, side.reference, exhibit, run.links)
    return replace(
        plain,
        table=made.table.shown(hide=made.table.unvaried("scenario", "workload"))
        if made.table
        else None,
        figure=made.figure,
        note=THROUGH_NOTE,
        notes=(*plain.notes, *made.notes),
        above=LOAD_BALANCER if exhibit.view == "time-spent" and made.table else None,
        empty=made.empty,
        whole=made.table,
    )


def _measured(comparison: Comparison) -> Iterator[Key]:
    return (summary.key for summary in comparison.summaries)


def _remarks(exhibit: Exhibit) -> tuple[str, ...]:
    return (exhibit.remark,) if exhibit.remark else ()


def _written(
    side: SideBySide, comparison: Comparison, exhibit: Exhibit, one: PairedTable
) -> PaperDraft:
    table = published_table(side, one)
    arms, why_none = arms_of(comparison, side.reference, one.table)
    lacking = arms_without(comparison, filter(None, one.keys), arms) if one.has_own else ()
    notes = (*one.notes, *lacking)
    empty = why_unfilled(comparison, one) if arms else why_none
    return PaperDraft(exhibit, table.caption, table=table.shown(), notes=notes, empty=empty)


def _scenario(side: SideBySide, comparison: Comparison, exhibit: Exhibit) -> str | None:
    """Return the run's scenario; empty if the exhibit names none; None if the run lacks it."""
    if not exhibit.scenario:
        return ""
    wanted = side.reference.scenarios[exhibit.scenario]
    return matching(comparison.runs, exhibit.scenario, wanted) or None


def _keys(comparison: Comparison, exhibit: Exhibit, scenario: str) -> list[Key]:
    scenarios = (
        [scenario]
        if scenario
        else list(dict.fromkeys(summary.key.scenario for summary in comparison.summaries))
    )
    for each in scenarios:
        found = [
            measured_keys(comparison, workload, metric, each, exhibit.parameters)
            for workload in exhibit.workloads
            for metric in exhibit.metrics
        ]
        if exhibit.view == "values":
            # The source has one value of each, from its longest measurement.
            found = [longest_views(keys) for keys in found]
        if keys := [key for part in found for key in part]:
            return keys
    return []


def _unmeasured(exhibit: Exhibit) -> str:
    values = {
        name: joined([*map(str, value)]) if isinstance(value, tuple) else str(value)
        for name, value in exhibit.parameters.items()
    }
    given = ", ".join(f"{name}: {value}" for name, value in values.items())
    wanted = " or ".join(exhibit.workloads)
    return f"this run measured no {wanted}" + (f" with {given}" if given else "")


def _samples(
    side: SideBySide, run: RunFindings, plain: PaperDraft, keys: Sequence[Key]
) -> PaperDraft:
    exhibit = plain.exhibit
    arms, why_none = _counterparts(side, run, exhibit)
    if not arms:
        return replace(plain, empty=why_none)
    # Events that recur each second show only in the longest series; a close-up can use any series.
    longest_first = sorted(keys, key=samples_of, reverse=True)
    for key in longest_first if exhibit.view == "samples" else keys:
        found = run.series.get(Part.of(key), {})
        series = _series_over_time(run, {arm: found[arm] for arm in arms if arm in found}, exhibit)
        if series:
            break
    else:
        wanted = "single samples" if exhibit.view == "close-up" else "series over time"
        whose = f" in {joined(arms)}" if exhibit.arms else ""
        kept = f"{joined(exhibit.workloads)} kept no {wanted}{whose} in this run"
        return replace(plain, empty=kept)
    figure = scatter_figure(
        series,
        run.looks,
        emulated_arms(run.comparison),
        name=exhibit.stem(side.reference.reference),
        part=exhibit.name,
        links=blocks_of(series, run.links, Part.of(key)),
        linear=exhibit.view == "close-up",
    )
    note = CLOSE_UP_NOTE if exhibit.view == "close-up" else SAMPLES_NOTE
    where = f"This run: {key.workload} in scenario {key.scenario}."
    undrawn = arms_undrawn(run.comparison, key, series, arms)
    return replace(plain, figure=figure, note=note, notes=(*plain.notes, *undrawn, where))


def _series_over_time(
    run: RunFindings, series: Mapping[str, SeriesSummary], exhibit: Exhibit
) -> dict[str, SeriesSummary]:
    found = {arm: each for arm, each in series.items() if each.envelope_block is not None}
    if exhibit.view != "close-up":
        return found
    rates = tick_rates(run.comparison.runs)
    narrowed = {arm: close_up(each, exhibit.span, rates.get(arm)) for arm, each in found.items()}
    return {arm: each for arm, each in narrowed.items() if each is not None}


def _phases(side: SideBySide, run: RunFindings, plain: PaperDraft) -> PaperDraft:
    effects = [effect for effect in run.phases if effect.phase != QUIET]
    if not effects:
        return replace(plain, empty="this run has no response times with neighbours in phases")
    arms, why_none = _counterparts(side, run, plain.exhibit)
    having = [arm for arm in arms if any(effect.arm == arm for effect in run.phases)]
    if not having:
        none = why_none or f"{joined(arms)} have no response times with neighbours in phases"
        return replace(plain, empty=none)
    if plain.exhibit.view == "timeline":
        shown = f"This run: {joined(having)}."
        return replace(plain, above=RESPONSE_TIMES, notes=(*plain.notes, shown))
    table = _phases_table(side, run, plain.exhibit)
    emulated = emulated_arms(run.comparison)
    bars = [
        Bar(each.phase, each.arm, each.arm in emulated, each.mean_s, _ends(each.mean_interval))
        for phase in dict.fromkeys(each.phase for each in run.phases)
        for each in run.phases
        if each.phase == phase
    ]
    stem = plain.exhibit.stem(side.reference.reference)
    what = "mean response time"
    figure = bars_figure(bars, run.looks, "s", name=stem, title=table.caption, what=what)
    return replace(plain, table=table.shown(), whole=table, figure=figure, note=PHASES_NOTE)


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.low, interval.high)


def _values(
    side: SideBySide, run: RunFindings, plain: PaperDraft, keys: Sequence[Key]
) -> PaperDraft:
    """Return bars with intervals at the source's confidence, and their table."""
    arms, why_none = _counterparts(side, run, plain.exhibit)
    if not arms:
        return replace(plain, empty=why_none)
    table = values_table(side, run.comparison, plain.exhibit, keys, arms)
    emulated, names = emulated_arms(run.comparison), Names(map(Part.of, keys))
    bars = [
        Bar(
            f"{names.name(Part.of(row.key))}: {metric_name(row.key.metric)}",
            arm,
            arm in emulated,
            _value_of(summary),
            _error_range(summary, plain.exhibit.confidence),
            run.links.effect(row.key, arm) if run.links else "",
            unit=summary.unit,
        )
        for row in table.rows
        for arm in arms
        if (summary := row.summaries.get(arm)) is not None
    ]
    unit = common_unit(bars)
    stem = plain.exhibit.stem(side.reference.reference)
    figure = bars_figure(bars, run.looks, unit, name=stem, title=plain.exhibit.shows)
    note = VALUES_NOTE if unit else VALUES_NOTE + OWN_SCALES
    notes = (*plain.notes, *arms_without(run.comparison, keys, arms))
    return replace(plain, table=table.shown(), whole=table, notes=notes, figure=figure, note=note)


def _phases_table(side: SideBySide, run: RunFindings, exhibit: Exhibit) -> Table[str]:
    """Return the mean response time of each phase, arm by arm."""
    means = {(effect.phase, effect.arm): effect for effect in run.phases}
    arms = [arm for arm in run.comparison.arms if any(arm == found for _, found in means)]
    emulated = emulated_arms(run.comparison)

    def column(arm: str) -> Column[str]:
        def mean(phase: str) -> float | None:
            effect = means.get((phase, arm))
            return effect.mean_s if effect is not None else None

        def text(phase: str) -> str:
            value = mean(phase)
            return NONE if value is None else format_quantity(value, "s")

        return Column(slug(arm), mean, marked(arm, arm in emulated), text, numeric=True)

    return Table(
        exhibit.stem(side.reference.reference),
        f"{exhibit.name}: mean response time in each phase of the neighbours",
        (Column("phase", lambda phase: phase, "Phase"), *map(column, arms)),
        tuple(dict.fromkeys(phase for phase, _ in means)),
    )


@dataclass(frozen=True)
class ValueRow:
    """One metric of a run, with every arm's values."""

    key: Key
    summaries: Mapping[str, ArmSummary]


def values_table(
    side: SideBySide,
    comparison: Comparison,
    exhibit: Exhibit,
    keys: Sequence[Key],
    arms: Sequence[str],
) -> Table[ValueRow]:
    """Return each metric's mean over blocks with the source's E = t(α/2)·s/√n, arm by arm."""
    by_key: dict[Key, dict[str, ArmSummary]] = {key: {} for key in keys}
    for summary in comparison.summaries:
        if summary.key in by_key:
            by_key[summary.key][summary.arm] = summary
    names = Names(map(Part.of, keys))

    def what(row: ValueRow) -> str:
        return f"{names.name(Part.of(row.key))}: {metric_name(row.key.metric)}"

    columns: list[Column[ValueRow]] = [Column("what", what, "Test")]
    emulated = emulated_arms(comparison)
    for arm in arms:
        if any(arm in found for found in by_key.values()):
            columns.append(_arm_column(arm, marked(arm, arm in emulated), exhibit.confidence))
    level = f"{100 * exhibit.confidence:g} %"
    caption = (
        f"{exhibit.shows}: mean over {counted(comparison.blocks, 'block')} ± the half-width of its "
        f"{level} interval by Student’s t; of maxima the longest of all"
    )
    rows = tuple(ValueRow(key, found) for key, found in by_key.items())
    name = exhibit.stem(side.reference.reference)
    return Table(name, caption, tuple(columns), rows)


def _arm_column(arm: str, title: str, confidence: float) -> Column[ValueRow]:
    def value(row: ValueRow) -> float | None:
        summary = row.summaries.get(arm)
        return None if summary is None else _value_of(summary)

    def text(row: ValueRow) -> str:
        summary = row.summaries.get(arm)
        if summary is None:
            return NONE
        shown, error = (
            format_quantity(_value_of(summary), summary.unit),
            _error(summary, confidence),
        )
        return shown if error is None else f"{shown} ± {format_quantity(error, summary.unit)}"

    return Column(slug(arm), value, title, text, numeric=True)


def _value_of(summary: ArmSummary) -> float:
    return shown_value(summary) if summary.kind == "maximum" else summary.mean


def _error(summary: ArmSummary, confidence: float) -> float | None:
    """Return the half-width of the mean's interval; None for maxima and for one block."""
    if summary.kind == "maximum" or len(summary.blocks) < 2:
        return None
    return error_of_mean([block.value for block in summary.blocks], confidence)


def _error_range(summary: ArmSummary, confidence: float) -> tuple[float, float] | None:
    error = _error(summary, confidence)
    return None if error is None else (summary.mean - error, summary.mean + error)
