"""Jobs on clusters: how long each phase took, and the use of the machines in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from tare.analysis.data.rundata import RunData
from tare.analysis.topics.cores import mean_of_cores, split_by_binding
from tare.analysis.topics.monitoring import CounterTrack, Monitor, Phase, monitors
from tare.events.cell_facts import JobFacts
from tare.events.results import CellResult

Limit = Literal["CPU", "CPU that others take", "disk", "CPU and disk", "nothing of these", ""]
"""The resource that limits a phase; empty: its counters do not show it."""
FULL = 0.85
"""The share of all CPUs' time, or of one disk's, from which that resource limits a phase."""
WAITING = 0.4
"""The share of all CPUs' time in which they idle while a request is under way, from which the disk
limits a phase."""
TAKEN = 0.15
LEAST_SAMPLES = 2
SLAVE = "slave-"


@dataclass(frozen=True)
class PhaseUse:
    """The mean use of the slaves of a cluster in one phase of one cell.

    Shares are of all CPUs' time and of one disk's; None: the counters do not include it.
    ``iowait`` is idle time, so it is not part of ``busy``.
    """

    cell: str
    block: int
    arm: str
    scenario: str
    workload: str
    parameters: str
    emulated: bool
    step: str
    phase: str
    seconds: float
    busy: float | None
    iowait: float | None
    steal: float | None
    disk: float | None
    limit: Limit


@dataclass(frozen=True)
class JobCell:
    """The output of one cell's job, and the handling of page caches before it.

    Args:
        cell: The cell's id.
        arm: The arm.
        scenario: The scenario.
        workload: The workload, by the study's label.
        parameters: The workload's parameters.
        written_bytes: Bytes that all machines together wrote.
        copies: The number of copies of each block of its output.
        cold: The measured steps before which page caches were dropped.
        warm: The measured steps before which the caches were left unchanged.
        undropped: The caches that could not be dropped, with the reason.
    """

    cell: str
    arm: str
    scenario: str
    workload: str
    parameters: str
    written_bytes: float
    copies: int
    cold: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    undropped: tuple[str, ...] = ()


def job_cells(runs: Iterable[RunData]) -> tuple[JobCell, ...]:
    """Return all cells that count and were jobs on a cluster."""
    found = []
    for run in runs:
        for cell in run.cells:
            if cell.status == "ok" and "job" in cell.facts:
                found.append(_job_cell(cell, cell.facts["job"]))
    return tuple(found)


def _job_cell(cell: CellResult, facts: JobFacts) -> JobCell:
    # Among the steps of a client, only the measured ones have a job.
    dropped = {
        name: step["caches"]
        for name, step in facts.get("steps", {}).items()
        if "job" in step and "caches" in step
    }
    kept = (why for each in dropped.values() for machine in each for why in _undropped(machine))
    return JobCell(
        cell.cell,
        cell.arm,
        cell.scenario,
        cell.workload,
        cell.parameters,
        facts.get("written_bytes", 0),
        facts.get("replication", 0),
        tuple(name for name, each in dropped.items() if each),
        tuple(name for name, each in dropped.items() if not each),
        tuple(dict.fromkeys(kept)),
    )


def _undropped(machine: Mapping[str, Any]) -> Iterator[str]:
    """Yield the page caches of one machine and its host that were not dropped, with the reason."""
    if (guest := str(machine.get("guest", ""))).startswith("not dropped"):
        yield f"a machine's own, {guest}"
    if machine.get("dropped") == "nothing":
        yield f"its host's, {machine.get('reason') or 'for a reason that it did not report'}"


def phase_uses(runs: Sequence[RunData]) -> tuple[PhaseUse, ...]:
    """Return the use of machines in every phase of every job, in the order of the cells."""
    jobs = {cell.cell for cell in job_cells(runs)}
    return tuple(
        use_of(monitor, phase)
        for monitor in monitors(runs)
        if monitor.cell in jobs
        for phase in monitor.phases
    )


def use_of(monitor: Monitor, phase: Phase) -> PhaseUse:
    """Return the mean use of the slaves of one cell's cluster in a phase."""
    tracks = [track for track in monitor.tracks if track.role.startswith(SLAVE)]
    # A master that is a slave too has no other role.
    tracks = tracks or [track for track in monitor.tracks if track.role == "subject"]
    tracks = [
        _share_of_own_cpus(track, monitor.own.get(track.role, frozenset())) for track in tracks
    ]

    def mean(*quantities: str) -> float | None:
        means = [
            value
            for track in tracks
            if (value := _within(track, phase, quantities)) is not None
        ]  # fmt: skip
        return fmean(means) if means else None

    busy, iowait = mean("cpu-user", "cpu-system"), mean("cpu-iowait")
    steal, disk = mean("cpu-steal"), mean("disk-busy")
    step, _, name = phase.name.rpartition(" ")
    return PhaseUse(
        monitor.cell,
        monitor.block,
        monitor.arm,
        monitor.scenario,
        monitor.workload,
        monitor.parameters,
        monitor.emulated,
        step,
        name,
        phase.end_s - phase.begin_s,
        busy,
        iowait,
        steal,
        disk,
        limit_of(busy, iowait, steal, disk),
    )


def _share_of_own_cpus(track: CounterTrack, cpus: frozenset[int]) -> CounterTrack:
    """Return a track whose shares are of a machine's own CPUs, if it is bound to some.

    A process of the host sees counters of all the host's CPUs, and may use only a few of them.
    """
    mine, _ = split_by_binding(track.cores, cpus)
    own = {f"cpu-{state}": values for state, values in mean_of_cores(mine).items()}
    return replace(track, values={**track.values, **own})


def _within(track: CounterTrack, phase: Phase, quantities: Sequence[str]) -> float | None:
    """Return the mean of some counters' sum in a phase; None with too few samples of them."""
    inside = [
        place
        for place, (begin, end) in enumerate(zip((0.0, *track.time_s), track.time_s, strict=False))
        if begin < phase.end_s and end > phase.begin_s and _mostly(begin, end, phase)
    ]
    columns = [track.values[name] for name in quantities if name in track.values]
    if len(inside) < LEAST_SAMPLES or len(columns) < len(quantities):
        return None
    return fmean(sum(column[place] for column in columns) for place in inside)


def _mostly(begin: float, end: float, phase: Phase) -> bool:
    """Return whether at least half of an interval is in a phase."""
    shared = min(end, phase.end_s) - max(begin, phase.begin_s)
    return 2 * shared >= end - begin


def limit_of(
    busy: float | None, iowait: float | None, steal: float | None, disk: float | None
) -> Limit:
    """Return the resource that limits a phase, by shares of the CPUs' and of the disk's time.

    Args:
        busy: Share of the CPUs' time in user and system mode.
        iowait: Share in which they idle while a request is under way.
        steal: Share that a hypervisor gives to others.
        disk: Share of the disk's time with a request under way.
    """
    if busy is None:
        return ""
    stolen = steal or 0.0
    whole = busy + stolen >= FULL
    writes = (disk or 0.0) >= FULL or (iowait or 0.0) >= WAITING
    if whole and stolen >= TAKEN:
        return "CPU that others take"
    if whole and writes:
        return "CPU and disk"
    if whole:
        return "CPU"
    return "disk" if writes else "nothing of these"
