"""Live progress, made from the run's events and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
from tare.run.lifecycle.account import NOTHING_COMPARED, nothing_compared
from tare.run.preflight.calibration_words import calibration_lines
from tare.run.ui.doing import Doing, Stage, doing_lines
from tare.skips import LeftOut, lines_of
from tare.study.planning.cells import cell_label, work_words
from tare.units import format_duration, with_unit

SILENCE_S = 60.0
"""A long cell says so often where it is, where no panel shows it live."""
BETWEEN: Stage = "between two cells"


@dataclass
class Tally:
    """Where the run stands: what its events add up to, and what is being done at this moment.

    Args:
        fold: The run's events so far.
        most: The most blocks, until the events say more.
        clock: Seconds since the epoch.
    """

    fold: Fold
    most: int
    clock: Callable[[], float] = time.time
    hosts: dict[str, Doing] = field(default_factory=dict)
    """By the name of each host that shares the run; by no name where there is one."""
    _where: dict[str, str] = field(default_factory=dict)

    @property
    def cell_left_s(self) -> float:
        """Seconds that the longest of the cells under way takes yet, as far as known."""
        return max((each.cell_left_s for each in self.hosts.values()), default=0.0)

    @property
    def blocks(self) -> int:
        """The most blocks that there will be."""
        decided, planned = self.fold.decided, self.fold.planned
        if decided is not None and not decided.go_on:
            return decided.block
        return planned.blocks_most if planned is not None else self.most

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until all blocks are done, from the blocks so far; None: not known."""
        block, planned = self.fold.block, self.fold.planned
        if self.fold.sessions.begun:
            # How long somebody takes to swap a disk, nobody knows.
            return None
        if block.took_s:
            per_block = sum(block.took_s) / len(block.took_s)
        else:
            per_block = planned.expected_block_s if planned is not None else 0.0
        if per_block <= 0:
            return None
        blocks_after = self.blocks - max(block.number, 1)
        if block.number and block.number not in block.finished and not self._by_one_process:
            # A former process has measured a part of it, in time that does not count here.
            in_this_block = max(per_block * self._block_share_left, self.cell_left_s)
        elif block.under_way:
            in_this_block = max(per_block - (self.clock() - block.began), self.cell_left_s)
        else:
            in_this_block = 0.0 if block.number else per_block
        # Hosts with arms of their own measure parts of one block, others each a block.
        side_by_side = max(len(self.fold.joined), 1) if block.hosts else 1
        return blocks_after * per_block / side_by_side + max(in_this_block, 0.0)

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
        """The same in words."""
        left_s = self.left_s
        if left_s is None:
            return ""
        return f"about {format_duration(left_s)} left" if left_s >= 1 else "longer than expected"

    @property
    def share_done(self) -> float:
        """Cells done of all cells of the most blocks, from 0 to 1; of the current one its part."""
        planned = self.fold.planned
        total = self.blocks * planned.cells_per_block if planned is not None else 0
        parts = sum(each.fraction for each in self.hosts.values())
        return min((len(self.fold.finished) + parts) / total, 1.0) if total else 0.0

    def take(self, event: Event) -> None:
        """Note what is being done now."""
        match event:
            case MachineStarting():
                self._where[event.machine] = host = self._host_of(event.block, event.arm)
                what = f"{event.arm} / {event.scenario}: booting {event.role}"
                self.hosts[host] = Doing(what, stage="booting")
            case MachineReady():
                self._then(event.machine, f"up in {format_duration(event.boot_s)}")
            case MachineStopped():
                self._then(event.machine, "stopped")
                self._where.pop(event.machine, None)
            case CellStarted():
                self._where[event.cell] = host = self._host_of(event.block, event.arm)
                given = event.parameters
                work = work_words(event.workload, given) if given else cell_label(event.cell)
                what = f"{event.arm} / {event.scenario}: {work}"
                self.hosts[host] = Doing(what, stage="measuring")
            case CellFinished():
                host = self._where.pop(event.cell, "")
                self.hosts[host] = Doing(self._at(host).now, stage=BETWEEN)
            case HostJoined():
                self._at(event.host)
            case HostLost():
                self.hosts.pop(event.host, None)
            case _:
                pass

    def _at(self, host: str) -> Doing:
        return self.hosts.setdefault(host, Doing())

    def _then(self, machine: str, what: str) -> None:
        host = self._where.get(machine, "")
        self.hosts[host] = Doing(f"{self._at(host).now.split(': ')[0]}: {what}", stage=BETWEEN)

    def _host_of(self, block: int, arm: str) -> str:
        """Return which of several hosts measures an arm in a block; empty where there is one."""
        if host := self.fold.block.hosts.get(block):
            return host
        started = self.fold.started
        if not self.fold.joined or started is None:
            return ""
        return str(started.study["arms"].get(arm, {}).get("on") or "")

    def progress(self, cell: str, done: float, fields: Mapping[str, Any]) -> None:
        """Account for progress within ``cell``.

        Args:
            cell: The cell's identity.
            done: The share done, from 0 to 1.
            fields: ``rate`` in ``unit``, and ``left_s``, the seconds left, as far as known.
        """
        doing = self._at(self._where.get(cell, ""))
        doing.fraction = done
        parts = []
        rate, left_s = fields.get("rate"), fields.get("left_s")
        if isinstance(rate, int | float):
            parts.append(with_unit(f"{rate:,.0f}", str(fields.get("unit", "1/s"))))
        if isinstance(left_s, int | float):
            doing.cell_left_s = float(left_s)
            parts.append(f"about {format_duration(max(round(left_s), 0))} left")
        doing.extra = ", ".join(parts)

    def doing(self, most: int) -> list[str]:
        """Return what is being done at this moment, a line each host.

        Args:
            most: How many lines there may be; the last one sums up whoever has none.
        """
        return doing_lines(self.hosts, most)


class ProgressView:
    """Shows a run: a live panel where the terminal can redraw it, plain lines elsewhere.

    Args:
        console: Where to.
        tally: Where the run stands; its fold takes each event before the view does.
    """

    def __init__(self, console: Console, tally: Tally) -> None:
        self.tally = tally
        self._console = console
        self._redraws = console.is_terminal and can_redraw(os.environ.get("TERM", ""))
        self._spoke = tally.clock()
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
        self._tell_skips()
        if self._redraws:
            self._live.stop()

    def progress(self, cell: str, done: float, fields: Mapping[str, Any]) -> None:
        """Show progress within a cell: at once in the panel, as a line a minute elsewhere."""
        self.tally.progress(cell, done, fields)
        now = self.tally.clock()
        if not self._redraws and now - self._spoke >= SILENCE_S:
            self._spoke = now
            for line in self.tally.doing(self._most_lines):
                self._console.print(Text(f"  … {line}", "dim"), highlight=False)

    def take(self, record: Record) -> None:
        """Show one more event."""
        self._spoke = self.tally.clock()
        self.tally.take(record.event)
        if isinstance(record.event, Skipped):
            self._skips.append(record.event)
            return
        self._tell_skips()
        for line in _lines(self._unheard(record.event), self.tally):
            self._console.print(line, highlight=False)

    def _unheard(self, event: Event) -> Event:
        """Return an event without the notes that were told: a plan grows as hosts join."""
        if not isinstance(event, Planned):
            return event
        fresh = tuple(note for note in event.notes if note not in self._noted)
        self._noted |= set(fresh)
        return event.model_copy(update={"notes": fresh})

    def _tell_skips(self) -> None:
        """Say what is skipped, once it is known that no more comes; each reason has one line."""
        for line in skip_lines(self._skips):
            self._console.print(line, highlight=False)
        whole = {skip.arm for skip in self._skips if not (skip.scenario or skip.workload)}
        started = self.tally.fold.started
        if whole and started is not None:
            arms = {name: arm.get("twin_of") for name, arm in started.study["arms"].items()}
            if nothing_compared(arms, started.study["baseline"], arms.keys() - whole):
                self._console.print(Text(f"  ! {NOTHING_COMPARED}", "yellow"), highlight=False)
        self._skips.clear()

    @property
    def _most_lines(self) -> int:
        """How many lines there are for hosts, below the bar and one that was told before."""
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
        lines = "\n".join(tally.doing(self._most_lines))
        return Group(grid, Text(lines, style="dim", no_wrap=True, overflow="ellipsis"))


def can_redraw(terminal: str) -> bool:
    """Return whether a kind of terminal can move its cursor back up.

    On any other, rich would print the panel anew below itself.

    Args:
        terminal: As of ``$TERM``.
    """
    return terminal.lower() not in ("", "dumb", "unknown")


def skip_lines(skips: Iterable[Skipped]) -> list[Text]:
    """Return what is skipped; what is skipped for the same reason shares a line."""
    parts = (LeftOut(skip.arm, skip.scenario, skip.workload, skip.reason) for skip in skips)
    return [Text(f"  – {line.what} skipped: {line.reason}", "yellow") for line in lines_of(parts)]


def _lines(event: Event, tally: Tally) -> list[Text]:
    match event:
        case RunStarted():
            return [Text(f"run {event.run}: {event.study['title']} (seed {event.seed})", "bold")]
        case RunResumed():
            return [Text(f"run {event.run} goes on at the first unfinished cell", "bold")]
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
    left = f"; {tally.left}" if event.block < tally.blocks else ""
    host = tally.fold.block.hosts.get(event.block, "")
    return Text(f"block {event.block} done{f' on {host}' if host else ''}{took}{left}", "dim")


def _check_line(check: Check) -> Text:
    hint = f" ({check.hint})" if check.hint else ""
    return Text(f"  ! {check.name}: {check.found}{hint}", "yellow")
