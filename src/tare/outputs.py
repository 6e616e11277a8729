"""Files for the user, written completely or left unchanged; and what to do if that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tare.errors import InputError

OWN_PLACES = "$XDG_CACHE_HOME and $XDG_STATE_HOME move what Tare keeps between runs"
PART = ".tare-"
"""The prefix of the names of incomplete files."""


def put(path: Path, content: bytes | memoryview | str) -> None:
    """Write a file under a temporary name, and rename it once it is complete.

    Anything but a regular file, such as a pipe or a device, is written to directly.

    Args:
        path: The file; replaced if it exists. For a symbolic link, its target.
        content: Bytes, or text that is encoded as UTF-8.

    Raises:
        OSError: The file cannot be written; a previous file remains unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    with aside(path) as file:
        file.write(data)


@contextmanager
def aside(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file, and rename it to ``path`` if the block ends without an error.

    Args:
        path: The file, as in :func:`put`.

    Raises:
        OSError: The file cannot be written; a previous file remains unchanged.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    part = path.with_name(f"{PART}{os.urandom(4).hex()}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def put_for_user(path: Path, content: bytes | str, hint: str) -> None:
    """Write a file that the user named, as :func:`put` does.

    Args:
        path: The file.
        content: Bytes, or text.
        hint: What to do if that fails.

    Raises:
        InputError: The file cannot be written; the message names the reason.
    """
    try:
        put(path, content)
    except OSError as error:
        raise unwritable(path, error, hint) from error


def unwritable(path: Path, error: OSError, hint: str) -> InputError:
    """Return the error to raise for a path that cannot be written.

    Args:
        path: The path as the user knows it.
        error: The system's error.
        hint: What to do instead, or afterwards, in addition to removing the cause; may be empty.
    """
    todo = "; ".join(filter(None, (remedy(error, path), hint)))
    return InputError(f"cannot write {path}: {error.strerror or error}", todo)


def unusable(error: OSError) -> InputError:
    """Return the error to raise for a system error that no caller has handled."""
    if not error.filename and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return InputError(
            f"this computer gives Tare no more: {error.strerror}",
            "raise its limits: ulimit -n 1024; ulimit -v unlimited",
        )
    if not error.filename:
        return InputError(
            f"the output cannot be written: {error.strerror or error}",
            "make room where the output goes, and read it to its end",
        )
    path = Path(os.fsdecode(error.filename))
    return InputError(f"{path}: {error.strerror or error}", f"{remedy(error, path)}; {OWN_PLACES}")


def remedy(error: OSError, path: Path) -> str:
    """Return advice that removes the reason why a path could not be written; never empty.

    Args:
        error: The system's error.
        path: The path as the user knows it.
    """
    there = existing(path)
    match error.errno:
        case errno.ENOSPC:
            return f"make room on its disk (df -h {there}; df -i {there})"
        case errno.EDQUOT:
            return "make room: your quota there is used up (quota)"
        case errno.EROFS:
            return (
                f"its disk is mounted read-only: mount it for writing (findmnt -T {there}; if it "
                "became so by itself, dmesg says why)"
            )
        case errno.EPERM:
            return f"it is marked as not to be changed: lift that (lsattr -d {there}; chattr -i -a)"
        case errno.EACCES:
            return f"let it be written by this user (ls -ld {there})"
        case errno.ENOENT | errno.ESTALE:
            if there in (path, path.parent):
                return f"nothing can be made in {there if there.is_dir() else there.parent}"
            return (
                f"of its folders {there} is the last that is there: put back what is missing, or "
                "make its folder (mkdir -p)"
            )
        case errno.ENOTDIR | errno.EISDIR | errno.EEXIST:
            return "another file has its name: move that file away"
        case errno.EIO:
            return "the disk does not work: dmesg says more; use another one"
        case errno.EMFILE | errno.ENFILE:
            return "too many files are open: raise the limit (ulimit -n)"
        case _:
            return f"look at that place (ls -ld {there}; df -h {there})"


def existing(path: Path) -> Path:
    """Return the path, or the nearest existing folder above it."""
    for place in (path, *path.parents):
        try:
            if place.exists():
                return place
        except OSError:
            continue
    return Path("/")
