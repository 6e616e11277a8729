"""The contract of platforms: options, a statement, a verdict about this host, running machines.

A platform is one way to run a machine on a host. It states what it is and can; what it does not
state is skipped with the reason. One file or folder per platform subclasses :class:`Platform`, in
Tare or in a package of its own; `tare help extending` walks through one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tare.errors import MachineFault
from tare.hosts.leaving import Leaving
from tare.hosts.ledger.resources import Resource, created, remove_resource, undo_resource
from tare.hosts.ledger.settings import Setting, changed, undo_setting
from tare.platforms.host_hypervisor import HostHypervisor
from tare.platforms.machine import (
    SUBJECT,
    TRIAL,
    CpuAccounting,
    HypervisorAccounting,
    HypervisorVcpus,
    Machine,
    MachineSpec,
    Shape,
    ToolboxFiles,
)
from tare.platforms.network import Link, MachineNetwork
from tare.platforms.statement import (
    ANY_BOOT,
    KVM_BOOT,
    NO_HYPERVISOR,
    NOTHING_AT_ALL,
    TAKES_HOST,
    Capabilities,
    HostAccess,
    NetworkWays,
    Presence,
    Statement,
    Variant,
    Verdict,
    Write,
)
from tare.study.model.platform_options import PlatformOptions
from tare.study.planning.guest_kernels import GuestKernels
from tare.study.planning.host_cpus import Carrier

if TYPE_CHECKING:
    from tare.hosts import Host
    from tare.hosts.ledger.ledger import Ledger
    from tare.hosts.ledger.undoing import Undo
    from tare.study.model.releases import Release

__all__ = [
    "ANY_BOOT",
    "KVM_BOOT",
    "NOTHING_AT_ALL",
    "NO_HYPERVISOR",
    "SUBJECT",
    "TAKES_HOST",
    "TRIAL",
    "Capabilities",
    "Carrier",
    "Context",
    "CpuAccounting",
    "GuestKernels",
    "HostAccess",
    "HypervisorAccounting",
    "HypervisorVcpus",
    "Link",
    "Machine",
    "MachineNetwork",
    "MachineSpec",
    "NetworkWays",
    "Platform",
    "PlatformOptions",
    "Prepared",
    "Presence",
    "Resource",
    "SavedMachine",
    "Setting",
    "Shape",
    "Statement",
    "ToolboxFiles",
    "Variant",
    "Verdict",
    "Write",
    "changed",
    "created",
    "remove_resource",
    "undo_resource",
    "undo_setting",
    "undoers_of",
]

O = TypeVar("O", bound=PlatformOptions)  # noqa: E741 - the options


@dataclass(frozen=True)
class Prepared:
    """The result of :meth:`Platform.prepare` before the first block.

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
    """The surroundings in which platforms work: host, ledger, cache.

    Args:
        host: The computer the machines run on.
        ledger: Takes note of everything before it is created.
        cache: Directory for images and remembered verdicts.
        agent: The static agent program, on this computer.
        kernel: The kernel (``host``, ``rt``, ``cloud``, a package or a file); None means the
            real-time kernel for real-time workloads and the general kernel for the others.
        here: This computer, where images are built; None if it is the host itself.
        needs: What the study's workloads need of its machines: ``toolbox``, ``toolbox-build``,
            ``disk``, ``network``.
        counted: Whether the host's time counts instructions.
        release: The distribution's release that the kernel's package is of; None: this computer's.
        leaving: Signals the hosts that are reached from here when Tare is to end.
        memories: The memory in bytes of each machine of the arm that runs at once; empty: not
            known, as for the doctor.
        say: Shows the user a sentence.
    """

    host: Host
    ledger: Ledger
    cache: Path
    agent: Path
    kernel: str | None = None
    here: Host | None = None
    needs: frozenset[str] = frozenset()
    counted: bool = False
    release: Release | None = None
    leaving: Leaving = field(default_factory=Leaving, compare=False)
    memories: tuple[int, ...] = ()
    say: Callable[[str], None] = field(default=lambda _: None, compare=False)

    @property
    def builder(self) -> Host:
        """The computer that builds images: this one, whatever the host is."""
        return self.here or self.host

    @property
    def host_agent(self) -> Path:
        """The agent's program on the host: a host reached from afar holds a copy of its own."""
        return self.host.agent or self.agent


@dataclass(frozen=True)
class SavedMachine:
    """The state of a machine that was saved: its memory, its devices and its disk.

    Args:
        folder: Where it is on the host. Machines that were restored from it read it as long as
            they run.
        shape: The machine's size.
        made_with: What a restored machine must have in common with it, by its name, such as the
            hypervisor's version.
    """

    folder: Path
    shape: Shape
    made_with: Mapping[str, str]


class Platform(ABC, Generic[O]):
    """One way to run a machine on a host.

    The first paragraph of a subclass's docstring is its summary in the docs.
    """

    name: ClassVar[str]
    """How studies name it."""
    product: ClassVar[str] = ""
    """What its makers call it, where that is another word; empty: as studies name it."""
    known_as: ClassVar[Mapping[str, str]] = {}
    """Other words that people have for it, each to the options that it means in addition to the
    platform, such as ``accelerator: kvm``; a study that uses one is refused with what to write."""
    options: type[O]
    """The model of its options."""
    variants: ClassVar[tuple[Variant, ...]] = (Variant(),)
    """The ways to use it that are worth telling apart."""
    host_hypervisors: ClassVar[tuple[HostHypervisor, ...]] = ()
    """Those that a host must be booted with for its machines, below the host's kernel; what
    :meth:`stated` asks for under ``host_boot`` begins with the word of one."""
    undoers: ClassVar[Mapping[str, Undo]] = {}
    """How what its machines leave on a host is undone, by the kind of the ledger's entry.

    Only for kinds of its own: processes, files, directories, mounts, control groups, settings and
    network interfaces are undone for every platform."""

    @abstractmethod
    def describe(self, options: O) -> str:
        """Return a short phrase for reports, such as ``QEMU TCG, paravirtual devices``."""

    @abstractmethod
    def stated(self, options: O) -> Statement:
        """Return what it offers where the host lacks nothing; nothing is tried for it."""

    @abstractmethod
    async def check(self, context: Context, options: O) -> Verdict:
        """Find out whether machines can be started here; never raises for what is missing."""

    async def presence(self, context: Context, options: O) -> Presence:
        """Find out whether the arm's computer is up, where :meth:`check` has found it usable.

        It is asked for studies in sessions only, whose computer is booted differently in turns. By
        default what can be used is up, and its boots are not distinguished.
        """
        return Presence()

    async def guest_kernels(self, context: Context, options: O) -> GuestKernels:
        """Find out which kernels its machines can boot where the study names none.

        The host's own kernel is booted for it once, as a guest. By default nothing is known, which
        is right for platforms whose machines do not boot the study's image.
        """
        return GuestKernels()

    @abstractmethod
    async def prepare(self, context: Context, options: O, shape: Shape, realtime: bool) -> Prepared:
        """Build or find what the machines boot.

        Args:
            context: Where to work.
            options: The arm's options.
            shape: The size of the arm's machines.
            realtime: Whether the study wants a real-time kernel where it names none.

        Raises:
            InputError: An option names something that does not exist.
        """

    @abstractmethod
    async def start(
        self, context: Context, options: O, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start a machine and return at once; :meth:`Machine.ready` waits for its agent.

        Whatever it creates on the host is noted in ``context.ledger`` first. What it made before a
        fault it removes itself.

        Raises:
            MachineFault: It could not be started.
        """

    def saved(
        self, context: Context, options: O, prepared: Prepared, machine: Machine, folder: Path
    ) -> AbstractAsyncContextManager[SavedMachine]:
        """Save the state of a machine that has answered, and end it; remove the state at the end.

        Only platforms that state ``saves`` are asked. All machines that are restored from one state
        share what the guest had by then: the layout of its memory, its seeds of random numbers, its
        clock. They are one boot, and not independent of each other.

        Args:
            context: Where the machine runs.
            options: The arm's options.
            prepared: What the machine booted.
            machine: The machine, which was started with ``to_save``.
            folder: Where the state is to be on the host; it is created, and noted in the ledger.

        Raises:
            MachineFault: It cannot be saved, as with a network interface.
        """
        raise MachineFault(f"{self.name} saves no machines")

    async def restore(
        self,
        context: Context,
        options: O,
        prepared: Prepared,
        spec: MachineSpec,
        saved: SavedMachine,
    ) -> Machine:
        """Start a machine from a saved state, as :meth:`start` does from an image.

        Raises:
            MachineFault: It could not be started, or differs from what was saved.
        """
        raise MachineFault(f"{self.name} restores no machines")

    def isolated_network(
        self, context: Context, options: O, name: str, rate: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Hold an isolated network for the machines of one batch, on their hypervisor.

        Only platforms that state the way ``isolated`` are asked for one. It is recorded in the
        ledger before it is created, and removed in the end. Machines join it as
        ``MachineSpec.network`` says under :meth:`MachineNetwork.isolated`.

        Args:
            context: Where to work.
            options: The arm's options.
            name: Its name, ``tare-`` and eight hexadecimal digits.
            rate: The speed of each machine's card, in bits per second, where the network itself
                limits it; None: no limit.

        Raises:
            MachineFault: It cannot be created.
        """
        raise MachineFault(f"{self.name} creates no isolated networks")

    def writes(self, options: O) -> tuple[Write, ...]:
        """Return all that its machines make or change, by kind, and how each is taken back.

        ``tare certify`` shows it before anything is made, and holds the ledger against it
        afterwards. Empty, as by default: the platform states nothing, and cannot be certified.
        """
        return ()

    def host_access(self, options: O) -> tuple[HostAccess, ...]:
        """Return what an arm's options pass on to the host that Tare does not vet.

        A study with any of it runs only where the command line allows that. Empty, as by default:
        its options say nothing but what Tare checks.
        """
        return ()

    def emulated(self, options: O) -> bool:
        """Return whether results show behaviour only, not hardware speed."""
        return self.stated(options).emulated


def undoers_of(platforms: Iterable[Platform[Any]]) -> Mapping[str, Undo]:
    """Return how these platforms' own kinds of ledger entries are undone."""
    return {kind: undo for platform in platforms for kind, undo in platform.undoers.items()}
