"""The contract of platforms: options, a statement, a verdict about this host, running machines.

A platform is one way to run a machine on a host. It states its capabilities; anything that it does
not state is skipped with the reason. Each platform is one file or folder with a subclass of
:class:`Platform`, in Tare or in a separate package. `tare help extending` explains an example.
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
        cached: Whether the files that boot were already in the cache.
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
        ledger: Records every object before it is created.
        cache: Directory for images and remembered verdicts.
        agent: The static agent program, on this computer.
        kernel: The kernel (``host``, ``rt``, ``cloud``, a package or a file); None means the
            real-time kernel for real-time workloads and the general kernel for the others.
        here: This computer, where images are built; None if it is the host itself.
        needs: What the study's workloads need of its machines: ``toolbox``, ``toolbox-build``,
            ``disk``, ``network``.
        counted: Whether the host's clock counts instructions instead of time.
        release: The distribution release whose kernel package is used; None: this computer's.
        leaving: Signals the hosts that are reached from here when Tare is to end.
        memories: Memory in bytes of each machine of the arm that runs at the same time; empty:
            unknown, as in ``tare doctor``.
        say: Shows a sentence to the user.
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
        """The path of the agent's program on the host; a remote host has its own copy."""
        return self.host.agent or self.agent


@dataclass(frozen=True)
class SavedMachine:
    """The saved state of a machine: its memory, its devices and its disk.

    Args:
        folder: The folder on the host that holds the state. Machines that were restored from it
            read it as long as they run.
        shape: The machine's size.
        made_with: Properties that a restored machine must share with the saved one, by name, such
            as the hypervisor's version.
    """

    folder: Path
    shape: Shape
    made_with: Mapping[str, str]


class Platform(ABC, Generic[O]):
    """One way to run a machine on a host.

    The first paragraph of a subclass's docstring is its summary in the docs.
    """

    name: ClassVar[str]
    """The name that studies use."""
    product: ClassVar[str] = ""
    """The product's name, if it differs from :attr:`name`; empty otherwise."""
    known_as: ClassVar[Mapping[str, str]] = {}
    """Other names that users may write, each with the options that it implies, such as
    ``accelerator: kvm``. A study that uses one is refused, and the message shows what to write."""
    options: type[O]
    """The model class of its options."""
    variants: ClassVar[tuple[Variant, ...]] = (Variant(),)
    """The variants that ``tare doctor`` and the docs list separately."""
    host_hypervisors: ClassVar[tuple[HostHypervisor, ...]] = ()
    """The hypervisors below the host's kernel; the platform's machines need one of them. The
    ``host_boot`` of :meth:`stated` begins with the word of one of them."""
    undoers: ClassVar[Mapping[str, Undo]] = {}
    """Functions that undo what its machines leave on a host, by the kind of the ledger's entry.

    List only the platform's own kinds. Tare itself undoes processes, files, directories, mounts,
    control groups, settings and network interfaces for every platform."""

    @abstractmethod
    def describe(self, options: O) -> str:
        """Return a short phrase for reports, such as ``QEMU TCG, paravirtual devices``."""

    @abstractmethod
    def stated(self, options: O) -> Statement:
        """Return the statement for a host that lacks nothing, without testing any host."""

    @abstractmethod
    async def check(self, context: Context, options: O) -> Verdict:
        """Test whether machines can be started here; missing prerequisites raise no error."""

    async def presence(self, context: Context, options: O) -> Presence:
        """Find out whether the arm's computer is booted, after :meth:`check` found it usable.

        Tare calls it only for studies in sessions, whose computer is booted differently in turns.
        By default, a usable computer counts as booted, and its boots are not distinguished.
        """
        return Presence()

    async def guest_kernels(self, context: Context, options: O) -> GuestKernels:
        """Find out which kernels its machines can boot if the study names none.

        This boots the host's own kernel once, as a guest. By default nothing is known, which is
        right for platforms whose machines do not boot the study's image.
        """
        return GuestKernels()

    @abstractmethod
    async def prepare(self, context: Context, options: O, shape: Shape, realtime: bool) -> Prepared:
        """Build or find the kernel and files that the machines boot.

        Args:
            context: The host, its ledger and the cache.
            options: The arm's options.
            shape: The size of the arm's machines.
            realtime: Whether the study needs a real-time kernel if it names no kernel.

        Raises:
            InputError: An option names something that does not exist.
        """

    @abstractmethod
    async def start(
        self, context: Context, options: O, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start a machine and return at once; :meth:`Machine.ready` waits for its agent.

        It records whatever it creates on the host in ``context.ledger`` first. If it fails, it
        removes what it made.

        Raises:
            MachineFault: The machine could not be started.
        """

    def saved(
        self, context: Context, options: O, prepared: Prepared, machine: Machine, folder: Path
    ) -> AbstractAsyncContextManager[SavedMachine]:
        """Save the state of a machine that has answered, and end the machine.

        Leaving the context removes the state. Only platforms that state ``saves`` are called. All
        machines restored from one state share the guest's memory layout, random seeds and clock.
        They count as one boot and are not independent of each other.

        Args:
            context: The host on which the machine runs, with its ledger.
            options: The arm's options.
            prepared: The result of :meth:`prepare` that the machine booted.
            machine: The machine, which was started with ``to_save``.
            folder: The folder on the host for the state. It is created, and recorded in the ledger.

        Raises:
            MachineFault: The machine cannot be saved, for example if it has a network interface.
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
            MachineFault: The machine could not be started, or differs from the saved one.
        """
        raise MachineFault(f"{self.name} restores no machines")

    def isolated_network(
        self, context: Context, options: O, name: str, rate: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Hold an isolated network for the machines of one batch, on their hypervisor.

        Only platforms that state the network way ``isolated`` are called. The network is recorded
        in the ledger before it is created, and removed at the end. Each machine joins it through
        :meth:`MachineNetwork.isolated` of ``MachineSpec.network``.

        Args:
            context: The host and its ledger.
            options: The arm's options.
            name: The network's name: ``tare-`` and eight hexadecimal digits.
            rate: The speed limit of each machine's card, in bits per second, if the network itself
                enforces it; None: no limit.

        Raises:
            MachineFault: The network cannot be created.
        """
        raise MachineFault(f"{self.name} creates no isolated networks")

    def writes(self, options: O) -> tuple[Write, ...]:
        """Return all that its machines make or change, by kind, and how each is undone.

        ``tare certify`` shows this list before it makes anything, and compares it with the ledger
        afterwards. If it is empty (the default), the platform cannot be certified.
        """
        return ()

    def host_access(self, options: O) -> tuple[HostAccess, ...]:
        """Return the arguments that an arm's options pass on to the host unchecked.

        A study with any such argument runs only if the command line allows it. The default is
        empty: Tare checks everything that the options pass on.
        """
        return ()

    def emulated(self, options: O) -> bool:
        """Check whether results show behaviour only, not hardware speed."""
        return self.stated(options).emulated


def undoers_of(platforms: Iterable[Platform[Any]]) -> Mapping[str, Undo]:
    """Return the functions that undo these platforms' own kinds of ledger entries, by kind."""
    return {kind: undo for platform in platforms for kind, undo in platform.undoers.items()}
