"""Live progress, made from the run's events and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Check,
    Decided,
    Event,
    Interrupted,
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
    Skipped,
)
from tare.study.plan import cell_label
from tare.study.quantities import format_duration

Say = Callable[[Text], None]
SILENCE_S = 60.0
"""A long cell says so often where it is, where there is no terminal to show it live."""


@dataclass
class Tally:
    """Where the run stands: counts and times, folded from events."""

    blocks: int
    cells_per_block: int = 0
    expected_block_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    block: int = 0
    done_in_block: int = 0
    done: int = 0
    failed: int = 0
    now: str = "getting ready"
    fraction: float = 0.0
    extra: str = ""
    cell_left_s: float = 0.0
    in_block: bool = False
    began: float = field(init=False)
    block_began: float = field(init=False)
    block_times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.block_began = self.clock()

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until all blocks are done, from the blocks so far; None: not known."""
        per_block = (
            sum(self.block_times) / len(self.block_times)
            if self.block_times
            else self.expected_block_s
        )
        if per_block <= 0:
            return None
        blocks_after = self.blocks - max(self.block, 1)
        if self.in_block:
            in_this_block = max(per_block - (self.clock() - self.block_began), self.cell_left_s)
        else:
            in_this_block = 0.0 if self.block else per_block
        return blocks_after * per_block + max(in_this_block, 0.0)

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
        total = self.blocks * self.cells_per_block
        return min((self.done + self.fraction) / total, 1.0) if total else 0.0

    def take(self, event: Event) -> None:
        """Account for one more event."""
        match event:
            case Planned():
                self.blocks = event.blocks_most
                self.cells_per_block = event.cells_per_block
                self.expected_block_s = event.expected_block_s
            case BlockStarted():
                self.block, self.done_in_block, self.in_block = event.block, 0, True
                self.block_began = self.clock()
            case MachineStarting():
                self._doing(f"{event.arm} / {event.scenario}: booting {event.role}")
            case MachineReady():
                self._doing(f"{self.now.split(': ')[0]}: up in {format_duration(event.boot_s)}")
            case MachineStopped():
                self._doing(f"{self.now.split(': ')[0]}: stopped")
            case CellStarted():
                self._doing(f"{event.arm} / {event.scenario}: {cell_label(event.cell)}")
            case CellFinished():
                self.fraction = 0.0
                self.done += 1
                self.done_in_block += 1
                self.failed += event.status != "ok"
            case BlockFinished():
                self.block_times.append(self.clock() - self.block_began)
                self.in_block = False
            case Decided() if not event.go_on:
                self.blocks = event.block
            case _:
                pass

    def _doing(self, what: str) -> None:
        self.now, self.fraction, self.extra, self.cell_left_s = what, 0.0, "", 0.0

    def progress(self, cell: str, done: float, fields: Mapping[str, Any]) -> None:
        """Account for progress within ``cell``.

        Args:
            cell: The cell's identity.
            done: The share done, from 0 to 1.
            fields: ``rate`` in ``unit``, and ``left_s``, the seconds left, as far as known.
        """
        del cell
        self.fraction = done
        parts = []
        rate, left_s = fields.get("rate"), fields.get("left_s")
        if isinstance(rate, int | float):
            parts.append(f"{rate:,.0f} {fields.get('unit', '1/s')}")
        if isinstance(left_s, int | float):
            self.cell_left_s = float(left_s)
            parts.append(f"about {format_duration(max(round(left_s), 0))} left")
        self.extra = ", ".join(parts)

    @property
    def doing(self) -> str:
        """What is being done at this moment, how far it is, how fast, and how long it takes."""
        share = f" {self.fraction:.0%}" if self.fraction else ""
        return f"{self.now}{share}" + (f", {self.extra}" if self.extra else "")


class ProgressView:
    """Shows a run on a terminal: a live panel there, plain lines elsewhere."""

    def __init__(self, console: Console, tally: Tally) -> None:
        self.tally = tally
        self._console = console
        self._spoke = tally.clock()
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=2,
            transient=True,
        )

    def __enter__(self) -> ProgressView:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def progress(self, cell: str, done: float, fields: Mapping[str, Any]) -> None:
        """Show progress within a cell: at once on a terminal, as a line a minute elsewhere."""
        self.tally.progress(cell, done, fields)
        now = self.tally.clock()
        if not self._console.is_terminal and now - self._spoke >= SILENCE_S:
            self._spoke = now
            self._console.print(Text(f"  … {self.tally.doing}", "dim"), highlight=False)

    def take(self, record: Record) -> None:
        """Show one more event."""
        self._spoke = self.tally.clock()
        self.tally.take(record.event)
        for line in _lines(record.event, self.tally):
            self._console.print(line, highlight=False)

    def _render(self) -> RenderableType:
        tally = self.tally
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            Text(f"block {tally.block}/{tally.blocks}", style="bold"),
            ProgressBar(total=1.0, completed=tally.share_done, width=32),
            Text(f"{tally.share_done:4.0%}"),
            Text(tally.left, style="cyan"),
            Text(f"{tally.failed} failed", style="red") if tally.failed else Text(""),
        )
        return Group(grid, Text(tally.doing, style="dim", no_wrap=True, overflow="ellipsis"))


def _lines(event: Event, tally: Tally) -> list[Text]:
    match event:
        case RunStarted():
            return [Text(f"run {event.run}: {event.study['title']} (seed {event.seed})", "bold")]
        case RunResumed():
            return [Text(f"run {event.run} goes on at the first unfinished cell", "bold")]
        case Preflight():
            return [_check_line(check) for check in event.checks if check.level != "ok"]
        case PlatformChecked() if event.usable:
            mark = " (emulated)" if event.emulated else ""
            return [Text(f"  ✓ {event.arm}{mark}: {event.reason}", "green")]
        case Skipped():
            what = "/".join(part for part in (event.arm, event.scenario, event.workload) if part)
            return [Text(f"  – {what} skipped: {event.reason}", "yellow")]
        case Planned():
            return [Text(f"  {note}") for note in event.notes]
        case CellFinished() if event.status != "ok":
            return [Text(f"  ✗ {event.cell} {event.status}: {event.reason}", "red")]
        case MachineStopped() if not event.expected:
            return [Text(f"    | {line}", "dim") for line in event.console_tail[-5:]]
        case BlockFinished():
            took = format_duration(tally.block_times[-1])
            left = f"; {tally.left}" if event.block < tally.blocks else ""
            return [Text(f"block {event.block} done in {took}{left}", "dim")]
        case Decided() if not event.go_on:
            return [Text(f"no further block: {event.reason}")]
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


def _check_line(check: Check) -> Text:
    hint = f" ({check.hint})" if check.hint else ""
    return Text(f"  ! {check.name}: {check.found}{hint}", "yellow")
