"""A platform's statement about itself; other code reads it instead of the platform's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.study.planning.guest_kernels import GuestKernels
from tare.study.planning.host_cpus import Carrier

ANY_BOOT = "any"
"""A platform that works whatever the host was booted with."""
NO_HYPERVISOR = "none"
"""A platform whose host must have no hypervisor below its kernel."""
KVM_BOOT = "kvm"
"""A platform whose host must be booted with a kernel that has KVM."""
TAKES_HOST = "itself"
"""A platform whose machine takes the host's place: the host itself is not booted then."""


@dataclass(frozen=True)
class Variant:
    """One way to use a platform that ``tare doctor`` and the docs show in a row of its own.

    Args:
        name: A short word; empty if the platform has one way only.
        options: The options that make it this variant.
    """

    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkWays:
    """The ways to connect a platform's machines to a network, see `tare help network`.

    Args:
        rooted: The ways that are available if Tare is root on the host.
        unprivileged: The ways that need no rights.
        device: A device file of the host that the rooted ways need; empty: none.
    """

    rooted: frozenset[str] = frozenset()
    unprivileged: frozenset[str] = frozenset()
    device: str = ""


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a platform on this host; studies skip what it lacks, with the reason.

    Args:
        pinning: Whether each vCPU can be bound to a host CPU.
        max_vcpus: The most vCPUs one machine may have; 0 in a statement: the host's CPUs.
        min_memory: The least memory, in bytes, with which the image starts.
        devices: Available device models (``paravirtual``, ``emulated``); empty without devices.
        neighbours: Whether other machines can run next to the subject.
        notes: Limits that a user should know, one sentence each.
        knobs: The settings of :class:`tare.platforms.scheduling.Scheduling` that the platform
            supports here: ``policy`` (``other``, ``batch``), ``fifo``, ``nice``, ``weight``,
            ``cap``, ``reservation``, ``slice``.
        missing_knobs: Maps a knob to the reason why the platform lacks it here, if known.
        network: The network ways available here; found out only if a study needs a network.
        no_network: Why there is no network, and how to get one if possible; empty: unknown.
        disk: How a machine gets its own disk (``mounted``, ``virtio-blk``, …); empty: it cannot.
        no_disk: What to do to get a disk, if it is possible; empty: unknown.
        own_cache: Whether a machine that uses its own disk is kept from caching files beyond its
            memory.
        no_own_cache: Why such files are cached beyond its memory, in words.
        toolbox: How a machine gets the applications: ``tree``, ``disk``, or ``live`` (they are in
            the image that it boots); empty: it cannot.
        no_realtime: Why nothing in its machines may have real-time priority; empty: it may.
        reaches_out: Whether a machine without a network from Tare reaches what its host reaches,
            under the host's own addresses.
        limits_cards: Whether the hypervisor can limit the rate of cards on an isolated network.
        no_limits: Why the hypervisor cannot limit rates; empty: its API has no such limit.
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
    no_network: str = ""
    disk: frozenset[str] = frozenset()
    no_disk: str = ""
    own_cache: bool = True
    no_own_cache: str = ""
    toolbox: frozenset[str] = frozenset()
    no_realtime: str = ""
    reaches_out: bool = False
    limits_cards: bool = False
    no_limits: str = ""


NOTHING_AT_ALL = Capabilities(pinning=False, max_vcpus=0, min_memory=0, neighbours=False)
"""The capabilities of an arm that cannot be used here."""


@dataclass(frozen=True)
class Statement:
    """The offer of a platform with some options on a host that lacks nothing.

    ``tare help platforms`` is generated from statements, and every check begins with them.

    Args:
        capabilities: Its capabilities at best.
        kernel: Which kernel its machines run, in words.
        channel: How the agent is reached, in words.
        needs: What the host must have, each with the package or setting that provides it.
        untested: What has not been tried on real hardware, in one sentence; empty if nothing.
        confirmed: Where it is known to run: on real computers (including cloud instances), in
            Tare's own emulated hosts, against a program that simulates the product, or nowhere.
        emulated: Whether results show behaviour only, not hardware speed.
        host_boot: What the host must be booted with: :data:`ANY_BOOT`, :data:`NO_HYPERVISOR`,
            :data:`KVM_BOOT`, :data:`TAKES_HOST`, or a hypervisor's own word such as ``xen:credit``.
        boots_image: Whether its machines boot the study's kernel and image; otherwise they run
            an existing kernel, and an arm's ``kernel`` is refused.
        realtime_kernel: Whether its machines run dependably on a PREEMPT_RT kernel. If those of
            one of a study's arms do not, all arms boot a general kernel, and are compared on one
            kernel. They also do so next to machines that boot the live image.
        is_host: Whether its machine is the host itself, the baseline for others.
        elsewhere: Whether its machines are on another computer than the host that drives them.
        only_measures: Whether it can only measure an existing machine, and creates none.
        saves: Whether the state of its machines can be saved, and machines be restored from it.
        boots_each: Whether Tare boots the whole computer for each batch, so that a study in
            sessions need not ask a person to do it.
        network: How its machines can be connected.
        boot_s: Seconds that one machine takes to start and stop on a small computer, for the plan.
        emulated_boot_s: The same on an emulated host.
        runs_as: With whose rights its machines run, and why.
    """

    capabilities: Capabilities
    kernel: str
    channel: str
    needs: tuple[str, ...] = ()
    untested: str = ""
    confirmed: Literal["hardware", "lab", "simulator", "nowhere"] = "nowhere"
    emulated: bool = False
    host_boot: str = ANY_BOOT
    boots_image: bool = False
    realtime_kernel: bool = True
    is_host: bool = False
    elsewhere: bool = False
    only_measures: bool = False
    boots_each: bool = False
    saves: bool = False
    network: NetworkWays = NetworkWays()
    boot_s: float = 30.0
    emulated_boot_s: float = 30.0
    runs_as: str = "its own product starts it; Tare has the rights of its API's user"


@dataclass(frozen=True)
class Presence:
    """Whether an arm's computer is booted for the arm, in a study that swaps boots.

    Args:
        absent: Why it is not booted for the arm, in words; empty: it is.
        boot: The identity of its present boot; empty if it is not known.
        since: If the boot has no identity: the best known time of the boot, in seconds since 1970;
            None: unknown.
    """

    absent: str = ""
    boot: str = ""
    since: float | None = None


@dataclass(frozen=True)
class HostAccess:
    """An argument that a study passes on to a host, where it may do more than run a machine.

    Args:
        option: The option, as studies write it.
        value: The option's value in the study.
        effect: What the argument may do on the host, such as "may run programs there".
    """

    option: str
    value: str
    effect: str


@dataclass(frozen=True)
class Write:
    """One kind of thing that a platform makes or changes on a host or at a server.

    Args:
        kind: The kind of its ledger entry.
        call: The command or API call that makes or changes it.
        undone: The command or API call that undoes it.
        where: What contains it: a folder, a pool, a storage; empty: the call shows it.
    """

    kind: str
    call: str
    undone: str
    where: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a platform with some options on this host: usable or not, why, and what to do.

    Args:
        usable: Whether machines can be started.
        reason: One sentence: what the check found.
        hint: A command to run, or empty when there is nothing to do.
        emulated: Whether results show behaviour only, not hardware speed.
        versions: Name to version of every program involved.
        capabilities: What the platform can do here.
        lasting: Whether another check at once would find the same.
        mark: Where its machines run instead of the intended place, in words; empty: they run in the
            intended place.
        shown: Facts that an existing machine shows about itself and its hypervisor, name to words.
        uncontrolled: What Tare does not control in an existing machine, one sentence each.
        runs_as: With whose rights its machines run here, and why; empty: as in the statement.
        rights: Tare's rights where the machines are, as far as their product reports them for
            the account: a role, a group, permissions by kind of object. They contain no names of
            people and places, because ``tare certify`` puts them into its file. Empty: not
            reported; Tare's own user on this computer counts.
        machine: The identity of an existing machine until its next boot; empty for machines that
            are made for a run, and if it is not known.
        kernels: The kernels that its machines can boot if the study names none.
        carrier: The computer that runs its machines, as its hypervisor's API reports it. Plans
            place machines on its CPUs and size them by its memory. None: the study's host.
    """

    usable: bool
    reason: str
    hint: str
    emulated: bool
    versions: Mapping[str, str]
    capabilities: Capabilities
    lasting: bool = True
    mark: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    uncontrolled: tuple[str, ...] = ()
    runs_as: str = ""
    rights: tuple[str, ...] = ()
    machine: str = ""
    kernels: GuestKernels = field(default_factory=GuestKernels)
    carrier: Carrier | None = None
