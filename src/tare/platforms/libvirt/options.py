"""What can be chosen about a domain of libvirt's."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tare.platforms.qemu.options import EmulatorCpus, QemuOptions
from tare.study.platform_options import PlatformOptions

CPU_MODES = ("host-passthrough", "host-model", "maximum")
PERIOD_US = 100_000
"""The period of a cap, in microseconds: what libvirt takes where it is told none."""
LEAST_QUOTA_US = 1000
"""The least quota that libvirt takes (libvirt.org, "CPU Tuning")."""


class LibvirtOptions(PlatformOptions):
    """Options of the platform ``libvirt``."""

    uri: str = Field(
        default="qemu:///system",
        pattern=r"^qemu(\+unix)?:///\S*$",
        description="The connection to libvirt on this computer; `qemu:///session` is that of a "
        "user without rights.",
    )
    accelerator: Literal["tcg", "kvm"] = Field(
        default="tcg",
        description="`kvm` makes domains of type `kvm`, on the processor itself; `tcg` those of "
        "type `qemu`, which emulate it and show behaviour but not hardware speed.",
    )
    devices: Literal["paravirtual", "emulated"] = Field(
        default="paravirtual",
        description="`paravirtual`: virtio network, disk and channel; `emulated`: e1000, SATA "
        "(IDE on `pc`) and a serial port.",
    )
    machine: Literal["q35", "pc"] = Field(
        default="q35", description="The mainboard: PCI Express (`q35`) or the older PCI (`pc`)."
    )
    cpu: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="The processor model: `host-passthrough`, `host-model`, `maximum`, or a name "
        "of libvirt's; by default `host-passthrough` with kvm and `maximum` with tcg.",
    )
    disk_cache: Literal["none", "writeback", "writethrough", "directsync", "unsafe"] = Field(
        default="none", description="How the host caches the disk of the machine's own."
    )
    disk_io: Literal["default", "threads", "native", "io_uring"] = Field(
        default="default",
        description="How QEMU reads and writes that disk: by `threads`, by the kernel's `native` "
        "asynchronous I/O, which needs a cache mode that goes past the host's page cache, by "
        "`io_uring`, or as QEMU does by itself.",
    )
    iothread: bool = Field(
        default=False,
        description="Give that disk a thread of its own in QEMU; with paravirtual devices.",
    )
    emulator_cpus: EmulatorCpus = Field(
        default="any",
        description="Where QEMU's other threads than its vCPUs run: anywhere, on the `same` CPUs "
        "as the pinned vCPUs, on the `other` ones, or on listed ones.",
    )
    shares: int | None = Field(
        default=None,
        ge=2,
        le=262144,
        description="The domain's weight among control groups of the host, as libvirt takes it.",
    )
    cap: float | None = Field(
        default=None,
        ge=LEAST_QUOTA_US / PERIOD_US,
        le=1.0,
        description="The most of one CPU that each vCPU may use in every 100 ms: 0.5 is half.",
    )
    hugepages: bool = Field(
        default=False, description="Back the guest's memory by reserved huge pages of the host."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.disk_io == "native" and self.disk_cache not in ("none", "directsync"):
            raise ValueError("`disk-io: native` needs `disk-cache: none` or `directsync`")
        if self.iothread and self.devices != "paravirtual":
            raise ValueError("`iothread` needs `devices: paravirtual`")
        if self.accelerator == "tcg" and self.cpu in ("host-passthrough", "host-model"):
            raise ValueError(f"`cpu: {self.cpu}` needs `accelerator: kvm`")
        return self

    @property
    def wanted_devices(self) -> str:
        """The device models asked for."""
        return self.devices

    @property
    def like_qemu(self) -> QemuOptions:
        """What boots is what boots in QEMU with these devices."""
        return QemuOptions(accelerator=self.accelerator, devices=self.devices, machine=self.machine)

    @property
    def domain_type(self) -> str:
        """Libvirt's word for the accelerator."""
        return "kvm" if self.accelerator == "kvm" else "qemu"

    @property
    def quota_us(self) -> int | None:
        """The cap as libvirt takes it, in microseconds of each period."""
        return None if self.cap is None else round(self.cap * PERIOD_US)

    def words(self) -> tuple[str, ...]:
        """Return what reports add to an arm's description."""
        told = {
            f"machine {self.machine}": self.machine != "q35",
            f"CPU {self.cpu}": self.cpu is not None,
            f"disk cache {self.disk_cache}": self.disk_cache != "none",
            f"disk by {self.disk_io}": self.disk_io != "default",
            "a thread for the disk": self.iothread,
            f"shares {self.shares}": self.shares is not None,
            f"at most {self.cap} of a CPU for each vCPU": self.cap is not None,
            "huge pages": self.hugepages,
            f"emulator on {self.emulator_cpus}": self.emulator_cpus != "any",
        }
        return tuple(word for word, asked in told.items() if asked)
