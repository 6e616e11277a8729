"""Temporarily prevent the host's kernel from taking the CPU away from real-time threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.ledger.settings import FileSetting, changed

RT_RUNTIME = Path("/proc/sys/kernel/sched_rt_runtime_us")
FAIR_SERVERS = Path("/sys/kernel/debug/sched/fair_server")


@asynccontextmanager
async def unthrottled(host: Host, ledger: Ledger) -> AsyncIterator[tuple[str, ...]]:
    """Switch off real-time throttling and, on Linux 6.12 and later, the fair server.

    Either takes 5 % of each second from a thread that never sleeps, which would look like an effect
    of a hypervisor. Both are restored at the end, or by ``tare clean`` after a kill.

    Yields:
        The settings that could not be changed, one sentence each.
    """
    problems: list[str] = []
    async with AsyncExitStack() as held:
        settings = [(RT_RUNTIME, "-1")]
        for cpu in host.topology().online:
            server = FAIR_SERVERS / f"cpu{cpu}" / "runtime"
            if await host.exists(server):
                settings.append((server, "0"))
        for path, value in settings:
            try:
                await held.enter_async_context(changed(ledger, FileSetting(host, path), value))
            except OSError as error:
                problems.append(f"{path} could not be set to {value}: {error.strerror}.")
        yield tuple(problems)
