"""The section on a load balancer: throughput by size, losses, and the users of CPU time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.model import Key
from tare.analysis.topics.load_balancer import INSIDE, OwnerTime, Throughput
from tare.analysis.topics.proxied_cells import HOST, LEAST
from tare.report.figures.frame import Captioned
from tare.report.figures.over_size import Mark, over_size_figure
from tare.report.figures.palette import ArmStyle
from tare.report.figures.time_spent import BarPart, TimeBar, time_figures
from tare.report.page.data import ReportData
from tare.report.page.links import Links
from tare.report.page.tables import Column, ShownTable, Table, interval_columns
from tare.report.page.words import NONE, marked, percent, ratio
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.load_balancer_findings import findings
from tare.report.sections.load_balancer_over_time import over_time_figures
from tare.units import format_number, format_quantity, format_size

RATE_NOTE = (
    "One request a connection unless the study says otherwise. Hollow: client or origin may have "
    "been the limit, so the proxy can at least as many; such cells only bound the loss."
)
LOSS_NOTE = (
    "Share of the baseline’s requests that is lost. Cells where client or origin was the limit are "
    "bounds; without an estimate, they leave the loss open."
)
TIME_NOTE = (
    "Host: the owners of the threads that the host’s CPUs ran; together they account for all CPU "
    "time. Software interrupts count as part of what they interrupted. Inside: what the machine’s "
    "own CPUs did, sampled by its kernel; for the bare host and for containers these are the "
    "host’s CPUs that they may use."
)


@dataclass(frozen=True)
class LoadBalancerData(SectionData):
    """The content of the section on a load balancer."""

    findings: tuple[str, ...]
    rates: ShownTable
    costs: ShownTable
    spent: ShownTable


class LoadBalancer(Section):
    """Throughput of a load balancer by size, losses, and the users of CPU time."""

    name, title = "load-balancer", "What goes through the load balancer"
    template = "load_balancer.html.j2"

    def data(self, report: ReportData) -> LoadBalancerData | None:
        """Return the throughput of each arm; None if no load went through a proxy."""
        found, comparison = report.proxied, report.comparison
        if not found:
            return None
        tables = rates_table(found), costs_table(found), spent_table(found)
        same = tables[0].unvaried("scenario", "workload")
        return LoadBalancerData(
            findings(found),
            *(table.shown(hide=same) for table in tables),
            figures=(
                *_figures(found, report.looks, comparison.baseline, report.links),
                *over_time_figures(report.runs, comparison.arms, report.looks, report.links),
            ),
            tables=tables,
        )


def _figures(
    found: Sequence[Throughput], looks: Mapping[str, ArmStyle], baseline: str, links: Links | None
) -> tuple[Captioned, ...]:
    figures: list[Captioned] = []
    kinds = list(dict.fromkeys((each.workload, each.scenario) for each in found))
    for number, (workload, scenario) in enumerate(kinds):
        own = [each for each in found if (each.workload, each.scenario) == (workload, scenario)]
        stem = "load-balancer" if len(kinds) == 1 else f"load-balancer-{number + 1}"
        where = "" if len(kinds) == 1 else f", {workload} in {scenario}"
        rates = _rate_marks(own, links)
        bands = [_mark(t, t.bandwidth, links, "bandwidth", least=t.limited) for t in own]
        losses = [_mark(t, t.loss, links) for t in own if t.loss is not None]
        title = f"Requests per second over the size of objects{where}"
        figures.append((over_size_figure(f"{stem}-rate", title, rates, looks, "1/s"), RATE_NOTE))
        for family, members in families(own, baseline).items():
            name = f"{stem}-rate-{re.sub('[^a-z0-9]+', '-', family.lower())}"
            words = f"Requests per second over the size of objects, {family} by its devices{where}"
            figure = over_size_figure(name, words, _rate_marks(members, links), looks, "1/s")
            figures.append((figure, RATE_NOTE))
        title = f"Bandwidth over the size of objects{where}"
        figures.append((over_size_figure(f"{stem}-band", title, bands, looks, "B/s"), RATE_NOTE))
        if losses:
            title = f"Loss against the baseline over the size of objects{where}"
            figures.append((over_size_figure(f"{stem}-loss", title, losses, looks, "%"), LOSS_NOTE))
        drawn = time_figures(f"{stem}-time", _bars(own, links), where)
        figures += [(figure, _time_note(own)) for figure in drawn]
    return tuple(figures)


def _rate_marks(own: Sequence[Throughput], links: Links | None) -> list[Mark]:
    return [_mark(t, t.requests, links, least=t.limited) for t in own]


def _mark(
    one: Throughput,
    value: float,
    links: Links | None,
    metric: str = "requests",
    *,
    least: bool = False,
) -> Mark:
    to = _target(one, links, f"{metric}{LEAST}" if one.limited else metric)
    return Mark(one.arm, one.emulated, one.size, value, least, to)


def _target(one: Throughput, links: Links | None, metric: str) -> str:
    key = Key(one.scenario, one.kind, one.parameters, SUBJECT, metric)
    return links.effect(key, one.arm) if links else ""


def families(own: Sequence[Throughput], baseline: str) -> dict[str, list[Throughput]]:
    """Return groups of arms that differ only in their devices, by their common settings.

    Each group includes the baseline. Groups of one arm are left out, and so is a single group,
    because it would show the same as the figure of all arms.
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


def _time_note(own: Sequence[Throughput]) -> str:
    why = next((each.no_cycles for each in own if each.no_cycles), "")
    return f"{TIME_NOTE} No cycles: the host’s CPUs show no counters ({why})." if why else TIME_NOTE


def _bars(own: Sequence[Throughput], links: Links | None) -> list[tuple[TimeBar, ...]]:
    """Return two bars for each arm, for the smallest objects, where each request matters most."""
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
                BarPart(s.who, s.share, s.per_request_s, s.cycles)
                for s in each.spent
                if s.where == where
            ]
            name = f"{marked(each.arm, each.emulated)}, {format_size(each.size)}, {words}"
            if parts:
                to = _target(each, links, "cpu-per-request")
                bars.append(TimeBar(name, each.emulated, tuple(parts), to, more))
        if bars:
            arms.append(tuple(bars))
    return arms


def _interrupts(one: Throughput) -> tuple[str, ...]:
    """Return notes on the share of the host's CPU time spent in interrupts, by kind."""
    whole = sum(each.per_request_s for each in one.spent if each.where == HOST)
    kinds = (("software", one.softirq_s), ("hardware", one.hardirq_s))
    known = [(kind, spent) for kind, spent in kinds if spent is not None and whole > 0]
    return tuple(
        f"of it {percent(each / whole)}, {format_quantity(each, 's')} a request: {kind} interrupts"
        for kind, each in known
    )


def _haproxys(one: Throughput) -> tuple[str, ...]:
    """Return a note on HAProxy's own report of its idle time; empty without one."""
    if one.own is None:
        return ()
    of = "its thread" if one.own.threads == 1 else f"the one of its {one.own.threads} threads asked"
    return (f"HAProxy of itself: {of} waited for {percent(one.own.idle)} of the time",)


def _identifying_columns() -> tuple[Column[Throughput], ...]:
    """Return the columns that identify a row."""
    return (
        Column("scenario", lambda t: t.scenario, "Scenario"),
        Column("workload", lambda t: t.workload, "Workload"),
        Column("arm", lambda t: t.arm, "Arm", lambda t: marked(t.arm, t.emulated)),
        Column("emulated", lambda t: t.emulated),
        Column("size", lambda t: t.size, "Object", lambda t: format_size(t.size), numeric=True),
    )


def rates_table(found: Sequence[Throughput]) -> Table[Throughput]:
    """Return the throughput of each arm, one row for each arm and size."""
    columns: tuple[Column[Throughput], ...] = (
        *_identifying_columns(),
        Column("at_least", lambda t: t.limited),
        Column(
            "requests_per_s",
            lambda t: t.requests,
            "Requests/s",
            lambda t: f"{'at least ' * t.limited}{t.requests:.0f}",
            numeric=True,
        ),
        Column(
            "concurrency",
            lambda t: t.concurrency,
            "At once",
            lambda t: NONE if t.concurrency is None else f"{t.concurrency:.0f}",
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
        *interval_columns(lambda t: t.interval, lambda t: t.lost.blocks if t.lost else 0),
        Column("loss_at_least", lambda t: t.lost.least if t.lost else None),
        Column("loss_at_most", lambda t: t.lost.most if t.lost else None),
        Column("verdict", lambda t: t.lost.verdict if t.lost else None),
        Column("link_full", lambda t: t.link_full if t.link is not None else None),
        Column("faults", lambda t: ", ".join(f"{n} {what}" for what, n in t.faults.items())),
        Column("limits", lambda t: "; ".join(t.limits)),
        Column("blocks", lambda t: t.blocks, "Blocks", numeric=True),
    )
    caption = "What went through the proxy, by the size of objects"
    return Table("load-balancer", caption, columns, tuple(found), tone=_tone)


def costs_table(found: Sequence[Throughput]) -> Table[Throughput]:
    """Return the CPU time and the latency of a request, one row for each arm and size.

    Both are comparable even if the client or the origin was the limit.
    """

    def seconds(value: float | None) -> str:
        return NONE if value is None else format_quantity(value, "s")

    def offered(row: Throughput) -> str:
        too_many = " (too many)" if row.overloaded else ""
        return NONE if row.offered is None else f"{format_number(row.offered, 6)}/s{too_many}"

    def factor(value: float | None) -> str:
        return NONE if value is None else ratio(value)

    columns: tuple[Column[Throughput], ...] = (
        *_identifying_columns(),
        Column(
            "cpu_per_request_s",
            lambda t: t.cpu_s,
            "CPU a request",
            lambda t: seconds(t.cpu_s),
            numeric=True,
        ),
        Column(
            "cpu_ratio",
            lambda t: t.cpu.ratio,
            "CPU, of the baseline’s",
            lambda t: factor(t.cpu.ratio),
            numeric=True,
        ),
        *interval_columns(lambda t: t.cpu.interval, lambda t: t.blocks, "cpu_"),
        Column(
            "host_softirq_s",
            lambda t: t.softirq_s,
            "Host softirq",
            lambda t: seconds(t.softirq_s),
            numeric=True,
        ),
        Column(
            "host_hardirq_s",
            lambda t: t.hardirq_s,
            "Host hardirq",
            lambda t: seconds(t.hardirq_s),
            numeric=True,
        ),
        Column(
            "offered_per_s",
            lambda t: t.offered,
            "Offered",
            offered,
            numeric=True,
        ),
        Column(
            "latency_s",
            lambda t: t.latency_s,
            "Response then",
            lambda t: seconds(t.latency_s),
            numeric=True,
        ),
        Column(
            "latency_ratio",
            lambda t: t.latency.ratio,
            "Response, of the baseline’s",
            lambda t: factor(t.latency.ratio),
            numeric=True,
        ),
        *interval_columns(lambda t: t.latency.interval, lambda t: t.blocks, "latency_"),
        Column("overloaded", lambda t: t.overloaded),
        Column("haproxy_idle", lambda t: None if t.own is None else t.own.idle),
        Column("blocks", lambda t: t.blocks, "Blocks", numeric=True),
    )
    caption = "What a request cost, and how long it took at the rate that all arms are offered"
    return Table("load-balancer-cost", caption, columns, tuple(found), tone=_tone)


def spent_table(found: Sequence[Throughput]) -> Table[tuple[Throughput, OwnerTime]]:
    """Return all CPU time by owner, one row for each arm, size and owner."""
    rows = tuple((each, spent) for each in found for spent in each.spent)
    columns: tuple[Column[tuple[Throughput, OwnerTime]], ...] = (
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


def _tone(row: Throughput) -> str:
    return "emulated" if row.emulated else ""
