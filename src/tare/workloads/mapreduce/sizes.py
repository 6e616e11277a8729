"""Divide the memory of a cluster's machines among Java virtual machines.

By default, HotSpot chooses its heap and its collector by the memory and CPUs that it sees, which
differ between platforms. Tare therefore chooses all sizes here, from the shape alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.errors import InputError
from tare.units import format_size

MIB = 1 << 20
BEYOND_HEAP = 96
"""MiB of a JVM outside its heap: classes, compiled code, stacks and buffers."""
DAEMON_HEAP = 96
"""MiB: enough for clusters of some machines and files of some GB."""
MANAGER_HEAP = 128
"""MiB of the application master, which keeps a job's counters."""
MASTER_HEAP = 128
CLIENT_HEAP = 96
LEAST_TASK_HEAP = 64
SPARE = 96
"""MiB that stay free for the kernel, the agent and some page cache."""
SORT_SHARE = 0.4
"""Share of a task's heap for the buffer in which a map sorts (`mapreduce.task.io.sort.mb`)."""
_SLAVE_DAEMONS = 2
_MASTER_DAEMONS = 3


@dataclass(frozen=True)
class Sizes:
    """The heaps of a cluster's JVMs, in MiB.

    Args:
        daemon: Each of a DataNode, a NodeManager and the history server.
        master: Each of the NameNode and the ResourceManager.
        manager: An application master.
        task: A map or reduce task.
        client: The program that submits jobs.
        sort: The buffer in which a map sorts.
        tasks: The number of tasks that run on a machine at a time.
    """

    daemon: int
    master: int
    manager: int
    task: int
    client: int
    sort: int
    tasks: int

    @property
    def task_container(self) -> int:
        """MiB that YARN counts for a task."""
        return self.task + BEYOND_HEAP

    @property
    def manager_container(self) -> int:
        """MiB that YARN counts for an application master."""
        return self.manager + BEYOND_HEAP

    @property
    def node(self) -> int:
        """MiB that a NodeManager offers: for its tasks and one application master."""
        return self.tasks * self.task_container + self.manager_container


def needed(tasks: int, *, master: bool) -> int:
    """Return the minimum memory of a slave, in bytes.

    Args:
        tasks: The number of tasks that it runs at a time.
        master: True if the cluster's master is on the same machine.
    """
    task = tasks * (LEAST_TASK_HEAP + BEYOND_HEAP)
    daemons = _SLAVE_DAEMONS * (DAEMON_HEAP + BEYOND_HEAP)
    manager = MANAGER_HEAP + BEYOND_HEAP
    return (task + daemons + manager + SPARE) * MIB + (of_master() if master else 0)


def of_master() -> int:
    """Return the memory in bytes that a cluster's master needs, with the client of its jobs."""
    heaps = 2 * MASTER_HEAP + DAEMON_HEAP + CLIENT_HEAP
    return (heaps + (_MASTER_DAEMONS + 1) * BEYOND_HEAP) * MIB


def sizes_for(memory: int, tasks: int, *, master: bool = False) -> Sizes:
    """Divide a slave's memory among its JVMs.

    Args:
        memory: The machine's memory, in bytes.
        tasks: The number of tasks that it runs at a time, in addition to an application master.
        master: True if the cluster's master is on the same machine.

    Raises:
        InputError: The memory is too small.
    """
    least = needed(tasks, master=master)
    if memory < least:
        what = "a slave that is the master too" if master else "a slave"
        at_once = "1 task" if tasks == 1 else f"{tasks} tasks"
        raise InputError(
            f"{what}, with {at_once} at a time, needs {format_size(least)} of memory, "
            f"not {format_size(memory)}",
            f"write `memory: {-(-least // MIB)}MiB` in the scenario's `cluster`, or fewer `tasks`",
        )
    taken = of_master() if master else 0
    fixed = _SLAVE_DAEMONS * (DAEMON_HEAP + BEYOND_HEAP) + MANAGER_HEAP + BEYOND_HEAP + SPARE
    task = ((memory - taken) // MIB - fixed) // tasks - BEYOND_HEAP
    return Sizes(
        daemon=DAEMON_HEAP,
        master=MASTER_HEAP,
        manager=MANAGER_HEAP,
        task=task,
        client=CLIENT_HEAP,
        sort=max(16, int(task * SORT_SHARE)),
        tasks=tasks,
    )
