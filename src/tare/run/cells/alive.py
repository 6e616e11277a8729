"""Wait for work that is of no use once a machine, the host, or other work is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tare.errors import MachineFault, TareError

if TYPE_CHECKING:
    from tare.platforms.contract import Machine

T = TypeVar("T")

LAST_WORDS_S = 1.0
ANSWER_S = 30.0
"""Seconds that an agent which is needed once more has to answer that something was stopped."""
REMOVED_S = 3.0
"""Seconds that one has whose machine is removed next: it may be stopped, and never answer."""


async def while_alive(
    machines: Sequence[Machine],
    work: Coroutine[Any, Any, T],
    *lost: asyncio.Future[MachineFault],
) -> T:
    """Return what ``work`` returns, unless one of ``machines`` dies before, or a host is lost.

    Raises:
        MachineFault: A machine died; what its platform says of it, rather than that its channel
            broke, which is only how it shows first.
    """
    task = asyncio.ensure_future(work)
    # The host's end says more than that of the machines, which end with it.
    deaths = [*lost, *(machine.died for machine in machines)]
    try:
        either: list[asyncio.Future[Any]] = [task, *deaths]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if deaths and task.done() and isinstance(task.exception(), MachineFault):
            await asyncio.wait(deaths, timeout=LAST_WORDS_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    for death in deaths:
        if death.done():
            raise death.result()
    return task.result()


async def side_by_side(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """Return what all return, in their order; where one fails, the others are given up."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def given_up(work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Wait for work whose end is of no use, all at once, whatever becomes of it."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, TareError):
            raise each
