"""``cpu-load`` and ``memory-load``: endless work, for neighbours that load the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.study.quantities import Duration, Size
from tare.workloads.base import Metric, Parameters
from tare.workloads.values import numbers, own

MEASURED_S = 5.0
"""How long a load works when it is measured itself and no duration is given."""


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
        description="End after so long; if left out, work until stopped, as a neighbour does.",
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
