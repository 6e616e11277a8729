"""Whether a machine was stopped while something was measured in it, which no result can tell."""

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
"""As seldom as progress is looked at: more would itself disturb what shares a CPU with Tare."""
SOONER = 10
"""How many times as often a machine that stands still is looked at, so that how long is known."""
LEAST_S = 0.5


class Stoppable(Protocol):
    """What watching needs of a machine."""

    async def stopped(self) -> bool:
        """Return whether the host keeps it from running."""
        ...


def slept_s() -> float:
    """Return for how many seconds this computer was suspended since it was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


@dataclass
class Standstill:
    """Looks again and again whether a machine is stopped, and whether this computer was.

    Args:
        machine: The machine.
        look_s: Seconds between two looks.
    """

    machine: Stoppable
    look_s: float = LOOK_S
    stood_s: float = 0.0
    """Seconds for which it was seen to stand still."""
    _slept_s: float = field(default_factory=slept_s)
    _looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to look."""
        self._looking = asyncio.create_task(self._look())

    async def end(self, what: str = "the machine") -> str:
        """Look no more, and return why what was measured meanwhile is of no use; empty if it is.

        Args:
            what: What to call it.
        """
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        slept = slept_s() - self._slept_s
        if slept >= LEAST_S:
            return f"this computer was suspended for {slept:.1f} s meanwhile"
        if self.stood_s >= LEAST_S:
            return f"{what} was stopped for {self.stood_s:.1f} s meanwhile, as its host saw"
        return ""

    async def _look(self) -> None:
        # What cannot be seen marks nothing: a machine that is lost is told of elsewhere.
        with suppress(TareError, OSError):
            since: float | None = None
            while True:
                stopped, now = await self.machine.stopped(), time.monotonic()
                if stopped and since is not None:
                    self.stood_s += now - since
                since = now if stopped else None
                await asyncio.sleep(self.look_s / SOONER if stopped else self.look_s)


class Standstills(Probe):
    """Looks whether any machine of a cell is stopped: each of them has a part in its values.

    Args:
        machines: The machines by role.
        look_s: Seconds between two looks.
        looks: Whether the host may be asked. If False, only a suspended computer is noticed.
    """

    def __init__(
        self, machines: Mapping[str, Stoppable], look_s: float = LOOK_S, *, looks: bool = True
    ) -> None:
        self._watched = {role: Standstill(each, look_s) for role, each in machines.items()}
        self._looks = looks

    async def open(self) -> None:
        """Begin to look."""
        if self._looks:
            for each in self._watched.values():
                each.begin()

    async def close(self) -> None:
        """Look no more; the doubt is which machines stood still, and for how long."""
        found = [
            await each.end("the machine" if role == SUBJECT else f"the machine of the {role}")
            for role, each in self._watched.items()
        ]
        # A suspended computer is reported by all of them.
        self.doubt = "; ".join(dict.fromkeys(filter(None, found)))

    async def abandon(self, limit_s: float) -> None:
        """Look no more."""
        await self.close()
