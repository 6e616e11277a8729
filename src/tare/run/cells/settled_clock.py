"""Wait until a machine that has just booted knows how fast its clock runs.

Linux first takes the rate of the time-stamp counter from a short look at another timer, and calls
that clock ``tsc-early``. About a second after its start it has measured the rate properly and
changes to ``tsc``. Under TCG on a busy host the first rate was up to 1000 ppm off, more than a
clock that is trusted may be, so what is measured before the change is withheld.
Source: Linux, arch/x86/kernel/tsc.c (``clocksource_tsc_early``, ``tsc_refine_calibration_work``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.agent.client import AgentClient, Hello

EARLY = "tsc-early"
LOOK_S = 0.1
MOST_WAIT_S = 5.0
"""After that the cells tell by themselves whether the clock can be trusted."""


async def settled(agent: AgentClient, hello: Hello) -> Hello:
    """Return the hello of a machine whose clock runs at its final rate.

    Args:
        agent: The machine's.
        hello: What it told when it was ready; told again where its clock has changed since.

    Raises:
        MachineFault: The agent is lost.
    """
    give_up = time.monotonic() + MOST_WAIT_S
    while _clock(hello) == EARLY and time.monotonic() < give_up:
        await asyncio.sleep(LOOK_S)
        hello = await agent.hello_again()
    return hello


def _clock(hello: Hello) -> object:
    told = hello.proof.get("clocksource")
    return told.get("current") if isinstance(told, Mapping) else None
