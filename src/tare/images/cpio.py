"""A reproducible initramfs: the same entries always give the same bytes.

Format: the "new ASCII" cpio archive (magic 070701) that the kernel unpacks
(Documentation/driver-api/early-userspace/buffer-format.rst): a header of 8-digit hexadecimal
fields, the name with its NUL, and the data, each padded to 4 bytes; the last entry is named
``TRAILER!!!``.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

_TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class CpioEntry:
    """One file, directory, link or device node in an archive.

    Args:
        path: Its path, relative to the root, with ``/`` between parts.
        mode: File type and permissions, as ``st_mode``.
        data: Content of a file, target of a symbolic link; empty otherwise.
        device: Major and minor number of a device node.
    """

    path: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def file(path: str, data: bytes, *, executable: bool = False) -> CpioEntry:
    """Return a regular file, readable by all, executable or not."""
    return CpioEntry(path, stat.S_IFREG | (0o755 if executable else 0o644), data)


def directory(path: str) -> CpioEntry:
    """Return a directory with mode 755."""
    return CpioEntry(path, stat.S_IFDIR | 0o755)


def symlink(path: str, target: str) -> CpioEntry:
    """Return a symbolic link to ``target``."""
    return CpioEntry(path, stat.S_IFLNK | 0o777, target.encode())


def character_device(path: str, major: int, minor: int) -> CpioEntry:
    """Return a character device node, for root only."""
    return CpioEntry(path, stat.S_IFCHR | 0o600, b"", (major, minor))


def archive(entries: Iterable[CpioEntry]) -> bytes:
    """Return the archive: sorted by path, missing parent directories added, owner root, time 0.

    Args:
        entries: The entries, in any order.

    Returns:
        The archive's bytes, a multiple of 512 long.

    Raises:
        ValueError: A path is empty, absolute, contains ``..`` or NUL, or occurs twice.
    """
    held: dict[str, CpioEntry] = {}
    for entry in entries:
        path = _checked(entry.path)
        if path in held:
            raise ValueError(f"{path} occurs twice in the archive")
        held[path] = entry
    for path in list(held):
        for parent in PurePosixPath(path).parents:
            if str(parent) != ".":
                held.setdefault(str(parent), directory(str(parent)))
    written = bytearray()
    # Sorted by the parts of the path, so that a directory always comes before its contents.
    for inode, path in enumerate(sorted(held, key=lambda name: name.split("/")), start=1):
        entry = held[path]
        links = 2 if stat.S_ISDIR(entry.mode) else 1
        written += _record(path, inode, entry.mode, links, entry.data, entry.device)
    written += _record(_TRAILER, 0, 0, 1, b"", (0, 0))
    written += bytes(-len(written) % 512)
    return bytes(written)


def _checked(path: str) -> str:
    parts = path.split("/")
    if not path or any(part in {"", ".", ".."} for part in parts) or "\0" in path:
        raise ValueError(f"{path!r} is not a relative path")
    if path == _TRAILER:
        raise ValueError(f"{path} would end the archive")
    return path


def _record(
    path: str, inode: int, mode: int, links: int, data: bytes, device: tuple[int, int]
) -> bytes:
    name = path.encode() + b"\0"
    fields = (inode, mode, 0, 0, links, 0, len(data), 0, 0, *device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    record = header + name
    record += bytes(-len(record) % 4)
    return record + data + bytes(-len(data) % 4)
