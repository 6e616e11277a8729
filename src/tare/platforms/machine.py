"""One machine: its specification, and its interface while it runs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.events.hypervisor import HypervisorFigures
from tare.events.parts import SUBJECT as SUBJECT

if TYPE_CHECKING:
    from tare.agent.client import AgentClient, Hello
    from tare.hosts.contract import Host
    from tare.hosts.ledger.ledger import Ledger
    from tare.platforms.network import MachineNetwork

TRIAL = "trial"
"""The role of a machine that is started only to see whether it starts."""


@dataclass(frozen=True)
class Shape:
    """A machine's size: number of vCPUs, memory and a disk of its own in bytes (0: no disk)."""

    vcpus: int
    memory: int
    disk: int = 0


@dataclass(frozen=True)
class ToolboxFiles:
    """The toolbox as a machine gets it, read-only.

    Args:
        image: The file system image, for machines that attach disks.
        digest: SHA-256 (hex) of the image.
        tree: The same files as a directory, for machines that share the host's kernel.
    """

    image: Path
    digest: str
    tree: Path


@dataclass(frozen=True)
class CpuAccounting:
    """The CPU time that the hypervisor below a host's kernel has given to each user so far.

    Args:
        domain: The machine's number to it.
        cpus: How many CPUs the computer has; the host's kernel may see fewer.
        machine_s, host_s: CPU seconds that the machine, and the host's kernel with all that runs
            on it, have had.
        others: Those of each other machine, by its name; of the same batch, by its role.
    """

    domain: int
    cpus: int
    machine_s: float
    host_s: float
    others: Mapping[str, float]


@dataclass(frozen=True)
class HypervisorAccounting:
    """The way to ask a host which users got the CPUs from the hypervisor below its kernel.

    The host itself asks, at the ends of what is accounted for there: over a connection it would be
    another stretch of time.

    Args:
        argv: A command of the host's that prints it.
        read: Makes of what that printed who has had the CPUs so far; raises MachineFault if the
            machine is not in it.
        threads: The host's threads that emulate devices for the machine.
        host_on: The computer's CPUs that the host's kernel is kept on; empty: it is not known.
    """

    argv: tuple[str, ...]
    read: Callable[[str], CpuAccounting]
    threads: tuple[int, ...] = ()
    host_on: tuple[int, ...] = ()


@dataclass(frozen=True)
class HypervisorVcpus:
    """A machine's vCPUs, which the hypervisor below the host's kernel schedules and can trace.

    Args:
        host: The host.
        ledger: Records what is started there.
        agent: The agent's program on the host.
        folder: A folder of the machine's own, in which the recording is kept meanwhile.
        ids: The hypervisor's number of each vCPU, by which a recording names it.
        cpus: The host's CPUs that they may use; empty: all.
        raw_counter: Whether the machine reads the processor's cycle counter unchanged, so that its
            counter and the hypervisor's are one.
        counted: Whether the host's time counts instructions, so that its idle time passes at once.
        limit: What may keep a vCPU from running although a CPU is idle: ``cap``, ``budget``; or
            empty.
    """

    host: Host
    ledger: Ledger
    agent: Path
    folder: Path
    ids: tuple[int, ...]
    cpus: tuple[int, ...]
    raw_counter: bool
    counted: bool = False
    limit: str = ""


@dataclass(frozen=True)
class MachineSpec:
    """One machine to start.

    Args:
        name: ``tare-<run>-<n>-<role>``, unique on the host.
        shape: vCPUs and memory.
        cpus: Host CPUs for the vCPUs: vCPU i runs on ``cpus[i % len(cpus)]``; empty = anywhere.
        workdir: A directory for sockets and logs; created on start, removed on stop.
        realtime: Whether the machine carries a real-time workload.
        role: :data:`SUBJECT`, ``neighbour-1`` and so on, or :data:`TRIAL`.
        toolbox: The applications, where a workload of the batch needs them.
        network: What it is to be connected to, where a workload of the batch needs that.
        way: How, as :class:`tare.platforms.statement.NetworkWays` names it.
        own_address: Whether it needs an address of its own there, which machines that are processes
            of the host would otherwise share.
        uses_disk: Whether a workload of its batch uses a disk of the machine's own.
        keeps_memory: Whether it has to be kept to its shape's memory, page cache included, however
            its platform would have it.
        within: The host CPUs that it may use where ``cpus`` is empty; empty: all.
        carried: Whether ``cpus`` are those of another computer than the host, whose hypervisor
            runs the machine.
        to_save: Whether its state is to be saved, so that its agent serves the host again after the
            connection has ended; see :meth:`tare.platforms.contract.Platform.saved`.
    """

    name: str
    shape: Shape
    cpus: tuple[int, ...]
    workdir: Path
    realtime: bool
    role: str = SUBJECT
    toolbox: ToolboxFiles | None = None
    network: MachineNetwork | None = None
    way: str = ""
    own_address: bool = False
    uses_disk: bool = False
    keeps_memory: bool = False
    within: tuple[int, ...] = ()
    carried: bool = False
    to_save: bool = False


class Machine(ABC):
    """One running guest, container, or the bare host itself.

    A platform returns it from :meth:`tare.platforms.contract.Platform.start`, with these set:

    Args:
        name: As its specification says.
        agent: The conversation with the agent in it.
        died: Set if the machine ends unexpectedly, with its name, the reason and its last console
            lines; not set where it was asked to stop.
    """

    name: str
    agent: AgentClient
    died: asyncio.Future[MachineFault]
    applied: Mapping[str, Any] = {}
    """What the host was seen to do for the machine once it is ready.

    ``scheduling``: how it is scheduled; its ``vcpus`` lists for each vCPU its host CPUs in words,
    where vCPUs are not threads of the host. ``disk``: the disk of its own, with its ``bytes``."""
    shares_clock: bool = False
    """Whether the machine's CLOCK_MONOTONIC_RAW is the host's own."""
    inner_cpus: tuple[int, ...] = ()
    """Which of its own CPUs a machine that several roles share keeps for this one; empty: all."""

    @abstractmethod
    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello.

        Raises:
            MachineFault: The machine died, or did not answer within ``timeout_s`` seconds.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop it, cleanly and then hard, and remove what it left; may be called again."""

    @abstractmethod
    async def host_cost(self) -> dict[str, float]:
        """Return what the machine cost the host so far.

        ``cpu_s`` (CPU seconds) and ``rss_bytes`` where the host reports them; platforms may add
        more. Cheap enough to be asked before and after every cell.
        """

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, in order; empty when there are none."""
        return ()

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the host ids of the threads that carry a workload which waits for its start."""
        return ()

    def traced_below(self) -> HypervisorVcpus | None:
        """Return its vCPUs as the hypervisor below the host's kernel schedules them.

        None if they are threads of the host, which the host's kernel itself traces.
        """
        return None

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of its threads have had; cheap enough to ask often."""
        return 0.0

    async def below(self) -> HypervisorAccounting | None:
        """Return how the host is asked who has had the CPUs, by the hypervisor below its kernel.

        None if there is none: the host's kernel itself gives them out, and knows all of it.
        """
        return None

    async def threads(self) -> dict[int, str]:
        """Return the names of all the machine's threads on the host, by id."""
        return {}

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the host forget what it caches of the machine's disk.

        Returns:
            What was done, for the cell's record; empty if there is nothing to forget.
        """
        return {}

    async def stopped(self) -> bool:
        """Return whether its host keeps it from running, as by SIGSTOP or a debugger.

        Cheap enough to be called some times a second; False if the host does not report it.
        """
        return False

    async def disk_moved(self) -> Mapping[str, float]:
        """Return what the disk of its own has moved so far, as its host counts.

        Returns:
            Bytes that were ``read`` and ``written``; empty if the host does not count them.
        """
        return {}

    async def disturbances(self) -> tuple[str, ...]:
        """Return what its hypervisor did to it so far that nothing should be measured through.

        Migrations, snapshots, backups, ballooning, swapping: one phrase each, with when or how
        much, oldest first. A cell during which one is added is withheld with it.
        """
        return ()

    async def hypervisor_figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return what its hypervisor counted of it; the report and exports show it by arm.

        Args:
            begun: When the cell began (s, Unix time).
            ended: When it ended.

        Returns:
            Only intervals that are wholly within, each as the hypervisor reports it, with its
            ``resolution_s``; nothing is interpolated. None if it reports nothing for that time.
        """
        return None

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        return ()
