"""Options of a QEMU machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tare.platforms.linux.scheduling import LinuxOptions
from tare.platforms.linux.switch_options import SwitchedOptions
from tare.platforms.linux.thread_cpus import EmulatorCpus, cpus_in_words, listed_cpus, other_cpus
from tare.platforms.network import PCI_ADDRESS
from tare.platforms.qemu.disk_options import MICROVM, DiskOptions
from tare.platforms.qemu.enlightenments import Enlightenments
from tare.platforms.qemu.features import CpuFeatures, flags
from tare.platforms.qemu.guest_kernel import GuestKernelOptions, switch_word
from tare.units import Duration, Size, format_duration, format_size


def _power_of_two(size: int) -> int:
    if size < 4096 or size & (size - 1):
        raise ValueError("must be a size of huge pages, such as 2MiB or 1GiB")
    return size


HugePageSize = Annotated[Size, AfterValidator(_power_of_two)]


class QemuOptions(DiskOptions, GuestKernelOptions, SwitchedOptions, LinuxOptions):
    """Options of the platform ``qemu``."""

    accelerator: Literal["tcg", "kvm"] = Field(
        default="tcg",
        description="`kvm` runs guests on the processor itself; `tcg` emulates it in software, "
        "which shows behaviour but not hardware speed.",
    )
    nested: bool = Field(
        default=False,
        description="With kvm: measure a machine in a machine. The outer one has the arm's CPUs "
        "and runs QEMU with KVM; the inner one is measured. Without disks, toolbox and network.",
    )
    extra_args: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="Further arguments of QEMU's, word by word. Tare does not know what they do, "
        "and the report says that they were given.",
    )
    cpu: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._,+=-]*$",
        description="QEMU's name of the processor model; by default `host` with kvm and `max` "
        "with tcg.",
    )
    cpu_features: CpuFeatures = Field(
        default=(),
        description="Features that the processor model is to have or to lack, in QEMU's words: "
        "`[+avx2, -avx512f]`. Nothing is measured on a machine without a requested feature.",
    )
    threads: Literal["multi", "single"] = Field(
        default="multi",
        description="With tcg: whether each vCPU has a host thread of its own, or all share one.",
    )
    clock: Literal["host", "instructions"] = Field(
        default="host",
        description="With tcg and one vCPU: where the guest's time comes from. `instructions` "
        "counts one nanosecond for each instruction, so that the same work takes the same time on "
        "every computer; idle time passes at once.",
    )
    enlightenments: Enlightenments = Field(
        default_factory=Enlightenments,
        description="With kvm: what the hypervisor reports of itself to the guest; see "
        "`enlightenments` below.",
    )
    cpu_pm: bool = Field(
        default=False,
        description="With kvm: an idle guest keeps its CPU (`-overcommit cpu-pm=on`), so that it "
        "wakes without an exit; nothing else then runs there while it idles, unless the host's "
        "scheduler takes the CPU away.",
    )
    halt_poll: Duration | None = Field(
        default=None,
        ge=0,
        le=0.01,
        description="With kvm: for how long the host polls for an idle vCPU before it gives its "
        "CPU away; `0 s` is never. It holds for all guests of the host while the machine runs.",
    )
    emulator_cpus: EmulatorCpus = Field(
        default="any",
        description="Where QEMU's other threads than its vCPUs run: anywhere, on the `same` CPUs "
        "as the pinned vCPUs, on the `other` ones, or on listed ones. Unpinned machines have no "
        "CPUs of their own; theirs run anywhere, unless listed.",
    )
    pin_vcpus: bool = Field(
        default=True,
        description="With `false`, vCPUs run on any CPU, even in scenarios that pin them; such "
        "scenarios need `unpinned: true`.",
    )
    network: Literal["auto", "tap", "macvtap", "sriov", "user"] = Field(
        default="auto",
        description="What the network interface is connected to where a workload needs that: "
        "`tap`, an isolated bridge of the host (needs root); `user`, QEMU's own network stack in "
        "software (needs nothing, and costs much); `auto`, the first of these two that works; "
        "`macvtap`, an interface on top of another one of the host's (needs root); `sriov`, a "
        "virtual function of a network card (needs root, an IOMMU, and two functions that nobody "
        "uses).",
    )
    nic_function: str | None = Field(
        default=None,
        pattern=rf"^(?:{PCI_ADDRESS}|[A-Za-z0-9][A-Za-z0-9_.-]{{0,14}})$",
        description="With `network: sriov`: the network card by its interface (`ens1f0`) or PCI "
        'address (`"0000:03:00.0"`), or one virtual function of it likewise; if left out, the '
        "first card that has two free ones.",
    )
    nic: Literal["auto", "virtio", "e1000", "e1000e", "rtl8139", "vmxnet3", "tulip"] = Field(
        default="auto",
        description="The network card: `virtio`, which a guest knows to be virtual, or one that "
        "QEMU emulates; `auto`, virtio or e1000 as `devices` says.",
    )
    nic_queues: int = Field(
        default=1,
        ge=1,
        le=64,
        description="With `virtio`: pairs of queues, for as many vCPUs to send and receive at "
        "once.",
    )
    nic_offloads: bool = Field(
        default=True,
        description="With `virtio`: whether checksums and the cutting of large packets are left "
        "to the other side.",
    )
    vhost: Annotated[Literal["auto", "on", "off"], BeforeValidator(switch_word)] = Field(
        default="auto",
        description="With `virtio` on a tap: whether the host's kernel carries the packets "
        "(vhost-net) instead of QEMU; `auto`, wherever the host has it.",
    )
    vhost_cpus: EmulatorCpus | None = Field(
        default=None,
        description="Where the host's threads that carry the packets run (vhost-net), in the words "
        "of `emulator-cpus`; if left out, the host's scheduler decides.",
    )
    confined: bool = Field(
        default=True,
        description="Where Tare is root: QEMU runs as a user that nobody else is, without the "
        "right to get others, and in any case with its own filter of system calls "
        "(`-sandbox on`). `false`: as Tare itself, and unfiltered.",
    )
    hugepages: bool = Field(
        default=False, description="Back the guest's memory by reserved huge pages of the host."
    )
    hugepage_size: HugePageSize | None = Field(
        default=None, description="With hugepages: their size; the host's usual one when left out."
    )
    prealloc: bool = Field(
        default=False,
        description="Touch all of the guest's memory before it starts, so that the host has "
        "nothing to find for it later.",
    )
    mlock: bool = Field(
        default=False,
        description="Lock all of QEMU's memory (`-overcommit mem-lock=on`), so that none of it "
        "is ever swapped out or moved; it is touched at once, too.",
    )
    numa_node: int | None = Field(
        default=None,
        ge=0,
        le=1023,
        description="The NUMA node of the host that all of the guest's memory comes from. The "
        "vCPUs run where the study pins them: near memory and far memory are two arms.",
    )
    nohz_full: bool = Field(
        default=False,
        description="Whether the guest's kernel stops its tick on all vCPUs but the first while "
        "one thread runs there (`nohz_full`), and the work is done on those; it needs two vCPUs "
        "and a kernel that is built for it.",
    )

    @property
    def wanted_devices(self) -> str:
        """The device models asked for."""
        return self.devices

    @property
    def wanted_network(self) -> str:
        """The way to a network asked for."""
        return self.network

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.accelerator == "kvm" and self.clock == "instructions":
            raise ValueError("`clock: instructions` needs `accelerator: tcg`")
        if self.machine == MICROVM and self.iothread and self.accelerator == "tcg":
            raise ValueError("`iothread` on `machine: microvm` needs `accelerator: kvm`")
        if self.machine == MICROVM and self.clock == "instructions":
            raise ValueError("`clock: instructions` needs another mainboard than `microvm`")
        if self.machine == MICROVM and self.card != "virtio":
            raise ValueError(f"`nic: {self.card}` needs PCI, which `machine: microvm` lacks")
        if self.card != "virtio":
            for name, asked in (
                ("nic-queues", self.nic_queues > 1),
                ("nic-offloads", not self.nic_offloads),
                ("vhost", self.vhost == "on"),
                ("vhost-cpus", self.vhost_cpus is not None),
            ):
                if asked:
                    raise ValueError(f"{name} needs `nic: virtio`: {self.card} does not have it")
        if self.vhost_cpus is not None and self.vhost == "off":
            raise ValueError("vhost-cpus needs vhost: remove `vhost: off`")
        if self.network == "macvtap" and self.nic_queues > 1:
            raise ValueError("nic-queues need `network: tap`: a macvtap has one pair here")
        if self.nic_function is not None and self.network != "sriov":
            raise ValueError("nic-function needs `network: sriov`")
        if self.network == "sriov":
            self._is_a_function()
        of_taps = self.nic_queues > 1 or self.vhost == "on" or self.vhost_cpus is not None
        if self.network == "user" and of_taps:
            raise ValueError("nic-queues, vhost and vhost-cpus need a tap: write `network: tap`")
        if self.accelerator == "tcg":
            for name, asked in (
                ("enlightenments", self.enlightenments.asks),
                ("cpu-pm", self.cpu_pm),
                ("halt-poll", self.halt_poll is not None),
                ("guest-clocksource: kvm-clock", self.guest_clocksource == "kvm-clock"),
                ("guest-idle: haltpoll", self.guest_idle == "haltpoll"),
                ("guest-pv-spinlocks: false", not self.guest_pv_spinlocks),
            ):
                if asked:
                    raise ValueError(
                        f"{name} needs `accelerator: kvm`: tcg emulates the processor by itself, "
                        "and has nothing of the kind"
                    )
        if self.nested:
            self._can_nest()
        if self.hugepage_size is not None and not self.hugepages:
            raise ValueError("hugepage-size needs `hugepages: true`")
        if self.prealloc and self.hugepages:
            raise ValueError("huge pages are always touched at the start; remove `prealloc`")
        return self

    def _can_nest(self) -> None:
        """Raise ValueError if an option cannot apply to a machine in a machine."""
        for name, fits in (
            ("accelerator: kvm", self.accelerator == "kvm"),
            ("devices: paravirtual", self.devices == "paravirtual"),
            ("machine: q35", self.machine == "q35"),
        ):
            if not fits:
                raise ValueError(f"`nested: true` needs `{name}`")
        if self.enlightenments.asks or self.nohz_full:
            raise ValueError(
                "`nested: true` takes no enlightenments and no nohz-full: they would be the outer "
                "machine's"
            )

    def _is_a_function(self) -> None:
        """Raise ValueError unless all that is asked for can be had with a virtual function."""
        if self.switch != "routed":
            raise ValueError(
                "`network: sriov` needs `switch: routed`: a card hands a function what is for its "
                "own address alone, so that no bridge can be behind one"
            )
        if self.machine == MICROVM:
            raise ValueError("`network: sriov` needs PCI, which `machine: microvm` lacks")
        for name, asked in (
            ("nic", self.nic != "auto"),
            ("nic-queues", self.nic_queues > 1),
            ("nic-offloads", not self.nic_offloads),
            ("vhost", self.vhost == "on"),
            ("vhost-cpus", self.vhost_cpus is not None),
        ):
            if asked:
                raise ValueError(f"{name} is of cards of QEMU's, and `network: sriov` has none")

    @property
    def locks_memory(self) -> bool:
        """Whether QEMU locks the guest's memory: a function reads and writes all of it itself."""
        return self.mlock or self.network == "sriov"

    @property
    def host_cpus(self) -> Mapping[str, tuple[int, ...]]:
        """The CPUs of the host that options name by their numbers, by the option."""
        return listed_cpus(**self._thread_cpus)

    @property
    def unpinned_cpu_options(self) -> tuple[str, ...]:
        """The options that ask for CPUs of the host which no pinned vCPU of the machine has."""
        return other_cpus(**self._thread_cpus)

    @property
    def _thread_cpus(self) -> Mapping[str, str | tuple[int, ...] | None]:
        """Where threads of the host run that work for the machine, by the option."""
        return {
            "emulator_cpus": self.emulator_cpus,
            "iothread_cpus": self.iothread_cpus,
            "vhost_cpus": self.vhost_cpus,
        }

    @property
    def emulator_words(self) -> str:
        """Where QEMU's other threads run, in words."""
        return cpus_in_words(self.emulator_cpus)

    @property
    def processor_words(self) -> tuple[str, ...]:
        """What was chosen about the processor, as reports say it."""
        chosen = {
            f"CPU {self.cpu}": self.cpu is not None,
            f"CPU features {' '.join(self.cpu_features)}": bool(self.cpu_features),
            "one thread": self.accelerator == "tcg" and self.threads == "single",
            self.enlightenments.words(): bool(self.enlightenments.words()),
            "a machine in a machine": self.nested,
            "idle guests keep their CPU": self.cpu_pm,
            f"halt polling {format_duration(self.halt_poll or 0)}": self.halt_poll is not None,
        }
        return tuple(word for word, asked in chosen.items() if asked)

    @property
    def memory_words(self) -> tuple[tuple[bool, str], ...]:
        """The kinds of memory: whether each is used, and its words in reports."""
        size = "" if self.hugepage_size is None else f" of {format_size(self.hugepage_size)}"
        return (
            (self.hugepages, f"huge pages{size}"),
            (self.prealloc, "memory touched beforehand"),
            (self.mlock, "memory locked"),
            (self.numa_node is not None, f"memory of NUMA node {self.numa_node}"),
            (self.nohz_full, "nohz_full in the guest"),
        )

    @property
    def nic_words(self) -> tuple[tuple[bool, str], ...]:
        """What was chosen about the network card: whether it was, and how reports say it."""
        return (
            (self.network == "macvtap", self.network),
            (self.network == "sriov", "a virtual function"),
            (self.nic != "auto", f"network card {self.nic}"),
            (self.nic_queues > 1, f"{self.nic_queues} pairs of queues"),
            (not self.nic_offloads, "no network offloads"),
            (self.vhost != "auto", "vhost" if self.vhost == "on" else "no vhost"),
            (self.vhost_cpus is not None, f"vhost on {cpus_in_words(self.vhost_cpus or 'any')}"),
            *((True, word) for word in self.wanted_switch.words),
        )

    @property
    def processor(self) -> str:
        """QEMU's ``-cpu`` option: the model, its features, and its enlightenments."""
        return ",".join((self.model, *flags(self.cpu_features), *self.enlightenments.flags))

    @property
    def model(self) -> str:
        """The processor model that is used."""
        if self.cpu is not None:
            return self.cpu
        # Only a guest that cannot migrate may see that the host's TSC never stops.
        return "host,migratable=off" if self.accelerator == "kvm" else "max"

    @property
    def needs(self) -> frozenset[str]:
        """The kernel modules that the devices need, as ``images`` names them."""
        return self._own_needs | ({"virtual-function"} if self.network == "sriov" else frozenset())

    @property
    def _own_needs(self) -> frozenset[str]:
        if self.machine == MICROVM:
            return frozenset({"virtio-mmio"}) | self.bus_needs
        if self.devices == "paravirtual":
            return frozenset({"virtio", self.card}) | self.bus_needs
        # The toolbox is on this one, whatever the disk is on.
        board = "ahci" if self.machine == "q35" else "ide"
        return frozenset({self.card, board}) | self.bus_needs

    @property
    def card(self) -> str:
        """The network card that is used."""
        if self.nic != "auto":
            return self.nic
        return "virtio" if self.devices == "paravirtual" else "e1000"
