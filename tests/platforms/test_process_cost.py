"""What processes cost is read with what they started, however that comes and goes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tare.hosts import LocalHost
from tare.hosts.contract import Host
from tare.platforms.contract import Context, Machine
from tare.platforms.linux.memory_group import memory_group
from tare.platforms.linux.process_cost import TRIES, listed_cost, process_cost, tree_cost
from tare.run.probes.cost import cost_together
from tare.run.topologies.cluster.contract import HadoopCluster
from tare.run.topologies.kinds import Clustered, Single

BUSY_S = 0.3
HELD = 64 << 20
BUSY = f"""
import time
held = b"x" * {HELD}
while time.process_time() < {BUSY_S}: pass
print("done", flush=True)
time.sleep(600)
"""
# By a thread, as the agent starts what it runs: the main thread has no children then.
PARENT = """
import subprocess, sys, threading
thread = threading.Thread(target=lambda: subprocess.run([sys.executable, "-c", sys.argv[1]]))
thread.start()
thread.join()
"""


@asynccontextmanager
async def parent_of_a_busy_child(*before: str) -> AsyncIterator[int]:
    """Start a process whose child has used its CPU time and lives on; its children go with it."""
    parent = await asyncio.create_subprocess_exec(
        *(*before, sys.executable, "-c", PARENT, BUSY),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert parent.stdout is not None
        assert await parent.stdout.readline() == b"done\n"
        yield parent.pid
    finally:
        os.killpg(parent.pid, 9)
        await parent.wait()


async def test_child_processes_count_while_they_live() -> None:
    host = LocalHost(None)
    async with parent_of_a_busy_child() as pid:
        alone, together = await process_cost(host, pid), await tree_cost(host, pid)
    # The kernel counts in ticks of 10 ms.
    assert together["cpu_s"] - alone["cpu_s"] >= BUSY_S - 0.02
    assert together["rss_bytes"] - alone["rss_bytes"] >= HELD


async def test_the_cost_of_an_ended_process_cannot_be_read() -> None:
    host = LocalHost(None)
    async with parent_of_a_busy_child() as pid:
        pass
    with pytest.raises(OSError):
        await tree_cost(host, pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
async def test_all_processes_of_a_memory_group_count(context: Context) -> None:
    name = f"tare-test-cost-{os.getpid()}"
    async with memory_group(context.host, context.ledger, name, 4 * HELD) as group:
        inside = [str(context.host_agent), "exec", "--cgroup", str(group.folder), "--"]
        async with parent_of_a_busy_child(*inside):
            cost = await group.cost()
        assert cost["cpu_s"] >= BUSY_S - 0.02
        assert HELD <= cost["rss_bytes"] <= 4 * HELD


@dataclass
class Reaping:
    """Pretends a host on which a child ends just after it is listed, so many times."""

    ends: int
    ticks: dict[int, int] = field(default_factory=lambda: {1: 100, 2: 50})

    async def members(self) -> tuple[int, ...]:
        return tuple(self.ticks)

    async def read(self, path: str) -> bytes:
        pid = int(Path(path).parent.name)
        if pid == 2 and self.ends:
            self.ends -= 1
            # Its parent has its time from now on, and it is there again for the next one.
            self.ticks[1] += 50
            raise FileNotFoundError(path)
        return b"%d (it) S " % pid + b" ".join(
            b"%d" % (self.ticks[pid] if number == 14 else 0) for number in range(4, 53)
        )


async def test_a_child_that_ends_while_it_is_read_is_neither_lost_nor_counted_twice() -> None:
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for ends in range(TRIES):
        there = Reaping(ends)
        cost = await listed_cost(cast(Host, there), there.members)
        assert cost["cpu_s"] == pytest.approx((150 + 50 * ends) * tick_s)
    there = Reaping(TRIES)
    with pytest.raises(FileNotFoundError):
        await listed_cost(cast(Host, there), there.members)


class Costing:
    """Pretends a machine that has cost its host something."""

    def __init__(self, **cost: float) -> None:
        self.cost = cost

    async def host_cost(self) -> dict[str, float]:
        return self.cost


def clustered(subject: Machine, others: Mapping[str, Machine], *, outside: bool) -> Clustered:
    """Return machines that form a cluster, of Tare's making or not."""
    return Clustered(subject, others, cast(HadoopCluster, SimpleNamespace(outside=outside)))


async def test_a_cluster_costs_what_all_its_machines_cost() -> None:
    master, slave = Costing(cpu_s=1.5, rss_bytes=2.0), Costing(cpu_s=2.5, vcpu_cpu_s=1.0)
    subject, others = cast(Machine, master), {"slave-1": cast(Machine, slave)}
    everything = {"cpu_s": 4.0, "rss_bytes": 2.0, "vcpu_cpu_s": 1.0}
    for formed, cost in (
        (Single(subject), master.cost),
        (clustered(subject, others, outside=False), everything),
        # Nobody knows what a cluster costs that existed before; its client alone would not do.
        (clustered(subject, others, outside=True), {}),
    ):
        assert await cost_together(formed.carriers) == cost
