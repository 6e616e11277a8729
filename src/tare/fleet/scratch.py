"""Folders that a worker needs for a while, and that go even where it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Scratch:
    """A folder, which nobody removes while its lock is held.

    Args:
        folder: Where it is.
        lock: A descriptor; a process that has it too holds the lock as well.
    """

    folder: Path
    lock: int


@contextlib.contextmanager
def scratch(kind: str) -> Iterator[Scratch]:
    """Make a folder and remove it afterwards.

    A process that is killed removes nothing, so those that are left of such processes of this user
    go first.

    Args:
        kind: What it is for, a word of its name.
    """
    prefix = f"tare-{kind}-"
    places = Path(tempfile.gettempdir())
    for left in places.glob(f"{prefix}*"):
        _remove_unless_held(left)
    # It has its name once it is locked: one without a lock counts as left.
    unnamed = Path(tempfile.mkdtemp(prefix=".tare-"))
    lock = os.open(unnamed, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = unnamed.rename(places / f"{prefix}{unnamed.name.removeprefix('.tare-')}")
        try:
            yield Scratch(folder, lock)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _remove_unless_held(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        # Another user's, or gone meanwhile.
        return
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            return
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
