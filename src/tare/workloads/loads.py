"""``cpu-load``, ``memory-load``, ``disk-load``, ``phased-load``: what neighbours do to a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tare.study.quantities import Duration, Size
from tare.workloads.base import Metric, Parameters
from tare.workloads.values import mapping, number, numbers, own, shortened

MEASURED_S = 5.0
"""How long a load works when it is measured itself and no duration is given."""
_WORK = ("operations", "bytes", "operations_per_s", "bytes_per_s")
"""What a load tells of its work."""


class CpuLoadParameters(Parameters):
    """How many threads calculate."""

    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Threads; if left out, one per CPU it was placed on.",
    )
    duration: Duration | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="End after so long; if left out, a neighbour works until the subject has "
        "ended, and a load that is itself measured ends after 5 s.",
    )


class MemoryLoadParameters(CpuLoadParameters):
    """How many threads copy, and how much."""

    block: Size = Field(
        default=0,
        ge=0,
        description="The block that each thread copies; 0: 9/8 of all caches together, as in the "
        "seeds, but at most what fits into 40 % of the machine's memory.",
    )


class _Load:
    parameters: type[Parameters] = CpuLoadParameters
    realtime = False

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, bytes, counts."""
        asked = own(CpuLoadParameters, parameters)
        known = {"threads": asked.threads, "seconds": asked.duration}
        return {name: value for name, value in known.items() if value is not None}

    def ending(self, parameters: Parameters) -> Parameters:
        """Return the parameters with which it ends by itself, as what is measured has to."""
        asked = own(CpuLoadParameters, parameters)
        return asked.model_copy(update={"duration": asked.duration or MEASURED_S})

    def expected_s(self, parameters: Parameters) -> float:
        """Estimate the seconds of one cell, should the load be measured itself."""
        return own(CpuLoadParameters, parameters).duration or MEASURED_S


class CpuLoad(_Load):
    """The CPU-load machine of the seeds' scenarios 3 to 5."""

    name = "cpu-load"
    summary = "Endless arithmetic that fits in the first cache."
    metrics: tuple[Metric, ...] = (
        Metric(
            "rate",
            "1/s",
            "higher",
            "Arithmetic steps per second, of all threads together.",
            headline=True,
        ),
    )

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of work."""
        return numbers(result, {"rate": "operations_per_s"})


class MemoryLoad(_Load):
    """The memory-load machine of the seeds' scenarios 6 and 7."""

    name = "memory-load"
    summary = "Endless copying of a block larger than all caches together."
    parameters: type[Parameters] = MemoryLoadParameters
    from_machine = ("memory_bytes", "caches_bytes")
    metrics: tuple[Metric, ...] = (
        Metric(
            "rate",
            "B/s",
            "higher",
            "Bytes copied per second, of all threads together.",
            headline=True,
        ),
    )

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, bytes, counts."""
        asked = own(MemoryLoadParameters, parameters)
        return super().request(parameters) | {"block_bytes": asked.block}

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of work."""
        return numbers(result, {"rate": "bytes_per_s"})


class DiskLoadParameters(CpuLoadParameters):
    """How many files, and how large."""

    file: Size = Field(
        default=64 << 20,
        ge=1 << 20,
        description="The file that each thread writes and reads in pieces of 1 MiB.",
    )


class DiskLoad(_Load):
    """A neighbour that keeps the host's disk busy (seed 002, section IV.G)."""

    name = "disk-load"
    summary = "Endless writing through to, and reading from, the machine's own disk."
    parameters: type[Parameters] = DiskLoadParameters
    needs = frozenset({"disk"})
    keeps_busy = False
    metrics: tuple[Metric, ...] = (
        Metric("rate", "B/s", "higher", "Bytes written and read per second.", headline=True),
    )

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, bytes, counts."""
        asked = own(DiskLoadParameters, parameters)
        return super().request(parameters) | {"file_bytes": asked.file}

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of work."""
        return numbers(result, {"rate": "bytes_per_s"})


class PhasedLoadParameters(Parameters):
    """Which loads take turns, and for how long."""

    phases: tuple[Literal["cpu-load", "memory-load", "disk-load", "net-load"], ...] = Field(
        default=("cpu-load", "memory-load"),
        min_length=1,
        max_length=20,
        description="The loads in their order; `disk-load` needs a shape with a disk, `net-load` "
        "a platform with networks.",
    )
    phase: Duration = Field(default=10.0, gt=0, le=86400, description="How long each works.")
    gap: Duration = Field(default=3.0, ge=0, le=86400, description="Quiet before each.")


class PhasedLoad:
    """Loads that take turns, with quiet between them (seed 002, figure 9)."""

    name = "phased-load"
    summary = (
        "Several loads one after another, with quiet gaps, shaded in the report's courses; a "
        "neighbour only, as it ends when the subject does."
    )
    parameters: type[Parameters] = PhasedLoadParameters
    realtime = False
    keeps_busy = False
    neighbour_only = True
    from_machine = ("memory_bytes", "caches_bytes")
    metrics: tuple[Metric, ...] = (
        Metric("phases", "1", "neither", "Phases that were carried out."),
    )

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the agent's parameters: names and seconds."""
        asked = own(PhasedLoadParameters, parameters)
        return {"phases": list(asked.phases), "phase_s": asked.phase, "gap_s": asked.gap}

    def needs_for(self, parameters: Parameters) -> frozenset[str]:
        """Return what the loads that take turns need of a machine."""
        needed = {"disk-load": "disk", "net-load": "network"}
        asked = own(PhasedLoadParameters, parameters)
        return frozenset(needed[name] for name in asked.phases if name in needed)

    def expected_s(self, parameters: Parameters) -> float:
        """Estimate the seconds of all phases and gaps."""
        asked = own(PhasedLoadParameters, parameters)
        return len(asked.phases) * (asked.phase + asked.gap) + asked.gap

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return how many phases there were.

        Raises:
            KeyError: Something is missing.
            ValueError: A phase did no work, or tells of it in no number.
        """
        asked = own(PhasedLoadParameters, parameters)
        phases = result["phases"]
        if not isinstance(phases, list) or not all(isinstance(each, Mapping) for each in phases):
            raise ValueError(f"phases is {shortened(phases)}, not a list of keys with values")
        for phase in phases:
            did = mapping(phase, "result")
            amounts = [number(did, name) for name in _WORK if name in did]
            if not amounts:
                raise KeyError(f"phases: result: one of {', '.join(_WORK)}")
            lasted = number(phase, "end_s") - number(phase, "begin_s")
            # One that the subject's end cut short may not have come to do anything.
            if lasted >= asked.phase and not any(amount > 0 for amount in amounts):
                raise ValueError(f"the phase {shortened(phase['name'])} did no work")
        return {"phases": float(len(phases))}
