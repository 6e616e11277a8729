"""Options of the disk of a QEMU machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from tare.platforms.linux.backed_disk import BACKINGS, Backing
from tare.platforms.linux.thread_cpus import EmulatorCpus, cpus_in_words
from tare.study.model.platform_options import PlatformOptions

MICROVM = "microvm"
"""The machine type without PCI."""


@dataclass(frozen=True)
class Bus:
    """A bus through which a guest reaches its disk.

    Args:
        driver: The guest's driver for it, as the guest's kernel names it.
        needs: The kernel modules for it, as ``images`` names them; empty: only virtio's own.
        queues: Whether the number of its queues can be chosen.
        thread: Whether QEMU can give it a separate thread.
    """

    driver: str
    needs: str = ""
    queues: bool = False
    thread: bool = False


BUSES: Mapping[str, Bus] = {
    "virtio-blk": Bus("virtio_blk", queues=True, thread=True),
    "virtio-scsi": Bus("virtio_scsi", "virtio-scsi", queues=True, thread=True),
    "nvme": Bus("nvme", "nvme", queues=True),
    "ahci": Bus("ahci", "ahci"),
    "ide": Bus("ata_piix", "ide"),
}


class AttachedDisk(PlatformOptions):
    """How a machine's own disk is attached, stored and cached, for all platforms that use QEMU."""

    devices: Literal["paravirtual", "emulated"] = Field(
        default="paravirtual",
        description="`paravirtual`: virtio network, disk and channel; `emulated`: e1000, AHCI "
        "(IDE on `pc`) and a serial port.",
    )
    machine: Literal["q35", "pc", "microvm"] = Field(
        default="q35",
        description="The emulated mainboard: PCI Express (`q35`), the older PCI (`pc`), or no PCI "
        "(`microvm`): only paravirtual devices, over virtio-mmio.",
    )
    disk_bus: Literal["auto", "virtio-blk", "virtio-scsi", "nvme", "ahci", "ide"] = Field(
        default="auto",
        description="The bus of the machine's own disk (`shape: {disk: …}`). `auto`: virtio-blk, "
        "AHCI or IDE, according to `devices` and `machine`. `ide` needs `machine: pc`. `nvme`, "
        "`ahci` and `ide` need a kernel other than Debian's `cloud`.",
    )
    disk_format: Backing = Field(
        default="raw",
        description="The disk's storage on the host: a `raw` file, a `qcow2` file that grows, a "
        "`block` device (a loop device over a file), or a logical volume (`lvm`).",
    )
    disk_volume_group: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_+.][A-Za-z0-9_+.-]*$",
        description="With `disk-format: lvm`: the volume group in which Tare creates and removes "
        "its machines' logical volumes.",
    )
    disk_cache: Literal["none", "writeback", "writethrough", "directsync", "unsafe"] = Field(
        default="none",
        description="The host's cache mode for the disk, by QEMU's names: `none` bypasses the "
        "host's page cache; `writeback` uses it; `directsync` and `writethrough` are these two, "
        "but with each write brought to the host's disk at once; `unsafe` is `writeback` that "
        "ignores the guest's flushes.",
    )
    disk_queues: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Number of the disk's queues, on a bus with several: virtio-blk, virtio-scsi, "
        "NVMe. Default: QEMU's choice.",
    )
    iothread: bool = Field(
        default=False,
        description="Give the disk a separate thread in QEMU; only with virtio-blk and "
        "virtio-scsi.",
    )
    iothread_cpus: EmulatorCpus | None = Field(
        default=None,
        description="With `iothread`: the CPUs of that thread, written like `emulator-cpus`. "
        "Default: as for QEMU's other threads.",
    )

    @model_validator(mode="after")
    def _disk_agrees(self) -> Self:
        if self.machine == MICROVM:
            if self.devices != "paravirtual":
                raise ValueError("`machine: microvm` has para-virtual devices only")
            if not self.bus.startswith("virtio-"):
                raise ValueError(
                    f"`disk-bus: {self.bus}` needs PCI, which `machine: microvm` lacks"
                )
        if self.bus == "ide" and self.machine != "pc":
            raise ValueError("`disk-bus: ide` needs `machine: pc`: q35 has AHCI instead")
        about = BUSES[self.bus]
        for name, asked, able in (
            ("disk-queues", self.disk_queues is not None, about.queues),
            ("iothread", self.iothread, about.thread),
        ):
            if asked and not able:
                raise ValueError(
                    f"`{name}` needs a disk-bus that has it, such as virtio-blk: {self.bus} does "
                    "not"
                )
        if self.iothread_cpus is not None and not self.iothread:
            raise ValueError("iothread-cpus needs `iothread: true`")
        if (self.disk_format == "lvm") != (self.disk_volume_group is not None):
            raise ValueError("`disk-format: lvm` and disk-volume-group need each other")
        return self

    @property
    def disk_driven(self) -> str:
        """The requested kind of input and output, or ``default``."""
        return "default"

    @property
    def bus(self) -> str:
        """The bus that is used."""
        if self.disk_bus != "auto":
            return self.disk_bus
        if self.devices == "paravirtual":
            return "virtio-blk"
        return "ide" if self.machine == "pc" else "ahci"

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of devices that the machine type supports."""
        both = frozenset({"paravirtual", "emulated"})
        return both - {"emulated"} if self.machine == MICROVM else both

    @property
    def bus_needs(self) -> frozenset[str]:
        """The kernel modules that the bus needs, as ``images`` names them."""
        virtio = {"virtio"} if self.bus.startswith("virtio-") and self.machine != MICROVM else set()
        return frozenset(virtio | ({BUSES[self.bus].needs} - {""}))

    @property
    def disk_words(self) -> tuple[str, ...]:
        """The reports' phrases for disk options that differ from the defaults."""
        group = f" in {self.disk_volume_group}" if self.disk_volume_group else ""
        chosen = {
            f"disk on {self.disk_bus}": self.disk_bus != "auto",
            f"disk in {BACKINGS[self.disk_format]}{group}": self.disk_format != "raw",
            f"disk cache {self.disk_cache}": self.disk_cache != "none",
            f"disk by {self.disk_driven}": self.disk_driven != "default",
            f"{self.disk_queues} disk queues": self.disk_queues is not None,
            "a thread for the disk": self.iothread,
        }
        words = [word for word, asked in chosen.items() if asked]
        if self.iothread_cpus is not None:
            words[-1] += f" on {cpus_in_words(self.iothread_cpus)}"
        return tuple(words)


class DiskOptions(AttachedDisk):
    """The same, and how QEMU reads and writes it."""

    disk_aio: Literal["default", "threads", "native", "io_uring"] = Field(
        default="default",
        description="How QEMU does the disk's I/O: `threads`, `native` (the kernel's asynchronous "
        "I/O; needs a cache mode that bypasses the host's page cache), `io_uring`, or `default` "
        "(QEMU's choice: threads).",
    )

    @model_validator(mode="after")
    def _driven_as_cached(self) -> Self:
        if self.disk_aio == "native" and self.disk_cache not in ("none", "directsync"):
            raise ValueError("`disk-aio: native` needs `disk-cache: none` or `directsync`")
        return self

    @property
    def disk_driven(self) -> str:
        """The requested kind of input and output, or ``default``."""
        return self.disk_aio
