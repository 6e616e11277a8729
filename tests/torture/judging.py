"""The result of a disturbed run: losses, leftovers and reports, from its events alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """The result of one trial.

    Args:
        fault: What was done to it.
        seed: What it was drawn from.
        lost: Planned cells without an end, and cells that had ended and were measured again.
        spoilt: Cells that failed or were withheld, each with its reason.
        left: What was left behind.
        wrong: What was not reported, or wrongly; empty: all was correct.
    """

    fault: str
    seed: int
    lost: tuple[str, ...]
    spoilt: tuple[str, ...]
    left: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def well(self) -> bool:
        """Whether nothing was lost, left behind or reported wrongly."""
        return not (self.lost or self.left or self.wrong)


def ends(events: Sequence[Event]) -> dict[str, Event]:
    """Return the last end of each cell."""
    return {event["cell"]: event for event in events if event["type"] == "cell_finished"}


def lost_cells(events: Sequence[Event], planned: int) -> list[str]:
    """Return the cells that were lost: never ended, or measured again after they had counted."""
    finished: dict[str, Event] = {}
    again = []
    for event in events:
        if event["type"] == "cell_started":
            before = finished.get(event["cell"])
            if before is not None and not before["transient"]:
                again.append(f"{event['cell']} was measured again")
        elif event["type"] == "cell_finished":
            finished[event["cell"]] = event
    missing = planned - len(finished)
    return again + ([f"{missing} of {planned} cells never ended"] if missing > 0 else [])


def spoilt_cells(events: Sequence[Event]) -> list[str]:
    """Return the cells that do not count, with the reasons."""
    return [
        f"{cell}: {event['status']}: {event['reason']}"
        for cell, event in ends(events).items()
        if event["status"] != "ok"
    ]


def unreasoned(events: Sequence[Event]) -> list[str]:
    """Return the cells that do not count and do not say why."""
    return [
        f"{event['cell']} {event['status']} without a reason"
        for event in events
        if event["type"] == "cell_finished" and event["status"] != "ok" and not event["reason"]
    ]


def measured_through(end: Event | None, stop_s: float) -> bool:
    """Return whether a cell counts that measured while its machine was stopped so long.

    A stop before or after the work itself, while clocks are compared, costs nothing but time: then
    the work took less than the stop.
    """
    return end is not None and end["status"] == "ok" and end["measured_s"] >= stop_s


def reports_death(events: Sequence[Event]) -> bool:
    """Return whether any event says that a machine or a cell ended as nobody wanted."""
    return any(
        (event["type"] == "machine_stopped" and not event["expected"])
        or (event["type"] == "cell_finished" and event["status"] == "failed")
        for event in events
    )


def open_cells(events: Sequence[Event], machine: str = "") -> list[str]:
    """Return the cells under way after these events, of one machine if it is named."""
    found: dict[str, Event] = {}
    for event in events:
        if event["type"] == "cell_started":
            found[event["cell"]] = event
        elif event["type"] == "cell_finished":
            found.pop(event["cell"], None)
    return [
        cell
        for cell, event in found.items()
        if not machine or event.get("machines", {}).get("subject") == machine
    ]
