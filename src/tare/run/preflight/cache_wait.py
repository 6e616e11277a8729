"""Waiting for another process that builds into the image cache, with the host released."""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

from tare.hosts.lock_holder import holder_of, start_ticks
from tare.images.cache import while_waiting

_DAY_S = 86400


class ReleasableLock(Protocol):
    """A host lock that a run can release to others for a while."""

    async def release(self) -> None:
        """Release the lock."""
        ...

    async def take(self) -> None:
        """Take the lock again; raise HostHeld if another run has it now."""
        ...


@contextmanager
def releasing_while_waiting(
    locks: list[ReleasableLock], say: Callable[[str], None]
) -> Iterator[None]:
    """Release a run's locks whenever it waits for the cache, and report for whom it waits.

    Args:
        locks: The locks of its hosts; the list may still grow.
        say: Shows the user a sentence.
    """

    waiting_now = 0

    @asynccontextmanager
    async def waiting(lock: Path) -> AsyncIterator[None]:
        # Several arms may wait at once: the first one releases, and the last one takes all again.
        nonlocal waiting_now
        waiting_now += 1
        if waiting_now == 1:
            free = "; meanwhile other runs may use the host" if locks else ""
            say(f"waiting for {builder_of(lock)}{free}")
            for each in locks:
                await each.release()
        try:
            yield
        finally:
            waiting_now -= 1
        if waiting_now == 0:
            for each in locks:
                await each.take()

    with while_waiting(waiting):
        yield


@contextmanager
def announced() -> Iterator[None]:
    """Report on standard error for whom a command waits that locks no host."""

    def say(sentence: str) -> None:
        print(f"tare: {sentence}", file=sys.stderr, flush=True)

    with releasing_while_waiting([], say):
        yield


def builder_of(lock: Path) -> str:
    """Return a phrase for the process that builds into a cache, as the kernel reports it.

    Args:
        lock: The cache's lock file; its content is not read.
    """
    building = f"which builds into {lock.parent}"
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return f"another process, {building}"
    try:
        holder = holder_of(fd)
    finally:
        os.close(fd)
    if holder is None:
        return f"another process, {building}"
    return f"{holder.words}{_whose(holder.pid)}, {building}"


def _whose(pid: int) -> str:
    """Return the user and the start time of a process; empty if it has ended."""
    ticks = start_ticks(pid)
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return ""
    if ticks is None:
        return ""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    form = "%H:%M:%S" if age_s < _DAY_S else "%Y-%m-%d %H:%M"
    since = time.strftime(form, time.localtime(time.time() - age_s))
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"{uid}"
    return f" (user {user}, started at {since})"
