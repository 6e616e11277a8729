"""RTDS, Xen's real-time scheduler: each vCPU may run for its budget in each of its periods.

Source: xen/common/sched/rt.c (deferrable servers, earliest deadline first; after Xi, Wilson, Lu
and Gill, "RT-Xen", EMSOFT 2011) and xl(1), ``sched-rtds``. With extra time, which is Xen's default,
a vCPU that has used up its budget runs on while no other vCPU wants the CPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SCHEDULER = "rtds"
DEFAULT_PERIOD_S = 10e-3
DEFAULT_BUDGET_S = 4e-3
LEAST_US = 10
"""RTDS_DEFAULT_PERIOD, RTDS_DEFAULT_BUDGET, and RTDS_MIN_PERIOD, which equals RTDS_MIN_BUDGET."""
_VCPU = re.compile(r"\s(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(yes|no)\s*$")


@dataclass(frozen=True)
class Rtds:
    """A vCPU's grant: ``budget_us`` in every ``period_us``, and left-over time if ``extra``."""

    period_us: int
    budget_us: int
    extra: bool

    def __str__(self) -> str:
        more = " and what is left over" if self.extra else ""
        return f"{self.budget_us} of {self.period_us} µs{more}"

    @property
    def record(self) -> dict[str, int | bool]:
        """The grant in the form for events."""
        return {"period_us": self.period_us, "budget_us": self.budget_us, "extra_time": self.extra}


def granted(shown: str) -> dict[int, Rtds]:
    """Parse ``xl sched-rtds -d ID -v all``: the grant of each vCPU, by its number."""
    return {
        int(match[2]): Rtds(int(match[3]), int(match[4]), match[5] == "yes")
        for line in shown.splitlines()
        if (match := _VCPU.search(line))
    }
