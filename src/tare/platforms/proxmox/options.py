"""Options of Proxmox VE virtual machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tare.platforms.scheduled_options import ScheduledOptions, refused, subject_scheduling
from tare.platforms.scheduling import Scheduling
from tare.platforms.vendors.options import VendorOptions, image_faults
from tare.study.model.forms import NAME, WORD, Form

MOST_CAP = 128
"""The largest number of CPUs that ``cpulimit`` accepts (PVE/QemuServer.pm)."""
KNOBS = frozenset({"weight", "cap"})
UNKNOWN = ("policy", "nice", "reservation", "slice", "period")
Name = Annotated[str, NAME]
_IMAGE = Form(
    r"^[A-Za-z][A-Za-z0-9._-]*:[^,\s]+$",
    "`STORAGE:VOLUME`, as Proxmox names it, such as `local:iso/tare-live.iso`",
)


class ProxmoxOptions(VendorOptions, ScheduledOptions):
    """Options of the platform ``proxmox``."""

    node: Name | None = Field(None, description="The node that VMs run on. Default: the only one.")
    storage: Name = Field(
        "local",
        description="A storage with the content `iso`. Each VM's small configuration CD is "
        "uploaded there and removed with the VM; nothing else there is changed.",
    )
    image: Annotated[str, _IMAGE] | None = Field(
        None,
        min_length=1,
        description="The image that VMs boot, by Proxmox's name (`local:iso/tare-live.iso`, or "
        "with `disks`, `local:import/tare-live.raw`): a live image, whose agent reads the "
        "configuration.",
    )
    disks: Name | None = Field(
        None,
        description="The storage of each VM's disks: the copy of an `image` that is a disk, and "
        "the disk of the shape. Not needed for an ISO alone.",
    )
    pool: Name | None = Field(None, description="The resource pool that VMs are put in.")
    bridge: Name = Field(
        "vmbr0",
        description="The bridge that agents dial back over.",
    )
    devices: Literal["paravirtual", "emulated"] = Field(
        "paravirtual",
        description="`paravirtual`: virtio network and virtio-scsi; `emulated`: the `nic` and "
        "`bus` below.",
    )
    nic: Literal["e1000", "e1000e", "rtl8139", "vmxnet3"] = Field(
        "e1000", description="With emulated devices: the network card."
    )
    bus: Literal["ide", "sata"] = Field(
        "ide", description="With emulated devices: the bus of the drives."
    )
    machine: Literal["q35", "pc"] = Field(
        "q35", description="The mainboard: PCI Express (`q35`) or the older PCI (`pc`)."
    )
    cpu: Annotated[str, WORD] = Field(
        "host",
        description="The processor model, by Proxmox's name.",
    )
    kvm: bool = Field(
        True, description="Run the VM with KVM; otherwise QEMU emulates the processor."
    )
    scheduling: Scheduling = subject_scheduling(
        "How the node schedules the subject next to others: weight (`cpuunits`, 100 for others) "
        "and cap (`cpulimit`); see `scheduling` below."
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse scheduling settings that Proxmox does not support."""
        if wanted.cap is not None and wanted.cap > MOST_CAP:
            raise ValueError(f"Proxmox's `cpulimit` is at most {MOST_CAP} CPUs")
        return refused(wanted, UNKNOWN, "Proxmox")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.is_disk and self.disks is None:
            raise ValueError(
                "an `image` that is not an ISO is copied: name the storage for the copy by `disks`"
            )
        if self.cpu == "host" and not self.kvm:
            raise ValueError("`cpu: host` needs KVM: name a model, such as `max`")
        return self

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Report missing options, and those that cannot be used."""
        return (
            *super().faults(look),
            *image_faults(self.image, "`image: 'local:iso/tare-live.iso'`"),
        )

    @property
    def is_disk(self) -> bool:
        """Whether VMs boot a disk, which is copied for each VM."""
        return self.image is not None and ":iso/" not in self.image

    @property
    def wanted_devices(self) -> str:
        """The device models that the arm requests."""
        return self.devices
