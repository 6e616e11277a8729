"""A machine's cycle counter on the clock of its host, if that host is another computer.

Tare alternates readings of the machine's agent and of an agent on the host, so each reading of the
machine is between two of its host, however long the messages take (after Cristian's algorithm,
1989). This computer's own clock is not used.
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
    """Bounds of a number of ticks."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The middle of the bounds: the estimate."""
        return (self.low + self.high) / 2

    @property
    def error(self) -> float:
        """The largest error of the estimate."""
        return (self.high - self.low) / 2


EXACT = Bounds(0.0, 0.0)


def counter_offset(machine: Sequence[ClockReading], host: Sequence[ClockReading]) -> Bounds:
    """Return the offset from a machine's counter to its host's.

    Each reading of the machine was made after one of the host and before the next, so the host's
    counter was between those two; all bounds must agree (Marzullo, 1984). Only the counters are
    used: this computer's clock may differ, as for a lab whose time counts instructions.

    Args:
        machine: Readings of the machine's counter.
        host: Alternating readings of the host's counter, one more: see `alternating_readings`.

    Returns:
        Bounds in ticks; those of the tightest pair if the readings do not agree.
    """
    return _common(
        [
            Bounds(before.tsc - own.tsc, after.tsc - own.tsc)
            for own, (before, after) in zip(machine, pairwise(host), strict=True)
        ]
    )


def bounded_readings(
    machine: Sequence[ClockReading], host: Sequence[ClockReading]
) -> tuple[ClockReading, ...]:
    """Return readings of a machine with bounds on its host's clock.

    Each was made after one of the host and before the next. This computer's own clock is not used,
    as in `counter_offset`.

    Args:
        machine: Readings of the machine.
        host: Alternating readings of its host's agent, one more: see `alternating_readings`.
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
    """Run the agent on a host, to read its clock and its cycle counter.

    Args:
        host: The host.
        ledger: Records the process before it is started.
        agent: The agent's program there.

    Raises:
        MachineFault: It does not answer.
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
    """Keep a host whose time counts instructions busy.

    Its idle time passes at once, so much of it may pass between two readings.

    Raises:
        MachineFault: The host does not answer.
    """
    process = await start_owned(host, ledger, ["nice", "sh", "-c", "while :; do :; done"])
    try:
        yield
    finally:
        with suppress(TareError, OSError):
            await process.kill()


async def alternating_readings(
    machine: AgentClient, host: AgentClient, rounds: int = ROUNDS
) -> tuple[tuple[ClockReading, ...], tuple[ClockReading, ...]]:
    """Return readings of a machine's agent, and of its host's before and after each."""
    own, hosts = [], [await host.clock()]
    for _ in range(rounds):
        own.append(await machine.clock())
        hosts.append(await host.clock())
    return tuple(own), tuple(hosts)


async def readings(agent: AgentClient, rounds: int = ROUNDS) -> tuple[ClockReading, ...]:
    """Return some readings of an agent's clock and counter."""
    return tuple([await agent.clock() for _ in range(rounds)])
