"""The CPUs of a host: the usable ones, and the cores, caches and nodes that they share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tare.units import format_size


@dataclass(frozen=True)
class CoreKind:
    """CPUs whose cores are of one kind.

    Args:
        name: ``performance`` for the fastest design of a host that has several, ``efficiency`` for
            any other; empty if all cores are of one design.
        design: The design's rank, from 0, the fastest. Kinds of one design differ only in the
            highest clock rate that the firmware allows.
        cpus: The numbers of these CPUs, ascending.
    """

    name: Literal["performance", "efficiency", ""]
    design: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class HostCpus:
    """The CPUs a host offers to this process.

    Args:
        online: CPU numbers that may be used, ascending.
        siblings: For each CPU, all hardware threads of its core, itself included.
        nodes: For each CPU, its NUMA node.
        isolated: CPUs that the kernel's scheduler does not use by itself (``isolcpus``,
            ``nohz_full``, an isolated cpuset partition).
        kinds: The kinds of its cores, the fastest first; empty if the host reports no difference.
        caches: For each CPU, the number of its L3 cache, from 0 in the order of their lowest CPUs.
        packages: For each CPU, its package, identified by its lowest CPU.
        memory: For each NUMA node whose memory may be used, its size in bytes.
        refused: For each CPU of the host that may not be used, the reason.
        measured: The CPUs that machines are placed on, ascending; empty: all. They are of one
            design.
        housekeeping: CPUs that the user keeps for everything else; empty: all may serve.
        cores: The number of cores, if the host reports only that and not which CPUs share a core;
            0: ``siblings`` shows it.
    """

    online: tuple[int, ...]
    siblings: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    nodes: Mapping[int, int] = field(default_factory=dict)
    isolated: frozenset[int] = frozenset()
    kinds: tuple[CoreKind, ...] = ()
    caches: Mapping[int, int] = field(default_factory=dict)
    packages: Mapping[int, int] = field(default_factory=dict)
    memory: Mapping[int, int] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    measured: tuple[int, ...] = ()
    housekeeping: tuple[int, ...] = ()
    cores: int = 0

    @property
    def machines(self) -> tuple[int, ...]:
        """The CPUs that machines are placed on, ascending."""
        return self.measured or self.online

    @property
    def roaming(self) -> tuple[int, ...]:
        """The CPUs for unpinned machines: the host's scheduler does not use isolated CPUs."""
        shared = tuple(cpu for cpu in self.machines if cpu not in self.isolated)
        return shared or self.machines

    @property
    def within(self) -> tuple[int, ...]:
        """The CPUs that unpinned machines are confined to; empty if they may use all."""
        # The kernel keeps other processes off the CPUs of `isolcpus`, but not of `nohz_full`.
        return self.roaming if len(self.roaming) < len(self.online) else ()

    def apart_from(self, own: Sequence[int]) -> tuple[int, ...]:
        """Return the CPUs for programs that avoid a machine's CPUs; empty if there are none."""
        taken = set(own)
        return tuple(cpu for cpu in self.housekeeping or self.online if cpu not in taken)

    def core(self, cpu: int) -> frozenset[int]:
        """Return the usable CPUs that share a core with ``cpu``, itself included."""
        return self._cores.get(cpu) or frozenset((cpu,))

    def node(self, cpu: int) -> int:
        """Return the NUMA node of ``cpu``; 0 if the host does not report it."""
        return self.nodes.get(cpu, 0)

    def design(self, cpu: int) -> int:
        """Return the rank of the design of the CPU's core: 0 is the fastest."""
        return self._designs.get(cpu, 0)

    @cached_property
    def first_core(self) -> frozenset[int]:
        """The core of the first CPU, where a kernel does most of its housekeeping."""
        return self.core(self.online[0])

    @cached_property
    def _cores(self) -> dict[int, frozenset[int]]:
        usable = frozenset(self.online)
        found: dict[int, frozenset[int]] = {}
        for cpu in self.online:
            if cpu not in found:
                core = usable.intersection(self.siblings.get(cpu, ())) | {cpu}
                found |= dict.fromkeys(core, core)
        return found

    @cached_property
    def _designs(self) -> dict[int, int]:
        return {cpu: kind.design for kind in self.kinds for cpu in kind.cpus}


@dataclass(frozen=True)
class Carrier:
    """The computer whose hypervisor runs an arm's machines, as the hypervisor's API reports it.

    Args:
        name: Its name.
        cpus: Its CPUs, with the API's own numbers.
        memory: Its main memory, in bytes; 0: not reported.
        free: The memory that new machines can get, in bytes; None: not reported.
        sockets: The number of sockets of its CPUs; 0: not reported.
        is_host: Whether it is the study's own host, so that the study's choice of CPUs applies.
    """

    name: str
    cpus: HostCpus
    memory: int = 0
    free: int | None = None
    sockets: int = 0
    is_host: bool = False

    @property
    def words(self) -> str:
        """Its CPUs and memory in a phrase, such as ``8 CPUs on 4 cores in 1 socket, 64 GiB``."""
        cpus = self.cpus
        parts = _counted(len(cpus.online), "CPU")
        if cores := self.cores:
            parts += f" on {_counted(cores, 'core')}"
        if self.sockets:
            parts += f" in {_counted(self.sockets, 'socket')}"
        if nodes := len(set(cpus.nodes.values())):
            parts += f", {_counted(nodes, 'NUMA node')}"
        if self.memory:
            parts += f", {format_size(self.memory)} of memory"
        if self.free is not None:
            parts += f" ({format_size(self.free)} free)"
        return parts

    @property
    def cores(self) -> int:
        """The number of cores of its CPUs; 0: not reported."""
        if self.cpus.cores or not self.cpus.siblings:
            return self.cpus.cores
        return len({self.cpus.core(cpu) for cpu in self.cpus.online})


def numbered(cpus: int, *, cores: int = 0, memory: Mapping[int, int] | None = None) -> HostCpus:
    """Return the CPUs of a host that reports only their number.

    Args:
        cpus: The number of CPUs; they are numbered from 0.
        cores: The number of their cores; 0: not reported.
        memory: For each NUMA node, its memory in bytes.
    """
    return HostCpus(tuple(range(cpus)), cores=cores, memory=memory or {})


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def cpu_words(cpus: Collection[int]) -> str:
    """Return CPU numbers as the kernel lists them, such as ``0-3,8``."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)
