"""Loads of neighbours: processor, memory, disk, network, and phases of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field

from tare.units import Duration, Size
from tare.workloads.contract import NETWORK, NO_CLAIM, DiskClaim, Metric, Need, Parameters, Workload
from tare.workloads.values import mapping, number, numbers, shortened

MEASURED_S = 5.0
"""Seconds that a load runs when it is measured itself and no duration is given."""
_WORK = ("operations", "bytes", "operations_per_s", "bytes_per_s")
"""The fields in which a load reports its work."""


class CpuLoadParameters(Parameters):
    """How many threads calculate."""

    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Number of threads. Default: one per CPU that it is placed on.",
    )
    duration: Duration | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Duration. Default: a neighbour runs until the subject has ended; a load that "
        "is itself measured runs for 5 s.",
    )


class MemoryLoadParameters(CpuLoadParameters):
    """How many threads copy, and how much."""

    block: Size = Field(
        default=0,
        ge=0,
        description="Size of the block that each thread copies. 0: 9/8 of all caches together, as "
        "in fayyad2013, but at most what fits into 40 % of the machine's memory.",
    )


L = TypeVar("L", bound=CpuLoadParameters)


class _Load(Workload[L]):
    def request(self, parameters: L) -> dict[str, Any]:
        """Return the agent's parameters: seconds, bytes, counts."""
        known = {"threads": parameters.threads, "seconds": parameters.duration}
        return {name: value for name, value in known.items() if value is not None}

    def ending(self, parameters: L) -> L:
        """Return parameters with which it ends by itself, as a measured workload must."""
        return parameters.model_copy(update={"duration": parameters.duration or MEASURED_S})

    def expected_s(self, parameters: L) -> float:
        """Estimate the seconds of one cell if the load is measured itself."""
        return parameters.duration or MEASURED_S

    def clocked_s(self, parameters: L) -> float:
        """Return the seconds that are fixed, however slow the machine is."""
        return self.expected_s(parameters)


class CpuLoad(_Load[CpuLoadParameters]):
    """The CPU-load machine of fayyad2013's scenarios 3 to 5."""

    name = "cpu-load"
    resource = "cpu"
    summary = "Endless arithmetic that fits in the first-level cache."
    parameters = CpuLoadParameters
    metrics = (
        Metric(
            "rate",
            "1/s",
            "higher",
            "Arithmetic steps per second, of all threads together.",
            headline=True,
        ),
    )

    def observe(self, parameters: CpuLoadParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of work."""
        return numbers(result, {"rate": "operations_per_s"})


class MemoryLoad(_Load[MemoryLoadParameters]):
    """The memory-load machine of fayyad2013's scenarios 6 and 7."""

    name = "memory-load"
    resource = "memory"
    summary = "Endless copying of a block larger than all caches together."
    parameters = MemoryLoadParameters
    from_machine = ("memory_bytes", "caches_bytes")
    metrics = (
        Metric(
            "rate",
            "B/s",
            "higher",
            "Bytes copied per second, of all threads together.",
            headline=True,
        ),
    )

    def request(self, parameters: MemoryLoadParameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, bytes, counts."""
        return super().request(parameters) | {"block_bytes": parameters.block}

    def observe(
        self, parameters: MemoryLoadParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the rate of work."""
        return numbers(result, {"rate": "bytes_per_s"})


class DiskLoadParameters(CpuLoadParameters):
    """How many files, and how large."""

    file: Size = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Size of the file that each thread writes and reads in pieces of 1 MiB.",
    )


class DiskLoad(_Load[DiskLoadParameters]):
    """A neighbour that keeps the host's disk busy (hwang2013, section IV.G)."""

    name = "disk-load"
    resource = "disk"
    summary = (
        "Endless writes and reads on the machine's own disk: each write is synced, and reads "
        "bypass the page cache."
    )
    parameters = DiskLoadParameters
    needs = frozenset({"disk"})
    keeps_busy = False
    metrics = (
        Metric("rate", "B/s", "higher", "Bytes written and read per second.", headline=True),
    )

    def request(self, parameters: DiskLoadParameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, bytes, counts."""
        return super().request(parameters) | {"file_bytes": parameters.file}

    def disk_claim(self, parameters: DiskLoadParameters, result: Mapping[str, Any]) -> DiskClaim:
        """Return the bytes of both directions: it syncs each write and drops cached data.

        Raises:
            KeyError: A value is missing.
            ValueError: A value is not a finite number.
        """
        half = number(result, "bytes") / 2
        return DiskClaim(half, half)

    def observe(
        self, parameters: DiskLoadParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the rate of work."""
        return numbers(result, {"rate": "bytes_per_s"})


class PhasedLoadParameters(Parameters):
    """Which loads take turns, and for how long."""

    phases: tuple[Literal["cpu-load", "memory-load", "disk-load", "net-load"], ...] = Field(
        default=("cpu-load", "memory-load"),
        min_length=1,
        max_length=20,
        description="The loads in order; `disk-load` needs a shape with a disk, `net-load` a "
        "platform with networks.",
    )
    phase: Duration = Field(default=10.0, gt=0, le=86400, description="Duration of each phase.")
    gap: Duration = Field(
        default=3.0, ge=0, le=86400, description="Duration of the gap before each phase."
    )


class PhasedLoad(Workload[PhasedLoadParameters]):
    """Loads that take turns, with quiet between them (hwang2013, figure 9)."""

    name = "phased-load"
    summary = (
        "Several loads in sequence with quiet gaps, shaded in the report's time series; only for "
        "neighbours, because it ends with the subject."
    )
    parameters = PhasedLoadParameters
    keeps_busy = False
    neighbour_only = True
    from_machine = ("memory_bytes", "caches_bytes")
    metrics = (Metric("phases", "1", "neither", "Number of phases."),)

    def request(self, parameters: PhasedLoadParameters) -> dict[str, Any]:
        """Return the agent's parameters: names and seconds."""
        return {
            "phases": list(parameters.phases),
            "phase_s": parameters.phase,
            "gap_s": parameters.gap,
        }

    def needs_for(self, parameters: PhasedLoadParameters) -> frozenset[Need]:
        """Return the things that the phases' loads need of a machine."""
        needed: Mapping[str, Need] = {"disk-load": "disk", "net-load": "network"}
        return frozenset(needed[name] for name in parameters.phases if name in needed)

    def expected_s(self, parameters: PhasedLoadParameters) -> float:
        """Estimate the seconds of all phases and gaps."""
        return len(parameters.phases) * (parameters.phase + parameters.gap) + parameters.gap

    def disk_claim(self, parameters: PhasedLoadParameters, result: Mapping[str, Any]) -> DiskClaim:
        """Return the bytes of all phases of ``disk-load``, as :class:`DiskLoad` claims them.

        Raises:
            KeyError: A value is missing.
            ValueError: A value is not a finite number.
        """
        if DiskLoad.name not in parameters.phases:
            return NO_CLAIM
        loaded = (each for each in _phases(result) if each["name"] == DiskLoad.name)
        half = sum(number(mapping(each, "result"), "bytes") for each in loaded) / 2
        return DiskClaim(half, half)

    def observe(
        self, parameters: PhasedLoadParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the number of phases.

        Raises:
            KeyError: A value is missing.
            ValueError: A phase did no work, or its amount is not a number.
        """
        phases = _phases(result)
        for phase in phases:
            did = mapping(phase, "result")
            amounts = [number(did, name) for name in _WORK if name in did]
            if not amounts:
                raise KeyError(f"phases: result: one of {', '.join(_WORK)}")
            lasted = number(phase, "end_s") - number(phase, "begin_s")
            # A phase that the subject's end cut short may have done no work.
            if lasted >= parameters.phase and not any(amount > 0 for amount in amounts):
                raise ValueError(f"the phase {shortened(phase['name'])} did no work")
        return {"phases": float(len(phases))}


def _phases(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    phases = result["phases"]
    if not isinstance(phases, list) or not all(isinstance(each, Mapping) for each in phases):
        raise ValueError(f"phases is {shortened(phases)}, not a list of keys with values")
    return phases


EXPECTED_S = 5.0


class NetLoadParameters(Parameters):
    """Over how many connections."""

    connections: int = Field(
        default=1, ge=1, le=64, description="Number of connections, each busy in both directions."
    )


class NetLoad(Workload[NetLoadParameters]):
    """A neighbour whose packets take the host's time (hwang2013, section IV.G)."""

    name = "net-load"
    resource = "network"
    summary = (
        "Endless sending to a partner outside the machine, which sends everything back; only for "
        "neighbours, because it ends with the subject."
    )
    parameters = NetLoadParameters
    needs = NETWORK
    keeps_busy = False
    neighbour_only = True
    metrics = (Metric("rate", "B/s", "higher", "Bytes sent and received per second."),)

    def request(self, parameters: NetLoadParameters) -> dict[str, Any]:
        """Return nothing: the partner's address is known only when both machines run."""
        return {}

    def partners(self, parameters: NetLoadParameters) -> int:
        """Return the number of connections that its partner opens."""
        return parameters.connections

    def expected_s(self, parameters: NetLoadParameters) -> float:
        """Return a nominal number of seconds: the load ends with the subject."""
        return EXPECTED_S

    def clocked_s(self, parameters: NetLoadParameters) -> float:
        """Return the seconds that are fixed, however slow the machine is."""
        return EXPECTED_S

    def observe(self, parameters: NetLoadParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of traffic."""
        return numbers(result, {"rate": "bytes_per_s"})
