"""What can be chosen about a Xen domain."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from tare.platforms.contract import TRIAL, PlatformOptions
from tare.platforms.scheduling import NOTHING, Scheduling
from tare.study.quantities import Duration, Share, format_duration, format_quantity

DEFAULT_WEIGHT = 256
"""What Xen gives every domain (xen/common/sched/credit.c, CSCHED_DEFAULT_WEIGHT)."""
MODEL_WEIGHT = 100
"""What :class:`Scheduling` calls the weight of others."""
MOST_WEIGHT = 65_535
LEAST_RATELIMIT_S = 100e-6
MOST_RATELIMIT_S = 0.5
"""XEN_SYSCTL_SCHED_RATELIMIT_MIN and _MAX (xen/include/public/sysctl.h)."""
DEFAULT_POOL = "Pool-0"
WITH_SLICE = "credit"
CREDIT_SCHEDULERS = ("credit", "credit2")
"""The schedulers that know weight, cap and rate limit."""


def within_xen(wanted: Scheduling) -> Scheduling:
    """Refuse what Xen's schedulers do not know, though those of other platforms may."""
    for name in ("policy", "nice", "reservation", "period"):
        if name in wanted.given:
            raise ValueError(f"Xen's schedulers know no {name}; remove it")
    if wanted.slice is not None:
        whole_milliseconds(wanted.slice)
    return wanted


def whole_milliseconds(seconds: float) -> int:
    """Return a time slice in milliseconds; raises ValueError for what Xen cannot set."""
    milliseconds = round(seconds * 1e3)
    if not 1 <= milliseconds <= 1000 or abs(milliseconds - seconds * 1e3) > 1e-6:
        raise ValueError("Xen's time slice is a whole number of milliseconds, 1 to 1000")
    return milliseconds


XenScheduling = Annotated[Scheduling, AfterValidator(within_xen)]


class XenOptions(PlatformOptions):
    """Options of the platform ``xen``."""

    type: Literal["pv", "pvh", "hvm"] = Field(
        default="pvh",
        description="`pv`: the guest's kernel calls Xen instead of using privileged instructions; "
        "`pvh`: hardware virtualization without emulated devices; `hvm`: a whole PC, its devices "
        "emulated by a QEMU in dom0.",
    )
    devices: Literal["paravirtual", "emulated"] = Field(
        default="paravirtual",
        description="Network and disk: Xen's own (`paravirtual`), or an e1000 and IDE (`emulated`, "
        "for `hvm` only).",
    )
    scheduler: Literal["credit", "credit2", "null", "rtds"] | None = Field(
        default=None,
        description="The scheduler that must run the domain's CPUs; whichever runs when left out. "
        "Xen chooses it at its boot (`sched=credit` on its command line), or by CPU pool.",
    )
    timeslice: Duration | None = Field(
        default=None,
        ge=1e-3,
        le=1,
        description="With `credit`: how long a vCPU runs before another has its turn; whole "
        "milliseconds, 30 by default. It holds for the whole pool while a machine runs.",
    )
    ratelimit: Duration | None = Field(
        default=None,
        ge=0,
        le=MOST_RATELIMIT_S,
        description="With `credit` and `credit2`: how long a vCPU runs at least before one that "
        "wakes may take its place; 0 for no limit, else 100 µs to 500 ms. Half the time slice "
        "where that is given and the limit is not below it.",
    )
    weight: int | None = Field(
        default=None,
        ge=1,
        le=MOST_WEIGHT,
        description="The subject's weight in Xen's own measure, in which others have 256.",
    )
    cap: Share | None = Field(
        default=None,
        gt=0,
        le=655,
        description="The most that the subject may run, in CPUs (`0.5`, or `50 %`).",
    )
    cpupool: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="The CPU pool that machines run in, which must exist; `Pool-0` when left out.",
    )
    dom0: Literal["pinned", "as-is"] = Field(
        default="pinned",
        description="Whether dom0's vCPUs are kept on the host's first CPU while machines run, so "
        "that its own work is not taken for a neighbour's.",
    )
    scheduling: XenScheduling = Field(
        default_factory=lambda: NOTHING,
        description="How Xen schedules the subject beside others: weight, cap, and slice (of the "
        "whole pool); see `scheduling` below.",
    )
    neighbour_scheduling: XenScheduling = Field(
        default_factory=lambda: NOTHING,
        description="The same for each neighbour of the subject.",
    )

    @property
    def wanted_devices(self) -> str:
        """The device models asked for."""
        return self.devices

    @property
    def subject_scheduling(self) -> Scheduling:
        """How the subject is scheduled."""
        return self.scheduling

    @property
    def neighbours_scheduling(self) -> Scheduling:
        """How each neighbour is scheduled."""
        return self.neighbour_scheduling

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.devices == "emulated" and self.type != "hvm":
            raise ValueError(f"a {self.type} guest has no emulated devices; use `type: hvm`")
        if self.timeslice is not None:
            whole_milliseconds(self.timeslice)
        if self.ratelimit is not None and 0 < self.ratelimit < LEAST_RATELIMIT_S:
            raise ValueError("the rate limit is 0, or at least 100 µs")
        for name, own in (("weight", self.weight), ("cap", self.cap)):
            if own is not None and name in self.scheduling.given:
                raise ValueError(f"{name} is given twice, here and in `scheduling`; remove one")
        slices = {self.timeslice, self.scheduling.slice, self.neighbour_scheduling.slice} - {None}
        if len(slices) > 1:
            raise ValueError("the time slice is one for the whole pool; give it once")
        if self.slice_ms is not None:
            if self.scheduler not in (None, "credit"):
                raise ValueError(
                    f"the scheduler {self.scheduler} has no time slice that can be set; "
                    "use `scheduler: credit`"
                )
            if self.ratelimit is not None and self.ratelimit > self.slice_ms * 1e-3:
                raise ValueError("the rate limit is longer than the time slice; lower it")
        if self.scheduler is not None and (lacking := self.lacks(self.scheduler)):
            raise ValueError(
                f"the scheduler {self.scheduler} has no {lacking}; use `scheduler: credit2`"
            )
        return self

    @model_serializer(mode="wrap")
    def _only_what_is_asked(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what stays as it is on the host, so that a report shows what was chosen."""
        values: dict[str, Any] = usual(self)
        for name in ("scheduling", "neighbour_scheduling"):
            asked = {key: value for key, value in values.pop(name).items() if value is not None}
            if asked:
                values[name] = asked
        return {name: value for name, value in values.items() if value is not None}

    def lacks(self, scheduler: str) -> str:
        """Return the first thing asked for that a scheduler does not know; empty if none.

        Source: xen/include/public/domctl.h, struct xen_domctl_scheduler_op: rtds has period and
        budget, null has nothing.
        """
        if scheduler in CREDIT_SCHEDULERS:
            return ""
        both = (self.scheduling, self.neighbour_scheduling)
        asked = {
            "rate limit": self.ratelimit is not None,
            "weight": self.weight is not None or any(one.weight is not None for one in both),
            "cap": self.cap is not None or any(one.cap is not None for one in both),
        }
        return next((what for what, given in asked.items() if given), "")

    @property
    def pool(self) -> str:
        """The CPU pool that machines run in."""
        return self.cpupool or DEFAULT_POOL

    @property
    def slice_ms(self) -> int | None:
        """The time slice asked for, in milliseconds."""
        for given in (self.timeslice, self.scheduling.slice, self.neighbour_scheduling.slice):
            if given is not None:
                return whole_milliseconds(given)
        return None

    @property
    def ratelimit_us(self) -> int | None:
        """The rate limit asked for, in microseconds."""
        return None if self.ratelimit is None else round(self.ratelimit * 1e6)

    def weight_of(self, role: str) -> int | None:
        """Return a machine's weight in Xen's measure; None leaves it to Xen."""
        if role == TRIAL:
            return None
        if role == "subject" and self.weight is not None:
            return self.weight
        wanted = self._scheduling_of(role).weight
        if wanted is None:
            return None
        return min(MOST_WEIGHT, max(1, round(wanted * DEFAULT_WEIGHT / MODEL_WEIGHT)))

    def cap_of(self, role: str) -> int | None:
        """Return a machine's cap in percent of a CPU; None for none."""
        if role == TRIAL:
            return None
        own = self.cap if role == "subject" else None
        wanted = self._scheduling_of(role).cap if own is None else own
        return None if wanted is None else max(1, round(wanted * 100))

    def _scheduling_of(self, role: str) -> Scheduling:
        return self.scheduling if role == "subject" else self.neighbour_scheduling

    def words(self) -> str:
        """Return it as a short phrase, such as ``Xen PV, credit, slice 1 ms``."""
        parts = [f"Xen {self.type.upper()}"]
        if self.type == "hvm":
            parts.append(f"{self.devices} devices")
        if self.scheduler is not None:
            parts.append(self.scheduler)
        if self.slice_ms is not None:
            parts.append(f"slice {self.slice_ms} ms")
        if self.ratelimit is not None:
            parts.append(f"rate limit {format_duration(self.ratelimit)}")
        for role, prefix in (("subject", ""), ("neighbour", "neighbours ")):
            if (weight := self.weight_of(role)) is not None:
                parts.append(f"{prefix}weight {weight} of {DEFAULT_WEIGHT}")
            if (cap := self.cap_of(role)) is not None:
                parts.append(f"{prefix}cap {format_quantity(cap / 100, 'CPUs')}")
        if self.cpupool is not None:
            parts.append(f"pool {self.cpupool}")
        if self.dom0 == "as-is":
            parts.append("dom0 unpinned")
        return ", ".join(parts)
