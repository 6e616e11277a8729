"""CPU sharing between machines: one model for the schedulers of all platforms.

The names describe effects, not one platform's settings. A platform states in its capabilities which
of them it supports; the others are skipped with the reason.

============= ======================= ===================== ===========================
here          Linux                   Xen's schedulers      vSphere, Hyper-V
============= ======================= ===================== ===========================
weight        cpu.weight, cpu.shares  weight                shares, relative weight
cap, period   cpu.max, cfs quota      cap                   limit, maximum
reservation   -                       rtds: budget          reservation, reserve
slice         sched_setattr(2)        tslice                -
policy, nice  sched_setattr(2)        -                     -
============= ======================= ===================== ===========================
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tare.units import Duration, Share, format_duration, format_percent, format_quantity

DEFAULT_PERIOD_S = 0.1
"""The kernel's own default (Documentation/scheduler/sched-bwc.rst)."""
LEAST_CAP_PERIOD_S = 1e-3
"""Linux's least quota period (kernel/sched/core.c, min_cfs_quota_period)."""
DEFAULT_PRIORITY = 1
"""A priority above all ordinary threads, and below the kernel's own real-time threads."""
FAIR = ("nice", "weight", "cap", "slice")


class Scheduling(BaseModel):
    """The host scheduler's treatment of a machine. Settings that are left out stay unchanged."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    policy: Literal["other", "batch", "fifo"] | None = Field(
        default=None,
        description="Linux scheduling policy of the vCPU threads: `other` and `batch` share the "
        "CPU fairly; `fifo` keeps the CPU as long as it wants. On bare hosts and in containers it "
        "is the policy of the workload itself, which does not change it. Default: a real-time "
        "workload chooses `fifo` with the highest priority.",
    )
    priority: int | None = Field(
        default=None, ge=1, le=98, description="With `policy: fifo`: the priority. Default: 1."
    )
    nice: int | None = Field(
        default=None,
        ge=-20,
        le=19,
        description="Nice value: each step down gives about a quarter more CPU time next to "
        "others. The machine's control group or session, if it has one, gets the same value.",
    )
    weight: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="The machine's weight for a contended CPU; others have 100.",
    )
    cap: Share | None = Field(
        default=None,
        gt=0,
        le=4096,
        description="The most CPU time that the machine may use, in CPUs (`0.5`, or `50 %`), even "
        "if the host is idle.",
    )
    period: Duration | None = Field(
        default=None,
        ge=10e-6,
        le=1,
        description="The period of `cap`: a machine that has used up its time waits until the next "
        "period. At least 1 ms. Default: 100 ms. Under Xen's `rtds`, the period of `reservation`. "
        "Default: 10 ms.",
    )
    reservation: Share | None = Field(
        default=None,
        gt=0,
        le=4096,
        description="The CPU time that the machine gets even if the host is busy, in CPUs.",
    )
    slice: Duration | None = Field(
        default=None,
        ge=0.1e-3,
        le=1,
        description="How long the machine runs without interruption next to others of the same "
        "weight (Linux 6.12 or later: 0.1 to 100 ms).",
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.policy != "fifo" and self.priority is not None:
            raise ValueError("`priority` needs `policy: fifo`; other policies do not have one")
        if self.policy == "fifo":
            for name in FAIR:
                if name in self.given:
                    raise ValueError(
                        f"{name} has no effect under `policy: fifo`, which takes the CPU as long "
                        "as it wants; remove one of them"
                    )
        if self.nice is not None and self.weight is not None:
            raise ValueError("nice and weight say the same in two ways; give one of them")
        if self.period is not None and self.cap is None and self.reservation is None:
            raise ValueError(
                "a period is that of a cap or of a reservation; add one of them, or remove it"
            )
        if self.cap is not None and self.period_s < LEAST_CAP_PERIOD_S:
            raise ValueError("a cap is granted every 1 ms to 1 s; lengthen the period")
        if self.cap is not None and self.reservation is not None and self.reservation > self.cap:
            raise ValueError("the reservation is more than the cap; lower it, or raise the cap")
        return self

    @property
    def given(self) -> dict[str, Any]:
        """The settings that were asked for, by name."""
        return {name: value for name, value in self if value is not None}

    @property
    def knobs(self) -> frozenset[str]:
        """The capabilities that a platform needs for these settings."""
        names = {name for name in (*FAIR, "reservation") if name in self.given}
        if self.policy is not None:
            names.add("fifo" if self.policy == "fifo" else "policy")
        return frozenset(names)

    @property
    def realtime(self) -> bool:
        """Whether the machine keeps a CPU as long as it wants, so that nothing else runs there."""
        return self.policy == "fifo"

    @property
    def asks(self) -> bool:
        """Whether any setting is given."""
        return bool(self.knobs)

    @property
    def period_s(self) -> float:
        """The period of the cap, in seconds."""
        return DEFAULT_PERIOD_S if self.period is None else self.period

    def words(self) -> str:
        """Return a short phrase, such as ``nice -10, slice 3 ms``; empty without settings."""
        parts = []
        if self.policy is not None:
            level = f" {self.priority or DEFAULT_PRIORITY}" if self.realtime else ""
            parts.append(f"SCHED_{self.policy.upper()}{level}")
        parts += [f"{name} {self.given[name]}" for name in ("nice", "weight") if name in self.given]
        if self.cap is not None:
            parts.append(f"cap {_cpus(self.cap)} per {format_duration(self.period_s)}")
        if self.reservation is not None:
            every = (
                f" per {format_duration(self.period)}" if self.cap is None and self.period else ""
            )
            parts.append(f"reservation {_cpus(self.reservation)}{every}")
        if self.slice is not None:
            parts.append(f"slice {format_duration(self.slice)}")
        return ", ".join(parts)

    def asked(self) -> dict[str, Any]:
        """Return the given settings as plain values; times in seconds, shares in CPUs."""
        return self.model_dump(mode="json", exclude_none=True)


def _cpus(share: float) -> str:
    return format_percent(share, 4) if share < 1 else format_quantity(share, "CPUs")


NOTHING = Scheduling.model_validate({})
"""No setting: everything keeps the host's default."""
