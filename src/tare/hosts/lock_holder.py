"""Find the process that holds a lock by asking the kernel, and not by reading the locked file."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tare.plaintext import plain_line

LOCKS = Path("/proc/locks")
PROCESSES = Path("/proc")
_LOCK = re.compile(
    r"^\d+: +(?:FLOCK|POSIX|OFDLCK) +\w+ +\w+ +(-?\d+) +([0-9a-f]+):([0-9a-f]+):(\d+) ",
    re.MULTILINE,
)
"""Matches a held lock, proc_locks(5): its process, device and inode. Waiting ones have `->`."""
_LONGEST_COMMAND = 120


@dataclass(frozen=True)
class LockHolder:
    """A process that holds a lock.

    Args:
        pid: The id of the process.
        command: The process's command line; empty if unreadable.
        certain: Whether the process is known to have the file open, so that it is surely the
            holder.
    """

    pid: int
    command: str
    certain: bool

    @property
    def words(self) -> str:
        """A description of the process for messages."""
        return f"process {self.pid}" + (f", `{self.command}`" if self.command else "")


def holder_of(fd: int) -> LockHolder | None:
    """Return the process that holds a lock on an open file; None if the kernel lists none.

    Processes of other containers or computers are not listed. The device may differ, as on
    overlayfs and btrfs. Then the inode decides, and the process must have the file open.

    Args:
        fd: The descriptor of the locked file.
    """
    here = os.fstat(fd)
    try:
        listed = LOCKS.read_text(errors="replace")
    except OSError:
        return None
    device = (os.major(here.st_dev), os.minor(here.st_dev))
    pids, guess = list[int](), None
    for pid_text, major, minor, inode in _LOCK.findall(listed):
        pid = int(pid_text)
        if int(inode) != here.st_ino or pid <= 0 or pid == os.getpid():
            continue
        pids.append(pid)
        if (int(major, 16), int(minor, 16)) == device and start_ticks(pid) is not None:
            guess = guess or LockHolder(pid, command_of(pid), certain=False)
    if not pids:
        return None
    # The process that took the lock may have ended and left the open file to another process, as
    # flock(1) does.
    others = (int(each.name) for each in PROCESSES.glob("[0-9]*"))
    for pid in (*pids, *others):
        if pid != os.getpid() and _has_open(pid, here):
            return LockHolder(pid, command_of(pid), certain=True)
    return guess


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process of this computer, in clock ticks since boot, or None.

    Field 22 of ``/proc/PID/stat``, proc(5). A zombie counts as ended.
    """
    try:
        stat = (PROCESSES / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def command_of(pid: int) -> str:
    """Return a process's command line without terminal control characters; empty if unknown."""
    try:
        words = (PROCESSES / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = " ".join(word.decode(errors="replace") for word in words if word)
    return plain_line(text, _LONGEST_COMMAND).replace("`", "'")


def _has_open(pid: int, file: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for entry in (PROCESSES / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(entry.stat(), file):
                    return True
    return False
