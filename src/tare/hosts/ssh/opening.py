"""When a host that was lost is logged in to again, and when that would only keep others waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tare.errors import MachineFault
from tare.hosts.ssh.session import Session, again

REST = 2.0
"""A host that does not let Tare in is left alone for so many times the time that this took."""


class Opening:
    """Opens sessions with one host.

    Args:
        name: How messages name the host.
        make: Returns a session that is not open yet.
    """

    def __init__(self, name: str, make: Callable[[], Session]) -> None:
        self._name = name
        self._make = make
        self._limit: asyncio.Timeout | None = None
        self._leaving = False
        self._rests_until = 0.0
        self._fault: MachineFault | None = None

    def leave(self) -> None:
        """Open none any more, and cut short what is under way: Tare is to end now."""
        self._leaving = True
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def rested(self) -> None:
        """Let the next attempt be made, whatever the last one took."""
        self._fault = None

    async def open(self) -> Session:
        """Return a new session.

        Raises:
            InputError: The host's key or the login is not right, or a file is missing.
            MachineFault: It does not answer, or did not a moment ago; or Tare is to end.
        """
        if self._leaving:
            raise MachineFault(f"{self._name} is lost, and not tried again: Tare is to end")
        if self._fault is not None and time.monotonic() < self._rests_until:
            raise again(self._fault)
        session, began = self._make(), time.monotonic()
        try:
            async with asyncio.timeout(None) as self._limit:
                await session.open()
        except TimeoutError:
            raise MachineFault(f"{self._name} is waited for no longer: Tare is to end") from None
        except MachineFault as fault:
            # Whoever clears up asks for much, one thing after another: one wait is for them all.
            self._rests_until = time.monotonic() + REST * (time.monotonic() - began)
            self._fault = fault
            raise
        finally:
            self._limit = None
        return session
