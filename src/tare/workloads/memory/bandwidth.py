"""``memory-bandwidth``: copy, scale, add and triad over arrays that no cache can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.units import Duration, Size
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.hardware import SUMMARY, counted
from tare.workloads.threads import FROM_MACHINE, Threads, threads_asked
from tare.workloads.values import numbers

KERNELS = {
    "copy": "copies one array",
    "scale": "multiplies one array by a number",
    "add": "adds two arrays",
    "triad": "adds one array to a multiple of another",
}
ELEMENTS = {"u64": "64-bit integers", "f64": "doubles"}
HEADLINES = ("copy-u64", "triad-f64")
PREPARATION_S = 0.5
ARRAYS = "arrays"
"""The field of a cell's record with the sizes of the arrays and of the last-level cache, from which
reports find whether a cache held the arrays."""


class MemoryBandwidthParameters(Parameters):
    """How much memory, for how long, by how many threads."""

    duration: Duration = Field(
        default=0.2,
        gt=0,
        le=3600,
        description="Time to repeat each of the eight kernels, at least three times.",
    )
    array: Size = Field(
        default=0,
        ge=0,
        description="Size of each of the three arrays. 0: four times the last-level cache, limited "
        "so that all three take at most 30 % of the machine's memory (the result reports this).",
    )
    threads: Threads = Field(
        default=1,
        description="Threads that do the same at once, one per CPU in turn; `all`: one for each "
        "CPU of the machine.",
    )
    counters: bool = Field(default=False, description=SUMMARY)


class MemoryBandwidth(Workload[MemoryBandwidthParameters]):
    """The four kernels of McCalpin's STREAM, on 64-bit integers and on doubles."""

    name = "memory-bandwidth"
    resource = "memory"
    summary = (
        "Copy, scale, add and triad over large arrays of 64-bit integers and doubles, as "
        "McCalpin's STREAM does; every element is checked."
    )
    parameters = MemoryBandwidthParameters
    from_machine = ("memory_bytes", "last_level_bytes", FROM_MACHINE)
    metrics = tuple(
        Metric(
            f"{kernel}-{element}",
            "B/s",
            "higher",
            f"Bytes read and written per second by a loop that {what} of {kind}: "
            "the median of its repetitions.",
            headline=f"{kernel}-{element}" in HEADLINES,
        )
        for kernel, what in KERNELS.items()
        for element, kind in ELEMENTS.items()
    )

    def request(self, parameters: MemoryBandwidthParameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, bytes, counts."""
        return {
            "seconds": parameters.duration,
            "array_bytes": parameters.array,
            **threads_asked(parameters.threads),
            **({"counters": True} if parameters.counters else {}),
        }

    def expected_s(self, parameters: MemoryBandwidthParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.duration * len(self.metrics) + PREPARATION_S

    def clocked_s(self, parameters: MemoryBandwidthParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration * len(self.metrics)

    def counts_memory(self, parameters: MemoryBandwidthParameters) -> bool:
        """Return whether the study requests counters."""
        return parameters.counters

    def facts(
        self, parameters: MemoryBandwidthParameters, result: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the sizes of the arrays and the last-level cache, and the counters' values.

        Raises:
            ValueError: The counters' values have another form.
        """
        sizes = {
            name: result[name]
            for name in ("array_bytes", "last_level_bytes")
            if isinstance(result.get(name), int) and result[name] > 0
        }
        arrays = {ARRAYS: sizes} if len(sizes) == 2 else {}
        return {**counted(result), **arrays}

    def observe(
        self, parameters: MemoryBandwidthParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the bandwidth of each kernel, in bytes per second."""
        return numbers(
            result,
            {metric.name: f"bandwidth.{metric.name}.median_bytes_per_s" for metric in self.metrics},
        )
