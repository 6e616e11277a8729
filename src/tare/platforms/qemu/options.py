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
        description="`kvm` runs guests on the processor itself. `tcg` emulates the processor in "
        "software and shows behaviour, not the speed of hardware.",
    )
    nested: bool = Field(
        default=False,
        description="With kvm: measure a nested machine. The outer one has the arm's CPUs and runs "
        "QEMU with KVM; the inner one is measured. Not available with disks, the toolbox or a "
        "network.",
    )
    extra_args: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="Additional QEMU arguments, one list item for each word. Tare does not "
        "interpret them, and the report lists them.",
    )
    cpu: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._,+=-]*$",
        description="The processor model, by QEMU's name. Default: `host` with kvm, `max` with "
        "tcg.",
    )
    cpu_features: CpuFeatures = Field(
        default=(),
        description="Processor features to add or remove, by QEMU's names: `[+avx2, -avx512f]`. "
        "Nothing is measured on a machine that lacks a requested feature.",
    )
    threads: Literal["multi", "single"] = Field(
        default="multi",
        description="With tcg: `multi` gives each vCPU a host thread; with `single`, all share one "
        "thread.",
    )
    clock: Literal["host", "instructions"] = Field(
        default="host",
        description="With tcg and one vCPU: the source of the guest's time. `instructions` counts "
        "one nanosecond for each instruction, so the same work takes the same time on every "
        "computer; idle time passes at once.",
    )
    enlightenments: Enlightenments = Field(
        default_factory=Enlightenments,
        description="With kvm: the paravirtual features that the hypervisor offers to the guest; "
        "see `enlightenments` below.",
    )
    cpu_pm: bool = Field(
        default=False,
        description="With kvm: an idle guest keeps its CPU (`-overcommit cpu-pm=on`), so it wakes "
        "up without an exit. While it idles, nothing else runs on that CPU unless the host's "
        "scheduler takes the CPU away.",
    )
    halt_poll: Duration | None = Field(
        default=None,
        ge=0,
        le=0.01,
        description="With kvm: how long the host polls on behalf of an idle vCPU before it gives "
        "up the CPU; `0 s`: never. The setting applies to all guests of the host while the machine "
        "runs.",
    )
    emulator_cpus: EmulatorCpus = Field(
        default="any",
        description="The CPUs of QEMU's threads other than vCPUs: `any`, the `same` as those of "
        "the pinned vCPUs, any `other` CPUs, or a list. The threads of unpinned machines run "
        "anywhere unless CPUs are listed.",
    )
    pin_vcpus: bool = Field(
        default=True,
        description="With `false`, vCPUs run on any CPU, even in scenarios that pin them; such "
        "scenarios need `unpinned: true`.",
    )
    network: Literal["auto", "tap", "macvtap", "sriov", "user"] = Field(
        default="auto",
        description="The connection of the network interface, for workloads that need one. `tap`: "
        "an isolated bridge of the host (needs root). `user`: QEMU's network stack in software "
        "(needs nothing, but is slow). `auto`: the first of these two that works. `macvtap`: an "
        "interface on top of another one of the host (needs root). `sriov`: a virtual function of "
        "a network card (needs root, an IOMMU and two unused functions).",
    )
    nic_function: str | None = Field(
        default=None,
        pattern=rf"^(?:{PCI_ADDRESS}|[A-Za-z0-9][A-Za-z0-9_.-]{{0,14}})$",
        description="With `network: sriov`: the network card, by its interface (`ens1f0`) or PCI "
        'address (`"0000:03:00.0"`), or one of its virtual functions, written likewise. Default: '
        "the first card with two unused functions.",
    )
    nic: Literal["auto", "virtio", "e1000", "e1000e", "rtl8139", "vmxnet3", "tulip"] = Field(
        default="auto",
        description="The network card: `virtio`, a paravirtual one, or one that QEMU emulates. "
        "`auto`: virtio or e1000, according to `devices`.",
    )
    nic_queues: int = Field(
        default=1,
        ge=1,
        le=64,
        description="With `virtio`: number of queue pairs, which is the number of vCPUs that can "
        "send and receive at once.",
    )
    nic_offloads: bool = Field(
        default=True,
        description="With `virtio`: leave checksums and the segmentation of large packets to the "
        "other side.",
    )
    vhost: Annotated[Literal["auto", "on", "off"], BeforeValidator(switch_word)] = Field(
        default="auto",
        description="With `virtio` on a tap: let the host's kernel process the packets (vhost-net) "
        "instead of QEMU. `auto`: if the host supports it.",
    )
    vhost_cpus: EmulatorCpus | None = Field(
        default=None,
        description="Where the host's threads that carry the packets run (vhost-net), in the words "
        "of `emulator-cpus`; if left out, the host's scheduler decides.",
    )
    confined: bool = Field(
        default=True,
        description="Run QEMU with its system call filter (`-sandbox on`) and, if Tare is root, as "
        "a separate user that cannot gain privileges. `false`: run it as Tare's user, without the "
        "filter.",
    )
    hugepages: bool = Field(
        default=False, description="Back the guest's memory with reserved huge pages of the host."
    )
    hugepage_size: HugePageSize | None = Field(
        default=None, description="With `hugepages`: their size. Default: the host's default size."
    )
    prealloc: bool = Field(
        default=False,
        description="Touch all of the guest's memory before it starts, so that the host need not "
        "allocate any later.",
    )
    mlock: bool = Field(
        default=False,
        description="Lock all of QEMU's memory (`-overcommit mem-lock=on`), so that none of it is "
        "swapped out or moved. This also touches all of it at the start.",
    )
    numa_node: int | None = Field(
        default=None,
        ge=0,
        le=1023,
        description="The NUMA node of the host that provides all of the guest's memory. The vCPUs "
        "run where the study pins them, so near and far memory are two arms.",
    )
    nohz_full: bool = Field(
        default=False,
        description="Stop the guest kernel's tick on all vCPUs except the first while one thread "
        "runs there (`nohz_full`), and do the work on those. Needs two vCPUs and a kernel built "
        "with support for it.",
    )

    @property
    def wanted_devices(self) -> str:
        """The requested device models."""
        return self.devices

    @property
    def wanted_network(self) -> str:
        """The requested network way."""
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
        """Raise ValueError if an option cannot be combined with a virtual function."""
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
        """Whether QEMU locks the guest's memory; a virtual function accesses all of it directly."""
        return self.mlock or self.network == "sriov"

    @property
    def host_cpus(self) -> Mapping[str, tuple[int, ...]]:
        """Host CPUs that options list by number, by the name of the option."""
        return listed_cpus(**self._thread_cpus)

    @property
    def unpinned_cpu_options(self) -> tuple[str, ...]:
        """The options that ask for host CPUs on which no pinned vCPU of the machine runs."""
        return other_cpus(**self._thread_cpus)

    @property
    def _thread_cpus(self) -> Mapping[str, str | tuple[int, ...] | None]:
        """The CPUs for the host's threads that work for the machine, by the name of the option."""
        return {
            "emulator_cpus": self.emulator_cpus,
            "iothread_cpus": self.iothread_cpus,
            "vhost_cpus": self.vhost_cpus,
        }

    @property
    def emulator_words(self) -> str:
        """The CPUs of QEMU's other threads, in words."""
        return cpus_in_words(self.emulator_cpus)

    @property
    def processor_words(self) -> tuple[str, ...]:
        """The reports' phrases for processor options that differ from the defaults."""
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
        """The memory options: whether each is used, and the reports' phrase for it."""
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
        """The network card's options: whether each is used, and the reports' phrase for it."""
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
        # The toolbox uses this bus, whatever the disk's bus is.
        board = "ahci" if self.machine == "q35" else "ide"
        return frozenset({self.card, board}) | self.bus_needs

    @property
    def card(self) -> str:
        """The network card that is used."""
        if self.nic != "auto":
            return self.nic
        return "virtio" if self.devices == "paravirtual" else "e1000"
