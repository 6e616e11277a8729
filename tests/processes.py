"""Find processes of this computer, for tests that check which ones a command started or left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def below(ancestor: int) -> list[int]:
    """Return all descendants of a process."""
    parents = {}
    for process in _all():
        with suppress(OSError):
            stat = (process / "stat").read_text(errors="replace")
            parents[int(process.name)] = int(stat.rpartition(")")[2].split()[1])

    def has_begun(number: int) -> bool:
        while number > 1 and number != ancestor:
            number = parents.get(number, 0)
        return number == ancestor

    return [number for number in parents if number != ancestor and has_begun(number)]


def named(name: str, ancestor: int) -> list[int]:
    """Return all descendants of a process that have a name."""
    return [pid for pid in below(ancestor) if _read(pid, "comm").decode().strip() == name]


def agents_of(ancestor: int) -> list[int]:
    """Return all descendants of a process that are Tare's agents."""
    return [pid for pid in below(ancestor) if b"serve" in _read(pid, "cmdline")]


def of_state(folder: Path) -> list[int]:
    """Return all processes but the caller whose Tare keeps its state below a folder."""
    own = f"XDG_STATE_HOME={folder}/state".encode()
    return [
        pid
        for pid in (int(process.name) for process in _all())
        if pid != os.getpid() and own in _read(pid, "environ").split(b"\0")
    ]


def _all() -> Iterator[Path]:
    return PROC.glob("[0-9]*")


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return (PROC / str(pid) / name).read_bytes()
    return b""
