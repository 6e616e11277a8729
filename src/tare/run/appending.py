"""Append to a run's events, and tell what the disk refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tare.errors import TareError
from tare.events import EventLog
from tare.outputs import unwritable

if TYPE_CHECKING:
    from tare.run.folder import RunFolder


@contextmanager
def appending(folder: RunFolder) -> Iterator[EventLog]:
    """Append to a run's events; what the disk refuses is told with the way to go on.

    Raises:
        InputError: The folder cannot be written.
        TareError: The disk is full or failed during the run.
    """
    try:
        log = EventLog(folder.events)
    except OSError as error:
        raise unwritable(folder.events, error, "let the folder be written, then begin") from error
    try:
        with log:
            yield log
    except OSError as error:
        raise TareError(
            f"{folder.path}: {error.strerror or error}",
            f"make room, then go on with: tare resume {folder.path}",
        ) from error
