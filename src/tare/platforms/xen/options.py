"""Options of a Xen domain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tare.platforms.contract import SUBJECT, TRIAL
from tare.platforms.linux.switch_options import SwitchedOptions
from tare.platforms.linux.thread_cpus import listed_cpus
from tare.platforms.scheduled_options import ScheduledOptions, refused, subject_scheduling
from tare.platforms.scheduling import Scheduling
from tare.platforms.xen import rtds
from tare.platforms.xen.rtds import Rtds
from tare.study.reading.former_options import XEN
from tare.units import Duration, format_duration, format_percent, format_quantity

DEFAULT_WEIGHT = 256
"""Xen's default weight of a domain (xen/common/sched/credit.c, CSCHED_DEFAULT_WEIGHT)."""
MODEL_WEIGHT = 100
"""The default weight in the units of :class:`Scheduling`."""
MOST_WEIGHT = 65_535
MOST_CAP = 655
"""The greatest cap in CPUs; Xen stores a percentage in 16 bits (xen/include/public/domctl.h)."""
LEAST_RATELIMIT_S = 100e-6
MOST_RATELIMIT_S = 0.5
"""XEN_SYSCTL_SCHED_RATELIMIT_MIN and _MAX (xen/include/public/sysctl.h)."""
DEFAULT_POOL = "Pool-0"
WITH_SLICE = "credit"
CREDIT_SCHEDULERS = ("credit", "credit2")
"""The schedulers that support weight, cap and rate limit."""


def whole_milliseconds(seconds: float) -> int:
    """Convert a time slice to milliseconds; raises ValueError if Xen cannot set it."""
    milliseconds = round(seconds * 1e3)
    if not 1 <= milliseconds <= 1000 or abs(milliseconds - seconds * 1e3) > 1e-6:
        raise ValueError("Xen's time slice is a whole number of milliseconds, 1 to 1000")
    return milliseconds


class XenOptions(SwitchedOptions, ScheduledOptions):
    """Options of the platform ``xen``."""

    instead: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            name: f"write it within `scheduling: {{{XEN.get(name, name)}: …}}`"
            for name in (*XEN, "slice", "reservation")
        }
    )

    type: Literal["pv", "pvh", "hvm"] = Field(
        default="pvh",
        description="`pv`: the guest's kernel calls Xen instead of using privileged instructions; "
        "`pvh`: hardware virtualization without emulated devices; `hvm`: a whole PC, its devices "
        "emulated by a QEMU in dom0.",
    )
    devices: Literal["paravirtual", "emulated"] = Field(
        default="paravirtual",
        description="Network and disk: Xen's own (`paravirtual`), or an e1000 and IDE (`emulated`; "
        "`hvm` only).",
    )
    nic: Literal["auto", "netfront", "e1000", "rtl8139"] = Field(
        default="auto",
        description="The network card: Xen's own (`netfront`), or one that a QEMU in dom0 emulates "
        "(`hvm` only). `auto`: netfront or e1000, according to `devices`.",
    )
    scheduler: Literal["credit", "credit2", "null", "rtds"] | None = Field(
        default=None,
        description="The scheduler that the domain's CPUs must have. Default: any. Xen chooses it "
        "at boot (`sched=credit` on its command line) or by CPU pool.",
    )
    ratelimit: Duration | None = Field(
        default=None,
        ge=0,
        le=MOST_RATELIMIT_S,
        description="With `credit` and `credit2`: minimum time that a vCPU runs before one that "
        "wakes up may preempt it; 0 for no limit, or 100 µs to 500 ms. Default: unchanged, or half "
        "the slice of `scheduling` if the limit is not below that slice.",
    )
    extra_time: bool | None = Field(
        default=None,
        description="With `rtds`: let the subject run beyond its reservation while no other vCPU "
        "wants the CPU. Default: as in Xen, which allows it.",
    )
    cpupool: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="The CPU pool that machines run in, which must exist. Default: `Pool-0`.",
    )
    nohz_full: bool = Field(
        default=False,
        description="Stop the guest kernel's tick on all vCPUs except the first while one thread "
        "runs there (`nohz_full`), and do the work on those. Needs two vCPUs and a kernel built "
        "with support for it.",
    )
    dom0: Literal["pinned", "as-is"] = Field(
        default="pinned",
        description="`pinned`: keep dom0's vCPUs on the host's first CPU while machines run, so "
        "that dom0's own work does not look like a neighbour's.",
    )
    dom0_cpus: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(),
        description="The host's CPUs that dom0's vCPUs are pinned to while machines run, such as "
        "`[0, 1]`. Default: the first CPU.",
    )
    dom0_vcpus: int | None = Field(
        default=None,
        ge=1,
        le=128,
        description="Number of dom0's vCPUs while machines run, at most the number that it got at "
        "boot (`dom0_max_vcpus`). Default: unchanged.",
    )
    dom0_weight: int | None = Field(
        default=None,
        ge=1,
        le=MOST_WEIGHT,
        description="With `credit` and `credit2`: dom0's weight while machines run, in Xen's "
        "units, in which others have 256.",
    )
    scheduling: Scheduling = subject_scheduling(
        "How Xen schedules the subject next to others: `weight`, `cap`, and `slice` (in whole "
        "milliseconds, for the whole pool while a machine runs; Xen's default is 30 ms). Under "
        "`rtds`: `reservation` and `period`. See `scheduling` below."
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse settings and values that Xen's schedulers do not support."""
        if wanted.period is not None and wanted.reservation is None:
            raise ValueError("Xen's schedulers do not support a period for a cap; remove it")
        if wanted.slice is not None:
            whole_milliseconds(wanted.slice)
        if wanted.cap is not None and wanted.cap > MOST_CAP:
            raise ValueError(f"Xen's cap is at most {MOST_CAP} CPUs")
        return refused(wanted, ("policy", "nice"), "Xen's schedulers")

    @property
    def host_cpus(self) -> Mapping[str, tuple[int, ...]]:
        """Host CPUs that options list by number, by the name of the option."""
        return listed_cpus(dom0_cpus=self.dom0_cpus)

    @property
    def wanted_devices(self) -> str:
        """The requested device models."""
        return self.devices

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.devices == "emulated" and self.type != "hvm":
            raise ValueError(f"a {self.type} guest has no emulated devices; use `type: hvm`")
        if self.card != "netfront" and self.type != "hvm":
            raise ValueError(f"a {self.type} guest has no {self.card}; use `type: hvm`")
        if self.dom0_cpus and self.dom0 == "as-is":
            raise ValueError("dom0-cpus says where dom0 is kept; remove it or `dom0: as-is`")
        if self.ratelimit is not None and 0 < self.ratelimit < LEAST_RATELIMIT_S:
            raise ValueError("the rate limit is 0, or at least 100 µs")
        if self.grants and self.scheduler not in (None, rtds.SCHEDULER):
            raise ValueError(
                f"the scheduler {self.scheduler} has no reservation; use `scheduler: rtds`"
            )
        slices = {self.scheduling.slice, self.neighbour_scheduling.slice} - {None}
        if len(slices) > 1:
            raise ValueError("the slice is one for the whole pool; give it once")
        if self.slice_ms is not None:
            if self.scheduler not in (None, "credit") or self.grants:
                other = self.scheduler or rtds.SCHEDULER
                raise ValueError(
                    f"the scheduler {other} has no slice that can be set; use `scheduler: credit`"
                )
            if self.ratelimit is not None and self.ratelimit > self.slice_ms * 1e-3:
                raise ValueError("the rate limit is longer than the slice; lower it")
        must = self.wanted_scheduler
        if must is not None and (lacking := self.lacks(must)):
            raise ValueError(f"the scheduler {must} has no {lacking}; use `scheduler: credit2`")
        return self

    @model_serializer(mode="wrap")
    def _omit_unset(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out settings that keep the host's default, and settings that are not given."""
        values = super()._omit_unset(usual)
        usually = {
            "nic": "auto",
            "switch": "bridge",
            "conntrack": False,
            "dom0_cpus": (),
            "nohz_full": False,
        }
        return {
            name: value
            for name, value in values.items()
            if value is not None and (name not in usually or value not in (usually[name], []))
        }

    def lacks(self, scheduler: str) -> str:
        """Return the first requested setting that a scheduler does not support; empty if none.

        Source: xen/include/public/domctl.h, struct xen_domctl_scheduler_op: rtds has only period
        and budget, null has nothing.
        """
        if scheduler in CREDIT_SCHEDULERS:
            return ""
        both = (self.scheduling, self.neighbour_scheduling)
        asked = {
            "rate limit": self.ratelimit is not None,
            "weight": self.dom0_weight is not None or any(one.weight is not None for one in both),
            "cap": any(one.cap is not None for one in both),
        }
        return next((what for what, given in asked.items() if given), "")

    @property
    def grants(self) -> bool:
        """Whether a setting is requested that only RTDS supports."""
        both = (self.scheduling.reservation, self.neighbour_scheduling.reservation)
        return any(given is not None for given in (self.extra_time, *both))

    @property
    def wanted_scheduler(self) -> str | None:
        """The scheduler that must run the domain's CPUs; None: any."""
        if self.scheduler is not None:
            return self.scheduler
        if self.grants:
            return rtds.SCHEDULER
        return WITH_SLICE if self.slice_ms is not None else None

    def granted(self, role: str, vcpus: int) -> Rtds | None:
        """Return RTDS's grant for each vCPU of a machine; None keeps Xen's default.

        Args:
            role: The machine's role.
            vcpus: The machine's number of vCPUs, among which a reservation is divided.

        Raises:
            ValueError: The grant for each vCPU is outside RTDS's limits.
        """
        if role == TRIAL or not self.grants:
            return None
        own, wanted = role == SUBJECT, self.scheduling_of(role)
        period = wanted.period or rtds.DEFAULT_PERIOD_S
        extra = True if not own or self.extra_time is None else self.extra_time
        if wanted.reservation is not None:
            budget = wanted.reservation * period / vcpus
        elif own and self.extra_time is not None:
            budget = rtds.DEFAULT_BUDGET_S
        else:
            return None
        granted = Rtds(round(period * 1e6), round(budget * 1e6), extra)
        if not rtds.LEAST_US <= granted.budget_us <= granted.period_us:
            raise ValueError(
                f"RTDS grants each vCPU 10 µs up to its period of {format_duration(period)}, and "
                f"{format_duration(budget)} would be asked for"
            )
        return granted

    def limit_of(self, role: str) -> str:
        """Return the limit that may keep a machine from an idle CPU, in words; empty: none."""
        if self.cap_of(role) is not None:
            return "cap"
        return "budget of RTDS" if role == SUBJECT and self.extra_time is False else ""

    @property
    def card(self) -> str:
        """The network card that is used."""
        if self.nic != "auto":
            return self.nic
        return "netfront" if self.devices == "paravirtual" else "e1000"

    @property
    def needs(self) -> frozenset[str]:
        """The kernel modules that the devices need, as ``images`` names them."""
        emulated = {"ide"} if self.devices == "emulated" else set()
        if self.card != "netfront":
            emulated.add(self.card)
        own = self.devices == "paravirtual" or self.card == "netfront"
        return frozenset(emulated | ({"xen"} if own else set()))

    @property
    def pool(self) -> str:
        """The CPU pool in which machines run."""
        return self.cpupool or DEFAULT_POOL

    @property
    def slice_ms(self) -> int | None:
        """The requested time slice, in milliseconds."""
        wanted = self.scheduling.slice or self.neighbour_scheduling.slice
        return None if wanted is None else whole_milliseconds(wanted)

    @property
    def ratelimit_us(self) -> int | None:
        """The requested rate limit, in microseconds."""
        return None if self.ratelimit is None else round(self.ratelimit * 1e6)

    def weight_of(self, role: str) -> int | None:
        """Return a machine's weight in Xen's units; None keeps Xen's default."""
        wanted = self.scheduling_of(role).weight
        return None if wanted is None else round(wanted * DEFAULT_WEIGHT / MODEL_WEIGHT)

    def cap_of(self, role: str) -> int | None:
        """Return a machine's cap in percent of a CPU; None: no cap."""
        wanted = self.scheduling_of(role).cap
        return None if wanted is None else max(1, round(wanted * 100))

    def _granted_words(self) -> list[str]:
        parts = []
        for wanted, prefix in ((self.scheduling, ""), (self.neighbour_scheduling, "neighbours ")):
            if wanted.reservation is not None:
                period = format_duration(wanted.period or rtds.DEFAULT_PERIOD_S)
                parts.append(
                    f"{prefix}reservation {format_percent(wanted.reservation, 4)} per {period}"
                )
        if self.extra_time is False:
            parts.append("no extra time")
        return parts

    def words(self) -> str:
        """Return the options as a short phrase, such as ``Xen PV, credit, slice 1 ms``."""
        parts = [f"Xen {self.type.upper()}"]
        if self.type == "hvm":
            parts.append(f"{self.devices} devices")
        if self.scheduler is not None:
            parts.append(self.scheduler)
        if self.slice_ms is not None:
            parts.append(f"slice {self.slice_ms} ms")
        parts += self._granted_words()
        if self.ratelimit is not None:
            parts.append(f"rate limit {format_duration(self.ratelimit)}")
        for wanted, prefix in ((self.scheduling, ""), (self.neighbour_scheduling, "neighbours ")):
            if wanted.weight is not None:
                parts.append(f"{prefix}weight {wanted.weight}")
            if wanted.cap is not None:
                parts.append(f"{prefix}cap {format_quantity(wanted.cap, 'CPUs')}")
        if self.cpupool is not None:
            parts.append(f"pool {self.cpupool}")
        if self.dom0 == "as-is":
            parts.append("dom0 unpinned")
        if self.nohz_full:
            parts.append("nohz_full")
        if self.nic != "auto":
            parts.append(f"network card {self.nic}")
        if self.dom0_cpus:
            parts.append(f"dom0 on CPUs {', '.join(map(str, self.dom0_cpus))}")
        if self.dom0_vcpus is not None:
            parts.append(f"dom0 with {self.dom0_vcpus} vCPUs")
        if self.dom0_weight is not None:
            parts.append(f"dom0 weight {self.dom0_weight} of {DEFAULT_WEIGHT}")
        parts += self.wanted_switch.words
        return ", ".join(parts)
