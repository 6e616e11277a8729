"""Cells and machines while their events arrive, and the results made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tare.events.model import (
    BlockFinished,
    BlockStarted,
    CellStarted,
    MachineReady,
    MachineStarting,
    MachineStopped,
    SeriesSaved,
)
from tare.events.results import (
    CellResult,
    FinishedCell,
    MachineResult,
    Observation,
    SeriesEntry,
)


@dataclass
class OpenCell:
    """A cell that has begun but not ended; it is dropped if it begins again."""

    started: CellStarted
    observed: list[Observation] = field(default_factory=list)
    saved: list[SeriesSaved] = field(default_factory=list)


@dataclass
class OpenMachine:
    """A machine's events so far."""

    starting: MachineStarting
    ready: MachineReady | None = None
    stopped: MachineStopped | None = None


def series_entry(cell: CellResult, saved: SeriesSaved, folder: Path) -> SeriesEntry:
    """Return the entry of a series for the analysis; its path is relative to ``folder``."""
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
    """Return the result of a machine from its events so far."""
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


def of_one_host(
    finished: dict[str, FinishedCell],
    event: BlockStarted | BlockFinished,
    hosts: Mapping[int, str],
) -> dict[str, FinishedCell]:
    """Return the cells that still count once a block begins.

    Comparisons are within a block. So if a block begins on another host, the cells of its former
    host do not count any more.

    Args:
        finished: All cells that ended.
        event: A block's start or end.
        hosts: The host of each block so far.
    """
    if not isinstance(event, BlockStarted) or not event.host:
        return finished
    if hosts.get(event.block, event.host) == event.host:
        return finished
    return {cell: done for cell, done in finished.items() if done.result.block != event.block}
