"""What every platform is: options, a verdict about this host, and machines that run.

A platform is one way to run a machine on a host. It states its capabilities; what it lacks is
skipped with the reason. One file per platform implements :class:`Platform`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ConfigDict

from tare.errors import MachineFault

if TYPE_CHECKING:
    from tare.agent.client import AgentClient, Hello
    from tare.hosts import Host
    from tare.hosts.ledger import Ledger
    from tare.platforms.network import Network


TRIAL = "trial"
"""The role of a machine that is started only to see whether it starts."""


class PlatformOptions(BaseModel):
    """Base of every platform's options; field descriptions become the reference in docs."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Capabilities:
    """What a platform can do on this host; what it lacks is skipped with the reason.

    Args:
        pinning: Whether each vCPU can be bound to a host CPU.
        max_vcpus: The most vCPUs one machine may have.
        min_memory: The least memory, in bytes, with which the image starts.
        devices: Device models on offer (``paravirtual``, ``emulated``); empty when it has none.
        neighbours: Whether other machines can run beside the subject.
        notes: Limits worth telling the user, one sentence each.
        knobs: What of :class:`tare.platforms.scheduling.Scheduling` the platform has here:
            ``policy`` (``other``, ``batch``), ``fifo``, ``nice``, ``weight``, ``cap``,
            ``reservation``, ``slice``.
        missing_knobs: Knob to the reason why the platform lacks it here, where it knows.
        network: How machines can be connected to a network, see :mod:`tare.platforms.network`;
            found out only where a study needs networks.
    """

    pinning: bool
    max_vcpus: int
    min_memory: int
    devices: frozenset[str] = frozenset()
    neighbours: bool = True
    notes: tuple[str, ...] = ()
    knobs: frozenset[str] = frozenset()
    missing_knobs: Mapping[str, str] = field(default_factory=dict)
    network: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Statement:
    """What a platform with some options offers where the host lacks nothing.

    ``docs/platforms.md`` is made of these, and :meth:`Platform.check` begins with them.

    Args:
        capabilities: What it can do at best; 0 vCPUs stand for as many as the host has CPUs.
        kernel: Which kernel its machines run.
        channel: How the agent is reached.
        needs: What the host must have, each with the package or setting that brings it.
        untested: What nobody has yet tried on real hardware, in one sentence; empty if nothing.
    """

    capabilities: Capabilities
    kernel: str
    channel: str
    needs: tuple[str, ...] = ()
    untested: str = ""


@dataclass(frozen=True)
class Verdict:
    """Whether a platform with some options is usable on this host, why, and what to do.

    Args:
        usable: Whether machines can be started.
        reason: One sentence: what was found.
        hint: A command to run, or empty when there is nothing to do.
        emulated: Whether results show behaviour only, not hardware speed.
        versions: Name to version of every program involved.
        capabilities: What the platform can do here.
    """

    usable: bool
    reason: str
    hint: str
    emulated: bool
    versions: Mapping[str, str]
    capabilities: Capabilities


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
class MachineSpec:
    """One machine to start.

    Args:
        name: ``tare-<run>-<n>-<role>``, unique on the host.
        shape: vCPUs and memory.
        cpus: Host CPUs for the vCPUs: vCPU i runs on ``cpus[i % len(cpus)]``; empty = anywhere.
        workdir: A directory for sockets and logs; created on start, removed on stop.
        realtime: Whether the machine carries a real-time workload.
        role: ``subject``, ``neighbour-1`` and so on, or :data:`TRIAL`.
        toolbox: The applications, where a workload of the visit needs them.
        network: What it is to be connected to, where a workload of the visit needs that.
        way: How, as :mod:`tare.platforms.network` names it.
    """

    name: str
    shape: Shape
    cpus: tuple[int, ...]
    workdir: Path
    realtime: bool
    role: str = "subject"
    toolbox: ToolboxFiles | None = None
    network: Network | None = None
    way: str = ""


@dataclass(frozen=True)
class Prepared:
    """What :meth:`Platform.prepare` made ready before the first block.

    Args:
        kernel: Version of the kernel the machines run.
        digest: SHA-256 (hex) of everything that boots; empty when nothing does.
        cached: Whether it was found ready.
        took_s: Seconds spent.
        toolbox: The applications, where a workload of the study needs them.
        extra: The platform's own data, passed back to :meth:`Platform.start`.
    """

    kernel: str
    digest: str
    cached: bool
    took_s: float
    extra: Mapping[str, Any] = field(default_factory=dict)
    toolbox: ToolboxFiles | None = None


@dataclass(frozen=True)
class Context:
    """Where platforms work.

    Args:
        host: The computer the machines run on.
        ledger: Takes note of everything before it is created.
        cache: Directory for images and remembered verdicts.
        agent: The static agent program, on this computer.
        kernel: The study's kernel (``rt``, ``cloud``, a package or a file); None means the
            real-time kernel for real-time workloads and the cloud kernel for the others.
        here: This computer, where images are built; None where it is the host itself.
        needs: What the study's workloads need of its machines: ``toolbox``, ``toolbox-build``,
            ``disk``, ``network``.
        counted: Whether the host's time counts instructions.
    """

    host: Host
    ledger: Ledger
    cache: Path
    agent: Path
    kernel: str | None = None
    here: Host | None = None
    needs: frozenset[str] = frozenset()
    counted: bool = False

    @property
    def builder(self) -> Host:
        """The computer that builds images: this one, whatever the host is."""
        return self.here or self.host

    @property
    def host_agent(self) -> Path:
        """The agent's program on the host: a host reached from afar holds a copy of its own."""
        there: Path | None = getattr(self.host, "agent", None)
        return there or self.agent


class Machine(Protocol):
    """One running guest, container, or the bare host itself."""

    name: str
    agent: AgentClient
    died: asyncio.Future[MachineFault]
    """Set if the machine ends unexpectedly, with its last console lines."""
    applied: Mapping[str, Any]
    """What the host was seen to do for the machine once it is ready, such as ``scheduling``."""
    shares_clock: bool
    """Whether the machine's CLOCK_MONOTONIC_RAW is the host's own."""

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello.

        Raises:
            MachineFault: The machine died, or did not answer within ``timeout_s`` seconds.
        """
        ...

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, in order; empty when there are none."""
        ...

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the host ids of the threads that carry a workload which waits for its start."""
        ...

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of its threads have had; cheap enough to ask often."""
        ...

    async def threads(self) -> dict[int, str]:
        """Return the names of all the machine's threads on the host, by id."""
        ...

    async def host_cost(self) -> dict[str, float]:
        """Return what the machine cost the host so far.

        ``cpu_s`` (CPU seconds) and ``rss_bytes`` always; platforms may add more.
        """
        ...

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        ...

    async def stop(self) -> None:
        """Stop it, cleanly and then hard, and remove what it left; may be called again."""
        ...


class Platform(Protocol):
    """One way to run a machine on a host."""

    name: str
    options: type[PlatformOptions]

    def emulated(self, options: Any) -> bool:
        """Return whether results show behaviour only, not hardware speed."""
        ...

    def describe(self, options: Any) -> str:
        """Return a short phrase for reports, such as ``QEMU TCG, paravirtual devices``."""
        ...

    def stated(self, options: Any) -> Statement:
        """Return what it offers where the host lacks nothing; nothing is tried for it."""
        ...

    async def check(self, context: Context, options: Any) -> Verdict:
        """Find out whether machines can be started here; never raises for what is missing."""
        ...

    async def prepare(
        self, context: Context, options: Any, shape: Shape, realtime: bool
    ) -> Prepared:
        """Build or find what the machines boot.

        Raises:
            InputError: An option names something that does not exist.
        """
        ...

    async def start(
        self, context: Context, options: Any, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start a machine and return at once; :meth:`Machine.ready` waits for its agent.

        Raises:
            MachineFault: It could not be started.
        """
        ...
