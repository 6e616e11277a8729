"""Detection of machines that were stopped during a cell, which their own results cannot show."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tare.errors import TareError
from tare.platforms.contract import SUBJECT
from tare.probes import Probe

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOK_S = 1.0
"""Seconds between two readings: reading more often would disturb work that shares Tare's CPU."""
SOONER = 10
"""A stopped machine is read this many times as often, to measure how long it is stopped."""
LEAST_S = 0.5


class Stoppable(Protocol):
    """The methods of a machine that the detection needs."""

    async def stopped(self) -> bool:
        """Return whether the host keeps it from running."""
        ...


def slept_s() -> float:
    """Return the seconds for which this computer was suspended since its boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


@dataclass
class Standstill:
    """Polls whether a machine is stopped, and whether this computer was suspended.

    Args:
        machine: The machine.
        look_s: Seconds between two readings.
    """

    machine: Stoppable
    look_s: float = LOOK_S
    stopped_s: float = 0.0
    """Seconds for which it was stopped."""
    _slept_s: float = field(default_factory=slept_s)
    _looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start to poll."""
        self._looking = asyncio.create_task(self._look())

    async def end(self, what: str = "the machine") -> str:
        """Stop polling; return why results are not valid, or an empty text.

        Args:
            what: The machine's name in the reason.
        """
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        slept = slept_s() - self._slept_s
        if slept >= LEAST_S:
            return f"this computer was suspended for {slept:.1f} s meanwhile"
        if self.stopped_s >= LEAST_S:
            return f"{what} was stopped for {self.stopped_s:.1f} s meanwhile, as its host reports"
        return ""

    async def _look(self) -> None:
        # A failed reading has no effect here: a lost machine is reported elsewhere.
        with suppress(TareError, OSError):
            since: float | None = None
            while True:
                stopped, now = await self.machine.stopped(), time.monotonic()
                if stopped and since is not None:
                    self.stopped_s += now - since
                since = now if stopped else None
                await asyncio.sleep(self.look_s / SOONER if stopped else self.look_s)


class Standstills(Probe):
    """Detects whether any machine of a cell is stopped, because each one affects its values.

    Args:
        machines: The machines by role.
        look_s: Seconds between two readings.
        looks: Whether the host may be read. If False, only a suspended computer is detected.
    """

    def __init__(
        self, machines: Mapping[str, Stoppable], look_s: float = LOOK_S, *, looks: bool = True
    ) -> None:
        self._watched = {role: Standstill(each, look_s) for role, each in machines.items()}
        self._looks = looks

    async def open(self) -> None:
        """Start to poll."""
        if self._looks:
            for each in self._watched.values():
                each.begin()

    async def close(self) -> None:
        """Stop polling; the doubt names the stopped machines, and for how long."""
        found = [
            await each.end("the machine" if role == SUBJECT else f"the machine of the {role}")
            for role, each in self._watched.items()
        ]
        # A suspended computer is reported by all of them.
        self.doubt = "; ".join(dict.fromkeys(filter(None, found)))

    async def abandon(self, limit_s: float) -> None:
        """Stop polling."""
        await self.close()
