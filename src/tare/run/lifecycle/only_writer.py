"""A lock that ensures one writer per run folder, across computers and state folders.

Two writers would each continue the chain of events, and make the stream unreadable. So the folder
itself holds a lock, ``writer.lock``, while a process writes there:

- It is created with ``O_EXCL``, which NFS supports since version 3, and names its owner.
- Its owner holds flock(2) on it. Linux passes that on to an NFS server; the kernel releases it
  however the process ends.
- If locks are local to one computer (NFS mounted with ``local_lock``, some FUSE file systems), only
  the owner's heartbeat counts: it touches the file every 20 s. Ages are differences between times
  of the same file server, so clocks need not agree.
- Before each event its owner checks that it still owns the lock: a process that was stopped for
  minutes, and was considered dead, does not write any more.

A lock is stale if its process is known to have ended (same boot, same PID namespace), or has had
no heartbeat for 90 s.
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
HEARTBEAT_S = 20.0
STALE_AFTER_S = 90.0
_MOST_BYTES = 4096
_TRIES = 5
_LONGEST_NAME = 64


class FolderHeld(InputError):
    """Another process writes to a run's folder."""


@dataclass(frozen=True)
class Owner:
    """The owner of a folder according to its lock, which anybody may have written.

    Args:
        host: The computer's name.
        boot: The id of its boot.
        pids: The PID namespace.
        pid: The process.
        began: The start of that process, in clock ticks since boot.
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
    """Lock a run's folder, so that no other process writes there meanwhile.

    A process may lock the same folder again. Readers need no lock.

    Args:
        folder: The run's folder.

    Yields:
        A check that raises TareError once this process has lost the lock.

    Raises:
        FolderHeld: Another process holds the lock; the message names it.
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
    heartbeat = threading.Thread(target=_beat, args=(fd, ended), daemon=True)
    heartbeat.start()
    try:
        yield lambda: _require_ours(path, fd)
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            if _is_at(path, fd):
                path.unlink()
        heartbeat.join()
        os.close(fd)


def _taken(path: Path) -> int | None:
    """Create the lock and return its descriptor; None if this process holds it already."""
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
    """Return whether this process holds the lock; remove a stale one.

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
        age_s = _server_time_s(path.parent) - os.fstat(fd).st_mtime
        if not _flocked(fd):
            raise _held(path, fd, owner, age_s)
        if owner is not None and owner.boot and (owner.boot, owner.pids) == (own.boot, own.pids):
            stale = start_ticks(owner.pid) != owner.began
        else:
            stale = age_s > STALE_AFTER_S
        if not stale:
            raise _held(path, fd, owner, age_s)
        # Another process that finds it stale waits for this flock, or finds another file there.
        if _is_at(path, fd):
            path.unlink(missing_ok=True)
        return False
    finally:
        os.close(fd)


def _held(path: Path, fd: int, owner: Owner | None, age_s: float) -> FolderHeld:
    folder = path.parent
    if found := holder_of(fd):
        words, advice = found.words, "wait until it has ended"
        if found.certain:
            advice += f", or stop it cleanly: kill -INT {found.pid}"
        return FolderHeld(f"{words} writes to {folder}; a run has one writer", advice)
    host = plain_line(owner.host, _LONGEST_NAME) if owner is not None else ""
    where = f"a process on {host}" if host else "another process"
    left_s = max(1, round(STALE_AFTER_S - age_s))
    return FolderHeld(
        f"{where} writes to {folder}; a run has one writer",
        f"wait until that run has ended; if it was killed, try again in {left_s} s",
    )


def _owner(written: bytes) -> Owner | None:
    try:
        lock = json.loads(written)
        return Owner(
            str(lock["host"]), str(lock["boot"]), str(lock["pids"]),
            int(lock["pid"]), int(lock["began"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _flocked(fd: int) -> bool:
    """Lock an open file; return False if another process has it locked.

    A file system without locks counts as locked by this process.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    return True


def _server_time_s(folder: Path) -> float:
    """Return the time of the folder's file server in seconds, from a temporary file's mtime."""
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
            f"{path.parent}: another process took over the run's folder while this one was stopped",
            f"check whether it still runs, then: tare verify {path.parent}",
        )


def _beat(fd: int, ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT_S):
        with contextlib.suppress(OSError):
            os.utime(fd)


__all__ = ["FolderHeld", "Owner", "only_writer", "this_process"]
