"""What can be chosen about a QEMU machine."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tare.platforms.linux.scheduling import LinuxOptions
from tare.platforms.linux.switched import SwitchedOptions
from tare.platforms.qemu.enlightenments import Enlightenments
from tare.study.quantities import Size, format_size


def _cpus(chosen: str | tuple[int, ...]) -> str | tuple[int, ...]:
    if not chosen or (not isinstance(chosen, str) and min(chosen) < 0):
        raise ValueError("must be `any`, `same`, `other` or a list of CPU numbers, like [0, 1]")
    return chosen


def _power_of_two(size: int) -> int:
    if size < 4096 or size & (size - 1):
        raise ValueError("must be a size of huge pages, such as 2MiB or 1GiB")
    return size


EmulatorCpus = Annotated[Literal["any", "same", "other"] | tuple[int, ...], AfterValidator(_cpus)]


class QemuOptions(SwitchedOptions, LinuxOptions):
    """Options of the platform ``qemu``."""

    accelerator: Literal["tcg", "kvm"] = Field(
        default="tcg",
        description="`kvm` runs guests on the processor itself; `tcg` emulates it in software, "
        "which shows behaviour but not hardware speed.",
    )
    devices: Literal["paravirtual", "emulated"] = Field(
        default="paravirtual",
        description="`paravirtual`: virtio network, disk and channel; `emulated`: e1000, AHCI "
        "(IDE on `pc`) and a serial port.",
    )
    disk_cache: Literal["none", "writeback", "writethrough", "directsync", "unsafe"] = Field(
        default="none",
        description="How the host caches the disk of the machine's own (`shape: {disk: …}`), in "
        "QEMU's words: `none` goes past the host's page cache, `writeback` through it; "
        "`writethrough` and `directsync` are the same two with every write brought to the host's "
        "disk at once; `unsafe` is `writeback` that ignores the guest's flushes.",
    )
    disk_aio: Literal["default", "threads", "native", "io_uring"] = Field(
        default="default",
        description="How QEMU reads and writes that disk: by `threads`, by the kernel's `native` "
        "asynchronous I/O, which needs a cache mode that goes past the host's page cache, by "
        "`io_uring`, or as QEMU does by itself (threads).",
    )
    disk_queues: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="How many queues that disk has; with paravirtual devices. QEMU's own choice, "
        "one for each vCPU, when left out.",
    )
    iothread: bool = Field(
        default=False,
        description="Give that disk a thread of its own in QEMU; with paravirtual devices.",
    )
    machine: Literal["q35", "pc"] = Field(
        default="q35",
        description="The emulated mainboard: PCI Express (`q35`) or the older PCI (`pc`).",
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
        description="With kvm: what the hypervisor tells the guest of itself; see "
        "`enlightenments` below.",
    )
    cpu_pm: bool = Field(
        default=False,
        description="With kvm: an idle guest keeps its CPU (`-overcommit cpu-pm=on`), so that it "
        "wakes without an exit; nothing else then runs there while it idles, unless the host's "
        "scheduler takes the CPU away.",
    )
    emulator_cpus: EmulatorCpus = Field(
        default="any",
        description="Where QEMU's other threads than its vCPUs run: anywhere, on the `same` CPUs "
        "as the pinned vCPUs, on the `other` ones, or on listed ones. Unpinned machines have no "
        "CPUs of their own; theirs run anywhere, unless listed.",
    )
    network: Literal["auto", "tap", "macvtap", "sriov", "user"] = Field(
        default="auto",
        description="What the network interface is connected to where a workload needs that: "
        "`tap`, an isolated bridge of the host (needs root); `user`, QEMU's own network stack in "
        "software (needs nothing, and costs much); `auto`, the first of these two that works; "
        "`macvtap`, an interface on top of another one of the host's (needs root); `sriov`, a "
        "virtual function of a network card, which Tare only looks for as yet.",
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
    vhost: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="With `virtio` on a tap: whether the host's kernel carries the packets "
        "(vhost-net) instead of QEMU; `auto`, wherever the host has it.",
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
    hugepage_size: Annotated[Size, AfterValidator(_power_of_two)] | None = Field(
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
        if self.card != "virtio":
            for name, asked in (
                ("nic-queues", self.nic_queues > 1),
                ("nic-offloads", not self.nic_offloads),
                ("vhost", self.vhost == "on"),
            ):
                if asked:
                    raise ValueError(f"{name} needs `nic: virtio`: {self.card} has nothing of it")
        if self.network == "macvtap" and self.nic_queues > 1:
            raise ValueError("nic-queues need `network: tap`: a macvtap has one pair here")
        if self.network == "user" and (self.nic_queues > 1 or self.vhost == "on"):
            raise ValueError("nic-queues and vhost need a tap: write `network: tap`")
        if self.accelerator == "tcg":
            for name, asked in (
                ("enlightenments", self.enlightenments.asks),
                ("cpu-pm", self.cpu_pm),
            ):
                if asked:
                    raise ValueError(
                        f"{name} needs `accelerator: kvm`: tcg emulates the processor by itself, "
                        "and has nothing of the kind"
                    )
        if self.disk_aio == "native" and self.disk_cache not in ("none", "directsync"):
            raise ValueError("`disk-aio: native` needs `disk-cache: none` or `directsync`")
        if self.devices != "paravirtual":
            for name, asked in (
                ("disk-queues", self.disk_queues is not None),
                ("iothread", self.iothread),
            ):
                if asked:
                    raise ValueError(f"`{name}` needs `devices: paravirtual`")
        if self.hugepage_size is not None and not self.hugepages:
            raise ValueError("hugepage-size needs `hugepages: true`")
        if self.prealloc and self.hugepages:
            raise ValueError("huge pages are always touched at the start; remove `prealloc`")
        return self

    @property
    def emulator_words(self) -> str:
        """Where QEMU's other threads run, in words."""
        if isinstance(self.emulator_cpus, str):
            return {"same": "the same CPUs", "other": "other CPUs"}.get(
                self.emulator_cpus, "any CPU"
            )
        return f"CPUs {', '.join(map(str, self.emulator_cpus))}"

    @property
    def memory_words(self) -> tuple[tuple[bool, str], ...]:
        """What the memory is made of: whether it is so, and how reports say it."""
        size = "" if self.hugepage_size is None else f" of {format_size(self.hugepage_size)}"
        return (
            (self.hugepages, f"huge pages{size}"),
            (self.prealloc, "memory touched beforehand"),
            (self.mlock, "memory locked"),
            (self.nohz_full, "nohz_full in the guest"),
        )

    @property
    def disk_words(self) -> tuple[str, ...]:
        """How its disk is driven where that was asked for, as reports say it."""
        told = {
            f"disk cache {self.disk_cache}": self.disk_cache != "none",
            f"disk by {self.disk_aio}": self.disk_aio != "default",
            f"{self.disk_queues} disk queues": self.disk_queues is not None,
            "a thread for the disk": self.iothread,
        }
        return tuple(word for word, asked in told.items() if asked)

    @property
    def nic_words(self) -> tuple[tuple[bool, str], ...]:
        """What was chosen about the network card: whether it was, and how reports say it."""
        return (
            (self.network in ("macvtap", "sriov"), self.network),
            (self.nic != "auto", f"network card {self.nic}"),
            (self.nic_queues > 1, f"{self.nic_queues} pairs of queues"),
            (not self.nic_offloads, "no network offloads"),
            (self.vhost != "auto", "vhost" if self.vhost == "on" else "no vhost"),
            *((True, word) for word in self.wanted_switch.words),
        )

    @property
    def processor(self) -> str:
        """What QEMU is told of the processor: the model, and its enlightenments."""
        return ",".join((self.model, *self.enlightenments.flags))

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
        if self.devices == "paravirtual":
            return frozenset({"virtio", self.card})
        return frozenset({self.card, "ahci" if self.machine == "q35" else "ide"})

    @property
    def card(self) -> str:
        """The network card that is used."""
        if self.nic != "auto":
            return self.nic
        return "virtio" if self.devices == "paravirtual" else "e1000"
