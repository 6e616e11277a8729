"""Wait for the first message of a guest's agent, or find the reason why none arrives."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from tare.agent.client import AgentClient, Hello
from tare.errors import MachineFault


class GreetingMachine(Protocol):
    """A machine whose agent sends the first message."""

    name: str
    agent: AgentClient
    died: asyncio.Future[MachineFault]

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the guest's console."""
        ...


async def first_hello(guest: GreetingMachine, *, timeout_s: float, gone_s: float) -> Hello:
    """Wait for the agent's hello and return it.

    Args:
        guest: The machine. Its ``agent`` is the client of the channel; ``died`` is set when the
            machine ends.
        timeout_s: How long the guest may take, in seconds.
        gone_s: How long to wait for the machine's own end after its channel has closed, in seconds.

    Raises:
        MachineFault: The machine ended, or did not answer in time.
    """
    # This function enforces the deadline, so that another failure is reported with its own reason.
    hello = asyncio.ensure_future(guest.agent.hello(timeout_s + gone_s))
    either: set[asyncio.Future[Any]] = {hello, guest.died}
    try:
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if hello.done():
            if (error := hello.exception()) is None:
                return hello.result()
            # This process sees the channel close before it sees the machine end.
            await asyncio.wait({guest.died}, timeout=gone_s)
            if not guest.died.done():
                raise error
    finally:
        hello.cancel()
    raise guest.died.result() if guest.died.done() else _silent(guest, timeout_s)


def _silent(guest: GreetingMachine, timeout_s: float) -> MachineFault:
    tail = guest.console_tail()
    return MachineFault(
        f"{guest.name}: the guest did not answer within {timeout_s:g} s{last_line(tail)}",
        console_tail=tail,
        transient=True,
    )


def last_line(console: tuple[str, ...]) -> str:
    """Return a clause that quotes the last line of ``console``; empty if there is no line."""
    return f"; last console line: {console[-1]}" if console else ""
