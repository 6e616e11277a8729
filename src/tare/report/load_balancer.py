"""The section on a load balancer: what it lets through by size, what is lost, and to whom."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.load_balancer import INSIDE, Through
from tare.analysis.model import Key
from tare.analysis.proxied_cells import HOST, LEAST
from tare.analysis.rundata import SUBJECT
from tare.report.balancer_courses import course_figures
from tare.report.balancer_findings import findings
from tare.report.balancer_tables import costs_table, rates_table, spent_table
from tare.report.data import ReportData
from tare.report.figures.frame import Captioned
from tare.report.figures.over_size import Mark, over_size_figure
from tare.report.figures.time_spent import Bar, Part, time_figures
from tare.report.leads import Leads
from tare.report.palette import Look
from tare.report.sections import Section, SectionData
from tare.report.tables import Shown
from tare.report.words import marked, percent
from tare.units import format_quantity, format_size

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
class LoadBalancerData(SectionData):
    """What the page shows of a load balancer."""

    findings: tuple[str, ...]
    rates: Shown
    costs: Shown
    spent: Shown


class LoadBalancer(Section):
    """What a load balancer lets through by size, what is lost, and to whom."""

    name, title = "load-balancer", "What goes through the load balancer"
    template = "load_balancer.html.j2"

    def data(self, report: ReportData) -> LoadBalancerData | None:
        """Return what each arm let through; None if nothing went through a proxy."""
        found, comparison = report.proxied, report.comparison
        if not found:
            return None
        tables = rates_table(found), costs_table(found), spent_table(found)
        same = tables[0].unvaried("scenario", "workload")
        return LoadBalancerData(
            findings(found),
            *(table.shown(hide=same) for table in tables),
            figures=(
                *_figures(found, report.looks, comparison.baseline, report.leads),
                *course_figures(report.runs, comparison.arms, report.looks, report.leads),
            ),
            tables=tables,
        )


def _figures(
    found: Sequence[Through], looks: Mapping[str, Look], baseline: str, leads: Leads | None
) -> tuple[Captioned, ...]:
    figures: list[Captioned] = []
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
        drawn = time_figures(f"{stem}-time", _bars(own, leads), where)
        figures += [(figure, _time_note(own)) for figure in drawn]
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
    key = Key(one.scenario, one.kind, one.parameters, SUBJECT, metric)
    return leads.effect(key, one.arm) if leads else ""


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


def _bars(own: Sequence[Through], leads: Leads | None) -> list[tuple[Bar, ...]]:
    """Return two bars an arm, of the smallest objects: there each request counts most."""
    least = {arm: min(t.size for t in own if t.arm == arm) for arm in {t.arm for t in own}}
    arms = []
    for each in own:
        if each.size != least[each.arm]:
            continue
        bars = []
        for where, words, more in (
            (HOST, "on the host", _interrupts(each)),
            (INSIDE, "inside the machine", _haproxys(each)),
        ):
            parts = [
                Part(s.who, s.share, s.per_request_s, s.cycles)
                for s in each.spent
                if s.where == where
            ]
            name = f"{marked(each.arm, each.emulated)}, {format_size(each.size)}, {words}"
            if parts:
                to = _lead(each, leads, "cpu-per-request")
                bars.append(Bar(name, each.emulated, tuple(parts), to, more))
        if bars:
            arms.append(tuple(bars))
    return arms


def _interrupts(one: Through) -> tuple[str, ...]:
    """Return how much of the host's time was interrupts', of those that it is told among."""
    whole = sum(each.per_request_s for each in one.spent if each.where == HOST)
    kinds = (("software", one.softirq_s), ("hardware", one.hardirq_s))
    known = [(kind, spent) for kind, spent in kinds if spent is not None and whole > 0]
    return tuple(
        f"of it {percent(each / whole)}, {format_quantity(each, 's')} a request: {kind} interrupts"
        for kind, each in known
    )


def _haproxys(one: Through) -> tuple[str, ...]:
    """Return what HAProxy says of itself beside what the kernel says of it."""
    if one.own is None:
        return ()
    of = "its thread" if one.own.threads == 1 else f"the one of its {one.own.threads} threads asked"
    return (f"HAProxy of itself: {of} waited for {percent(one.own.idle)} of the time",)
