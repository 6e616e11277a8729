"""Options of a libvirt domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tare.platforms.linux.cpu_groups import quota_of, shares_of, weight_of
from tare.platforms.linux.scheduling import LinuxOptions
from tare.platforms.linux.thread_cpus import EmulatorCpus, cpus_in_words, listed_cpus, other_cpus
from tare.platforms.qemu.disk_options import AttachedDisk
from tare.platforms.qemu.features import CpuFeatures
from tare.platforms.qemu.options import HugePageSize, QemuOptions
from tare.platforms.scheduled_options import refused, subject_scheduling
from tare.platforms.scheduling import Scheduling
from tare.study.model.forms import WORD, Form
from tare.units import Duration, format_duration, format_size

CPU_MODES = ("host-passthrough", "host-model", "maximum")
PERIOD_US = 100_000
"""The period of a cap, in microseconds: libvirt's default."""
KNOBS = frozenset({"policy", "fifo", "weight", "cap"})
UNKNOWN = ("nice", "slice", "reservation")
LEAST_QUOTA_US = 1000
"""The least quota that libvirt accepts, in microseconds (libvirt.org, "CPU Tuning")."""

_URI = Form(
    r"^qemu(\+unix)?:///\S*$",
    "libvirt's own name of a connection on the host itself, such as `qemu:///system`",
)


class LibvirtOptions(AttachedDisk, LinuxOptions):
    """Options of the platform ``libvirt``."""

    uri: Annotated[str, _URI] = Field(
        default="qemu:///system",
        description="The libvirt connection, by its URI on the host itself. `qemu:///session` is "
        "an unprivileged user's, on this computer only.",
    )
    accelerator: Literal["tcg", "kvm"] = Field(
        default="tcg",
        description="`kvm`: domains of type `kvm`, which run on the processor itself. `tcg`: "
        "domains of type `qemu`, which emulate the processor and show behaviour, not the speed of "
        "hardware.",
    )
    machine: Literal["q35", "pc"] = Field(
        default="q35", description="The mainboard: PCI Express (`q35`) or the older PCI (`pc`)."
    )
    cpu: Annotated[str, WORD] | None = Field(
        default=None,
        description="The processor model: `host-passthrough`, `host-model`, `maximum`, or a model "
        "name of libvirt. Default: `host-passthrough` with kvm, `maximum` with tcg.",
    )
    cpu_features: CpuFeatures = Field(
        default=(),
        description="Processor features to add or remove, by libvirt's names: `[+avx2, -avx512f]`.",
    )
    nic: Literal["auto", "virtio", "e1000", "e1000e", "rtl8139"] = Field(
        default="auto",
        description="The network card: `virtio`, or one that QEMU emulates. `auto`: virtio or "
        "e1000, according to `devices`.",
    )
    disk_bus: Literal["auto", "virtio-blk", "virtio-scsi", "ahci", "ide"] = Field(
        default="auto",
        description="The bus of the machine's own disk. `auto`: virtio-blk, AHCI (SATA) or IDE, "
        "according to `devices` and `machine`. `ide` needs `machine: pc`. libvirt does not emulate "
        "NVMe; `platform: qemu` does.",
    )
    disk_io: Literal["default", "threads", "native", "io_uring"] = Field(
        default="default",
        description="How QEMU does the disk's I/O: `threads`, `native` (the kernel's asynchronous "
        "I/O; needs a cache mode that bypasses the host's page cache), `io_uring`, or `default` "
        "(QEMU's choice).",
    )
    emulator_cpus: EmulatorCpus = Field(
        default="any",
        description="The CPUs of QEMU's threads other than vCPUs: `any`, the `same` as those of "
        "the pinned vCPUs, any `other` CPUs, or a list.",
    )
    shares: int | None = Field(
        default=None,
        ge=2,
        le=262144,
        description="The domain's CPU weight among the host's control groups, in libvirt's units "
        "(`shares`). `scheduling: {weight}` means the same in both versions of control groups.",
    )
    cap: float | None = Field(
        default=None,
        ge=LEAST_QUOTA_US / PERIOD_US,
        le=1.0,
        description="CPU limit of each vCPU in each 100 ms, as a share of one CPU: 0.5 is half a "
        "CPU. `scheduling: {cap}` limits the whole domain.",
    )
    scheduling: Scheduling = subject_scheduling(
        "How the subject is scheduled next to others, in libvirt's words (`cputune`): policy "
        "(`vcpusched`), weight (`shares`) and cap (`global_quota`); see `scheduling` below."
    )
    hugepages: bool = Field(
        default=False, description="Back the guest's memory with reserved huge pages of the host."
    )
    hugepage_size: HugePageSize | None = Field(
        default=None, description="With `hugepages`: their size. Default: the host's default size."
    )
    numa_node: int | None = Field(
        default=None,
        ge=0,
        le=1023,
        description="The NUMA node of the host that provides all of the guest's memory.",
    )
    halt_poll: Duration | None = Field(
        default=None,
        ge=0,
        le=0.01,
        description="With kvm: how long the host polls on behalf of an idle vCPU before it gives "
        "up the CPU; `0 s`: never. The setting applies to all guests of the host while the machine "
        "runs.",
    )
    extra_args: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="Additional QEMU arguments, one list item for each word (`qemu:commandline`). "
        "Tare does not interpret them, and the report lists them.",
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse settings that libvirt lacks, or that no Linux kernel accepts."""
        return super().within(refused(wanted, UNKNOWN, "libvirt"))

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        both = {**self.scheduling.given, **self.neighbour_scheduling.given}
        for own, value, knob in (("shares", self.shares, "weight"), ("cap", self.cap, "cap")):
            if value is not None and knob in both:
                raise ValueError(f"give `{own}` or `scheduling: {{{knob}}}`, not both")
        return self

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.disk_io == "native" and self.disk_cache not in ("none", "directsync"):
            raise ValueError("`disk-io: native` needs `disk-cache: none` or `directsync`")
        if self.hugepage_size is not None and not self.hugepages:
            raise ValueError("hugepage-size needs `hugepages: true`")
        if self.halt_poll is not None and self.accelerator == "tcg":
            raise ValueError("halt-poll needs `accelerator: kvm`: tcg does not have it")
        if self.accelerator == "tcg" and self.cpu in ("host-passthrough", "host-model"):
            raise ValueError(f"`cpu: {self.cpu}` needs `accelerator: kvm`")
        return self

    @property
    def wanted_devices(self) -> str:
        """The requested device models."""
        return self.devices

    @property
    def like_qemu(self) -> QemuOptions:
        """The options of a QEMU machine with the same image needs and devices."""
        return QemuOptions(
            accelerator=self.accelerator,
            devices=self.devices,
            machine=self.machine,
            nic=self.nic,
            disk_bus=self.disk_bus,
            disk_format=self.disk_format,
            disk_volume_group=self.disk_volume_group,
            hugepages=self.hugepages,
            hugepage_size=self.hugepage_size,
            numa_node=self.numa_node,
            halt_poll=self.halt_poll,
        )

    @property
    def disk_driven(self) -> str:
        """The requested kind of input and output, or ``default``."""
        return self.disk_io

    @property
    def domain_type(self) -> str:
        """Libvirt's word for the accelerator."""
        return "kvm" if self.accelerator == "kvm" else "qemu"

    @property
    def host_cpus(self) -> Mapping[str, tuple[int, ...]]:
        """Host CPUs that options list by number, by the name of the option."""
        return listed_cpus(emulator_cpus=self.emulator_cpus, iothread_cpus=self.iothread_cpus)

    @property
    def unpinned_cpu_options(self) -> tuple[str, ...]:
        """The options that ask for host CPUs on which no pinned vCPU of the machine runs."""
        return other_cpus(emulator_cpus=self.emulator_cpus, iothread_cpus=self.iothread_cpus)

    def cpu_tuning(self, role: str, version: int) -> dict[str, int]:
        """Return the CPU shares and quotas of a role's domain, by libvirt's names in XML.

        Args:
            role: The machine's role.
            version: The version of the control groups that have the ``cpu`` controller; the scale
                of shares depends on it.
        """
        wanted = self.scheduling_of(role)
        weight = shares_of(wanted) if version == 1 else weight_of(wanted)
        shares = self.shares if weight is None else weight
        tuning = {} if shares is None else {"shares": shares}
        if self.cap is not None:
            tuning |= {"period": PERIOD_US, "quota": round(self.cap * PERIOD_US)}
        if (whole := quota_of(wanted)) is not None:
            tuning |= {"global_period": whole[1], "global_quota": whole[0]}
        return tuning

    def words(self) -> tuple[str, ...]:
        """Return the words that reports add to an arm's description."""
        size = "" if self.hugepage_size is None else f" of {format_size(self.hugepage_size)}"
        notes = {
            **dict.fromkeys(self.scheduling_words, True),
            f"machine {self.machine}": self.machine != "q35",
            f"network card {self.nic}": self.nic != "auto",
            f"CPU {self.cpu}": self.cpu is not None,
            f"CPU features {' '.join(self.cpu_features)}": bool(self.cpu_features),
            **dict.fromkeys(self.disk_words, True),
            f"shares {self.shares}": self.shares is not None,
            f"at most {self.cap} of a CPU for each vCPU": self.cap is not None,
            f"huge pages{size}": self.hugepages,
            f"memory of NUMA node {self.numa_node}": self.numa_node is not None,
            f"halt polling {format_duration(self.halt_poll or 0)}": self.halt_poll is not None,
            f"emulator on {cpus_in_words(self.emulator_cpus)}": self.emulator_cpus != "any",
            f"extra arguments that Tare does not interpret: {' '.join(self.extra_args)}": bool(
                self.extra_args
            ),
        }
        return tuple(word for word, asked in notes.items() if asked)
