"""What a run has done so far, folded from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tare.events import (
    CellFinished,
    Decided,
    Event,
    ImageReady,
    MachineReady,
    PlatformChecked,
    Record,
    RunFinished,
    RunResumed,
    RunStarted,
    Skipped,
)


@dataclass
class RunState:
    """The fold of a run's events: enough to go on at the first unfinished cell."""

    started: RunStarted | None = None
    finished_cells: dict[str, CellFinished] = field(default_factory=dict)
    platforms: dict[str, PlatformChecked] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    decided: Decided | None = None
    finished: RunFinished | None = None
    booting_s: float = 0.0
    measuring_s: float = 0.0
    wall_s: float = 0.0
    _process_began: float = 0.0

    def take(self, record: Record) -> None:
        """Account for one more event."""
        event: Event = record.event
        if isinstance(event, RunStarted | RunResumed):
            self._process_began = record.time - self.wall_s
        self.wall_s = record.time - self._process_began
        match event:
            case RunStarted():
                self.started = event
            case CellFinished():
                self.finished_cells[event.cell] = event
                self.measuring_s += event.measured_s
            case MachineReady():
                self.booting_s += event.boot_s
            case PlatformChecked():
                self.platforms[event.arm] = event
            case ImageReady():
                self.images.setdefault(event.arm, event.digest)
            case Skipped():
                self.skipped.append(event)
            case Decided():
                self.decided = event
            case RunFinished():
                self.finished = event
            case _:
                pass


def fold(records: Iterable[Record]) -> RunState:
    """Fold all ``records`` of a run into its state."""
    state = RunState()
    for record in records:
        state.take(record)
    return state
