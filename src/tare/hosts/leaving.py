"""Notify hosts that Tare ends, so that it no longer waits for hosts that may never answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet


class Leaves(Protocol):
    """An object to notify when Tare ends."""

    def leave(self) -> None:
        """Soon stop waiting for anything that does not answer; the rest is still cleaned up."""
        ...


class Leaving:
    """All objects to notify when Tare ends.

    Runs, labs and machines that are hosts themselves connect to hosts at many depths. Each host
    registers here, so that the code that stops the run can notify them all.
    """

    def __init__(self) -> None:
        self._noted: WeakSet[Leaves] = WeakSet()

    def note(self, each: Leaves) -> None:
        """Register an object, as long as others refer to it."""
        self._noted.add(each)

    def leave(self) -> None:
        """Notify all registered objects."""
        for each in list(self._noted):
            each.leave()

    @contextmanager
    def if_cancelled(self) -> Iterator[None]:
        """Notify all registered objects if the block is cancelled, before its cleanup."""
        try:
            yield
        except asyncio.CancelledError:
            self.leave()
            raise
