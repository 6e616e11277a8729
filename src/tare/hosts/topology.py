"""A host's CPUs, read from what Linux says under /sys/devices/system/cpu."""

from __future__ import annotations

import re

from tare.study.placement import HostCpus

_SCRIPT = """cd /sys/devices/system/cpu &&
grep -H . online cpu[0-9]*/topology/thread_siblings_list
ls -d cpu[0-9]*/node[0-9]*
grep ^Cpus_allowed_list: /proc/self/status"""
SHOW_TOPOLOGY = ("sh", "-c", _SCRIPT)
"""The command whose output :func:`read_topology` understands; it uses what BusyBox has too."""


def cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers in a kernel CPU list such as ``0-3,8``."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def read_topology(text: str) -> HostCpus:
    """Return the online CPUs that a session may use, their siblings and NUMA nodes.

    Args:
        text: What :data:`SHOW_TOPOLOGY` printed.

    Raises:
        ValueError: It names no CPU.
    """
    online: set[int] = set()
    allowed: set[int] | None = None
    siblings: dict[int, tuple[int, ...]] = {}
    nodes: dict[int, int] = {}
    for line in text.splitlines():
        if found := re.fullmatch(r"cpu(\d+)/topology/thread_siblings_list:(.*)", line):
            siblings[int(found[1])] = cpu_list(found[2])
        elif found := re.fullmatch(r"cpu(\d+)/node(\d+)", line):
            nodes[int(found[1])] = int(found[2])
        elif line.startswith("online:"):
            online = set(cpu_list(line.partition(":")[2]))
        elif line.startswith("Cpus_allowed_list:"):
            allowed = set(cpu_list(line.partition(":")[2]))
    usable = tuple(sorted(online & allowed if online and allowed else online or allowed or ()))
    if not usable:
        raise ValueError("the host names no CPU")
    return HostCpus(
        online=usable,
        siblings={cpu: siblings.get(cpu) or (cpu,) for cpu in usable},
        nodes={cpu: nodes.get(cpu, 0) for cpu in usable},
    )
