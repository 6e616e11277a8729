"""Machines under test that reach each other, on one host or on two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.errors import InputError
from tare.platforms.contract import SUBJECT, Context, Platform, PlatformOptions, Shape
from tare.platforms.linux.network import UNMADE, chosen_way, offered_network, spanning_network
from tare.run.topologies.peers import Connection
from tare.testing.machines import SECOND, Machines, RunningMachine

if TYPE_CHECKING:
    from tare.platforms.linux.network import Link

PORT = 5201
SIZES = {"request_bytes": 4096, "response_bytes": 4096}
BRIEF = {"warmup_s": 0.0, "timeout_s": 15.0}
NETWORK_S = {False: 1.0, True: 3.0}
"""Seconds for which machines talk, by whether they are emulated: an exchange takes 0.3 s there, and
some tenths on a busy computer."""


async def exchanges(
    client: RunningMachine, server: RunningMachine, there: Link, seconds: float, patience_s: float
) -> float:
    """Return how many requests one machine sent to another that were answered.

    Args:
        client: The machine that asks.
        server: The machine that answers.
        there: How the server is connected.
        seconds: For how long it is asked.
        patience_s: Seconds within which an agent has to answer.
    """
    at: dict[str, Any] = {"address": there.address, "port": PORT, **SIZES}
    serving = await server.machine.agent.start_load("net-server", at)
    asked = {**at, **BRIEF, "seconds": seconds}
    outcome = await client.machine.agent.run("request-response", asked, deadline_s=patience_s)
    await serving.stop(patience_s)
    return float(outcome.value["exchanges"])


@dataclass(frozen=True)
class MachineKind:
    """Where machines of two hosts are started, and what they are.

    Args:
        context: The host.
        platform: Their platform.
        options: The platform's options.
    """

    context: Context
    platform: Platform[Any]
    options: PlatformOptions

    async def way(self) -> str:
        """Return how they join a network with others; empty: they cannot here."""
        ways = self.platform.stated(self.options).network
        offered, _ = await offered_network(self.context, ways)
        try:
            return chosen_way(self.options, offered - UNMADE)
        except InputError:
            return ""

    def machines(self, shape: Shape, patience_s: float) -> Machines:
        """Return what starts them."""
        return Machines(
            self.platform, self.options, self.context, shape=shape, cpus=(), patience_s=patience_s
        )


@asynccontextmanager
async def spanned(kinds: Sequence[MachineKind]) -> AsyncIterator[list[Connection] | None]:
    """Hold one network over several hosts; None where one kind of machines has no way to it."""
    ways = [await kind.way() for kind in kinds]
    if not all(ways):
        yield None
        return
    async with spanning_network([kind.context for kind in kinds], rooted=True) as whole:
        hosts = [kind.context.host.name for kind in kinds]
        yield [Connection(whole, *joins) for joins in zip(hosts, ways, strict=True)]


@asynccontextmanager
async def two_apart(
    kinds: Sequence[MachineKind], shape: Shape, patience_s: float
) -> AsyncIterator[list[RunningMachine]]:
    """Hold two machines of one cell, the subject and one next to it, each on a host of its own.

    Args:
        kinds: The two hosts, and what is started there.
        shape: The machines' size.
        patience_s: Seconds within which they boot, and answer.
    """
    async with spanned(kinds) as joined, AsyncExitStack() as held:
        both = [kind.machines(shape, patience_s) for kind in kinds]
        for machines in both:
            held.push_async_callback(machines.close)
        roles = zip(both, (SUBJECT, SECOND), joined or (None, None), strict=True)
        yield list(await asyncio.gather(*(each.fresh(role, way) for each, role, way in roles)))
