"""Options of vSphere virtual machines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tare.platforms.scheduled_options import ScheduledOptions, refused, subject_scheduling
from tare.platforms.scheduling import Scheduling
from tare.platforms.vendors.options import VendorOptions, network_faults

Devices = Literal["paravirtual", "emulated"]
LEAST_SHARES, MOST_SHARES = 1, 1_000_000
"""The limits of CPU shares ("SharesInfo", vSphere Web Services API)."""
STEAL_CLOCK_VERSION = 13
"""The first hardware version whose guests can see stolen time (Linux commit ab02bb3f55f5)."""
E1000E_VERSION = 8
"""The first hardware version that offers an E1000E ("Network Adapter Types", vSphere)."""
_ON_DATASTORE = re.compile(r"^\[[^\[\]]+\] \S.*\.(iso|vmdk)$")


@dataclass(frozen=True)
class CpuAllocation:
    """A VM's allocation of the host's CPUs (``ResourceAllocationInfo``); None: vSphere's default.

    Args:
        reservation: The CPU time reserved for the VM, in MHz.
        limit: The highest CPU use that is allowed, in MHz.
        shares: Its weight relative to other VMs.
    """

    reservation: int | None = None
    limit: int | None = None
    shares: int | None = None


def _check_datastore_path(text: str) -> str:
    if not _ON_DATASTORE.match(text):
        raise ValueError("must be a file of a datastore, such as `[datastore1] iso/tare.iso`")
    return text


KNOBS = frozenset({"weight", "cap", "reservation"})
UNKNOWN = ("policy", "nice", "slice", "period")
MODEL_WEIGHT, SHARES_OF_VCPU = 100, 1000
"""The model's normal weight, and vSphere's shares for each vCPU of a VM at level normal."""


class VsphereOptions(VendorOptions, ScheduledOptions):
    """Options of the platform ``vsphere``."""

    instead: ClassVar[Mapping[str, str]] = {
        **VendorOptions.instead,
        "template": "VMs are created from scratch: name what they boot by `boot`",
        **dict.fromkeys(("iso", "image"), "write `boot`, as `[DATASTORE] PATH`"),
    }

    datastore: str = Field(
        min_length=1,
        description="The datastore for virtual machines.",
    )
    boot: Annotated[str, AfterValidator(_check_datastore_path)] | None = Field(
        default=None,
        description="The image that virtual machines boot, as `[DATASTORE] PATH`: an ISO image, or "
        "a disk (`.vmdk`) that is copied. Its Linux must start `tare-agent dial` by itself.",
    )
    host: str | None = Field(
        default=None,
        min_length=1,
        description="The ESXi host, by its name in the inventory; required if there are several.",
    )
    pool: str | None = Field(
        default=None,
        min_length=1,
        description="The resource pool, by name. Default: the host's root pool.",
    )
    folder: str | None = Field(
        default=None,
        min_length=1,
        description="The folder for virtual machines, by name. Default: the datacenter's VM "
        "folder.",
    )
    network: str | None = Field(
        default=None,
        min_length=1,
        description="The port group over which guests reach `callback`; required if there are "
        "several.",
    )
    isolated_network: str | None = Field(
        default=None,
        min_length=1,
        description="An existing port group without an uplink, such as one of a distributed "
        "switch, for workloads that need a network. Default: Tare creates a standard switch "
        "without an uplink, and removes it.",
    )
    devices: Devices = Field(
        default="paravirtual",
        description="`paravirtual`: VMXNET3 and PVSCSI; `emulated`: the `nic` below and LSI Logic.",
    )
    nic: Literal["e1000", "e1000e"] = Field(
        default="e1000",
        description="The emulated network card: an 82545EM (E1000), or an 82574L (E1000E; hardware "
        "version 8 or later).",
    )
    processors: tuple[Annotated[int, Field(ge=0, le=4095)], ...] = Field(
        default=(),
        description="The ESXi host's logical processors that machines run on, by affinity. "
        "Default: all. Not available in a cluster with DRS, which does not support affinity.",
    )
    scheduling: Scheduling = subject_scheduling(
        "How ESXi schedules the subject next to others: weight (shares; 100 is 1000 for each "
        "vCPU), cap (limit) and reservation, in CPUs of the host's clock rate; see `scheduling` "
        "below."
    )
    reservation: int | None = Field(
        default=None,
        ge=0,
        description="CPU reservation of the subject and of each neighbour, in MHz.",
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        description="CPU limit of the subject and of each neighbour, in MHz.",
    )
    shares: int | None = Field(
        default=None,
        ge=LEAST_SHARES,
        le=MOST_SHARES,
        description="CPU shares of the subject and of each neighbour; 1000 for each vCPU is "
        "normal.",
    )
    reserve_memory: bool = Field(
        default=True,
        description="Reserve all of the machine's memory, so that it is neither ballooned nor "
        "swapped.",
    )
    latency_sensitivity: Literal["low", "normal", "medium", "high"] = Field(
        default="normal",
        description="`high` gives each vCPU a physical core; it needs full reservations, of CPU by "
        "`reservation` and of memory.",
    )
    hardware: int | None = Field(
        default=None,
        ge=4,
        le=99,
        description="The version of its virtual hardware. Default: the newest that the host "
        "supports.",
    )
    steal_clock: bool = Field(
        default=True,
        description=f"Let the guest see stolen time (hardware version {STEAL_CLOCK_VERSION} or "
        "later).",
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse scheduling settings that ESXi does not support."""
        return refused(wanted, UNKNOWN, "ESXi")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        asked = {**self.scheduling.given, **self.neighbour_scheduling.given}
        if self.nic == "e1000e" and self.hardware is not None and self.hardware < E1000E_VERSION:
            raise ValueError(
                f"`nic: e1000e` needs hardware version {E1000E_VERSION}: write `hardware: "
                f"{E1000E_VERSION}`"
            )
        both = {
            ("reservation", "reservation"): self.reservation,
            ("limit", "cap"): self.limit,
            ("shares", "weight"): self.shares,
        }
        for (own, name), value in both.items():
            if value is not None and name in asked:
                raise ValueError(f"`{own}` and `scheduling: {{{name}}}` are the same; give one")
        if None not in (self.reservation, self.limit) and self.reservation > self.limit:  # type: ignore[operator]
            raise ValueError("`reservation` is more than `limit`")
        reserved = self.reservation or self.scheduling.reservation
        if self.latency_sensitivity == "high" and not (reserved and self.reserve_memory):
            raise ValueError(
                "`latency-sensitivity: high` needs `reservation` (all of the vCPUs' MHz) and "
                "`reserve-memory: true`"
            )
        return self

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Report missing options, and those that cannot be used."""
        return (*super().faults(look), *network_faults(self.network))

    @property
    def wanted_devices(self) -> str:
        """The device models that the arm requests."""
        return self.devices

    def allocation(self, role: str, vcpus: int, mhz: int) -> CpuAllocation:
        """Return the CPU allocation of a role's machine.

        Args:
            role: The machine's role.
            vcpus: Its number of vCPUs.
            mhz: The clock rate of the host's CPUs in MHz: vSphere measures CPU time in MHz.
        """
        wanted = self.scheduling_of(role)
        shares = None
        if wanted.weight is not None:
            own = round(wanted.weight * SHARES_OF_VCPU * vcpus / MODEL_WEIGHT)
            shares = min(MOST_SHARES, max(LEAST_SHARES, own))
        return CpuAllocation(
            self.reservation if wanted.reservation is None else round(wanted.reservation * mhz),
            self.limit if wanted.cap is None else max(1, round(wanted.cap * mhz)),
            self.shares if shares is None else shares,
        )

    def words(self) -> tuple[str, ...]:
        """Return the words that reports add to an arm's description."""
        parts = {
            self.scheduling.words(): bool(self.scheduling.words()),
            f"{self.reservation} MHz reserved": self.reservation is not None,
            f"at most {self.limit} MHz": self.limit is not None,
            f"shares {self.shares}": self.shares is not None,
            "E1000E": self.devices == "emulated" and self.nic == "e1000e",
            "memory not reserved": not self.reserve_memory,
            f"latency sensitivity {self.latency_sensitivity}": self.latency_sensitivity != "normal",
            f"virtual hardware {self.hardware}": self.hardware is not None,
        }
        return tuple(word for word, asked in parts.items() if asked)
