"""Work that has to be done before the first cell, while the first machines boot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from importlib import import_module

MODULES = ("tare.run.cells.cell", "numpy", "polars")
"""Modules that only cells, series and stopping use; each loads for up to a third of a second.
"""


class BeforeCells:
    """Calibrates, then loads slow modules; no cell starts before both are done.

    A boot takes longer than this work, so no cell waits for it, and it disturbs no measurement.

    Args:
        calibrate: Calibrates the hosts, and records the result.
    """

    def __init__(self, calibrate: Callable[[], Awaitable[None]]) -> None:
        self._calibrate = calibrate
        self._working: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Start the work in the background."""
        if self._working is None:
            self._working = asyncio.ensure_future(self._work())

    async def done(self) -> None:
        """Wait until the work is done, and raise its exception if it failed."""
        self.begin()
        assert self._working is not None
        await asyncio.shield(self._working)

    async def abandon(self) -> None:
        """Cancel the work if it is not done, and wait until its clean-up is complete."""
        if self._working is not None and not self._working.done():
            self._working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._working

    async def _work(self) -> None:
        # One after the other: the reference of memory is a loop of NumPy in this process.
        await self._calibrate()
        await asyncio.to_thread(_load)


def _load() -> None:
    for module in MODULES:
        import_module(module)
