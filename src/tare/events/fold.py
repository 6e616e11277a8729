"""The state that results from a run's events, used by progress, resume, analysis and report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.events.cell_facts import known_facts
from tare.events.chain import Chain, read_seal
from tare.events.model import (
    ArmEnded,
    BlockFinished,
    BlockStarted,
    Calibrated,
    CellFinished,
    CellStarted,
    CpusChanged,
    Decided,
    HostJoined,
    ImageReady,
    LabFroze,
    MachineReady,
    MachineStarting,
    MachineStopped,
    NoiseMeasured,
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
from tare.events.observations import Seen, possible
from tare.events.results import (
    Break,
    CellResult,
    CheckResult,
    FinishedCell,
    ImageUsed,
    MachineResult,
    Observation,
    PlatformResult,
    SeriesEntry,
    SkippedPart,
)
from tare.events.session_events import SessionFinished, SessionStarted, Waiting
from tare.events.session_progress import SessionsProgress
from tare.events.stream import canonical_json, read_entries

if TYPE_CHECKING:
    from tare.events.model import Preflight


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


def cells_of_current_host(
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


_REPEAT = re.compile(r"#(\d+)$")


@dataclass
class BlockProgress:
    """The block under way, and the time that earlier blocks took.

    Args:
        number: The number of the newest block; 0 before the first.
        under_way: Whether a block has begun in this process and not ended.
        began: The start of the newest block, in seconds since the epoch.
        took_s: Seconds of each block that one process began and ended.
        last_took_s: Seconds of the newest block that ended; None if several processes shared it.
        finished: Numbers of the blocks that ended.
        hosts: The host that measures each block, if several share a run.
    """

    number: int = 0
    under_way: bool = False
    began: float = 0.0
    took_s: list[float] = field(default_factory=list)
    last_took_s: float | None = None
    finished: list[int] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    _began: dict[int, float] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)
    _again: set[int] = field(default_factory=set)

    @property
    def shared(self) -> bool:
        """Whether several processes measured parts of the newest block."""
        return self.number in self._again

    def take(self, event: BlockStarted | BlockFinished, time: float) -> None:
        """Account for the start or end of a block; blocks of several hosts may overlap."""
        if isinstance(event, BlockStarted):
            self.number, self.under_way = max(self.number, event.block), True
            self.began = time
            self._began[event.block] = time
            (self._again if event.block in self._seen else self._seen).add(event.block)
            if event.host:
                self.hosts[event.block] = event.host
            return
        began = self._began.pop(event.block, None)
        alone = event.block not in self._again
        self.last_took_s = time - began if began is not None and alone else None
        if self.last_took_s is not None:
            self.took_s.append(self.last_took_s)
        self.under_way = bool(self._began)
        self.finished.append(event.block)

    def forget(self) -> None:
        """Drop the blocks that were under way when a process ended."""
        self.under_way = False
        self._began.clear()


@dataclass
class Fold:
    """The state of a run: pass every record to :meth:`take` in order, then read the results.

    If a cell was begun more than once (a crash, a retry), only values observed between its last
    start and its end count. Cells and blocks that were under way when a process ended are dropped.
    """

    started: RunStarted | None = None
    started_at: float = 0.0
    resumed: int = 0
    checks: tuple[CheckResult, ...] = ()
    unfit: dict[CheckResult, None] = field(default_factory=dict)
    """All checks that were bad, at the start of the run or at any later time."""
    calibrated: dict[str, Calibrated] = field(default_factory=dict)
    """The newest calibration of each host."""
    noise: dict[str, NoiseMeasured] = field(default_factory=dict)
    """The last measured noise of each host."""
    platforms: dict[str, PlatformChecked] = field(default_factory=dict)
    skipped: list[SkippedPart] = field(default_factory=list)
    images: dict[tuple[str, str], ImageUsed] = field(default_factory=dict)
    planned: Planned | None = None
    block: BlockProgress = field(default_factory=BlockProgress)
    sessions: SessionsProgress = field(default_factory=SessionsProgress)
    machines: list[OpenMachine] = field(default_factory=list)
    finished: dict[str, FinishedCell] = field(default_factory=dict)
    joined: dict[str, HostJoined] = field(default_factory=dict)
    """The hosts that share the run, as each last joined it."""
    freezes: list[LabFroze] = field(default_factory=list)
    decisions: list[Decided] = field(default_factory=list)
    arms_ended: list[ArmEnded] = field(default_factory=list)
    cpu_changes: list[CpusChanged] = field(default_factory=list)
    ended: RunFinished | None = None
    wall_s: float = 0.0
    booting_s: float = 0.0
    measuring_s: float = 0.0
    host: Mapping[str, Any] = field(default_factory=dict)
    """The last recorded facts of the host."""
    versions: Mapping[str, str] = field(default_factory=dict)
    breaks: list[Break] = field(default_factory=list)
    doubts: tuple[str, ...] = ()
    """The signs that the stream was changed after it was written."""
    _process_began: float = 0.0
    _open: dict[str, OpenCell] = field(default_factory=dict)
    _passing: set[str] = field(default_factory=set)
    _machine: dict[str, OpenMachine] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Account for one more record."""
        event = record.event
        if event.type == "observation":
            self.observe(event.cell, Observation(event.role, event.described, event.value))
            return
        if event.type in ("run_started", "run_resumed"):
            self._process_began = record.time - self.wall_s
        self.wall_s = max(self.wall_s, record.time - self._process_began)
        # Checking the class of a model is slow, so the most frequent events come first.
        match event:
            case CellStarted():
                self._open[event.cell] = OpenCell(event)
            case CellFinished():
                self._finish(event)
            case MachineStarting() | MachineReady() | MachineStopped():
                self._take_machine(event)
            case SeriesSaved():
                if event.cell in self._open:
                    self._open[event.cell].saved.append(event)
            case BlockStarted() | BlockFinished():
                self.finished = cells_of_current_host(self.finished, event, self.block.hosts)
                self.block.take(event, record.time)
            case RunStarted():
                self.started, self.started_at = event, record.time
                self.host, self.versions = event.host, event.versions
            case RunResumed():
                self._resume(event)
            case Preflight():
                self.checks = checks_since(self.checks, event)
                self.unfit |= dict.fromkeys(c for c in self.checks if c.level == "bad")
            case Calibrated():
                self.calibrated[event.host] = event
            case NoiseMeasured():
                self.noise[event.host] = event
            case Planned():
                self.planned = event
            case PlatformChecked():
                self.platforms[event.arm] = event
            case Skipped():
                part = SkippedPart(event.arm, event.scenario, event.workload, event.reason)
                if part not in self.skipped:
                    self.skipped.append(part)
            case ImageReady():
                self.images.setdefault(
                    (event.arm, event.digest),
                    ImageUsed(event.arm, event.kernel, event.digest, event.cached, event.took_s),
                )
            case SessionStarted() | SessionFinished() | Waiting():
                self.sessions.take(event, record.time)
            case HostJoined():
                self.joined[event.host] = event
            case LabFroze():
                self.freezes.append(event)
            case Decided():
                self.decisions.append(event)
            case ArmEnded():
                self.arms_ended.append(event)
            case CpusChanged():
                self.cpu_changes.append(event)
            case RunFinished():
                self.ended = event

    def observe(self, cell: str, seen: Observation) -> None:
        """Account for one more value of a cell."""
        open_cell = self._open.get(cell)
        if open_cell is not None:
            open_cell.observed.append(seen)

    @property
    def notes(self) -> tuple[str, ...]:
        """The adaptations of scenarios to the host, one sentence each."""
        return self.planned.notes if self.planned is not None else ()

    @property
    def decided(self) -> Decided | None:
        """The newest decision whether to measure another block."""
        return self.decisions[-1] if self.decisions else None

    @property
    def lost_cells(self) -> int:
        """The number of cells that ended but do not count."""
        return sum(done.result.status != "ok" for done in self.finished.values())

    def first_digest(self, arm: str) -> str | None:
        """Return the digest of the first image of an arm in the run; None if it is unknown."""
        return next((image.digest for image in self.images.values() if image.arm == arm), None)

    def cell_results(self) -> tuple[CellResult, ...]:
        """Return all cells that ended, in order of their first end."""
        return tuple(done.result for done in self.finished.values())

    def counted_cells(self) -> tuple[FinishedCell, ...]:
        """Return the cells that count, with their observed values, in order of their first end."""
        return tuple(done for done in self.finished.values() if done.result.status == "ok")

    def platform_results(self) -> tuple[PlatformResult, ...]:
        """Return one result per arm, in the study's order, unchecked arms as not usable."""
        arms = self.started.study.get("arms", {}) if self.started else {}
        named = dict(arms) if isinstance(arms, dict) else {}
        names = [*named, *(arm for arm in self.platforms if arm not in named)]
        return tuple(self._platform_result(name, named.get(name, {})) for name in names)

    def machine_results(self) -> tuple[MachineResult, ...]:
        """Return all machines in order of start."""
        return tuple(machine_result(machine) for machine in self.machines)

    def series(self, folder: Path) -> tuple[SeriesEntry, ...]:
        """Return the series of all cells that count.

        Args:
            folder: The run's folder, which their paths are relative to.
        """
        return tuple(
            series_entry(done.result, saved, folder)
            for done in self.counted_cells()
            for saved in done.saved
        )

    @property
    def settled(self) -> frozenset[str]:
        """The cells that ended and are not tried again."""
        return frozenset(filter(self.is_settled, self.finished))

    def is_settled(self, cell: str) -> bool:
        """Return whether a cell that ended is not tried again.

        A cell that failed with a transient fault in an unfinished block may get a second try.
        """
        ended = self.block.finished
        return cell not in self._passing or self.finished[cell].result.block in ended

    def all_series(self, folder: Path) -> tuple[SeriesEntry, ...]:
        """Return the series of all cells that ended, whether they count or not."""
        return tuple(
            series_entry(done.result, saved, folder)
            for done in self.finished.values()
            for saved in done.saved
        )

    def _resume(self, event: RunResumed) -> None:
        self._open.clear()
        self.block.forget()
        self.resumed, self.ended = self.resumed + 1, None
        self.doubts = (*self.doubts, *event.doubts)
        self.host, self.versions = event.host or self.host, event.versions
        if event.changed:
            ended = set(self.block.finished)
            self.sessions.discard_incomplete(ended)
            self.breaks.append(Break(max(ended, default=0), event.changed))
            # Comparisons are within a block, so no block may have cells from before and after the
            # change.
            self.finished = {
                cell: done for cell, done in self.finished.items() if done.result.block in ended
            }

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
        if event.transient and cell.started.attempt == 1:
            self._passing.add(event.cell)
        else:
            self._passing.discard(event.cell)
        repeat = _REPEAT.search(event.cell)
        before = self.finished.get(event.cell)
        warnings = event.warnings
        if before is not None and before.result.status != "ok":
            earlier = f"attempt {before.result.attempt} {before.result.status}"
            warnings = (f"{earlier}: {before.result.reason}", *warnings)
        start = cell.started
        status, reason = possible(event, cell.observed)
        result = CellResult(
            cell=event.cell,
            run=self.started.run,
            block=start.block,
            arm=start.arm,
            scenario=start.scenario,
            workload=start.workload,
            parameters=canonical_json(start.parameters),
            repeat=int(repeat.group(1)) if repeat else 1,
            status=status,
            reason=reason,
            warnings=warnings,
            logs=event.logs,
            measured_s=event.measured_s,
            facts=known_facts(event.facts),
            attempt=start.attempt,
        )
        self.finished[event.cell] = FinishedCell(result, tuple(cell.observed), tuple(cell.saved))

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
            mark=check.mark,
            shown=check.shown,
            uncontrolled=check.uncontrolled,
            lasting=check.lasting,
        )


def fold_records(records: Iterable[Record]) -> Fold:
    """Fold all ``records`` of a run, in order."""
    folded = Fold()
    for record in records:
        folded.take(record)
    return folded


def read_fold(path: Path) -> Fold:
    """Fold the events in a file without keeping them.

    Args:
        path: An ``events.jsonl`` file.

    Raises:
        UnreadableStream: See :func:`tare.events.read_events`.
    """
    folded, chain = Fold(), Chain(read_seal(path))
    observe = folded.observe
    for entry in read_entries(path, chain):
        if isinstance(entry, Seen):
            observe(entry.cell, entry.observation)
        else:
            folded.take(entry)
    now = (f"{path.name}: {doubt}" for doubt in chain.doubts())
    folded.doubts = tuple(dict.fromkeys((*folded.doubts, *now)))
    return folded


def checks_since(before: tuple[CheckResult, ...], event: Preflight) -> tuple[CheckResult, ...]:
    """Return the checks of all hosts, with those of one host replaced by new ones.

    Args:
        before: The checks so far.
        event: The new checks. If they name no host, they are those of the run's only host.
    """
    others = (each for each in before if event.host and each.host != event.host)
    now = (
        CheckResult(check.name, check.level, check.found, check.hint, event.host)
        for check in event.checks
    )
    return (*others, *now)
