"""The section on the load of machines and their hosts during measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tare.analysis.data.rundata import RunData
from tare.analysis.topics.cores import STATES, Core, mean_of_cores, split_by_binding
from tare.analysis.topics.monitoring import (
    COUNTS,
    QUANTITIES,
    CounterTrack,
    Monitor,
    is_host,
    missing_host,
)
from tare.report.figures.monitoring import monitoring_figure, whose_counters
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, counted, marked
from tare.report.sections.contract import Section, SectionData
from tare.units import format_number, format_quantity

MOST_FIGURES = 12
NOTE = (
    "Rates between samples of the kernel’s counters, the machine’s and its host’s, on one time "
    "axis that begins with the cell; shaded: what neighbours did, or a job’s phases. A host’s "
    "counters include everything that ran there, and what it receives from a machine is what that "
    "machine sent. I/O wait is idle time during which a request is under way: a line of its own, "
    "never added to the use. Steal is shown where a hypervisor is known to report it, or where "
    "there is no hypervisor."
)


@dataclass(frozen=True)
class MonitoredTrack:
    """One computer's counters over one cell: a row of the table."""

    monitor: Monitor
    track: CounterTrack


@dataclass(frozen=True)
class MonitoringData(SectionData):
    """The content of the section on counters: the number of cells, and their means."""

    lead: str
    means: ShownTable
    cores: ShownTable | None


class Monitoring(Section):
    """The load of machines and their hosts during measurement."""

    name, title = "monitoring", "What machines and hosts were busy with"
    template = "monitoring.html.j2"

    def data(self, report: ReportData) -> MonitoringData | None:
        """Return the counters of all cells; None if none were sampled."""
        found = report.monitors
        if not found:
            return None
        drawn = longest(found)
        means, groups = means_table(found), groups_table(found)
        chosen = {monitor.cell for monitor in drawn}
        shown = [row for row in means.rows if row.monitor.cell in chosen]
        apart = [row for row in groups.rows if row.monitor.cell in chosen]
        figures = (
            monitoring_figure(monitor, name=f"monitoring-{number}", links=report.links)
            for number, monitor in enumerate(drawn, start=1)
        )
        return MonitoringData(
            f"Counters were sampled once a second in {counted(len(found), 'cell')}. Shown "
            f"{'is' if len(drawn) == 1 else 'are'} the last block’s longest, "
            f"{counted(len(drawn), 'cell')}; `tables/{means.name}.csv` has the means of all."
            + _without_host(report.runs),
            means.shown(rows=shown),
            groups.shown(rows=apart) if apart else None,
            figures=tuple((figure, NOTE) for figure in figures),
            tables=(means, cores_table(found), *([groups] if groups.rows else ())),
        )


def _without_host(runs: Sequence[RunData]) -> str:
    reasons = Counter(
        reason for run in runs for cell in run.cells if (reason := missing_host(cell))
    )
    return "".join(
        f" In {counted(cells, 'cell')} the host’s are missing: {reason}."
        for reason, cells in reasons.items()
    )


def longest(found: Sequence[Monitor], most: int = MOST_FIGURES) -> tuple[Monitor, ...]:
    """Return the longest cells of the last block, one for each arm, scenario and workload."""
    last: dict[tuple[str, str, str], Monitor] = {}
    for monitor in found:
        key = (monitor.arm, monitor.scenario, monitor.workload)
        known = last.get(key)
        if known is None or (monitor.block, monitor.length_s) > (known.block, known.length_s):
            last[key] = monitor
    ordered = sorted(last.values(), key=lambda monitor: -monitor.length_s)
    return tuple(ordered[:most])


def means_table(found: Sequence[Monitor]) -> Table[MonitoredTrack]:
    """Return the mean of each quantity over each cell."""
    rows = tuple(MonitoredTrack(monitor, track) for monitor in found for track in monitor.tracks)
    columns: tuple[Column[MonitoredTrack], ...] = (
        Column("workload", lambda w: w.monitor.workload, "Workload"),
        Column("parameters", lambda w: w.monitor.parameters),
        Column("scenario", lambda w: w.monitor.scenario, "Scenario"),
        Column(
            "arm",
            lambda w: w.monitor.arm,
            "Arm",
            lambda w: marked(w.monitor.arm, w.monitor.emulated),
        ),
        Column("emulated", lambda w: w.monitor.emulated),
        Column("block", lambda w: w.monitor.block),
        Column("role", lambda w: w.track.role, "Counters of", lambda w: _whose(w.track)),
        Column("length_s", lambda w: w.track.time_s[-1]),
        *(_mean(quantity, unit) for quantity, unit in QUANTITIES.items()),
    )
    tone = lambda w: "emulated" if w.monitor.emulated else ""  # noqa: E731
    return Table("monitoring", "Means of the counters over each cell", columns, rows, tone=tone)


_TITLES = {"cpu": "CPU", "disk": "Disk", "net": "Net"}


def _mean(quantity: str, unit: str) -> Column[MonitoredTrack]:
    kind, _, what = quantity.partition("-")
    title = f"{_TITLES[kind]} {what}"
    return Column(
        quantity.replace("-", "_"),
        lambda w: w.track.mean(quantity),
        title,
        lambda w: _shown(w.track.mean(quantity), "" if quantity in COUNTS else unit),
        numeric=True,
    )


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    if not unit:
        return format_number(value)
    return f"{100 * value:.1f} %" if unit == "1" else format_quantity(value, unit)


def means_in_words(track: CounterTrack) -> str:
    """Return the means of a computer's counters as a line; empty if all are 0 or unknown."""
    means = [
        f"{_TITLES.get(kind, kind)} {what} {_shown(mean, '' if quantity in COUNTS else unit)}"
        for quantity, unit in QUANTITIES.items()
        for kind, _, what in [quantity.partition("-")]
        if (mean := track.mean(quantity))
    ]
    return f"{_whose(track)}: {', '.join(means)}" if means else ""


def _whose(track: CounterTrack) -> str:
    return whose_counters(track.role)


@dataclass(frozen=True)
class CoresUse:
    """The use of some CPUs of one computer over one cell."""

    monitor: Monitor
    role: str
    which: str
    numbers: tuple[int, ...]
    means: dict[str, float]

    @property
    def used(self) -> float | None:
        """The share of time in user and system mode. I/O wait is idle time and does not count."""
        user, system = self.means.get("user"), self.means.get("system")
        return None if user is None or system is None else user + system


def groups_table(monitors: Sequence[Monitor]) -> Table[CoresUse]:
    """Return the use of the CPUs with and without machines, for hosts whose machines are pinned."""
    rows = []
    for monitor in monitors:
        for host in monitor.hosts:
            mine, others = split_by_binding(host.cores, monitor.bound_on(host.role))
            if mine and others:
                rows.append(_use(monitor, host, "with machines", mine))
                rows.append(_use(monitor, host, "without", others))
    return _table("monitoring-groups", "CPUs of the host with machines, and those without", rows)


def cores_table(monitors: Sequence[Monitor]) -> Table[CoresUse]:
    """Return a row for each CPU of each computer and cell."""
    rows = [
        _use(monitor, track, _kind_of_core(monitor, track, core), (core,))
        for monitor in monitors
        for track in monitor.tracks
        for core in track.cores
    ]
    return _table("monitoring-cores", "Single CPUs over each cell", rows)


def _kind_of_core(monitor: Monitor, track: CounterTrack, core: Core) -> str:
    if not is_host(track.role):
        return "of the machine"
    return "with machines" if core.number in monitor.bound_on(track.role) else "without"


def _use(monitor: Monitor, track: CounterTrack, which: str, cores: Sequence[Core]) -> CoresUse:
    means = {state: fmean(values) for state, values in mean_of_cores(cores).items()}
    return CoresUse(monitor, track.role, which, tuple(core.number for core in cores), means)


def _table(name: str, title: str, rows: Sequence[CoresUse]) -> Table[CoresUse]:
    columns: tuple[Column[CoresUse], ...] = (
        Column("workload", lambda u: u.monitor.workload, "Workload"),
        Column("parameters", lambda u: u.monitor.parameters),
        Column("scenario", lambda u: u.monitor.scenario, "Scenario"),
        Column(
            "arm",
            lambda u: u.monitor.arm,
            "Arm",
            lambda u: marked(u.monitor.arm, u.monitor.emulated),
        ),
        Column("emulated", lambda u: u.monitor.emulated),
        Column("block", lambda u: u.monitor.block),
        Column("role", lambda u: u.role),
        Column("which", lambda u: u.which, "Which"),
        Column("cpus", lambda u: " ".join(map(str, u.numbers)), "CPUs"),
        Column("used", lambda u: u.used, "Used", lambda u: _share(u.used), numeric=True),
        *(_state(state) for state in STATES),
    )
    tone = lambda u: "emulated" if u.monitor.emulated else ""  # noqa: E731
    return Table(name, title, columns, tuple(rows), tone=tone)


def _state(state: str) -> Column[CoresUse]:
    title = {"user": "user", "system": "system", "iowait": "idle, waiting for I/O"}.get(
        state, state
    )
    return Column(
        state,
        lambda u: u.means.get(state),
        title,
        lambda u: _share(u.means.get(state)),
        numeric=True,
    )


def _share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"
