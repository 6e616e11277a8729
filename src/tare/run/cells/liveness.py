"""Waiting for work that ends early if a machine, the host, or other work is lost."""

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
"""Seconds that an agent may take to confirm a stop, if its machine is used again."""
REMOVED_S = 3.0
"""The same limit, if the machine is removed next: a stopped machine never answers."""


async def run_while_alive(
    machines: Sequence[Machine],
    work: Coroutine[Any, Any, T],
    *lost: asyncio.Future[MachineFault],
) -> T:
    """Return the result of ``work``, unless one of ``machines`` or a host is lost before.

    Raises:
        MachineFault: A machine died. The fault is the platform's report, not the broken channel
            by which the death first shows.
    """
    task = asyncio.ensure_future(work)
    # The loss of a host explains more than that of its machines.
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
    """Return all results in order; if one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def given_up(work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Wait concurrently for work whose result is not needed, and ignore its faults."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, TareError):
            raise each
