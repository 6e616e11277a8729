"""Whether a folder can hold a file, and whether programs may run there: why not, and where else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tare.units import format_size

ELSEWHERE = ("/var/tmp", "/tmp", "/opt", "/srv", "/dev/shm")
"""Folders that usually exist, to suggest in place of one that cannot be used."""
# Of each folder, or its nearest parent that exists: whether it is writable, and its file system's
# line of `df`. Busybox has no `df -i`. The last part lists all mounts with their options.
LOOK_AT_FOLDERS = (
    'for folder in "$@"; do at=$folder; '
    'until [ -d "$at" ]; do at=${at%/*}; [ -n "$at" ] || at=/; done; '
    'can=no; [ -w "$at" ] && can=yes; echo "folder $can $folder"; '
    'df -P -k "$at" 2>/dev/null | tail -n 1; df -P -i "$at" 2>/dev/null | tail -n 1; '
    "done; echo mounts; cat /proc/self/mounts"
)
"""A script of the POSIX shell that describes the folders which are its arguments."""


@dataclass(frozen=True)
class Folder:
    """A folder of a host, as :data:`LOOK_AT_FOLDERS` describes it.

    Args:
        path: The folder.
        writable: Whether the user may write there.
        mount: Where its file system is mounted; empty where that is not known.
        options: The options of that mount.
        free: Bytes that are free there; None where that is not known.
        inodes: Files that can still be made there; None where that is not known.
    """

    path: str
    writable: bool
    mount: str = ""
    options: frozenset[str] = frozenset()
    free: int | None = None
    inodes: int | None = None

    def obstacle(self, size: int, *, running: bool = True) -> str:
        """Return why the folder cannot hold a file; empty where it can.

        Args:
            size: The file's bytes.
            running: Whether the file is a program that is to run there.
        """
        if running and "noexec" in self.options:
            return f"{self.mount} is mounted noexec, so programs cannot run there"
        if "ro" in self.options:
            return f"{self.mount} is mounted read-only"
        if not self.writable:
            return f"the user may not write to {self.path}"
        if self.inodes == 0:
            return f"{self.mount} has no free inode: no further file can be made there"
        if self.free is not None and self.free < size:
            return (
                f"{self.mount} has {format_size(self.free)} free, and {format_size(size)} are "
                "needed"
            )
        return ""


def read_folders(text: str) -> list[Folder]:
    """Return the folders that :data:`LOOK_AT_FOLDERS` described, in the order they were asked."""
    described, _, mounts = text.partition("\nmounts\n")
    options = dict(_mounts(mounts.splitlines()))
    found: list[Folder] = []
    for part in f"\n{described}".split("\nfolder ")[1:]:
        first, *lines = part.splitlines()
        can, _, path = first.partition(" ")
        kinds = [_free(line) for line in lines]
        mount = next((mount for mount, _ in kinds if mount), "")
        found.append(
            Folder(
                path,
                can == "yes",
                mount,
                options.get(mount, frozenset()),
                None if not kinds or kinds[0][1] is None else kinds[0][1] << 10,
                # A file system that makes inodes as they are needed, such as btrfs, counts none.
                kinds[1][1] if len(kinds) > 1 and not _uncounted(lines[1]) else None,
            )
        )
    return found


def usable(folders: Iterable[Folder], size: int) -> str | None:
    """Return the first of some folders in which a program of ``size`` bytes can be put and run."""
    return next((each.path for each in folders if not each.obstacle(size)), None)


def _mounts(lines: Iterable[str]) -> Iterable[tuple[str, frozenset[str]]]:
    """Return mount points and options from lines as in fstab(5)."""
    for line in lines:
        words = line.split()
        if len(words) >= 4:
            yield words[1].encode().decode("unicode_escape"), frozenset(words[3].split(","))


def _free(line: str) -> tuple[str, int | None]:
    """Return the mount point and what is available, from a line of ``df -P``."""
    words = line.rsplit("%", 1)
    left = words[0].split()
    mount = words[1].strip() if len(words) == 2 else line.rpartition(" - ")[2].strip()
    position = -2 if len(words) == 2 else -1
    try:
        return mount, int(left[position])
    except (ValueError, IndexError):
        return mount, None


def _uncounted(line: str) -> bool:
    return line.split()[1:2] == ["0"]
