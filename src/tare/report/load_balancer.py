"""The section on a load balancer: what it lets through by size, what is lost, and to whom."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.formatting import format_quantity, format_size
from tare.analysis.load_balancer import HOST, INSIDE, LEAST, Spent, Through, through
from tare.analysis.model import Comparison
from tare.analysis.rundata import RunData
from tare.report.balancer_courses import course_figures
from tare.report.balancer_findings import findings
from tare.report.figures.frame import Figure
from tare.report.figures.over_size import Mark, over_size_figure
from tare.report.figures.time_spent import Bar, Part, time_figure
from tare.report.intervals import interval_columns
from tare.report.leads import Leads
from tare.report.palette import Look
from tare.report.tables import Column, Shown, Table
from tare.report.words import NONE, marked, percent

MOST_BARS = 16
RATE_NOTE = (
    "One request a connection unless the study says otherwise. Hollow: client or origin may have "
    "been the limit, so the proxy can at least as many, and no loss is computed from it."
)
LOSS_NOTE = "Share of the baseline’s requests that is lost, only where nothing else was the limit."
TIME_NOTE = (
    "Host: whose threads the host’s CPUs ran, until all CPU time is told. Software interrupts are "
    "part of what they interrupted. Inside: what the machine’s own CPUs did, by its kernel’s "
    "sampling; of the bare host and of containers these are the host’s CPUs that they were given."
)


@dataclass(frozen=True)
class LoadBalancerSection:
    """What the page shows of a load balancer."""

    findings: tuple[str, ...]
    rates: Shown
    spent: Shown


@dataclass(frozen=True)
class LoadBalancer:
    """Everything of the section before its figures are drawn."""

    section: LoadBalancerSection
    figures: tuple[tuple[Figure, str], ...]
    tables: tuple[Table[Through], Table[tuple[Through, Spent]]]


def load_balancer_of(
    runs: Sequence[RunData],
    comparison: Comparison,
    looks: Mapping[str, Look],
    leads: Leads | None = None,
) -> LoadBalancer | None:
    """Return the section; None where nothing went through a proxy.

    Args:
        runs: The runs.
        comparison: Their comparison.
        looks: How arms are drawn.
        leads: What marks lead to.
    """
    found = through(runs, comparison.arms, comparison.baseline, comparison.confidence)
    if not found:
        return None
    rates, spent = rates_table(found), spent_table(found)
    same = [
        name for name in ("scenario", "workload") if len({getattr(t, name) for t in found}) == 1
    ]
    section = LoadBalancerSection(findings(found), rates.shown(hide=same), spent.shown(hide=same))
    figures = (
        *_figures(found, looks, comparison.baseline, leads),
        *course_figures(runs, comparison.arms, looks, leads),
    )
    return LoadBalancer(section, figures, (rates, spent))


def _figures(
    found: Sequence[Through], looks: Mapping[str, Look], baseline: str, leads: Leads | None
) -> tuple[tuple[Figure, str], ...]:
    figures: list[tuple[Figure, str]] = []
    kinds = list(dict.fromkeys((each.workload, each.scenario) for each in found))
    for number, (workload, scenario) in enumerate(kinds):
        own = [each for each in found if (each.workload, each.scenario) == (workload, scenario)]
        stem = "load-balancer" if len(kinds) == 1 else f"load-balancer-{number + 1}"
        where = "" if len(kinds) == 1 else f", {workload} in {scenario}"
        rates = _rate_marks(own, leads)
        bands = [_mark(t, t.bandwidth, leads, "bandwidth", least=t.limited) for t in own]
        losses = [_mark(t, t.loss, leads) for t in own if t.loss is not None]
        title = f"Requests per second over the size of objects{where}"
        figures.append((over_size_figure(f"{stem}-rate", title, rates, looks, "1/s"), RATE_NOTE))
        for family, members in families(own, baseline).items():
            name = f"{stem}-rate-{re.sub('[^a-z0-9]+', '-', family.lower())}"
            words = f"Requests per second over the size of objects, {family} by its devices{where}"
            figure = over_size_figure(name, words, _rate_marks(members, leads), looks, "1/s")
            figures.append((figure, RATE_NOTE))
        title = f"Bandwidth over the size of objects{where}"
        figures.append((over_size_figure(f"{stem}-band", title, bands, looks, "B/s"), RATE_NOTE))
        if losses:
            title = f"Loss against the baseline over the size of objects{where}"
            figures.append((over_size_figure(f"{stem}-loss", title, losses, looks, "%"), LOSS_NOTE))
        figures.append((time_figure(f"{stem}-time", _bars(own, leads)), _time_note(own)))
    return tuple(figures)


def _rate_marks(own: Sequence[Through], leads: Leads | None) -> list[Mark]:
    return [_mark(t, t.requests, leads, least=t.limited) for t in own]


def _mark(
    one: Through,
    value: float,
    leads: Leads | None,
    metric: str = "requests",
    *,
    least: bool = False,
) -> Mark:
    to = _lead(one, leads, f"{metric}{LEAST}" if one.limited else metric)
    return Mark(one.arm, one.emulated, one.size, value, least, to)


def _lead(one: Through, leads: Leads | None, metric: str) -> str:
    return leads.sized(one.scenario, one.workload, one.size, one.arm, metric) if leads else ""


def families(own: Sequence[Through], baseline: str) -> dict[str, list[Through]]:
    """Return the arms that differ by their devices alone, by what they have in common.

    Each with the baseline's; a family of one arm, or one that is all there is, says nothing more
    than the figure of all arms.
    """
    arms: dict[str, set[str]] = {}
    for each in own:
        if each.family and each.arm != baseline:
            arms.setdefault(each.family, set()).add(each.arm)
    if len(arms) < 2:
        return {}
    return {
        family: [each for each in own if each.arm in names or each.arm == baseline]
        for family, names in arms.items()
        if len(names) > 1
    }


def _time_note(own: Sequence[Through]) -> str:
    why = next((each.no_cycles for each in own if each.no_cycles), "")
    return f"{TIME_NOTE} No cycles: the host’s CPUs show no counters ({why})." if why else TIME_NOTE


def _bars(own: Sequence[Through], leads: Leads | None) -> list[Bar]:
    """Return two bars an arm, of the smallest objects: there each request counts most."""
    least = {arm: min(t.size for t in own if t.arm == arm) for arm in {t.arm for t in own}}
    bars = []
    for each in own:
        if each.size != least[each.arm]:
            continue
        for where, words in ((HOST, "on the host"), (INSIDE, "inside the machine")):
            parts = [
                Part(s.who, s.share, s.per_request_s, s.cycles)
                for s in each.spent
                if s.where == where
            ]
            name = f"{marked(each.arm, each.emulated)}, {format_size(each.size)}, {words}"
            if parts:
                to = _lead(each, leads, "cpu-per-request")
                bars.append(Bar(name, each.emulated, tuple(parts), to))
    return bars[:MOST_BARS]


def rates_table(found: Sequence[Through]) -> Table[Through]:
    """Return what each arm let through, one row an arm and size."""
    columns: tuple[Column[Through], ...] = (
        Column("scenario", lambda t: t.scenario, "Scenario"),
        Column("workload", lambda t: t.workload, "Workload"),
        Column("arm", lambda t: t.arm, "Arm", lambda t: marked(t.arm, t.emulated)),
        Column("emulated", lambda t: t.emulated),
        Column("size", lambda t: t.size, "Object", lambda t: format_size(t.size), numeric=True),
        Column("at_least", lambda t: t.limited),
        Column(
            "requests_per_s",
            lambda t: t.requests,
            "Requests/s",
            lambda t: f"{'at least ' * t.limited}{t.requests:.0f}",
            numeric=True,
        ),
        Column(
            "direct_per_s",
            lambda t: t.direct,
            "Without proxy",
            lambda t: f"{t.direct:.0f}",
            numeric=True,
        ),
        Column(
            "straight_per_s",
            lambda t: t.straight,
            "Straight",
            lambda t: NONE if t.straight is None else f"{t.straight:.0f}",
            numeric=True,
        ),
        Column(
            "bytes_per_s",
            lambda t: t.bandwidth,
            "Bandwidth",
            lambda t: format_quantity(t.bandwidth, "B/s"),
            numeric=True,
        ),
        Column(
            "cpu_per_request_s",
            lambda t: t.cpu_s,
            "CPU a request",
            lambda t: NONE if t.cpu_s is None else format_quantity(t.cpu_s, "s"),
            numeric=True,
        ),
        Column(
            "loss",
            lambda t: t.loss,
            "Loss",
            lambda t: NONE if t.loss is None else percent(t.loss),
            numeric=True,
        ),
        *interval_columns(lambda t: t.interval, lambda t: t.blocks),
        Column("link_full", lambda t: t.link_full if t.link is not None else None),
        Column("faults", lambda t: ", ".join(f"{n} {what}" for what, n in t.faults.items())),
        Column("limits", lambda t: "; ".join(t.limits)),
        Column("blocks", lambda t: t.blocks, "Blocks", numeric=True),
    )
    caption = "What went through the proxy, by the size of objects"
    return Table("load-balancer", caption, columns, tuple(found), tone=_tone)


def spent_table(found: Sequence[Through]) -> Table[tuple[Through, Spent]]:
    """Return all CPU time by owner, one row an arm, size and owner."""
    rows = tuple((each, spent) for each in found for spent in each.spent)
    columns: tuple[Column[tuple[Through, Spent]], ...] = (
        Column("scenario", lambda r: r[0].scenario, "Scenario"),
        Column("workload", lambda r: r[0].workload, "Workload"),
        Column("arm", lambda r: r[0].arm, "Arm", lambda r: marked(r[0].arm, r[0].emulated)),
        Column("emulated", lambda r: r[0].emulated),
        Column(
            "size", lambda r: r[0].size, "Object", lambda r: format_size(r[0].size), numeric=True
        ),
        Column("where", lambda r: r[1].where, "Where"),
        Column("who", lambda r: r[1].who, "Who"),
        Column("share", lambda r: r[1].share, "Share", lambda r: percent(r[1].share), numeric=True),
        Column(
            "per_request_s",
            lambda r: r[1].per_request_s,
            "A request",
            lambda r: format_quantity(r[1].per_request_s, "s"),
            numeric=True,
        ),
        Column(
            "cycles",
            lambda r: r[1].cycles,
            "Cycles a request",
            lambda r: NONE if r[1].cycles is None else f"{r[1].cycles:,.0f}",
            numeric=True,
        ),
    )
    caption = "Where the time went while the proxy was full"
    return Table("where-the-time-goes", caption, columns, rows, tone=lambda r: _tone(r[0]))


def _tone(row: Through) -> str:
    return "emulated" if row.emulated else ""
