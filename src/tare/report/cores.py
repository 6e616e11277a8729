"""The tables of single CPUs: those that machines are bound to, and the others of their host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tare.analysis.cores import STATES, Core, apart, together
from tare.analysis.monitoring import Monitor, Track, is_host
from tare.report.tables import Column, Table
from tare.report.words import NONE, marked


@dataclass(frozen=True)
class CoresUse:
    """What some CPUs of one computer were busy with over one cell."""

    monitor: Monitor
    role: str
    which: str
    numbers: tuple[int, ...]
    means: dict[str, float]

    @property
    def used(self) -> float | None:
        """The share in use: user and system. I/O wait is idle time, and no part of it."""
        user, system = self.means.get("user"), self.means.get("system")
        return None if user is None or system is None else user + system


def groups_table(monitors: Sequence[Monitor]) -> Table[CoresUse]:
    """Return a row for each group of CPUs of a host of which machines have some for themselves."""
    rows = []
    for monitor in monitors:
        for host in monitor.hosts:
            mine, others = apart(host.cores, monitor.bound_on(host.role))
            if mine and others:
                rows.append(_use(monitor, host, "with machines", mine))
                rows.append(_use(monitor, host, "without", others))
    return _table("monitoring-groups", "CPUs of the host with machines, and those without", rows)


def cores_table(monitors: Sequence[Monitor]) -> Table[CoresUse]:
    """Return a row for each CPU of each computer and cell."""
    rows = [
        _use(monitor, track, _which(monitor, track, core), (core,))
        for monitor in monitors
        for track in monitor.tracks
        for core in track.cores
    ]
    return _table("monitoring-cores", "Single CPUs over each cell", rows)


def _which(monitor: Monitor, track: Track, core: Core) -> str:
    if not is_host(track.role):
        return "of the machine"
    return "with machines" if core.number in monitor.bound_on(track.role) else "without"


def _use(monitor: Monitor, track: Track, which: str, cores: Sequence[Core]) -> CoresUse:
    means = {state: fmean(values) for state, values in together(cores).items()}
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
