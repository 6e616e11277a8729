"""Cells and machines as their events come in, and what is handed on of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tare.events.model import (
    CellFinished,
    CellStarted,
    CellStatus,
    MachineReady,
    MachineStarting,
    MachineStopped,
    SeriesSaved,
)
from tare.events.results import (
    IMPOSSIBLE,
    CellResult,
    MachineResult,
    Observation,
    SeriesEntry,
)


@dataclass
class OpenCell:
    """A cell that has begun and not ended: dropped if it begins again."""

    started: CellStarted
    observed: list[Observation] = field(default_factory=list)
    saved: list[SeriesSaved] = field(default_factory=list)


@dataclass
class OpenMachine:
    """A machine's events so far."""

    starting: MachineStarting
    ready: MachineReady | None = None
    stopped: MachineStopped | None = None


def possible(event: CellFinished, observed: Iterable[Observation]) -> tuple[CellStatus, str]:
    """Return how a cell ended, withheld where a stream of others' making says what cannot be."""
    beyond = next((seen for seen in observed if not abs(seen.value) < IMPOSSIBLE), None)
    if beyond is None or event.status != "ok":
        return event.status, event.reason
    return "withheld", f"{beyond.metric.name} is {beyond.value:g}, which no machine can have had"


def series_entry(cell: CellResult, saved: SeriesSaved, folder: Path) -> SeriesEntry:
    """Return what the analysis needs of a series; ``folder`` is where its path begins."""
    return SeriesEntry(
        run=cell.run,
        cell=cell.cell,
        block=cell.block,
        arm=cell.arm,
        scenario=cell.scenario,
        workload=cell.workload,
        parameters=cell.parameters,
        repeat=cell.repeat,
        role=saved.role,
        name=saved.name,
        path=folder / saved.path,
        folder=folder,
        sha256=saved.sha256,
        columns=saved.columns,
        rows=saved.rows,
    )


def machine_result(machine: OpenMachine) -> MachineResult:
    """Return a machine as far as its events told of it."""
    ready, stopped = machine.ready, machine.stopped
    return MachineResult(
        machine=machine.starting.machine,
        block=machine.starting.block,
        arm=machine.starting.arm,
        scenario=machine.starting.scenario,
        role=machine.starting.role,
        boot_s=ready.boot_s if ready else None,
        proof=ready.proof if ready else {},
        placement=ready.placement if ready else {},
        expected=stopped.expected if stopped else None,
        reason=stopped.reason if stopped else "",
        console_tail=stopped.console_tail if stopped else (),
        host_cost=stopped.host_cost if stopped else {},
    )
