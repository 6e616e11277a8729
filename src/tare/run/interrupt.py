"""Ctrl-C once finishes the current cell; twice, or SIGTERM, stops now."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Stoppable(Protocol):
    """What can be asked to stop."""

    def polite(self) -> None:
        """Finish the current cell, then stop; the second request stops now."""
        ...

    def urgent(self, reason: str) -> None:
        """Stop now, and remove everything that was created."""
        ...


class StopRequest:
    """Whether, and how urgently, the user asked the run to stop."""

    def __init__(self, task: asyncio.Task[object], notice: Callable[[bool, str], None]) -> None:
        self._task = task
        self._notice = notice
        self.finishing = False
        self.now = False

    def polite(self) -> None:
        """Finish the current cell, then stop; the second request stops now."""
        if self.finishing:
            self.urgent("Ctrl-C twice")
            return
        self.finishing = True
        self._notice(True, "Ctrl-C")

    def urgent(self, reason: str) -> None:
        """Cancel what is running; everything created is still removed."""
        if self.now:
            return
        self.finishing = self.now = True
        self._notice(False, reason)
        self._task.cancel()


@contextmanager
def listening(request: Stoppable) -> Iterator[None]:
    """Connect SIGINT, SIGTERM and SIGHUP to ``request`` while the block runs."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, request.polite)
    loop.add_signal_handler(signal.SIGTERM, request.urgent, "SIGTERM")
    loop.add_signal_handler(signal.SIGHUP, request.urgent, "the terminal was closed")
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
