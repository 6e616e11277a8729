"""RTDS, Xen's real-time scheduler: each vCPU may run for its budget in each of its periods.

Source: xen/common/sched/rt.c (deferrable servers, earliest deadline first; after Xi, Wilson, Lu
and Gill, "RT-Xen", EMSOFT 2011) and xl(1), ``sched-rtds``. With extra time, which Xen gives unless
it is told otherwise, a vCPU that has used its budget up may also run where nobody else wants to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tare.errors import MachineFault
from tare.hosts import Host
from tare.platforms.xen import toolstack as xen

SCHEDULER = "rtds"
DEFAULT_PERIOD_S = 10e-3
DEFAULT_BUDGET_S = 4e-3
LEAST_S = 10e-6
"""RTDS_DEFAULT_PERIOD, RTDS_DEFAULT_BUDGET, and RTDS_MIN_PERIOD, which is RTDS_MIN_BUDGET too."""
_VCPU = re.compile(r"\s(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(yes|no)\s*$")


@dataclass(frozen=True)
class Rtds:
    """What a vCPU is granted: ``budget_us`` of every ``period_us``; and time that is left over?"""

    period_us: int
    budget_us: int
    extra: bool

    def told(self) -> dict[str, int | bool]:
        """Return it as a record has it."""
        return {"period_us": self.period_us, "budget_us": self.budget_us, "extra_time": self.extra}


def granted(shown: str) -> dict[int, Rtds]:
    """Read ``xl sched-rtds -d ID -v all``: what each vCPU is granted, by its number."""
    return {
        int(match[2]): Rtds(int(match[3]), int(match[4]), match[5] == "yes")
        for line in shown.splitlines()
        if (match := _VCPU.search(line))
    }


async def grant(host: Host, domain: int, name: str, wanted: Rtds) -> dict[str, int | bool]:
    """Grant all vCPUs of a domain a budget, and prove that Xen took it.

    Args:
        host: The host.
        domain: The domain's number.
        name: The machine's name, for the fault.
        wanted: What each vCPU is to be granted.

    Returns:
        What was granted, for the record.

    Raises:
        MachineFault: Xen refuses, in its words; or it took something else than it was told.
    """
    words = ["-p", str(wanted.period_us), "-b", str(wanted.budget_us), "-e", str(int(wanted.extra))]
    who = ["-d", str(domain), "-v", "all"]
    await xen.asked(host, "sched-rtds", *who, *words)
    found = granted(await xen.asked(host, "sched-rtds", *who))
    if not found or any(each != wanted for each in found.values()):
        raise MachineFault(f"{name}: Xen was told {wanted}, and says {found or 'nothing'}")
    return wanted.told()
