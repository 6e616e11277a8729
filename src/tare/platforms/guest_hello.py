"""Waiting for the first word of a guest's agent, or for the reason why it will not come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tare.agent.client import AgentClient, Hello
from tare.errors import MachineFault


async def first_hello(
    agent: AgentClient,
    died: asyncio.Future[MachineFault],
    silent: Callable[[], MachineFault],
    *,
    timeout_s: float,
    gone_s: float,
) -> Hello:
    """Return the agent's hello.

    Args:
        agent: The client on the guest's channel.
        died: Set when the machine ends.
        silent: Makes the fault of a guest that lives and says nothing.
        timeout_s: How long the guest may take, in seconds.
        gone_s: How long after the channel's end the machine's own may come, in seconds.

    Raises:
        MachineFault: The machine ended, or did not answer in time.
    """
    # The deadline is kept here, so that whatever else fails is told by its own reason.
    hello = asyncio.ensure_future(agent.hello(timeout_s + gone_s))
    either: set[asyncio.Future[Any]] = {hello, died}
    try:
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if hello.done():
            if (error := hello.exception()) is None:
                return hello.result()
            # The channel's end reaches this process before the machine's own end does.
            await asyncio.wait({died}, timeout=gone_s)
            if not died.done():
                raise error
    finally:
        hello.cancel()
    raise died.result() if died.done() else silent()
