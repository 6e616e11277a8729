"""How a guest begins on a host whose time counts instructions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts import Host
from tare.platforms import counted_time as counting
from tare.platforms.linux.sockets import reached
from tare.platforms.qemu.qmp import Monitor


async def let_go(
    host: Host,
    agent: Path,
    name: str,
    monitor: Monitor,
    place: Path,
    died: asyncio.Future[MachineFault],
) -> Monitor:
    """Start a guest at ten full minutes of its host's clock, and return its reopened monitor.

    The agent on the host starts it, so that nothing crosses the network at that moment: the
    guest's clock then has the same phase against the host's timers in each boot.

    Args:
        host: The host.
        agent: The agent's program there.
        name: The machine's name.
        monitor: Its monitor, which is given up: QEMU speaks with one at a time.
        place: The socket at which the monitor listens.
        died: Set where QEMU ended.

    Raises:
        MachineFault: QEMU refused, or is gone.
        TimeoutError: Its monitor did not listen again.
    """
    await monitor.close()
    done = await host.run([str(agent), "cont", str(place)], timeout_s=counting.BEGUN_S)
    if not done.ok:
        raise MachineFault(f"QEMU did not run cont: {done.words()}")
    again = Monitor(name, await reached(host, place, died))
    await again.open()
    return again
