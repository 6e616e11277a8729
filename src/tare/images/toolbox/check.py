"""Tell whether the toolbox's tree is still what was built."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from tare.images.cache import file_digest

_NAMED = 5
"""How many problems are listed one by one."""


def snapshot(tree: Path) -> dict[str, list[Any]]:
    """Return what is in a tree: path to mode, size, and a file's digest or a link's target."""
    found: dict[str, list[Any]] = {}
    for path, about in _entries(tree).items():
        content = ""
        if stat.S_ISREG(about.st_mode):
            content = file_digest(tree / path)
        elif stat.S_ISLNK(about.st_mode):
            content = str((tree / path).readlink())
        size = 0 if stat.S_ISDIR(about.st_mode) else about.st_size
        found[path] = [about.st_mode, size, content]
    return found


def tree_problems(tree: Path, listing: Path, *, thorough: bool) -> list[str]:
    """Return how a tree differs from its listing, one sentence each; nothing when it is intact.

    Args:
        tree: The tree.
        listing: What :func:`snapshot` found when it was built.
        thorough: Read every file; otherwise sizes, modes and times must do. All times are 0, so a
            file that was written to shows.
    """
    try:
        wanted: dict[str, list[Any]] = json.loads(listing.read_bytes())
        found = _entries(tree)
    except (OSError, ValueError) as error:
        return [f"{listing.parent} cannot be read: {error}"]
    problems = [f"{tree / path} is missing" for path in sorted(wanted.keys() - found.keys())]
    problems += [f"{tree / path} does not belong there" for path in sorted(found.keys() - wanted)]
    for path in sorted(wanted.keys() & found.keys()):
        mode, size, content = wanted[path]
        about = found[path]
        same = about.st_mode == mode and (
            stat.S_ISDIR(mode) or (about.st_size == size and about.st_mtime_ns == 0)
        )
        if same and thorough and stat.S_ISREG(mode):
            same = file_digest(tree / path) == content
        if same and stat.S_ISLNK(mode):
            same = str((tree / path).readlink()) == content
        if not same:
            problems.append(f"{tree / path} is not what was built")
    if len(problems) > _NAMED:
        problems = [*problems[:_NAMED], f"and {len(problems) - _NAMED} more"]
    return problems


def _entries(tree: Path) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    waiting = [tree]
    while waiting:
        folder = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                found[Path(entry.path).relative_to(tree).as_posix()] = about
                if stat.S_ISDIR(about.st_mode):
                    waiting.append(Path(entry.path))
    return found
