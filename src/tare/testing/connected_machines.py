"""Start machines under test that reach each other, on one host or on two."""

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
"""Seconds for which machines communicate, by whether they are emulated.

An exchange takes 0.3 s on emulated machines, and some tenths of a second on a busy computer.
"""


async def exchanges(
    client: RunningMachine, server: RunningMachine, there: Link, seconds: float, patience_s: float
) -> float:
    """Return the number of requests from one machine to another that were answered.

    Args:
        client: The machine that sends requests.
        server: The machine that answers.
        there: The server's link to the network.
        seconds: Seconds for which requests are sent.
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
    """The host, the platform and the options with which machines are started.

    Args:
        context: The context of the host.
        platform: The machines' platform.
        options: The platform's options.
    """

    context: Context
    platform: Platform[Any]
    options: PlatformOptions

    async def way(self) -> str:
        """Return the way in which the machines join a shared network; empty if they cannot."""
        ways = self.platform.stated(self.options).network
        offered, _ = await offered_network(self.context, ways)
        try:
            return chosen_way(self.options, offered - UNMADE)
        except InputError:
            return ""

    def machines(self, shape: Shape, patience_s: float) -> Machines:
        """Return an object that starts such machines, each within ``patience_s`` seconds."""
        return Machines(
            self.platform, self.options, self.context, shape=shape, cpus=(), patience_s=patience_s
        )


@asynccontextmanager
async def spanned(kinds: Sequence[MachineKind]) -> AsyncIterator[list[Connection] | None]:
    """Create a network over several hosts; yield None if one kind of machine cannot join it."""
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
    """Start two machines of one cell on two hosts: the subject and a second one.

    Args:
        kinds: The two hosts, each with its platform and options.
        shape: The machines' size.
        patience_s: Seconds within which they have to boot, and to answer.
    """
    async with spanned(kinds) as joined, AsyncExitStack() as held:
        both = [kind.machines(shape, patience_s) for kind in kinds]
        for machines in both:
            held.push_async_callback(machines.close)
        roles = zip(both, (SUBJECT, SECOND), joined or (None, None), strict=True)
        yield list(await asyncio.gather(*(each.fresh(role, way) for each, role, way in roles)))
