"""The table of a run that several hosts share: each host's effect, and how much hosts differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tare.analysis.effects.results import as_cost, cost_ends
from tare.analysis.runs.variance_components import OverHosts, effects_over_hosts
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, Table
from tare.report.page.words import Names, Part, marked, metric_name, percent, ratio, ratio_interval
from tare.report.sections.contract import Section, SectionData

CAPTION = (
    "Hosts are a level above boots: each host’s cost factor, their mean with an interval for hosts "
    "like these, and the share of a block’s variance that is between hosts"
)
MOST_COLUMNS = 6
"""A page names at most this many hosts; with more, only the extremes. The CSV file has all."""


class ByHost(Section):
    """A run on several hosts: each host's effects, and the differences between hosts."""

    name, title = "hosts", "Host by host"

    def data(self, report: ReportData) -> SectionData | None:
        """Return the effects on each host; None for a run on one host."""
        hosts = report.runs[0].block_hosts if len(report.runs) == 1 else {}
        several = len(set(hosts.values())) > 1
        found = effects_over_hosts(report.comparison, hosts) if several else ()
        return SectionData(tables=(over_hosts_table(found),)) if found else None


def over_hosts_table(found: Sequence[OverHosts]) -> Table[OverHosts]:
    """Return one row for each arm and headline metric.

    Args:
        found: Effects from :func:`tare.analysis.runs.variance_components.effects_over_hosts`.
    """
    names = Names(Part.of(each.effect.key) for each in found)
    hosts = list(dict.fromkeys(host for each in found for host in each.ratios))
    fit = len(hosts) <= MOST_COLUMNS
    columns: tuple[Column[OverHosts], ...] = (
        Column("what", lambda f: names.name(Part.of(f.effect.key)), "What"),
        Column("metric", lambda f: f.effect.key.metric, "Metric", _metric),
        Column("arm", lambda f: f.effect.arm, "Arm", _arm),
        *(_host_column(host, titled=fit) for host in hosts),
        *(() if fit else _ends()),
        Column("mean", lambda f: math.exp(f.together.effect), "Over hosts", _mean, numeric=True),
        Column("low", lambda f: math.exp(max(f.together.low, -700.0)), "Interval", _interval),
        Column("share", lambda f: f.share, "Between hosts", _share, numeric=True),
    )
    return Table("hosts", CAPTION, columns, tuple(found))


def _host_column(host: str, *, titled: bool) -> Column[OverHosts]:
    def shown(found: OverHosts) -> str:
        return _cost(found, found.ratios[host]) if host in found.ratios else "–"

    title = host if titled else ""
    return Column(f"ratio-{host}", lambda f: f.ratios.get(host), title, shown, numeric=True)


def _ends() -> tuple[Column[OverHosts], ...]:
    return (
        Column("lowest", _lowest, "Lowest host", lambda f: _named(f, _lowest(f))),
        Column("highest", _highest, "Highest host", lambda f: _named(f, _highest(f))),
    )


def _lowest(found: OverHosts) -> str:
    return min(found.ratios, key=lambda host: as_cost(found.ratios[host], found.effect.better))


def _highest(found: OverHosts) -> str:
    return max(found.ratios, key=lambda host: as_cost(found.ratios[host], found.effect.better))


def _named(found: OverHosts, host: str) -> str:
    return f"{_cost(found, found.ratios[host])} {host}"


def _metric(found: OverHosts) -> str:
    return metric_name(found.effect.key.metric)


def _arm(found: OverHosts) -> str:
    return marked(found.effect.arm, found.effect.emulated)


def _mean(found: OverHosts) -> str:
    return _cost(found, math.exp(found.together.effect))


def _cost(found: OverHosts, value: float) -> str:
    return ratio(as_cost(value, found.effect.better))


def _interval(found: OverHosts) -> str:
    mean = found.together
    ends = math.exp(max(mean.low, -700.0)), math.exp(min(mean.high, 700.0))
    return ratio_interval(cost_ends(*ends, found.effect.better))


def _share(found: OverHosts) -> str:
    return percent(found.share)
