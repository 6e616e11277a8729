"""One run at a time on one host: two would measure each other."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.errors import InputError
from tare.hosts.ledger.ledger import state_dir


@contextmanager
def host_lock(run: str, path: Path | None = None) -> Iterator[None]:
    """Hold the host for a run; the kernel lets go of it however this process ends.

    Args:
        run: The run's id, told to whoever comes second.
        path: The lock file; in :func:`tare.hosts.ledger.ledger.state_dir` when not given.

    Raises:
        InputError: Another run holds the host; the message names it and its process.
    """
    fd = os.open(path or state_dir() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(fd) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"run": run, "pid": os.getpid()}).encode(), 0)
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _taken(fd: int) -> InputError:
    try:
        holder = json.loads(os.pread(fd, 4096, 0))
        run, pid = holder["run"], int(holder["pid"])
    except (ValueError, KeyError, TypeError):
        return InputError("another run is under way on this host", "wait until it has ended")
    return InputError(
        f"the run {run} (process {pid}) is under way on this host, and two runs would "
        "measure each other",
        f"wait until it has ended, or end it in order: kill -INT {pid}",
    )
