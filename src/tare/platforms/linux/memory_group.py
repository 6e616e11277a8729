"""A control group that keeps a machine's processes to its shape's memory, page cache included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.control_groups import remove_cgroup
from tare.hosts.ledger.ledger import Ledger
from tare.platforms.oci.cgroups import cgroup_mounts, limits_swap

_ASK_S = 10.0


@asynccontextmanager
async def memory_group(host: Host, ledger: Ledger, name: str, memory: int) -> AsyncIterator[Path]:
    """Make a group for a machine, and remove it in the end with all that is left in it.

    Args:
        host: Where to make it.
        ledger: Is told before it is made.
        name: The machine's name.
        memory: Bytes that its processes may have, with what the kernel caches for them.

    Yields:
        The group's directory; processes begin in it by the agent's ``exec --cgroup``.

    Raises:
        MachineFault: It cannot be made or does not take the limit; in the kernel's words.
    """
    mounts = await cgroup_mounts(host)
    folder = mounts.of("memory", name)
    if folder is None:
        raise MachineFault("memory cannot be limited: no control groups are mounted")
    entry = ledger.record("cgroup", path=str(folder))
    made = await host.run(["mkdir", str(folder)], timeout_s=_ASK_S)
    if not made.ok:
        # What is there already is somebody else's, and stays.
        ledger.done(entry)
        raise MachineFault(f"a control group cannot be made: {made.words()}", "run as root")
    try:
        first = "memory" in mounts.controllers
        files = ["memory.limit_in_bytes" if first else "memory.max"]
        if await limits_swap(host, mounts):
            # Version 1 counts memory and swap together in the second, which is never below.
            files.append("memory.memsw.limit_in_bytes" if first else "memory.swap.max")
        for file in files:
            value = 0 if file == "memory.swap.max" else memory
            await _limit(host, folder / file, value)
        yield folder
    finally:
        await remove_cgroup(host, str(folder))
        ledger.done(entry)


async def _limit(host: Host, file: Path, value: int) -> None:
    try:
        await host.write(file, str(value).encode())
        told = (await host.read(file)).decode().strip()
    except OSError as error:
        raise MachineFault(f"{file} cannot be set to {value}: {error.strerror}") from error
    # The kernel rounds to whole pages, down (cgroup-v2.rst, memory.max).
    if not told.isdigit() or not 0 <= value - int(told) < 1 << 16:
        raise MachineFault(f"{file} was set to {value}, but the kernel says {told}")
