"""Waiting for another process that builds into the image cache, while others may have the host."""

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


class GivesWay(Protocol):
    """What a run holds of a host, and can give to others for a while."""

    async def release(self) -> None:
        """Let others have it."""
        ...

    async def take(self) -> None:
        """Take it again; raises HostHeld where another run has it now."""
        ...


@contextmanager
def giving_way(holds: list[GivesWay], say: Callable[[str], None]) -> Iterator[None]:
    """Release what a run holds whenever it waits for the cache, and say for whom it waits.

    Args:
        holds: What it holds of its hosts; may still grow.
        say: Is called with a sentence.
    """

    waiting_now = 0

    @asynccontextmanager
    async def waiting(lock: Path) -> AsyncIterator[None]:
        # Several arms may wait at once: the first of them gives way, and the last takes all again.
        nonlocal waiting_now
        waiting_now += 1
        if waiting_now == 1:
            free = "; meanwhile other runs may have the host" if holds else ""
            say(f"waiting for {builder_of(lock)}{free}")
            for each in holds:
                await each.release()
        try:
            yield
        finally:
            waiting_now -= 1
        if waiting_now == 0:
            for each in holds:
                await each.take()

    with while_waiting(waiting):
        yield


@contextmanager
def announced() -> Iterator[None]:
    """Say on standard error for whom a command waits that holds no host."""

    def say(sentence: str) -> None:
        print(f"tare: {sentence}", file=sys.stderr, flush=True)

    with giving_way([], say):
        yield


def builder_of(lock: Path) -> str:
    """Return the process that builds into a cache, in a phrase: what the kernel knows of it.

    Args:
        lock: The cache's lock file; nothing in it is read.
    """
    doing = f"which builds into {lock.parent}"
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return f"another process, {doing}"
    try:
        holder = holder_of(fd)
    finally:
        os.close(fd)
    if holder is None:
        return f"another process, {doing}"
    return f"{holder.words}{_whose(holder.pid)}, {doing}"


def _whose(pid: int) -> str:
    """Return the user of a process and when it was started; empty where it has ended."""
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
