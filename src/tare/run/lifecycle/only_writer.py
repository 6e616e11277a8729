"""One writer for a run's folder, on whichever computer and with whichever state folder.

Two would each continue the chain of events, and nobody could read the stream after that. So the
folder itself holds a lock, ``writer.lock``, for as long as something writes there:

- It is made with ``O_EXCL``, which NFS honours since version 3, and names its owner.
- Its owner holds flock(2) on it. Linux passes that on to an NFS server; the kernel lets go of it
  however the process ends.
- Where locks stay on one computer (NFS mounted with ``local_lock``, some FUSE file systems), only
  the owner's sign of life counts: it touches the file every 20 s. Ages are differences between
  times that the same file server gave, so that clocks need not agree.
- Before each event its owner looks whether the lock is still its own: a process that was stopped
  for minutes, and was taken for dead, writes no more.

A lock is void if its process is known to have ended (same boot, same process ids), or has given no
sign of life for 90 s.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tare.errors import InputError, TareError
from tare.hosts.ledger.ledger import boot_id
from tare.hosts.lock_holder import holder_of, start_ticks
from tare.outputs import PART, unwritable
from tare.plaintext import plain_line

NAME = "writer.lock"
SIGN_OF_LIFE_S = 20.0
VOID_AFTER_S = 90.0
_MOST_BYTES = 4096
_TRIES = 5
_LONGEST_NAME = 64


class FolderHeld(InputError):
    """Another process writes to a run's folder."""


@dataclass(frozen=True)
class Owner:
    """Who holds a folder, as the lock says. Anybody may have written it.

    Args:
        host: The computer's name.
        boot: The id of its boot.
        pids: Which process ids are meant: the PID namespace.
        pid: The process.
        began: When that process began, in clock ticks since boot.
    """

    host: str
    boot: str
    pids: str
    pid: int
    began: int


def this_process() -> Owner:
    """Return this process as an owner."""
    try:
        pids = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        pids = ""
    began = start_ticks(os.getpid())
    return Owner(platform.node(), boot_id(), pids, os.getpid(), 0 if began is None else began)


@contextmanager
def only_writer(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold a run's folder, so that nothing else writes there meanwhile.

    A process that holds it already may hold it again. Whoever only reads needs not hold it.

    Args:
        folder: The run's folder.

    Yields:
        What raises TareError once the lock is no longer this process's.

    Raises:
        FolderHeld: Another process holds it; names which.
        InputError: The lock cannot be written there.
    """
    path = folder / NAME
    try:
        fd = _taken(path)
    except OSError as error:
        raise unwritable(path, error, "then try again") from error
    if fd is None:
        yield lambda: None
        return
    ended = threading.Event()
    alive = threading.Thread(target=_give_signs, args=(fd, ended), daemon=True)
    alive.start()
    try:
        yield lambda: _require_ours(path, fd)
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            if _is_at(path, fd):
                path.unlink()
        alive.join()
        os.close(fd)


def _taken(path: Path) -> int | None:
    """Return the lock, newly made; None where this process holds it already."""
    own = this_process()
    for _ in range(_TRIES):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            if _held_by(path, own):
                return None
            continue
        _flocked(fd)
        os.write(fd, json.dumps(asdict(own)).encode())
        with contextlib.suppress(OSError):
            os.fsync(fd)
        return fd
    raise FolderHeld(f"{path.parent}: several processes try to write there at once", "try again")


def _held_by(path: Path, own: Owner) -> bool:
    """Return whether this process holds the lock; remove it where it is void.

    Raises:
        FolderHeld: Another process holds it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        owner = _owner(os.pread(fd, _MOST_BYTES, 0))
        if owner == own:
            return True
        age_s = _now_there(path.parent) - os.fstat(fd).st_mtime
        if not _flocked(fd):
            raise _held(path, fd, owner, age_s)
        if owner is not None and owner.boot and (owner.boot, owner.pids) == (own.boot, own.pids):
            void = start_ticks(owner.pid) != owner.began
        else:
            void = age_s > VOID_AFTER_S
        if not void:
            raise _held(path, fd, owner, age_s)
        # Whoever else finds it void as well waits for this flock, or finds another file there.
        if _is_at(path, fd):
            path.unlink(missing_ok=True)
        return False
    finally:
        os.close(fd)


def _held(path: Path, fd: int, owner: Owner | None, age_s: float) -> FolderHeld:
    folder = path.parent
    if found := holder_of(fd):
        words, way = found.words, "wait until it has ended"
        if found.certain:
            way += f", or end it in order: kill -INT {found.pid}"
        return FolderHeld(f"{words} writes to {folder}; a run has one writer", way)
    host = plain_line(owner.host, _LONGEST_NAME) if owner is not None else ""
    where = f"a process on {host}" if host else "another process"
    left_s = max(1, round(VOID_AFTER_S - age_s))
    return FolderHeld(
        f"{where} writes to {folder}; a run has one writer",
        f"wait until that run has ended; if it was killed, try again in {left_s} s",
    )


def _owner(written: bytes) -> Owner | None:
    try:
        said = json.loads(written)
        return Owner(
            str(said["host"]), str(said["boot"]), str(said["pids"]),
            int(said["pid"]), int(said["began"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _flocked(fd: int) -> bool:
    """Lock an open file; False if another has it locked. Where locks are unknown it stays open."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    return True


def _now_there(folder: Path) -> float:
    """Return the time of the folder's file server, in seconds, by a file that is made for it."""
    with tempfile.NamedTemporaryFile(prefix=PART, dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _require_ours(path: Path, fd: int) -> None:
    if path.parent.exists() and not _is_at(path, fd):
        raise TareError(
            f"{path.parent}: another process took over the run's folder while this one stood still",
            f"see whether it still runs, then: tare verify {path.parent}",
        )


def _give_signs(fd: int, ended: threading.Event) -> None:
    while not ended.wait(SIGN_OF_LIFE_S):
        with contextlib.suppress(OSError):
            os.utime(fd)


__all__ = ["FolderHeld", "Owner", "only_writer", "this_process"]
