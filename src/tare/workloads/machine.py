"""The host's facts about a machine, for workloads.

A guest sees the caches that its hypervisor shows, and a bare machine sees all the memory. If
workloads were sized by what they see, they would do different work in each arm. So the host
provides these facts, once and equally for all arms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.workloads.contract import Workload


@dataclass(frozen=True)
class MachineFacts:
    """The host's facts about a machine.

    Args:
        emulated: Whether an emulator runs it, whose TSC is never declared constant.
        memory: The shape's memory in bytes, for the bare host too.
        vcpus: Number of vCPUs of the subject; the bare host is limited to as many CPUs.
        last_level_cache: One last-level cache of the *host*, in bytes; None if unknown.
        caches: All data and unified caches of the host together, in bytes; None if unknown.
    """

    emulated: bool = False
    memory: int | None = None
    vcpus: int | None = None
    last_level_cache: int | None = None
    caches: int | None = None

    def as_params(self) -> dict[str, Any]:
        """Return the known facts under their names in the agent."""
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
    """Return ``request`` completed with the facts that ``workload`` uses; it overrides nothing.

    Args:
        workload: Lists the facts in its attribute ``from_machine``.
        request: The result of `Workload.request`.
        facts: The host's facts about the machine.
    """
    known = {
        name: value for name, value in facts.as_params().items() if name in workload.from_machine
    }
    return known | dict(request)
