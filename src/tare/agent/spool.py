"""Where long series wait for their end: on a disk, for many systems keep ``/tmp`` in memory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_ELSEWHERE = Path("/var/tmp")
_MOUNTS = Path("/proc/self/mounts")


def spool_folder() -> str:
    """Return the folder; the user's own word for it, ``TMPDIR``, counts before all else."""
    usual = Path(tempfile.gettempdir())
    if os.environ.get("TMPDIR"):
        return str(usual)
    for place in (usual, _ELSEWHERE):
        if os.access(place, os.W_OK) and kind_of(place) not in _IN_MEMORY:
            return str(place)
    return str(usual)


def kind_of(place: Path, mounts: Path = _MOUNTS) -> str:
    """Return the kind of the file system that a folder is on; empty where nobody tells.

    Args:
        place: The folder.
        mounts: What is mounted, as proc(5) describes ``/proc/self/mounts``.
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    found, deepest = "", -1
    for line in lines:
        words = line.split(" ")
        if len(words) < 3:
            continue
        at = Path(_unescaped(words[1]))
        # Of two on one place the later one is seen.
        if place.resolve().is_relative_to(at) and len(at.parts) >= deepest:
            found, deepest = words[2], len(at.parts)
    return found


def _unescaped(path: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escape, character)
    return path
