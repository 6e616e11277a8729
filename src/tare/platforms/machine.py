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
"""The role of a machine that is started only to test whether it starts."""


@dataclass(frozen=True)
class Shape:
    """A machine's size: number of vCPUs, and bytes of memory and of its own disk (0: no disk)."""

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
        domain: The hypervisor's number of the machine.
        cpus: The computer's number of CPUs; the host's kernel may see fewer.
        machine_s, host_s: CPU seconds used by the machine, and by the host's kernel with all that
            runs on it.
        others: CPU seconds used by each other machine, by its name, or by its role if it belongs to
            the same batch.
    """

    domain: int
    cpus: int
    machine_s: float
    host_s: float
    others: Mapping[str, float]


@dataclass(frozen=True)
class HypervisorAccounting:
    """A command that shows how the hypervisor below the host's kernel gave out CPU time.

    The host itself runs the command at both ends of the measured interval. A query over a
    connection would cover a different interval.

    Args:
        argv: A command on the host that prints the accounting.
        read: Parses the command's output into CPU times; raises MachineFault if the machine is
            missing there.
        threads: The host's threads that emulate devices for the machine.
        host_on: The CPUs to which the host's kernel is restricted; empty: unknown.
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
        folder: The machine's own folder, which holds the recording meanwhile.
        ids: The hypervisor's number of each vCPU, by which a recording names it.
        cpus: The host's CPUs that they may use; empty: all.
        raw_counter: Whether the machine reads the processor's cycle counter unchanged, so that its
            counter and the hypervisor's are the same.
        counted: Whether the host's time counts instructions, so that its idle time passes at once.
        limit: The limit that may keep a vCPU from running although a CPU is idle: ``cap`` or
            ``budget``; empty: none.
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
        shape: vCPUs, memory and disk.
        cpus: Host CPUs for the vCPUs: vCPU i runs on ``cpus[i % len(cpus)]``; empty = anywhere.
        workdir: A directory for sockets and logs; created on start, removed on stop.
        realtime: Whether the machine carries a real-time workload.
        role: :data:`SUBJECT`, ``neighbour-1`` and so on, or :data:`TRIAL`.
        toolbox: The applications; None if no workload of the batch needs them.
        network: The network to join; None if no workload of the batch needs one.
        way: How it joins, as :class:`tare.platforms.statement.NetworkWays` names it.
        own_address: Whether it needs its own address there; machines that are processes of the
            host would otherwise share the host's.
        uses_disk: Whether a workload of its batch uses the machine's own disk.
        keeps_memory: Whether its memory, page cache included, must be limited to its shape,
            whatever the platform's default is.
        within: The host CPUs that it may use if ``cpus`` is empty; empty: all.
        carried: Whether ``cpus`` belong to a computer other than the host, whose hypervisor runs
            the machine.
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
        name: The name in its specification.
        agent: The client of the agent in the machine.
        died: Set if the machine ends unexpectedly, with its name, the reason and its last console
            lines; not set if Tare stopped it.
    """

    name: str
    agent: AgentClient
    died: asyncio.Future[MachineFault]
    applied: Mapping[str, Any] = {}
    """The settings that the host was seen to apply to the machine, valid once it is ready.

    ``scheduling``: how it is scheduled; its ``vcpus`` lists for each vCPU its host CPUs in words,
    if vCPUs are not threads of the host. ``disk``: the machine's own disk, with its ``bytes``."""
    shares_clock: bool = False
    """Whether the machine's CLOCK_MONOTONIC_RAW is the host's own."""
    inner_cpus: tuple[int, ...] = ()
    """If several roles share the machine: those of its CPUs that this role uses; empty: all."""

    @abstractmethod
    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello.

        Raises:
            MachineFault: The machine died, or did not answer within ``timeout_s`` seconds.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop it, first cleanly, then by force, and remove what it left; may be called again."""

    @abstractmethod
    async def host_cost(self) -> dict[str, float]:
        """Return the costs of the machine for the host so far.

        Keys are ``cpu_s`` (CPU seconds) and ``rss_bytes`` if the host reports them; platforms may
        add more. The call must be cheap, because it is made before and after every cell.
        """

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, in order; empty if vCPUs are not threads."""
        return ()

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the host ids of the threads of a workload that waits for its start."""
        return ()

    def traced_below(self) -> HypervisorVcpus | None:
        """Return its vCPUs as the hypervisor below the host's kernel schedules them.

        None if they are threads of the host, which the host's kernel itself traces.
        """
        return None

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of its threads have used; cheap enough to call often."""
        return 0.0

    async def below(self) -> HypervisorAccounting | None:
        """Return the command that reports how the hypervisor below the host gave out CPU time.

        None if there is no such hypervisor. The host's kernel then gives out all CPU time itself.
        """
        return None

    async def threads(self) -> dict[int, str]:
        """Return the names of all the machine's threads on the host, by id."""
        return {}

    async def forget_disk(self) -> Mapping[str, Any]:
        """Make the host forget what it caches of the machine's disk.

        Returns:
            The actions, for the cell's record; empty if there is nothing to drop.
        """
        return {}

    async def stopped(self) -> bool:
        """Check whether its host keeps it from running, as by SIGSTOP or a debugger.

        It is cheap enough for several calls a second; False if the host does not report it.
        """
        return False

    async def disk_moved(self) -> Mapping[str, float]:
        """Return how many bytes the machine's own disk has moved so far, counted by the host.

        Returns:
            Bytes that were ``read`` and ``written``; empty if the host does not count them.
        """
        return {}

    async def disturbances(self) -> tuple[str, ...]:
        """Return the hypervisor's interventions so far that should exclude a measurement.

        They are migrations, snapshots, backups, ballooning and swapping: one phrase each, with the
        time or the amount, oldest first. A cell during which one is added is withheld with it.
        """
        return ()

    async def hypervisor_figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return the hypervisor's own counters of the machine; reports and exports show them.

        Args:
            begun: When the cell began (s, Unix time).
            ended: When it ended (s, Unix time).

        Returns:
            Only intervals that are entirely within the cell, each as the hypervisor reports it,
            with its ``resolution_s``; nothing is interpolated. None if it reports nothing then.
        """
        return None

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        return ()
