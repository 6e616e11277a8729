"""Tare is to end: nothing waits any longer for a host that may never answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet


class Leaves(Protocol):
    """What can be notified that Tare is to end."""

    def leave(self) -> None:
        """Give up soon whatever does not answer; what answers is still cleared."""
        ...


class Leaving:
    """All that is notified when Tare is to end.

    Hosts are reached at many depths: by a run, by a lab, by a machine that is a host of its own. So
    each notes itself here, and whoever stops the run notifies them all.
    """

    def __init__(self) -> None:
        self._noted: WeakSet[Leaves] = WeakSet()

    def note(self, each: Leaves) -> None:
        """Notify ``each``, as long as anybody else refers to it."""
        self._noted.add(each)

    def leave(self) -> None:
        """Tell all that were noted so far."""
        for each in list(self._noted):
            each.leave()

    @contextmanager
    def if_cancelled(self) -> Iterator[None]:
        """Tell all where what is done meanwhile is cancelled, before any of it is cleared up."""
        try:
            yield
        except asyncio.CancelledError:
            self.leave()
            raise
