"""A common start of several runs, across several agents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tare.errors import MachineFault

Go = Callable[[], Awaitable[None]]


class Barrier:
    """Starts runs together: when the last one is ready, sends the start signal to all.

    Args:
        parties: How many runs start together.
        prepare: Called once when all are ready, before the first signal; an exception cancels
            the start.
    """

    def __init__(self, parties: int, prepare: Go | None = None) -> None:
        if parties < 1:
            raise ValueError("a barrier needs at least one run")
        self.parties = parties
        self._prepare = prepare
        self._signals: list[Go] = []
        self._last: list[Go] = []
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._skew_ns: int | None = None

    @property
    def skew_ns(self) -> int | None:
        """Nanoseconds between sending the first and the last signal; None before the start."""
        return self._skew_ns

    async def arrive(self, go: Go, *, load: bool = False) -> None:
        """Register a run as ready, and wait for the common start.

        Args:
            go: Sends that run its signal.
            load: Whether it is a load. Loads start after the measuring runs: if the guest's time
                counts instructions, a load's pauses would otherwise pass before the runs start.

        Raises:
            MachineFault: Another run failed before the start.
        """
        (self._last if load else self._signals).append(go)
        if len(self._signals) + len(self._last) < self.parties:
            await asyncio.shield(self._started)
            return
        if self._started.done():
            self._started.result()
        if self._prepare is not None:
            await self._prepare()
        left = []
        for signal in (*self._signals, *self._last):
            await signal()
            left.append(time.monotonic_ns())
        self._skew_ns = left[-1] - left[0]
        self._started.set_result(None)

    def abort(self, reason: str) -> None:
        """Fail the waiting runs, because one run cannot start any more."""
        if not self._started.done():
            fault = MachineFault(f"another machine failed before the common start: {reason}")
            self._started.set_exception(fault)
            # Mark it as retrieved: there may be no waiting run yet. Later arrivals still raise it.
            self._started.exception()
