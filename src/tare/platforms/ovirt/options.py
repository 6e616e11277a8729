"""Options of virtual machines of oVirt and Red Hat Virtualization."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from tare.platforms.scheduled_options import ScheduledOptions, refused, subject_scheduling
from tare.platforms.scheduling import Scheduling
from tare.platforms.vendors.options import VendorOptions, image_faults

KNOBS = frozenset({"weight", "cap"})
MOST_PERCENT = 100
UNKNOWN = ("policy", "nice", "reservation", "slice", "period")
DEFAULT_SHARES, MODEL_WEIGHT, MOST_SHARES = 1024, 100, 262_144
"""The engine's medium CPU shares, the normal weight, and the kernel's largest shares.

Sources: the engine's administration guide, "CPU Shares"; :class:`Scheduling`; cpu.shares in
cgroups(7).
"""


class OvirtOptions(VendorOptions, ScheduledOptions):
    """Options of the platform ``ovirt``; `address` is that of the engine."""

    cluster: str | None = Field(
        None, min_length=1, description="The cluster, by name. Default: the only one."
    )
    image: str | None = Field(
        None,
        min_length=1,
        description="The image that VMs boot, by name or ID of its disk. An ISO image in a storage "
        "domain is attached as a CD; any other disk is copied for each VM.",
    )
    storage: str | None = Field(
        None,
        min_length=1,
        description="The storage domain for VMs' disks, by name: for the copy of an `image` that "
        "is not a CD, and for the disk of the shape. Default: the image's.",
    )
    vnic_profile: str | None = Field(
        None,
        min_length=1,
        description="The vNIC profile of the network that agents dial back over, by name or ID. "
        "Default: `ovirtmgmt`.",
    )
    isolated_profile: str | None = Field(
        None,
        min_length=1,
        description="The vNIC profile, by name or ID, of a network that you keep for Tare, instead "
        "of an isolated network that Tare creates at the engine's OVN provider.",
    )
    on_host: str | None = Field(
        None,
        min_length=1,
        description="The host that VMs run on, by name. VMs are pinned to it and never migrated. "
        "Default: the cluster's only one.",
    )
    devices: Literal["paravirtual", "emulated"] = Field(
        "paravirtual",
        description="`paravirtual`: virtio; `emulated`: the `nic` below, and SATA (q35) or IDE "
        "(i440fx) for disks.",
    )
    nic: Literal["e1000", "e1000e", "rtl8139"] = Field(
        "e1000", description="The emulated network card."
    )
    chipset: Literal["q35", "i440fx"] = Field("q35", description="The emulated chipset.")
    firmware: Literal["bios", "uefi"] = Field("bios", description="The VM's firmware.")
    cpu_profile: str | None = Field(
        None,
        min_length=1,
        description="A CPU profile of the cluster, by name. Its quality of service may limit the "
        "CPU time of the subject and of its neighbours alike.",
    )
    scheduling: Scheduling = subject_scheduling(
        "How the subject is scheduled next to others: weight (100 is 1024 CPU shares) and cap (by "
        "a CPU profile that Tare creates, in whole percent of all CPUs of the host); see "
        "`scheduling` below."
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse scheduling settings that the engine does not support."""
        return refused(wanted, UNKNOWN, "oVirt")

    @model_validator(mode="after")
    def _firmware_of_the_chipset(self) -> OvirtOptions:
        if self.firmware == "uefi" and self.chipset != "q35":
            raise ValueError("oVirt supports UEFI only on q35: write `chipset: q35`")
        return self

    @model_validator(mode="after")
    def _check_profile(self) -> OvirtOptions:
        if self.cpu_profile is not None and self.caps:
            raise ValueError(
                "a VM has one CPU profile, and `scheduling: {cap}` makes one: give it or "
                "`cpu-profile`"
            )
        return self

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Report missing options, and those that cannot be used."""
        return (*super().faults(look), *image_faults(self.image, "`image: tare-live.iso`"))

    @property
    def wanted_devices(self) -> str:
        """The device models that the arm requests."""
        return self.devices

    @property
    def caps(self) -> bool:
        """Whether any machine of the arm is capped."""
        return "cap" in {**self.scheduling.given, **self.neighbour_scheduling.given}

    def cpu_limit(self, role: str, cpus: int) -> int | None:
        """Return the cap of a role's machine in percent of a host's CPUs; None: it has no cap.

        Args:
            role: The machine's role.
            cpus: The number of CPUs of the host.
        """
        cap = self.scheduling_of(role).cap
        # 100 percent means no limit.
        return None if cap is None else min(MOST_PERCENT, max(1, round(100 * cap / cpus)))

    def cpu_shares(self, role: str) -> int | None:
        """Return the CPU shares of a role's machine; None: the engine's default."""
        wanted = self.scheduling_of(role)
        if wanted.weight is None:
            return None
        own = round(wanted.weight * DEFAULT_SHARES / MODEL_WEIGHT)
        # The kernel accepts no fewer than two.
        return min(MOST_SHARES, max(2, own))
