"""A source's figures of jobs on clusters: bars over size, slaves or placement, and counters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Key
from tare.analysis.topics.job_counters import counter_values
from tare.analysis.topics.monitoring import COUNTS, QUANTITIES, Monitor
from tare.references.exhibits import Exhibit, Over
from tare.references.measured import kinds_of
from tare.references.scenarios import mapping
from tare.report.figures.bars import SHARE, Bar, bars_figure
from tare.report.figures.frame import Figure
from tare.report.figures.palette import ArmStyle
from tare.report.page.links import Links
from tare.report.page.tables import Column, Table
from tare.report.page.words import NONE, Names, Part, counted, marked, metric_name, slug
from tare.units import format_number, format_quantity, format_size

NOTE = "Means over the blocks; lines are their intervals by Student’s t."
MOST_BARS = 120
"""The most bars in a figure. For comparison, five arms on four clusters have 60 for each metric."""


@dataclass(frozen=True)
class JobsExhibit:
    """A figure's counterpart: drawn, with its values as a table, or the reason for having none.

    ``left_out`` lists the rows that do not fit into the figure; the table has them.
    """

    figure: Figure | None = None
    table: Table[JobRow] | None = None
    empty: str = ""
    left_out: str = ""


@dataclass(frozen=True)
class JobRow:
    """One quantity of one piece of work: each arm's mean and its interval.

    ``copies`` and ``written`` are the effective replication and the bytes that all machines wrote.
    They
    are from the baseline, or else from the first arm that has them. ``key`` is the metric; None for
    counters.
    """

    part: Part
    what: str
    unit: str
    shape: Shape | None
    copies: float | None
    written: float | None
    arms: Mapping[str, tuple[float, tuple[float, float] | None]]
    key: Key | None = None

    def lead(self, links: Links, arm: str) -> str:
        """Return the link target of an arm's bar."""
        return links.effect(self.key, arm) if self.key else links.part(self.part, arm)


def bars_of(
    comparison: Comparison,
    looks: Mapping[str, ArmStyle],
    exhibit: Exhibit,
    name: str,
    links: Links | None = None,
) -> JobsExhibit:
    """Return metrics of jobs as bars, for all scenarios that the figure is about."""
    kinds = kinds_of(comparison.runs)
    keys = [
        key
        for key in dict.fromkeys(summary.key for summary in comparison.summaries)
        if key.role == SUBJECT
        and key.metric in exhibit.metrics
        and kinds.get(key.workload, key.workload) in exhibit.workloads
        and _has(key.parameters, exhibit.parameters)
    ]
    by_place = {(key.metric, Part.of(key)): key for key in keys}
    chosen = telling([part for _, part in by_place], shapes(comparison), exhibit.over)
    rows = [
        _metric_row(comparison, by_place[metric, part])
        for metric in exhibit.metrics
        for part in chosen
        if (metric, part) in by_place
    ]
    return _made(comparison, looks, exhibit, name, rows, links)


def counters_of(
    comparison: Comparison,
    monitors: Iterable[Monitor],
    looks: Mapping[str, ArmStyle],
    exhibit: Exhibit,
    name: str,
    links: Links | None = None,
) -> JobsExhibit:
    """Return counters of machines or hosts in one step of jobs, as bars."""
    kinds = kinds_of(comparison.runs)
    watched = [
        each
        for each in monitors
        if kinds.get(each.workload, each.workload) in exhibit.workloads
        and _has(each.parameters, exhibit.parameters)
    ]
    parts = [Part(m.scenario, m.workload, m.parameters, SUBJECT) for m in watched]
    chosen = telling(parts, shapes(comparison), exhibit.over)
    rows: list[JobRow] = []
    for quantity in exhibit.metrics:
        found: dict[Part, dict[str, tuple[float, tuple[float, float] | None]]] = {}
        for value in counter_values(
            watched, quantity, exhibit.of, exhibit.step, exhibit.confidence
        ):
            part = Part(value.scenario, value.workload, value.parameters, SUBJECT)
            found.setdefault(part, {})[value.arm] = (value.mean, value.ends)
        rows += [
            _row(comparison, part, counter_name(quantity), _unit(quantity), found[part])
            for part in dict.fromkeys(chosen)
            if part in found
        ]
    return _made(comparison, looks, exhibit, name, rows, links)


def counter_name(quantity: str) -> str:
    """Return the readable name of a counter: ``others-used`` is ``CPUs without machines, used``."""
    kind, _, what = quantity.partition("-")
    kinds = {"cpu": "CPU", "bound": "CPUs with machines", "others": "CPUs without machines"}
    words = {"iowait": "idle, waiting for I/O"}.get(what, what)
    return f"{kinds.get(kind, kind)}, {words}" if kind in kinds else f"{kind} {words}"


def _unit(quantity: str) -> str:
    unit = QUANTITIES.get(quantity, "1")
    return SHARE if unit == "1" and quantity not in COUNTS else unit


def _has(parameters: str, wanted: Mapping[str, object]) -> bool:
    given = parameters_of(parameters)
    return all(given.get(name) == value for name, value in wanted.items())


def _metric_row(comparison: Comparison, key: Key) -> JobRow:
    found = [summary for summary in comparison.summaries if summary.key == key]
    arms = {
        summary.arm: (
            summary.mean,
            (summary.interval.low, summary.interval.high) if summary.interval else None,
        )
        for summary in found
    }
    row = _row(comparison, Part.of(key), metric_name(key.metric), found[0].unit, arms)
    return replace(row, key=key)


def _row(
    comparison: Comparison,
    part: Part,
    what: str,
    unit: str,
    arms: Mapping[str, tuple[float, tuple[float, float] | None]],
) -> JobRow:
    return JobRow(
        part,
        what,
        unit,
        shapes(comparison).get(part.scenario),
        _mean(comparison, part, "copies", "1"),
        _mean(comparison, part, "written", "B"),
        arms,
    )


def _mean(comparison: Comparison, part: Part, metric: str, unit: str) -> float | None:
    found = {
        summary.arm: summary.mean
        for summary in comparison.summaries
        if Part.of(summary.key) == part
        and summary.key.metric == metric
        and summary.unit == unit
    }  # fmt: skip
    return found.get(comparison.baseline or "", next(iter(found.values()), None))


def _made(
    comparison: Comparison,
    looks: Mapping[str, ArmStyle],
    exhibit: Exhibit,
    name: str,
    rows: Sequence[JobRow],
    links: Links | None,
) -> JobsExhibit:
    if not rows:
        return JobsExhibit(empty=_empty_text(exhibit))
    emulated = {summary.arm for summary in comparison.summaries if summary.emulated}
    names = Names(row.part for row in rows)
    unit = rows[0].unit
    drawn = _fitting([row for row in rows if row.unit == unit], comparison.arms)
    several = len({row.what for row in drawn}) > 1
    bars = [
        Bar(
            _group(names, row, several),
            arm,
            arm in emulated,
            *row.arms[arm],
            to=row.lead(links, arm) if links else "",
        )
        for row in drawn
        for arm in comparison.arms
        if arm in row.arms
    ]
    what = "" if several else drawn[0].what
    figure = bars_figure(bars, looks, unit, name=name, title=exhibit.shows, what=what)
    left_out = (
        f"The figure has {len(drawn)} of {counted(len(rows), 'row')}, the table has all."
        if len(drawn) < len(rows)
        else ""
    )
    table = _table(comparison, exhibit, name, rows, names, emulated)
    return JobsExhibit(figure, table, left_out=left_out)


def _fitting(rows: Sequence[JobRow], arms: Sequence[str]) -> list[JobRow]:
    """Return the first rows, with all arms of each, whose bars fit into a figure."""
    found: list[JobRow] = []
    bars = 0
    for row in rows:
        bars += sum(arm in row.arms for arm in arms)
        if found and bars > MOST_BARS:
            break
        found.append(row)
    return found


def _group(names: Names, row: JobRow, several: bool) -> str:
    words = [names.name(row.part), *([row.what] if several else [])]
    if row.shape is not None:
        words.append(_slaves(row.shape))
    if row.copies is not None and row.written is not None:
        copies = f"{format_number(row.copies, 6)} {'copy' if row.copies == 1 else 'copies'}"
        words.append(f"{copies}, {format_size(row.written)} written")
    return ", ".join(words)


def _slaves(shape: Shape) -> str:
    slaves = f"{shape.slaves} slave{'s' if shape.slaves > 1 else ''}"
    return f"{slaves} on {shape.hosts} hosts" if shape.hosts > 1 else slaves


def _empty_text(exhibit: Exhibit) -> str:
    lacking = {
        "slaves": ", on clusters of several sizes",
        "hosts": ", on slaves of one host and as many on several",
        "size": "",
        "": "",
    }[exhibit.over]
    step = f" in step {exhibit.step}" if exhibit.step else ""
    named = counter_name if exhibit.view == "counters" else metric_name
    return (
        f"this run has no {' or '.join(map(named, exhibit.metrics))} of "
        f"{' or '.join(exhibit.workloads)}{step}{lacking}"
    )


def _table(
    comparison: Comparison,
    exhibit: Exhibit,
    name: str,
    rows: Sequence[JobRow],
    names: Names,
    emulated: set[str],
) -> Table[JobRow]:
    columns: list[Column[JobRow]] = [
        Column("what", lambda row: f"{names.name(row.part)}: {row.what}", "What"),
        Column(
            "slaves",
            lambda row: row.shape.slaves if row.shape else None,
            "Slaves",
            lambda row: _slaves(row.shape) if row.shape else NONE,
        ),
        Column(
            "copies",
            lambda row: row.copies,
            "Copies",
            lambda row: NONE if row.copies is None else f"{format_number(row.copies, 6)}",
            numeric=True,
        ),
        Column(
            "written",
            lambda row: row.written,
            "Written",
            lambda row: NONE if row.written is None else format_size(row.written),
            numeric=True,
        ),
    ]
    columns += [
        _column(arm, marked(arm, arm in emulated))
        for arm in comparison.arms
        if any(arm in row.arms for row in rows)
    ]
    return Table(name, exhibit.shows, tuple(columns), tuple(rows))


def _column(arm: str, title: str) -> Column[JobRow]:
    def text(row: JobRow) -> str:
        if arm not in row.arms:
            return NONE
        mean, ends = row.arms[arm]
        if ends is None:
            return _format_value(mean, row.unit)
        return (
            f"{_format_value(mean, row.unit)} ± {_format_value((ends[1] - ends[0]) / 2, row.unit)}"
        )

    def value(row: JobRow) -> float | None:
        return row.arms[arm][0] if arm in row.arms else None

    return Column(slug(arm), value, title, text, numeric=True)


def _format_value(value: float, unit: str) -> str:
    if unit == SHARE:
        return f"{100 * value:.1f} %"
    return format_number(value) if unit == "1" else format_quantity(value, unit)


@dataclass(frozen=True)
class Shape:
    """The shape of a scenario's cluster: the number of its slaves, and of the hosts they run on."""

    slaves: int
    hosts: int


def shapes(comparison: Comparison) -> dict[str, Shape]:
    """Return by scenario the shapes of the runs' clusters."""
    found: dict[str, Shape] = {}
    for run in comparison.runs:
        for name, scenario in mapping(run.study.get("scenarios")).items():
            cluster = mapping(mapping(scenario).get("cluster"))
            slaves, hosts = cluster.get("slaves"), cluster.get("hosts")
            if isinstance(slaves, int):
                spread = len(hosts) if isinstance(hosts, list | tuple) else 0
                found[str(name)] = Shape(slaves, max(1, min(spread, slaves)))
    return found


def telling(parts: Sequence[Part], made: Mapping[str, Shape], over: Over) -> list[Part]:
    """Return the pieces of work that show how results depend on a figure's horizontal axis.

    Work that ran with only one size, or on only one cluster, does not show that. Blocks run in
    random
    order, so the result is sorted by cluster, then by size, then by name.

    Args:
        parts: All pieces of work that were measured.
        made: The shapes of the scenarios' clusters.
        over: The horizontal axis. ``size``: work done with several sizes, in the scenario with the
            most sizes, or among equals with the most slaves; without several sizes, all work there.
            ``slaves``: equal work on one host's clusters of several sizes. ``hosts``: equal work on
            equally many slaves on one host and on several. Empty: all work.
    """
    known = sorted(dict.fromkeys(parts), key=lambda part: _place(part, made))
    if over == "size":
        return _parts_over_size(known, made)
    clusters = [part for part in known if part.scenario in made]
    if over == "slaves":
        clusters = [part for part in clusters if made[part.scenario].hosts == 1]
        several = {
            work for work, numbers in _slave_counts(clusters, made).items() if len(numbers) > 1
        }
        return [part for part in clusters if part.parameters in several]
    if over == "hosts":
        alone = _slave_counts([part for part in clusters if made[part.scenario].hosts == 1], made)
        spread = _slave_counts([part for part in clusters if made[part.scenario].hosts > 1], made)
        return [
            part
            for part in clusters
            if made[part.scenario].slaves
            in alone.get(part.parameters, set()) & spread.get(part.parameters, set())
        ]
    return known


def _parts_over_size(known: Sequence[Part], made: Mapping[str, Shape]) -> list[Part]:
    sizes: dict[tuple[str, str], set[float]] = {}
    for part in known:
        sizes.setdefault(_work(part), set()).add(_size(part))

    def rank(part: Part) -> tuple[int, int]:
        shape = made.get(part.scenario)
        return len(sizes[_work(part)]), shape.slaves if shape else 0

    best = max(known, key=rank, default=None)
    if best is None:
        return []
    there = sorted((part for part in known if part.scenario == best.scenario), key=_size)
    return [part for part in there if len(sizes[_work(part)]) > 1] or there


def _work(part: Part) -> tuple[str, str]:
    """Return a piece of work's scenario and parameters except its size."""
    rest = {name: value for name, value in parameters_of(part.parameters).items() if name != "size"}
    return part.scenario, json.dumps(rest, sort_keys=True)


def _slave_counts(parts: Iterable[Part], made: Mapping[str, Shape]) -> dict[str, set[int]]:
    """Return by the work's parameters the numbers of slaves on which it ran."""
    found: dict[str, set[int]] = {}
    for part in parts:
        found.setdefault(part.parameters, set()).add(made[part.scenario].slaves)
    return found


def _place(part: Part, made: Mapping[str, Shape]) -> tuple[int, int, str, str, float, str]:
    shape = made.get(part.scenario, Shape(0, 0))
    size = _size(part)
    return shape.slaves, shape.hosts, part.scenario, part.workload, size, part.parameters


def _size(part: Part) -> float:
    size = parameters_of(part.parameters).get("size")
    return float(size) if isinstance(size, int | float) else 0.0


def parameters_of(text: str) -> Mapping[str, Any]:
    """Return the parameters in canonical JSON ``text``."""
    return mapping(json.loads(text or "{}"))
