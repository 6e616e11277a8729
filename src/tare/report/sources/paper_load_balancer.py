"""A source's figures of a load balancer: throughput by size, and the users of CPU time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Key
from tare.analysis.topics.load_balancer import OwnerTime, Throughput
from tare.analysis.topics.proxied_cells import HOST, LEAST
from tare.references.arms import bare_of, counterparts_of
from tare.references.exhibits import Exhibit
from tare.references.measured import measured_keys
from tare.references.published import Reference
from tare.report.figures.frame import Figure
from tare.report.figures.over_size import Mark, over_size_figure
from tare.report.figures.palette import ArmStyle
from tare.report.page.links import Links
from tare.report.page.tables import Column, Table
from tare.report.page.words import NONE, joined, marked, percent
from tare.report.sources.paper_empty import arms_without
from tare.units import format_quantity, format_size

REQUESTS, BANDWIDTH, LOSS = "requests", "bandwidth", "loss"
NOTE = (
    "Hollow: client or origin may have been the limit, so the proxy can serve at least as many, "
    "and no loss is computed."
)
LIMITED = (
    "no loss is computed in this run: in every cell of these arms or of the baseline client or "
    "origin may have been the limit"
)
NOT_NATIVE = "this run’s losses are against its baseline, which is not the server itself"
ALONE = "this run has no other arm than its baseline, against which loss is"
SMALL = 0.01
"""Owners with less than this share of the CPUs are only in the table of all owners."""


@dataclass(frozen=True)
class Quantity:
    """The quantity of a figure over the size of objects.

    Args:
        unit: The unit, as figures over size name it.
        title: The heading of its column.
        value: Returns the quantity; None if it is missing.
        text: Returns a value for reading.
        least: Whether a value may be a lower bound.
    """

    unit: str
    title: str
    value: Callable[[Throughput], float | None]
    text: Callable[[float], str]
    least: bool = True


QUANTITIES: Mapping[str, Quantity] = {
    REQUESTS: Quantity("1/s", "Requests/s", lambda t: t.requests, lambda v: f"{v:.0f}"),
    BANDWIDTH: Quantity(
        "B/s", "Bandwidth", lambda t: t.bandwidth, lambda v: format_quantity(v, "B/s")
    ),
    LOSS: Quantity("%", "Loss", lambda t: t.loss, percent, least=False),
}


@dataclass(frozen=True)
class BalancerExhibit:
    """A figure's counterpart: drawn, with its values as a table, or the reason for having none."""

    figure: Figure | None = None
    table: Table[Any] | None = None
    empty: str = ""
    notes: tuple[str, ...] = ()


def over_size_of(
    comparison: Comparison,
    found: Sequence[Throughput],
    looks: Mapping[str, ArmStyle],
    reference: Reference,
    exhibit: Exhibit,
    links: Links | None = None,
) -> BalancerExhibit:
    """Return the throughput over the size of objects.

    If the exhibit names arms of the source, it shows their counterparts and the bare machine,
    otherwise
    all arms. Losses are shown only against the bare machine, as in the source. The figure shows the
    first quantity in the scenario with the most sizes; the table has all.

    Args:
        comparison: The runs' comparison.
        found: The throughput of each arm, by size.
        looks: The style of each arm.
        reference: The source.
        exhibit: The source's figure.
        links: Finds the link targets of marks.
    """
    own, empty = _measured_for(comparison, _fitting(comparison, found, exhibit), reference, exhibit)
    first = QUANTITIES[exhibit.metrics[0]]
    having = [each for each in own if first.value(each) is not None]
    if LOSS in exhibit.metrics and reference.baseline:
        natives, why_none = counterparts_of(comparison, reference, (reference.baseline,))
        if not empty and comparison.baseline not in natives:
            empty = why_none or NOT_NATIVE
    if not empty and not having:
        limited = any(each.arm != comparison.baseline for each in own)
        empty = LIMITED if limited else ALONE
    if empty:
        return BalancerExhibit(empty=empty)
    drawn = _place_with_most_sizes(having)
    name = exhibit.stem(reference.reference)
    marks = [
        Mark(
            each.arm,
            each.emulated,
            each.size,
            first.value(each) or 0.0,
            first.least and each.limited,
            links.effect(_key(each), each.arm) if links else "",
        )
        for each in drawn
    ]
    kinds = dict.fromkeys(_place(each) for each in having)
    notes = [f"This run: {' in '.join(_place(drawn[0]))}."]
    if len(kinds) > 1:
        others = joined([" in ".join(kind) for kind in kinds if kind != _place(drawn[0])])
        notes.append(f"The table has {others} too.")
    return BalancerExhibit(
        over_size_figure(name, exhibit.shows, marks, looks, first.unit),
        _table(name, exhibit, having),
        notes=(*notes, *arms_without(comparison, map(_key, having))),
    )


def time_spent_of(
    comparison: Comparison, found: Sequence[Throughput], reference: Reference, exhibit: Exhibit
) -> BalancerExhibit:
    """Return a table of the users of the CPUs while the proxy was full of the smallest objects."""
    own, empty = _measured_for(comparison, _fitting(comparison, found, exhibit), reference, exhibit)
    bare = bare_of(comparison, reference)
    own = [each for each in own if each.arm not in (comparison.baseline, bare) and each.spent]
    if not empty and not own:
        empty = f"this run has no account of the CPU time of {joined(exhibit.workloads)}"
    if empty:
        return BalancerExhibit(empty=empty)
    least = min(each.size for each in own)
    rows = tuple(
        (each, spent)
        for each in own
        if each.size == least
        for spent in each.spent
        if spent.share >= SMALL
    )
    columns: tuple[Column[tuple[Throughput, OwnerTime]], ...] = (
        Column("scenario", lambda r: r[0].scenario, "Scenario"),
        Column("workload", lambda r: r[0].workload, "Workload"),
        Column("arm", lambda r: r[0].arm, "Arm", lambda r: marked(r[0].arm, r[0].emulated)),
        Column("emulated", lambda r: r[0].emulated),
        Column("size", lambda r: r[0].size, "Object", lambda r: format_size(r[0].size), True),
        Column("requests_per_s", lambda r: r[0].requests, "Requests/s", _requests, numeric=True),
        Column("where", lambda r: r[1].where, "Where"),
        Column("who", lambda r: r[1].who, "Who"),
        Column("share", lambda r: r[1].share, "Share", lambda r: percent(r[1].share), numeric=True),
        Column("cores", _cores, "Share of one CPU", _format_cores, numeric=True),
    )
    name = exhibit.stem(reference.reference)
    caption = f"{exhibit.shows}: who used the CPUs while the proxy was full"
    return BalancerExhibit(table=Table(name, caption, columns, rows))


def _requests(row: tuple[Throughput, OwnerTime]) -> str:
    return f"{'at least ' * row[0].limited}{row[0].requests:.0f}"


def _cores(row: tuple[Throughput, OwnerTime]) -> float | None:
    """Return how many CPUs an owner used; None for work on the machine's own CPUs."""
    through, spent = row
    return spent.share * through.cpus if spent.where == HOST and through.cpus else None


def _format_cores(row: tuple[Throughput, OwnerTime]) -> str:
    cores = _cores(row)
    return NONE if cores is None else percent(cores)


def _fitting(
    comparison: Comparison, found: Sequence[Throughput], exhibit: Exhibit
) -> list[Throughput]:
    """Return the throughputs that were measured with the source's parameters."""
    scenarios = {each.scenario for each in found}
    keys = {
        (key.scenario, key.workload, key.parameters)
        for scenario in scenarios
        for workload in exhibit.workloads
        for metric in (REQUESTS, f"{REQUESTS}{LEAST}")
        for key in measured_keys(comparison, workload, metric, scenario, exhibit.parameters)
    }
    return [each for each in found if (each.scenario, each.kind, each.parameters) in keys]


def _measured_for(
    comparison: Comparison, found: list[Throughput], reference: Reference, exhibit: Exhibit
) -> tuple[list[Throughput], str]:
    """Return the throughputs of an exhibit's arms, or the reason why there are none."""
    if not found:
        return [], f"this run measured no {joined(exhibit.workloads)}"
    if not exhibit.arms:
        return found, ""
    own, why = counterparts_of(comparison, reference, exhibit.arms)
    if not any(each.arm in own for each in found):
        return [], why or f"{joined(sorted(own))} let nothing through that counts"
    wanted = {*own, bare_of(comparison, reference) or ""}
    return [each for each in found if each.arm in wanted], ""


def _place(each: Throughput) -> tuple[str, str]:
    return each.workload, each.scenario


def _place_with_most_sizes(found: Sequence[Throughput]) -> list[Throughput]:
    sizes: dict[tuple[str, str], set[int]] = {}
    for each in found:
        sizes.setdefault(_place(each), set()).add(each.size)
    best = max(sizes, key=lambda place: len(sizes[place]))
    return [each for each in found if _place(each) == best]


def _key(each: Throughput) -> Key:
    metric = f"{REQUESTS}{LEAST}" if each.limited else REQUESTS
    return Key(each.scenario, each.kind, each.parameters, SUBJECT, metric)


def _table(name: str, exhibit: Exhibit, rows: Sequence[Throughput]) -> Table[Throughput]:
    columns: list[Column[Throughput]] = [
        Column("scenario", lambda t: t.scenario, "Scenario"),
        Column("workload", lambda t: t.workload, "Workload"),
        Column("arm", lambda t: t.arm, "Arm", lambda t: marked(t.arm, t.emulated)),
        Column("emulated", lambda t: t.emulated),
        Column("size", lambda t: t.size, "Object", lambda t: format_size(t.size), numeric=True),
        Column("at_least", lambda t: t.limited),
        *(_column(metric) for metric in exhibit.metrics),
        Column("blocks", lambda t: t.blocks, "Blocks", numeric=True),
    ]
    return Table(name, exhibit.shows, tuple(columns), tuple(rows))


def _column(metric: str) -> Column[Throughput]:
    quantity = QUANTITIES[metric]

    def text(row: Throughput) -> str:
        value = quantity.value(row)
        if value is None:
            return NONE
        is_least = quantity.least and row.limited and value > 0
        return f"{'at least ' * is_least}{quantity.text(value)}"

    return Column(metric, quantity.value, quantity.title, text, numeric=True)
