"""Tell a workload what the host knows of the machine it runs in.

A guest sees the caches its hypervisor shows it, and a bare machine all the memory there is. Sized
by what each sees, a workload would do different work in each arm. So the host says it, once, and
alike for all arms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.workloads.contract import Workload


@dataclass(frozen=True)
class MachineFacts:
    """What the host knows of a machine.

    Args:
        emulated: Whether an emulator runs it, whose TSC never states that it is constant.
        memory: The shape's memory in bytes, for the bare host too.
        vcpus: How many vCPUs the subject has; the bare host is kept to as many CPUs.
        last_level_cache: One last-level cache of the *host*, in bytes; None: not known.
        caches: All data and unified caches of the host together, in bytes; None: not known.
    """

    emulated: bool = False
    memory: int | None = None
    vcpus: int | None = None
    last_level_cache: int | None = None
    caches: int | None = None

    def as_params(self) -> dict[str, Any]:
        """Return what is known under the names the agent takes them by."""
        known = {
            "allow_untrusted_tsc": self.emulated or None,
            "memory_bytes": self.memory,
            "threads": self.vcpus,
            "last_level_bytes": self.last_level_cache,
            "caches_bytes": self.caches,
        }
        return {name: value for name, value in known.items() if value is not None}


def fitted(
    workload: Workload[Any], request: Mapping[str, Any], facts: MachineFacts
) -> dict[str, Any]:
    """Return ``request`` with the facts that ``workload`` takes; what it says itself stays.

    Args:
        workload: Names the facts it takes in its attribute ``from_machine``.
        request: What `Workload.request` returned.
        facts: What the host knows of the machine.
    """
    known = {
        name: value for name, value in facts.as_params().items() if name in workload.from_machine
    }
    return known | dict(request)
