"""What a run's events add up to, taken one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tare.analysis.rundata import (
    CellResult,
    CheckResult,
    ImageUsed,
    MachineResult,
    PlatformResult,
    SeriesEntry,
    SkippedPart,
)
from tare.events import (
    BlockFinished,
    CellFinished,
    CellStarted,
    Decided,
    ImageReady,
    MachineReady,
    MachineStarting,
    MachineStopped,
    Observed,
    Planned,
    PlatformChecked,
    Preflight,
    Record,
    RunFinished,
    RunResumed,
    RunStarted,
    SeriesSaved,
    Skipped,
)
from tare.events.stream import canonical_json

_REPEAT = re.compile(r"#(\d+)$")


@dataclass
class OpenCell:
    """A cell that has begun and not ended: dropped if it begins again."""

    started: CellStarted
    observed: list[Observed] = field(default_factory=list)
    saved: list[SeriesSaved] = field(default_factory=list)


@dataclass(frozen=True)
class FinishedCell:
    """A cell that ended, with what was observed since its last start."""

    result: CellResult
    observed: tuple[Observed, ...]
    saved: tuple[SeriesSaved, ...]


@dataclass
class OpenMachine:
    """A machine's events so far."""

    starting: MachineStarting
    ready: MachineReady | None = None
    stopped: MachineStopped | None = None


@dataclass
class Fold:
    """The fold: feed it every record in order with `take`, then ask."""

    folder: Path
    started: RunStarted | None = None
    started_at: float = 0.0
    resumed: int = 0
    checks: tuple[CheckResult, ...] = ()
    platforms: dict[str, PlatformChecked] = field(default_factory=dict)
    skipped: list[SkippedPart] = field(default_factory=list)
    images: dict[str, ImageUsed] = field(default_factory=dict)
    machines: list[OpenMachine] = field(default_factory=list)
    finished: dict[str, FinishedCell] = field(default_factory=dict)
    blocks_finished: list[int] = field(default_factory=list)
    decisions: list[tuple[int, bool, str]] = field(default_factory=list)
    adapted: tuple[str, ...] = ()
    ended: RunFinished | None = None
    wall_s: float = 0.0
    booting_s: float = 0.0
    measuring_s: float = 0.0
    _process_began: float = 0.0
    _open: dict[str, OpenCell] = field(default_factory=dict)
    _machine: dict[str, OpenMachine] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Account for one more record."""
        event = record.event
        if isinstance(event, Observed):
            if event.cell in self._open:
                self._open[event.cell].observed.append(event)
            return
        if isinstance(event, RunStarted | RunResumed):
            self._process_began = record.time - self.wall_s
        self.wall_s = max(self.wall_s, record.time - self._process_began)
        match event:
            case RunStarted():
                self.started, self.started_at = event, record.time
            case RunResumed():
                # What was under way when the former process ended never finished.
                self._open.clear()
                self.resumed, self.ended = self.resumed + 1, None
            case Preflight():
                self.checks = tuple(
                    CheckResult(check.name, check.level, check.found, check.hint)
                    for check in event.checks
                )
            case Planned():
                self.adapted = event.notes
            case PlatformChecked():
                self.platforms[event.arm] = event
            case Skipped():
                part = SkippedPart(event.arm, event.scenario, event.workload, event.reason)
                if part not in self.skipped:
                    self.skipped.append(part)
            case ImageReady():
                self.images.setdefault(
                    f"{event.arm} {event.digest}",
                    ImageUsed(event.arm, event.kernel, event.digest, event.cached, event.took_s),
                )
            case CellStarted():
                self._open[event.cell] = OpenCell(event)
            case SeriesSaved():
                if event.cell in self._open:
                    self._open[event.cell].saved.append(event)
            case CellFinished():
                self._finish(event)
            case BlockFinished():
                self.blocks_finished.append(event.block)
            case Decided():
                self.decisions.append((event.block, event.go_on, event.reason))
            case RunFinished():
                self.ended = event
            case MachineStarting() | MachineReady() | MachineStopped():
                self._take_machine(event)
            case _:
                pass

    def _take_machine(self, event: MachineStarting | MachineReady | MachineStopped) -> None:
        match event:
            case MachineStarting():
                self._machine[event.machine] = OpenMachine(event)
                self.machines.append(self._machine[event.machine])
            case MachineReady():
                self.booting_s += event.boot_s
                if event.machine in self._machine:
                    self._machine[event.machine].ready = event
            case MachineStopped():
                if event.machine in self._machine:
                    self._machine[event.machine].stopped = event

    def _finish(self, event: CellFinished) -> None:
        self.measuring_s += event.measured_s
        cell = self._open.pop(event.cell, None)
        if cell is None or self.started is None:
            return
        repeat = _REPEAT.search(event.cell)
        before = self.finished.get(event.cell)
        warnings = event.warnings
        if before is not None and before.result.status != "ok":
            earlier = f"attempt {before.result.attempt} {before.result.status}"
            warnings = (f"{earlier}: {before.result.reason}", *warnings)
        start = cell.started
        result = CellResult(
            cell=event.cell,
            run=self.started.run,
            block=start.block,
            arm=start.arm,
            scenario=start.scenario,
            workload=start.workload,
            parameters=canonical_json(start.parameters),
            repeat=int(repeat.group(1)) if repeat else 1,
            status=event.status,
            reason=event.reason,
            warnings=warnings,
            logs=event.logs,
            measured_s=event.measured_s,
            facts=event.facts,
            attempt=start.attempt,
        )
        self.finished[event.cell] = FinishedCell(result, tuple(cell.observed), tuple(cell.saved))

    def cell_results(self) -> tuple[CellResult, ...]:
        """Return all cells that ended, in order of their first end."""
        return tuple(done.result for done in self.finished.values())

    def platform_results(self) -> tuple[PlatformResult, ...]:
        """Return one result per arm, in the study's order, unchecked arms as not usable."""
        arms = self.started.study.get("arms", {}) if self.started else {}
        named = dict(arms) if isinstance(arms, dict) else {}
        names = [*named, *(arm for arm in self.platforms if arm not in named)]
        return tuple(self._platform_result(name, named.get(name, {})) for name in names)

    def _platform_result(self, arm: str, spec: dict[str, object]) -> PlatformResult:
        check = self.platforms.get(arm)
        if check is None:
            reasons = [s.reason for s in self.skipped if s.arm == arm and s.workload is None]
            reason = reasons[0] if reasons else "it was not checked before the run ended"
            platform = str(spec.get("platform", ""))
            return PlatformResult(arm, platform, {}, False, reason, "", False, {}, {})
        return PlatformResult(
            arm=arm,
            platform=check.platform,
            options=check.options,
            usable=check.usable,
            reason=check.reason,
            hint=check.hint,
            emulated=check.emulated,
            versions=check.versions,
            capabilities=check.capabilities,
            description=check.description,
        )

    def machine_results(self) -> tuple[MachineResult, ...]:
        """Return all machines in order of start."""
        return tuple(_machine_result(machine) for machine in self.machines)

    def series(self) -> tuple[SeriesEntry, ...]:
        """Return the series of all cells that count."""
        return tuple(
            SeriesEntry(
                run=done.result.run,
                cell=done.result.cell,
                block=done.result.block,
                arm=done.result.arm,
                scenario=done.result.scenario,
                workload=done.result.workload,
                parameters=done.result.parameters,
                repeat=done.result.repeat,
                role=saved.role,
                name=saved.name,
                path=self.folder / saved.path,
                columns=saved.columns,
                rows=saved.rows,
            )
            for done in self.finished.values()
            if done.result.status == "ok"
            for saved in done.saved
        )


def _machine_result(machine: OpenMachine) -> MachineResult:
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
