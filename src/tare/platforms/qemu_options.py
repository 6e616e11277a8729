"""What can be chosen about a QEMU machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tare.platforms.linux_scheduling import LinuxOptions


class QemuOptions(LinuxOptions):
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
    machine: Literal["q35", "pc"] = Field(
        default="q35",
        description="The emulated mainboard: PCI Express (`q35`) or the older PCI (`pc`).",
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
    hugepages: bool = Field(
        default=False, description="Back the guest's memory by reserved huge pages of the host."
    )

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
            return frozenset({"virtio"})
        return frozenset({"e1000", "ahci" if self.machine == "q35" else "ide"})
