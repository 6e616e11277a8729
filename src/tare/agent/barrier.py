"""A common start of several runs, across several agents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tare.errors import MachineFault

Go = Callable[[], Awaitable[None]]


class Barrier:
    """Lets runs start together: when the last one is ready, all are sent their signal.

    Args:
        parties: How many runs start together.
        prepare: Called once when all are ready, before the first signal; what it raises ends the
            start.
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
        """Nanoseconds between the first and the last signal's leaving; None before the start."""
        return self._skew_ns

    async def arrive(self, go: Go, *, load: bool = False) -> None:
        """Say that one run is ready, and wait for the common start.

        Args:
            go: Sends that run its signal.
            load: Whether it is a load, which begins after those who measure: where time counts
                instructions, a load's pauses would pass at once while nobody is at work yet.

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
        """Release the waiting runs with a fault, because one cannot start any more."""
        if not self._started.done():
            fault = MachineFault(f"another machine failed before the common start: {reason}")
            self._started.set_exception(fault)
            # Nobody may be waiting yet; those who arrive later are told all the same.
            self._started.exception()
