"""Temporary folders of a worker, which are removed even if it was killed."""

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
    """A folder that is kept while its lock is held.

    Args:
        folder: Its path.
        lock: A descriptor; a process that inherits it holds the lock as well.
    """

    folder: Path
    lock: int


@contextlib.contextmanager
def scratch(kind: str) -> Iterator[Scratch]:
    """Create a folder and remove it afterwards.

    A killed process removes nothing, so this first removes folders that killed processes of this
    user left.

    Args:
        kind: Its purpose, a word of its name.
    """
    prefix = f"tare-{kind}-"
    places = Path(tempfile.gettempdir())
    for left in places.glob(f"{prefix}*"):
        _remove_unless_held(left)
    # It is renamed once it is locked: a folder with that name and without a lock is a leftover.
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
