"""Options of Hyper-V virtual machines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tare.platforms.scheduled_options import ScheduledOptions, refused, subject_scheduling
from tare.platforms.scheduling import Scheduling
from tare.platforms.vendors.options import VendorOptions, image_faults

KNOBS = frozenset({"weight", "cap", "reservation"})
UNKNOWN = ("policy", "nice", "slice", "period")
AUTO = "auto"
"""The value of `cpu-groups` that uses CPU groups where they are available."""
DEFAULT_WEIGHT, ALL = 100, 100
"""The default weight of a VM, and the percentage that means all of its processors.

Set-VMProcessor accepts weights of 1 to 10000, and 0 to 100 for ``-Reserve`` and ``-Maximum``.
"""
_LOCAL = re.compile(r"^[A-Za-z]:\\[^\x00-\x1f<>:\"/|?*]+$")


def _is_local(text: str) -> str:
    if text.startswith("\\\\"):
        raise ValueError(
            "must be on a disk of the host, such as `D:\\tare`: a remote session may not use "
            "another computer's shares (the double hop)"
        )
    if not _LOCAL.match(text):
        raise ValueError("must be a path on the host, such as `D:\\tare`")
    return text.rstrip("\\")


def _is_image(text: str) -> str:
    if not _is_local(text).lower().endswith((".iso", ".vhd", ".vhdx")):
        raise ValueError("must be an `.iso`, `.vhd` or `.vhdx` on the host")
    return text


class HypervOptions(VendorOptions, ScheduledOptions):
    """Options of the platform ``hyperv``; `address` is that of a host with WinRM over HTTPS."""

    authentication: Literal["negotiate", "kerberos", "ntlm", "basic"] = Field(
        "negotiate",
        description="How the account logs in: `negotiate` uses Kerberos if possible, else NTLM; "
        "`basic` is only for local accounts, and off by default on Windows.",
    )
    folder: Annotated[str, AfterValidator(_is_local)] | None = Field(
        None,
        min_length=1,
        description="The host's folder in which each VM gets a folder with all of its files. The "
        "account must be able to write there. Default: the host's folder for VMs.",
    )
    image: Annotated[str, AfterValidator(_is_image)] | None = Field(
        None,
        min_length=1,
        description="The file of the host that VMs boot: an `.iso` is put into a DVD drive; a "
        "`.vhdx` (in generation 1 also a `.vhd`) is copied for each VM.",
    )
    switch: str | None = Field(
        None,
        min_length=1,
        description="The name of the virtual switch that agents dial back over. Default: the only "
        "one.",
    )
    generation: Literal[1, 2] = Field(
        1,
        description="`1`: BIOS, PCI and IDE, in addition to synthetic devices; `2`: UEFI, and "
        "synthetic devices only.",
    )
    devices: Literal["paravirtual", "emulated"] = Field(
        "paravirtual",
        description="`paravirtual`: the synthetic network card, and SCSI for the machine's own "
        "disk. `emulated` (generation 1): the legacy network card and IDE. Generation 1 boots from "
        "IDE in either case. Linux uses `hv_storvsc` for IDE disks if it can, so an emulated disk "
        "needs an `image` made by `tare image live --append ata_piix.prefer_ms_hyperv=0 --append "
        "module_blacklist=hv_storvsc`. The agent's proof must show the requested drivers.",
    )
    secure_boot: bool = Field(
        False,
        description="Generation 2: boot only images that Microsoft's UEFI certificate authority "
        "signed.",
    )
    cpu_groups: bool | Literal["auto"] = Field(
        False,
        description="Confine each VM to its CPUs of the host, by a CPU group that Tare creates "
        "through the Host Compute Service (Windows Server 2019, Windows 10 1809 or newer). Without "
        "it, nothing is pinned. Each vCPU may use all CPUs of its VM's group. `auto`: confine the "
        "VMs of pinned scenarios if the host and the account allow it.",
    )
    scheduling: Scheduling = subject_scheduling(
        "How Hyper-V schedules the subject next to others: weight (100 is the default), cap and "
        "reservation, in whole percent of the VM's processors; see `scheduling` below."
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse scheduling settings that Hyper-V does not support."""
        return refused(wanted, UNKNOWN, "Hyper-V")

    @model_validator(mode="after")
    def _check_generation(self) -> Self:
        if self.generation == 1 and self.secure_boot:
            raise ValueError("only generation 2 has Secure Boot: write `generation: 2`")
        if self.generation == 2 and self.devices == "emulated":
            raise ValueError(
                "generation 2 has no legacy network card and no IDE: write `generation: 1`"
            )
        if self.generation == 2 and self.image is not None and self.image.lower().endswith(".vhd"):
            raise ValueError("generation 2 boots no .vhd: convert it to a .vhdx (Convert-VHD)")
        return self

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Report missing options, and those that cannot be used."""
        return (
            *super().faults(look),
            *image_faults(self.image, "`image: 'D:\\tare\\tare-live.iso'`"),
        )

    @property
    def wanted_devices(self) -> str:
        """The device models that the arm requests."""
        return self.devices

    def connection(self) -> dict[str, Any]:
        """Return how to reach the host, without secrets, for sessions and for the ledger."""
        return {**super().connection(), "authentication": self.authentication}

    def processor(self, role: str, vcpus: int) -> dict[str, int]:
        """Return the parameters of ``Set-VMProcessor`` for a role's machine.

        Args:
            role: The machine's role.
            vcpus: Its number of vCPUs: cap and reservation are percentages of all of them.
        """
        wanted = self.scheduling_of(role)
        return {
            "Count": vcpus,
            "RelativeWeight": DEFAULT_WEIGHT if wanted.weight is None else wanted.weight,
            "Maximum": ALL if wanted.cap is None else _percent(wanted.cap, vcpus),
            "Reserve": 0 if wanted.reservation is None else _percent(wanted.reservation, vcpus),
        }


def _percent(cpus: float, vcpus: int) -> int:
    """Convert a number of CPUs to a whole percentage of a VM's vCPUs, at least 1."""
    return min(ALL, max(1, round(100 * cpus / vcpus)))
