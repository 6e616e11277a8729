"""Options of virtual machines of XenServer and XCP-ng."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from tare.platforms.scheduled_options import ScheduledOptions, refused, subject_scheduling
from tare.platforms.scheduling import Scheduling
from tare.platforms.vendors.options import VendorOptions, image_faults, network_faults

KNOBS = frozenset({"weight", "cap"})
UNKNOWN = ("policy", "nice", "reservation", "slice", "period")
DEFAULT_WEIGHT, MODEL_WEIGHT, MOST_WEIGHT = 256, 100, 65_535
"""XenAPI's default weight (xapi_xenops.ml), :class:`Scheduling`'s normal one, Xen's maximum."""


class XenserverOptions(VendorOptions, ScheduledOptions):
    """Options of the platform ``xenserver``; `address` is that of the pool's coordinator."""

    sr: str | None = Field(
        None,
        min_length=1,
        description="The storage repository of each VM's disks, by name or UUID: its small "
        "configuration and the disk of the shape. Nothing else there is changed. Default: the "
        "pool's default repository.",
    )
    image: str | None = Field(
        None,
        min_length=1,
        description="The image that VMs boot, by name or UUID of its VDI. A live image in an ISO "
        "repository is attached as a CD; any other is copied to `sr` for each VM.",
    )
    network: str | None = Field(
        None,
        min_length=1,
        description="The network that agents dial back over, by name or UUID.",
    )
    on_host: str | None = Field(
        None,
        min_length=1,
        description="The pool's host that VMs run on, by name or UUID. Default: the only one.",
    )
    devices: Literal["paravirtual", "emulated"] = Field(
        "paravirtual",
        description="`paravirtual`: netfront and blkfront. `emulated`: the `nic` below and IDE. "
        "Every VM has both, and the guest's kernel chooses: emulated devices need an `image` whose "
        "kernel has `xen_emul_unplug=never nopv`. The agent's proof must show the requested "
        "devices.",
    )
    nic: Literal["rtl8139", "e1000"] = Field(
        "rtl8139", description="The emulated network card (`platform:nic_type`)."
    )
    firmware: Literal["bios", "uefi"] = Field("bios", description="The VM's firmware.")
    scheduling: Scheduling = subject_scheduling(
        "How Xen schedules the subject next to others: weight (100 is Xen's default of 256) and "
        "cap; see `scheduling` below."
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse scheduling settings that XenAPI does not support."""
        return refused(wanted, UNKNOWN, "XenAPI")

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Report missing options, and those that cannot be used."""
        image = image_faults(self.image, "`image: tare-live.iso`")
        return (*super().faults(look), *network_faults(self.network), *image)

    @property
    def wanted_devices(self) -> str:
        """The device models that the arm requests."""
        return self.devices

    def vcpus_params(self, role: str, vcpus: int, cpus: tuple[int, ...]) -> dict[str, str]:
        """Return ``VCPUs_params``: a mask for each vCPU, weight, and cap in percent of a CPU.

        XenAPI ignores a mask that it cannot parse (xapi_xenops.ml), so Tare reads the mask back.
        """
        wanted, params = self.scheduling_of(role), {}
        if cpus:
            params["mask"] = ";".join(str(cpus[number % len(cpus)]) for number in range(vcpus))
        if wanted.weight is not None:
            own = round(wanted.weight * DEFAULT_WEIGHT / MODEL_WEIGHT)
            params["weight"] = str(min(MOST_WEIGHT, max(1, own)))
        if wanted.cap is not None:
            params["cap"] = str(max(1, round(wanted.cap * 100)))
        return params
