"""Allow only one run at a time on one host, because two runs would disturb each other.

The lock is a file on the host itself, at one path for all its users. All users may write it, and it
need not be created beforehand.
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
from tare.hosts.lock_holder import LockHolder, holder_of

LOCKS = "TARE_LOCKS"
"""The variable that names another lock folder, for programs that do not measure, such as tests."""
SHARED_FOLDER = Path("/run/lock")
ANYWAY = Path("/tmp")
"""The folder for the lock if the shared folder is missing, or not writable for all users."""
NAME = "tare-host.lock"
HELD = 75
"""flock's exit status if another process holds the lock (sysexits.h: EX_TEMPFAIL)."""
# With fs.protected_regular, not even root may open another user's file there with O_CREAT.
LOCK_AFAR = f"""
folder=${{{LOCKS}:-{SHARED_FOLDER}}}
everyones=$(find "$folder" -maxdepth 0 -perm -0002 2>/dev/null)
[ -n "${LOCKS}$everyones" ] || folder={ANYWAY}
mkdir -p "$folder"
file="$folder/{NAME}"
(umask 0; set -C; : >"$file") 2>/dev/null
exec 9<"$file" || exit 1
flock -n -E {HELD} 9 || {{
    status=$?
    echo "taken $(head -c 300 "$file" | tr -d '\\n\\0')"
    for open in /proc/[0-9]*/fd/*; do
        pid=${{open#/proc/}} pid=${{pid%%/*}}
        [ "$pid" != $$ ] && [ "$open" -ef "$file" ] && echo "$pid 1" && break
    done
    exit $status
}}
printf '{{"run": "%s"}}\\n' "$1" | dd of="$file" conv=nocreat status=none 2>/dev/null
echo held
cat
"""
"""A script that holds the lock on a host over SSH for the run ``$1`` until its input ends.

If the lock is taken, the script exits with :data:`HELD` after printing one line with the file's
content. If the kernel shows the holder, a second line has its process id and 1: it has the file
open.
"""


def lock_path() -> Path:
    """Return the path of this computer's lock, which is the same for all its users."""
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
    """Another run holds a host, for a while."""


class HostLock:
    """The lock of a host, while it is held.

    Args:
        fd: The descriptor of the open lock file.
        run: The run that holds it.
        shared: Whether others may share it.
    """

    def __init__(self, fd: int, run: str, *, shared: bool) -> None:
        self._fd = fd
        self._run = run
        self._shared = shared

    async def take(self) -> None:
        """Take the lock for the first time or again; raise HostHeld if another run holds it."""
        self.take_now()

    async def release(self) -> None:
        """Release the lock for a while, so that other runs can use the host."""
        if not self._shared:
            _write_holder(self._fd, "")
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def take_now(self) -> None:
        """Take the lock for the first time or again; raise HostHeld if another run holds it."""
        try:
            how = fcntl.LOCK_SH if self._shared else fcntl.LOCK_EX
            fcntl.flock(self._fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise taken(holder_of(self._fd)) from None
        _write_holder(self._fd, json.dumps({"run": self._run}))


@contextmanager
def host_lock(run: str, path: Path | None = None, *, shared: bool = False) -> Iterator[HostLock]:
    """Hold the host for a run; the kernel releases the lock however this process ends.

    Args:
        run: The run's id, shown to a second run.
        path: The lock file; by default :func:`lock_path`.
        shared: Whether other runs that share the lock may run at the same time. A lab that derives
            its time from instructions is not disturbed by them, but would disturb a measurement.

    Raises:
        HostHeld: Another run holds the host; the message names its process if the kernel lists it.
    """
    fd = _opened(path or lock_path())
    try:
        lock = HostLock(fd, run, shared=shared)
        lock.take_now()
        yield lock
        if not shared:
            _write_holder(fd, "")
    finally:
        os.close(fd)


def _opened(path: Path) -> int:
    """Open a lock file that anyone may have created, or create it for all users."""
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
        # Holding the lock needs no write access, but a second run then cannot learn the holder.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode) or os.fstat(fd).st_nlink != 1:
        os.close(fd)
        raise InputError(f"{path} is not the lock that Tare makes there", "remove it")
    return fd


def _write_holder(fd: int, text: str) -> None:
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
    except OSError:
        # The lock is held even if the holder cannot be written.
        return


def run_of(written: bytes) -> str:
    """Return the run that a lock file names; empty if it names none.

    Any user may have written the file. Its content only decides whether a run recognises its own
    lock.
    """
    try:
        return str(json.loads(written.removeprefix(b"taken "))["run"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def holder_afar(line: bytes) -> LockHolder | None:
    """Return the process that :data:`LOCK_AFAR` found to hold the lock; None if it found none.

    Args:
        line: The second line that it printed: the process, and whether it has the file open.
    """
    words = line.split()
    if len(words) != 2 or not words[0].isdigit() or not int(words[0]):
        return None
    return LockHolder(int(words[0]), "", certain=words[1] == b"1")


def taken(holder: LockHolder | None, host: str = "this host") -> HostHeld:
    """Return the error to raise in the second run.

    Args:
        holder: The process that holds the lock, as listed by the kernel; None if not listed.
        host: The host's name in the message.
    """
    words, hint = "another run", "wait until it has ended"
    if holder is not None:
        words += f" ({holder.words})"
        if holder.certain:
            hint += f", or stop it with: kill -INT {holder.pid}"
    else:
        hint += "; a killed run's lock is released within a minute"
    return HostHeld(
        f"{words} is in progress on {host}, and two runs would disturb each other's measurements",
        hint,
    )
