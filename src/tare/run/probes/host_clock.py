"""A machine's cycle counter on the clock of its host, where that host is another computer.

An agent on the host is asked in turn with the machine's, so that each reading of the machine was
made between two of its host, however long they were on their way (after Cristian's algorithm,
1989). This computer's own clock has no part in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.agent.clocktrust import ClockReading
from tare.errors import TareError
from tare.hosts import Host, Ledger, start_owned

ROUNDS = 5
_HELLO_S = 60.0
_GONE_S = 5.0


@dataclass(frozen=True)
class Bounds:
    """A number of ticks that lies between two."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """What is taken for it."""
        return (self.low + self.high) / 2

    @property
    def error(self) -> float:
        """How far that can be off."""
        return (self.high - self.low) / 2


EXACT = Bounds(0.0, 0.0)


def counter_offset(machine: Sequence[ClockReading], host: Sequence[ClockReading]) -> Bounds:
    """Return what is to be added to a machine's counter to have its host's.

    Each reading of the machine's was made after one of the host's and before the next, so the
    host's counter stood between those two; all must agree (Marzullo, 1984). No clock is used but
    the counters: this computer's own may be another, as beside a lab whose time counts
    instructions.

    Args:
        machine: Readings of the machine's counter.
        host: Readings of the host's in turn with them, one more: see `in_turn`.

    Returns:
        Bounds in ticks; those of the tightest pair where the readings do not agree.
    """
    return _common(
        [
            Bounds(before.tsc - own.tsc, after.tsc - own.tsc)
            for own, (before, after) in zip(machine, pairwise(host), strict=True)
        ]
    )


def by_the_host(
    machine: Sequence[ClockReading], host: Sequence[ClockReading]
) -> tuple[ClockReading, ...]:
    """Return readings of a machine as its host's clock bounds them.

    Each was made after one of the host's and before the next. This computer's own clock is left out
    of it, as in `counter_offset`.

    Args:
        machine: Readings of the machine.
        host: Readings of its host's agent in turn with them, one more: see `in_turn`.
    """
    return tuple(
        ClockReading(own.guest_ns, before.guest_ns, after.guest_ns, own.tsc)
        for own, (before, after) in zip(machine, pairwise(host), strict=True)
    )


def _common(bounds: Sequence[Bounds]) -> Bounds:
    low, high = max(each.low for each in bounds), min(each.high for each in bounds)
    if low <= high:
        return Bounds(low, high)
    return min(bounds, key=lambda each: each.error)


@asynccontextmanager
async def host_agent(host: Host, ledger: Ledger, agent: Path) -> AsyncIterator[AgentClient]:
    """Run the agent on a host, to ask it for its clock and its cycle counter.

    Args:
        host: The host.
        ledger: Is told before it is started.
        agent: The agent's program there.

    Raises:
        MachineFault: It does not speak.
    """
    async with AsyncExitStack() as held:
        process = await start_owned(host, ledger, [str(agent), "serve"])

        async def end() -> None:
            with suppress(TareError, OSError):
                await process.end(_GONE_S)

        held.push_async_callback(end)
        client = AgentClient(StreamChannel(process.stdout, process.stdin), name=host.name)
        held.push_async_callback(client.close)
        await client.hello(_HELLO_S)
        yield client


@asynccontextmanager
async def kept_busy(host: Host, ledger: Ledger) -> AsyncIterator[None]:
    """Keep a host whose time counts instructions from being idle.

    Its idle time passes at once, so between two readings there may be much of it.

    Raises:
        MachineFault: The host does not answer.
    """
    process = await start_owned(host, ledger, ["nice", "sh", "-c", "while :; do :; done"])
    try:
        yield
    finally:
        with suppress(TareError, OSError):
            await process.kill()


async def in_turn(
    machine: AgentClient, host: AgentClient, rounds: int = ROUNDS
) -> tuple[tuple[ClockReading, ...], tuple[ClockReading, ...]]:
    """Return readings of a machine's agent, and of its host's before and after each."""
    own, beside = [], [await host.clock()]
    for _ in range(rounds):
        own.append(await machine.clock())
        beside.append(await host.clock())
    return tuple(own), tuple(beside)


async def readings(agent: AgentClient, rounds: int = ROUNDS) -> tuple[ClockReading, ...]:
    """Return some readings of an agent's clock and counter."""
    return tuple([await agent.clock() for _ in range(rounds)])
