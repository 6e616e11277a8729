"""What is typed to go on with a run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tare.errors import TareError
from tare.events import Record, RunStarted
from tare.events.stream import read_entries

ANY_CLUSTER = "ADDRESS"
"""Stands for the address of a scheduler, where it is not known."""


def resuming(directory: Path, started: RunStarted | None, cluster: str = ANY_CLUSTER) -> str:
    """Return the command that goes on with a run; where hosts share it, with their cluster.

    Args:
        directory: The run's folder.
        started: The run's first event; None where it is not known.
        cluster: The address of the scheduler, or ``local:N``.
    """
    shared = started is not None and is_shared(started)
    return f"tare resume {directory}" + (f" --cluster {cluster}" if shared else "")


def is_shared(started: RunStarted) -> bool:
    """Return whether hosts of a cluster share a run: each is written with its worker."""
    return any(
        isinstance(each, dict) and {"worker", "spread"} <= each.keys()
        for each in started.host.values()
    )


def first_event(events: Path) -> RunStarted | None:
    """Return the first event of a run; None where it cannot be read.

    Args:
        events: The run's events.
    """
    with suppress(TareError, OSError):
        for record in read_entries(events):
            if isinstance(record, Record) and isinstance(record.event, RunStarted):
                return record.event
            break
    return None
