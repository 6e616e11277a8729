"""Append to a run's events, and tell what the disk refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import TareError
from tare.events import EventLog
from tare.outputs import PART, remedy, unwritable
from tare.run.lifecycle.only_writer import only_writer
from tare.run.lifecycle.resume_command import ANY_CLUSTER, first_event, resuming

if TYPE_CHECKING:
    from tare.run.lifecycle.folder import RunFolder


@contextmanager
def appending(folder: RunFolder, cluster: str = ANY_CLUSTER) -> Iterator[EventLog]:
    """Append to a run's events; what the disk refuses is told with the way to go on.

    Args:
        folder: The run's folder.
        cluster: Where hosts share the run: the address of their scheduler.

    Raises:
        InputError: The folder cannot be written, or another process writes there.
        TareError: The disk is full or failed during the run.
    """
    with only_writer(folder.path) as guard:
        try:
            log = EventLog(folder.events, guard)
        except OSError as error:
            raise unwritable(folder.events, error, "then go on") from error
        try:
            with log:
                yield log
        except OSError as error:
            raise _refused(folder, cluster, error) from error


def _refused(folder: RunFolder, cluster: str, error: OSError) -> TareError:
    if not folder.events.exists():
        return TareError(
            f"{folder.path} was removed while the run wrote into it, and what was measured with it",
            "start the run anew",
        )
    # Of what was written aside nobody knows the name.
    path = folder.path
    if error.filename and not Path(os.fsdecode(error.filename)).name.startswith(PART):
        path = Path(os.fsdecode(error.filename))
    return TareError(
        f"{path}: {error.strerror or error}",
        f"{remedy(error, path)}; then go on with: "
        + resuming(folder.path, first_event(folder.events), cluster),
    )
