"""Live progress of a run, from its events only."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.events import (
    ArmEnded,
    BlockFinished,
    Calibrated,
    CellFinished,
    CellStarted,
    Check,
    CpusChanged,
    Decided,
    Event,
    Fold,
    HostJoined,
    HostLost,
    Interrupted,
    LabFroze,
    MachineReady,
    MachineStarting,
    MachineStopped,
    Planned,
    PlatformChecked,
    Preflight,
    Record,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionFinished,
    Skipped,
)
from tare.run.lifecycle.cell_counts import NOTHING_COMPARED, nothing_compared
from tare.skips import LeftOut, lines_of
from tare.study.planning.cells import cell_label, work_words
from tare.units import format_duration, format_quantity, with_unit

Stage = Literal["measuring", "booting", "between two cells", "getting ready"]
SILENCE_S = 60.0
"""Seconds between two lines on the progress of a long cell, if no live panel shows it."""
BETWEEN: Stage = "between two cells"


@dataclass
class CurrentStep:
    """The current step of one host.

    Args:
        now: A phrase for the user.
        fraction: The share of the cell that is done, from 0 to 1.
        extra: The rate and the time left, as a phrase.
        cell_left_s: Seconds until the cell is done.
        stage: The kind of step, by which hosts are counted.
    """

    now: str = "getting ready"
    fraction: float = 0.0
    extra: str = ""
    cell_left_s: float = 0.0
    stage: Stage = "getting ready"

    @property
    def words(self) -> str:
        """The step, its progress, its rate and the time left."""
        share = f" {self.fraction:.0%}" if self.fraction else ""
        return f"{self.now}{share}" + (f", {self.extra}" if self.extra else "")


def step_lines(hosts: Mapping[str, CurrentStep], most: int) -> list[str]:
    """Return the current step of each host as a line; the last line sums up further hosts.

    Args:
        hosts: By the name of each host that shares the run; a single host has an empty name.
        most: The most lines.
    """
    named = [(host, step) for host, step in hosts.items() if host]
    if not named:
        return [hosts.get("", CurrentStep()).words]
    own = len(named) if len(named) <= most else max(most - 1, 0)
    lines = [f"{host}: {step.words}" for host, step in named[:own]]
    if others := Counter(step.stage for _, step in named[own:]):
        sums = [f"{others[stage]} {stage}" for stage in get_args(Stage) if others[stage]]
        what = "more hosts" if own else "hosts"
        lines.append(f"{others.total()} {what}: {', '.join(sums)}")
    return lines


@dataclass
class Tally:
    """The state of a run: its events so far, and the current step of each host.

    Args:
        fold: The run's events so far.
        most: The most blocks, until an event states their number.
        least: The blocks that are measured even if the budget is spent.
        budget: Seconds after which no further block starts; None: no limit.
        clock: Returns seconds since the epoch.
    """

    fold: Fold
    most: int
    least: int = 1
    budget: float | None = None
    clock: Callable[[], float] = time.time
    hosts: dict[str, CurrentStep] = field(default_factory=dict)
    """By the name of each host that shares the run; a single host has an empty name."""
    _where: dict[str, str] = field(default_factory=dict)

    @property
    def cell_left_s(self) -> float:
        """Seconds until the longest of the current cells is done, as far as known."""
        return max((each.cell_left_s for each in self.hosts.values()), default=0.0)

    @property
    def blocks(self) -> int:
        """The most blocks that there will be."""
        decided, planned = self.fold.decided, self.fold.planned
        if decided is not None and not decided.go_on:
            return decided.block
        return planned.blocks_most if planned is not None else self.most

    @property
    def expected_blocks(self) -> int:
        """The most blocks that the budget lets start, by the time that a block takes."""
        per_block, blocks = self._per_block_s, self.blocks
        if self.budget is None or per_block <= 0:
            return blocks
        by_budget = max(math.ceil(self.budget / per_block), self.least, self.fold.block.number)
        return min(blocks, by_budget)

    @property
    def _per_block_s(self) -> float:
        """Seconds that a block takes, measured or else as planned; 0 if neither is known."""
        block, planned = self.fold.block, self.fold.planned
        if block.took_s:
            return sum(block.took_s) / len(block.took_s)
        return planned.expected_block_s if planned is not None else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until all blocks are done, from the blocks so far; None: not known."""
        block, per_block = self.fold.block, self._per_block_s
        # The time that somebody takes to swap a disk is unknown.
        if self.fold.sessions.begun or per_block <= 0:
            return None
        blocks_after = self.expected_blocks - max(block.number, 1)
        if block.number and block.number not in block.finished and not self._by_one_process:
            # A former process measured a part of the block; its time does not count here.
            in_this_block = max(per_block * self._block_share_left, self.cell_left_s)
        elif block.under_way:
            in_this_block = max(per_block - (self.clock() - block.began), self.cell_left_s)
        else:
            in_this_block = 0.0 if block.number else per_block
        # Hosts with different arms share each block; otherwise each host measures whole blocks.
        parallel = max(len(self.fold.joined), 1) if block.hosts else 1
        return blocks_after * per_block / parallel + max(in_this_block, 0.0)

    @property
    def _by_one_process(self) -> bool:
        block = self.fold.block
        return block.under_way and not block.shared

    @property
    def _block_share_left(self) -> float:
        """The share of the newest block's cells that have not ended, from 0 to 1."""
        fold = self.fold
        cells = fold.planned.cells_per_block if fold.planned is not None else 0
        done = sum(cell.result.block == fold.block.number for cell in fold.finished.values())
        return max(1 - done / cells, 0.0) if cells else 1.0

    @property
    def left(self) -> str:
        """The estimated time left, as a phrase; empty if it is not known."""
        left_s = self.left_s
        if left_s is None:
            return ""
        return f"about {format_duration(left_s)} left" if left_s >= 1 else "longer than expected"

    @property
    def share_done(self) -> float:
        """The share of the cells of all blocks that is done, from 0 to 1, with current cells."""
        planned = self.fold.planned
        total = self.expected_blocks * planned.cells_per_block if planned is not None else 0
        parts = sum(each.fraction for each in self.hosts.values())
        return min((len(self.fold.finished) + parts) / total, 1.0) if total else 0.0

    def take(self, event: Event) -> None:
        """Update the current steps by one event."""
        match event:
            case MachineStarting():
                self._where[event.machine] = host = self._host_of(event.block, event.arm)
                what = f"{event.arm} / {event.scenario}: booting {event.role}"
                self.hosts[host] = CurrentStep(what, stage="booting")
            case MachineReady():
                self._set_step(event.machine, f"up in {format_duration(event.boot_s)}")
            case MachineStopped():
                self._set_step(event.machine, "stopped")
                self._where.pop(event.machine, None)
            case CellStarted():
                self._where[event.cell] = host = self._host_of(event.block, event.arm)
                given = event.parameters
                work = work_words(event.workload, given) if given else cell_label(event.cell)
                what = f"{event.arm} / {event.scenario}: {work}"
                self.hosts[host] = CurrentStep(what, stage="measuring")
            case CellFinished():
                host = self._where.pop(event.cell, "")
                self.hosts[host] = CurrentStep(self._step_of(host).now, stage=BETWEEN)
            case HostJoined():
                self._step_of(event.host)
            case HostLost():
                self.hosts.pop(event.host, None)
            case _:
                pass

    def _step_of(self, host: str) -> CurrentStep:
        return self.hosts.setdefault(host, CurrentStep())

    def _set_step(self, machine: str, what: str) -> None:
        host = self._where.get(machine, "")
        self.hosts[host] = CurrentStep(
            f"{self._step_of(host).now.split(': ')[0]}: {what}", stage=BETWEEN
        )

    def _host_of(self, block: int, arm: str) -> str:
        """Return which of several hosts measures an arm in a block; empty for a single host."""
        if host := self.fold.block.hosts.get(block):
            return host
        started = self.fold.started
        if not self.fold.joined or started is None:
            return ""
        return str(started.study["arms"].get(arm, {}).get("on") or "")

    def progress(self, cell: str, done: float, fields: Mapping[str, Any]) -> None:
        """Update the progress within ``cell``.

        Args:
            cell: The cell's identity.
            done: The share done, from 0 to 1.
            fields: ``rate`` in ``unit``, and ``left_s``, the seconds left, as far as known.
        """
        step = self._step_of(self._where.get(cell, ""))
        step.fraction = done
        parts = []
        rate, left_s = fields.get("rate"), fields.get("left_s")
        if isinstance(rate, int | float):
            parts.append(with_unit(f"{rate:,.0f}", str(fields.get("unit", "1/s"))))
        if isinstance(left_s, int | float):
            step.cell_left_s = float(left_s)
            parts.append(f"about {format_duration(max(round(left_s), 0))} left")
        step.extra = ", ".join(parts)

    def current_steps(self, most: int) -> list[str]:
        """Return the current step of each host as a line.

        Args:
            most: The most lines; the last one sums up further hosts.
        """
        return step_lines(self.hosts, most)


class ProgressView:
    """Shows a run: as a live panel if the terminal can redraw it, otherwise as plain lines.

    Args:
        console: The terminal.
        tally: The run's state; its fold takes each event before the view does.
    """

    def __init__(self, console: Console, tally: Tally) -> None:
        self.tally = tally
        self._console = console
        self._redraws = console.is_terminal and can_redraw(os.environ.get("TERM", ""))
        self._printed = tally.clock()
        self._skips: list[Skipped] = []
        self._noted: set[str] = set()
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=2,
            transient=True,
        )

    def __enter__(self) -> ProgressView:
        if self._redraws:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._print_skips()
        if self._redraws:
            self._live.stop()

    def progress(self, cell: str, done: float, fields: Mapping[str, Any]) -> None:
        """Show progress within a cell: at once in the panel, otherwise as one line a minute."""
        self.tally.progress(cell, done, fields)
        now = self.tally.clock()
        if not self._redraws and now - self._printed >= SILENCE_S:
            self._printed = now
            for line in self.tally.current_steps(self._most_lines):
                self._console.print(Text(f"  … {line}", "dim"), highlight=False)

    def take(self, record: Record) -> None:
        """Show one more event."""
        self._printed = self.tally.clock()
        self.tally.take(record.event)
        if isinstance(record.event, Skipped):
            self._skips.append(record.event)
            return
        self._print_skips()
        for line in _lines(self._without_known_notes(record.event), self.tally):
            self._console.print(line, highlight=False)

    def _without_known_notes(self, event: Event) -> Event:
        """Return an event without the notes that were shown: a plan grows as hosts join."""
        if not isinstance(event, Planned):
            return event
        fresh = tuple(note for note in event.notes if note not in self._noted)
        self._noted |= set(fresh)
        return event.model_copy(update={"notes": fresh})

    def _print_skips(self) -> None:
        """Print the skipped parts of the study, once all are known; each reason has one line."""
        for line in skip_lines(self._skips):
            self._console.print(line, highlight=False)
        whole = {skip.arm for skip in self._skips if not (skip.scenario or skip.workload)}
        started = self.tally.fold.started
        if whole and started is not None:
            arms = {name: arm.get("twin_of") for name, arm in started.study["arms"].items()}
            if nothing_compared(arms, started.study["baseline"], arms.keys() - whole):
                sentence = f"  ! {NOTHING_COMPARED} (tare plan shows what to do about them)"
                self._console.print(Text(sentence, "yellow"), highlight=False)
        self._skips.clear()

    @property
    def _most_lines(self) -> int:
        """The number of lines for hosts, next to the bar and one earlier line."""
        return max(self._console.height - 2, 1)

    def _render(self) -> RenderableType:
        tally, lost = self.tally, self.tally.fold.lost_cells
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            Text(f"block {tally.fold.block.number}/{tally.blocks}", style="bold"),
            ProgressBar(total=1.0, completed=tally.share_done, width=32),
            Text(f"{tally.share_done:4.0%}"),
            Text(tally.left, style="cyan"),
            Text(f"{lost} failed", style="red") if lost else Text(""),
        )
        lines = "\n".join(tally.current_steps(self._most_lines))
        return Group(grid, Text(lines, style="dim", no_wrap=True, overflow="ellipsis"))


def calibration_lines(event: Calibrated, *, wrong_only: bool = False) -> Iterator[str]:
    """Yield one line for each calibrated figure: Tare's value, the reference and the difference.

    Args:
        event: The calibration of one host.
        wrong_only: Whether figures that agree are left out.
    """
    where = f" on {event.host}" if event.host else ""
    for one in event.found:
        if wrong_only and one.level == "ok":
            continue
        values = "" if one.own is None else f": {format_quantity(one.own, one.unit, digits=4)}"
        if one.reference is not None:
            values += f", {format_quantity(one.reference, one.unit, digits=4)} by {one.by}"
        mark = "✓" if one.level == "ok" else "!"
        yield f"{mark} calibrated{where}: {one.what}{values} ({one.found})"


def can_redraw(terminal: str) -> bool:
    """Return whether a kind of terminal can move its cursor back up.

    On any other, rich would print each panel below the last one.

    Args:
        terminal: The value of ``$TERM``.
    """
    return terminal.lower() not in ("", "dumb", "unknown")


def skip_lines(skips: Iterable[Skipped]) -> list[Text]:
    """Return one line for each reason, with the parts of the study that are skipped for it."""
    parts = (LeftOut(skip.arm, skip.scenario, skip.workload, skip.reason) for skip in skips)
    return [Text(f"  – {line.what} skipped: {line.reason}", "yellow") for line in lines_of(parts)]


def _lines(event: Event, tally: Tally) -> list[Text]:
    match event:
        case RunStarted():
            return [Text(f"run {event.run}: {event.study['title']} (seed {event.seed})", "bold")]
        case RunResumed():
            return [Text(f"run {event.run} resumes at the first unfinished cell", "bold")]
        case Preflight():
            return [_check_line(check) for check in event.checks if check.level != "ok"]
        case Calibrated():
            wrong = calibration_lines(event, wrong_only=True)
            return [Text(f"  {line}", "yellow") for line in wrong]
        case PlatformChecked() if event.usable:
            mark = " (emulated)" if event.emulated else ""
            lines = [Text(f"  ✓ {event.arm}{mark}: {event.reason}", "green")]
            return [*lines, *([Text(f"    ! runs {event.mark}", "yellow")] if event.mark else [])]
        case Planned():
            return [Text(f"  {note}") for note in event.notes]
        case CellFinished() if event.status != "ok":
            return [Text(f"  ✗ {event.cell} {event.status}: {event.reason}", "red")]
        case MachineStopped() if not event.expected:
            return [Text(f"    | {line}", "dim") for line in event.console_tail[-5:]]
        case BlockFinished():
            return [_block_line(event, tally)]
        case SessionFinished():
            return [Text(f"session {event.session} done", "dim")]
        case Decided() if not event.go_on:
            return [Text(f"no further block: {event.reason}")]
        case ArmEnded():
            on = f" on {event.host}" if event.host else ""
            cells = f"{event.failed} of {event.tried} cells failed"
            return [Text(f"{event.arm} ends{on}: {cells}: {event.reason}", "bold red")]
        case CpusChanged():
            where = event.host or "the host"
            return [Text(f"  ! the CPUs of {where} changed: {event.words}", "bold yellow")]
        case HostJoined():
            return [Text(f"  ✓ {event.host} takes part", "green")]
        case LabFroze():
            then = (
                "it is booted again, and the batch repeated"
                if event.repeated
                else "for the second time in this batch, so its cells fail"
            )
            where = f"{event.arm} / {event.scenario}"
            return [Text(f"  ! {where}: {event.reason}: {then}", "bold yellow")]
        case HostLost():
            return [Text(f"{event.host} is left out from here on: {event.reason}", "bold red")]
        case Interrupted():
            how = "finishing the current cell" if event.finishing else "stopping now"
            return [Text(f"{event.reason}: {how}", "bold yellow")]
        case RunFinished():
            return [
                Text(
                    f"{event.status} in {format_duration(event.wall_s)}: "
                    f"{format_duration(event.booting_s)} booting, "
                    f"{format_duration(event.measuring_s)} measuring",
                    "bold",
                )
            ]
        case _:
            return []


def _block_line(event: BlockFinished, tally: Tally) -> Text:
    took_s = tally.fold.block.last_took_s
    took = "" if took_s is None else f" in {format_duration(took_s)}"
    left = f"; {tally.left}" if event.block < tally.expected_blocks else ""
    host = tally.fold.block.hosts.get(event.block, "")
    return Text(f"block {event.block} done{f' on {host}' if host else ''}{took}{left}", "dim")


def _check_line(check: Check) -> Text:
    hint = f" ({check.hint})" if check.hint else ""
    return Text(f"  ! {check.name}: {check.found}{hint}", "yellow")
