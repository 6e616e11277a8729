"""One run at a time on one host: two would measure each other, whoever began them.

The lock is a file on the host itself, in one place for all its users: they may all write it, and
nobody has to make it beforehand.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.errors import InputError

LOCKS = "TARE_LOCKS"
"""The variable that names another folder for locks: for what runs side by side and is no measuring,
such as tests."""
SHARED_FOLDER = Path("/run/lock")
ANYWAY = Path("/tmp")
"""Where that folder is missing, or not for all users."""
NAME = "tare-host.lock"
HELD = 75
"""What flock is told to return where another holds the lock (sysexits.h: EX_TEMPFAIL)."""
# With fs.protected_regular nobody, not even root, may open another's file there with O_CREAT.
LOCK_AFAR = f"""
folder=${{{LOCKS}:-{SHARED_FOLDER}}}
everyones=$(find "$folder" -maxdepth 0 -perm -0002 2>/dev/null)
[ -n "${LOCKS}$everyones" ] || folder={ANYWAY}
mkdir -p "$folder"
file="$folder/{NAME}"
(umask 0; set -C; : >"$file") 2>/dev/null
exec 9<"$file" || exit 1
flock -n -E {HELD} 9 || {{ status=$?; cat "$file"; exit $status; }}
printf '{{"run": "%s", "pid": 0}}\\n' "$1" | dd of="$file" conv=nocreat status=none 2>/dev/null
echo held
cat
"""
"""Holds the lock on a host over SSH for the run ``$1`` until its input ends, and says so.

Where it is taken it ends with :data:`HELD` and what the holder wrote."""


def lock_path() -> Path:
    """Return the lock of this computer: the same for all its users."""
    if named := os.environ.get(LOCKS):
        folder = Path(named)
        folder.mkdir(parents=True, exist_ok=True)
    else:
        try:
            everyones = SHARED_FOLDER.stat().st_mode & stat.S_IWOTH
        except OSError:
            everyones = 0
        folder = SHARED_FOLDER if everyones else ANYWAY
    return folder / NAME


class HostHeld(InputError):
    """Another run holds a host; it passes."""


class HostLock:
    """A host's lock that is held.

    Args:
        fd: The open file.
        run: The run that holds it.
        shared: Whether others may share it.
    """

    def __init__(self, fd: int, run: str, *, shared: bool) -> None:
        self._fd = fd
        self._run = run
        self._shared = shared

    async def take(self) -> None:
        """Take the lock, now or again; raises HostHeld where another run has it."""
        self.take_now()

    async def release(self) -> None:
        """Let other runs have the host for a while."""
        if not self._shared:
            _tell(self._fd, "")
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def take_now(self) -> None:
        """Take the lock, now or again; raises HostHeld where another run has it."""
        try:
            how = fcntl.LOCK_SH if self._shared else fcntl.LOCK_EX
            fcntl.flock(self._fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(self._fd) from None
        _tell(self._fd, json.dumps({"run": self._run, "pid": os.getpid()}))


@contextmanager
def host_lock(run: str, path: Path | None = None, *, shared: bool = False) -> Iterator[HostLock]:
    """Hold the host for a run; the kernel lets go of it however this process ends.

    Args:
        run: The run's id, told to whoever comes second.
        path: The lock file; :func:`lock_path` when not given.
        shared: Whether others that share it may run beside: what counts its time in instructions
            is not disturbed, but would disturb what measures.

    Raises:
        HostHeld: Another run holds the host; the message names it and its process.
    """
    fd = _opened(path or lock_path())
    try:
        lock = HostLock(fd, run, shared=shared)
        lock.take_now()
        yield lock
        if not shared:
            _tell(fd, "")
    finally:
        os.close(fd)


def _opened(path: Path) -> int:
    """Open a lock file that anyone may have made, or make it for all."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o666)
        os.fchmod(fd, 0o666)
        return fd
    except FileExistsError:
        pass
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:
        # To hold it one need not write it; whoever comes second is not told of whom.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode) or os.fstat(fd).st_nlink != 1:
        os.close(fd)
        raise InputError(f"{path} is not the lock that Tare makes there", "remove it")
    return fd


def _tell(fd: int, text: str) -> None:
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
    except OSError:
        # It is held all the same.
        return


def _taken(fd: int) -> HostHeld:
    return taken(os.pread(fd, 4096, 0))


def holder(written: bytes) -> tuple[str, int]:
    """Return the run that holds a lock, and its process; empty and 0 where that is not known."""
    try:
        found = json.loads(written)
        return str(found["run"]), int(found["pid"])
    except (ValueError, KeyError, TypeError):
        return "", 0


def taken(written: bytes, host: str = "this host") -> HostHeld:
    """Return the error for whoever comes second.

    Args:
        written: What the holder wrote into the lock.
        host: Which host it is.
    """
    run, pid = holder(written)
    words = f"the run {run}" if run else "another run"
    if pid:
        words += f" (process {pid})"
        hint = f"wait until it has ended, or end it in order: kill -INT {pid}"
    else:
        hint = "wait until it has ended; what a killed run holds is let go within a minute"
    return HostHeld(f"{words} is under way on {host}, and two runs would measure each other", hint)
