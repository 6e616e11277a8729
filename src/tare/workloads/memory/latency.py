"""``memory-latency``: the time of a load that waits for the one before it, by working set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tare.units import Duration, Size, format_size
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import mapping, number

LADDER: tuple[int, ...] = tuple(1 << power for power in range(12, 27))
"""Working sets measured when none are given: 4 KiB to 64 MiB, each twice the one before."""

STATED: Mapping[int, str] = {
    16 << 10: "in any first-level cache",
    64 << 10: "beyond most first-level caches",
    256 << 10: "in any second-level cache",
    1 << 20: "in the second-level cache of servers",
    4 << 20: "in most last-level caches; with 4 KiB pages, more than a first-level TLB reaches",
    16 << 20: "with 4 KiB pages, more than any TLB reaches: each load may cost a page walk",
    64 << 20: "beyond most last-level caches, and page walks with 4 KiB pages",
    256 << 20: "beyond nearly all last-level caches; page tables no longer fit into caches near by",
    1 << 30: "beyond all last-level caches",
}
"""Maps each size in bytes that has a metric of its own to its meaning."""

HEADLINES = (16 << 10, 64 << 20)
LAYING_S_PER_BYTE = 2e-9
PREPARATION_S = 0.1
_STEP = 8


class MemoryLatencyParameters(Parameters):
    """Which working sets, in which pages, for how long."""

    sizes: tuple[Size, ...] = Field(
        default=(),
        max_length=100,
        description="Working sets. Default: 4 KiB to 64 MiB, each twice the previous. Those above "
        "30 % of the machine's memory are skipped (the result then says so). Metrics exist for the "
        "default sizes; the series has all.",
    )
    pages: Literal["4k", "2M"] = Field(
        default="4k",
        description="Page size of the working set, verified with the kernel's accounting; if the "
        "kernel cannot provide it, the cell fails.",
    )
    stride: Size = Field(
        default=64,
        ge=_STEP,
        le=1 << 30,
        multiple_of=_STEP,
        description="Distance between loads; 64 touches each cache line, 4KiB each page.",
    )
    duration: Duration = Field(
        default=0.1,
        gt=0,
        le=3600,
        description="Time to measure each size, after a warm-up of complete rounds.",
    )

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        short = [size for size in self.sizes or LADDER if size < 2 * self.stride]
        if short:
            raise ValueError(
                f"a working set of {format_size(min(short))} is shorter than two strides of "
                f"{format_size(self.stride)}"
            )
        return self


class MemoryLatency(Workload[MemoryLatencyParameters]):
    """A chain of pointers in random order, as LMbench's ``lat_mem_rd`` but unpredictable."""

    name = "memory-latency"
    resource = "memory"
    summary = (
        "A chain of dependent loads in random order through growing working sets, in pages of 4 "
        "KiB or 2 MiB: the latency of each cache, of memory and of TLB misses."
    )
    parameters = MemoryLatencyParameters
    from_machine = ("memory_bytes",)
    metrics = tuple(
        Metric(
            f"latency-{format_size(size).replace(' ', '')}",
            "s",
            "lower",
            f"Time of a load from a working set of {format_size(size)} ({meaning}): the median of "
            "batches.",
            headline=size in HEADLINES,
            may_be_zero=False,
        )
        for size, meaning in STATED.items()
    )

    def request(self, parameters: MemoryLatencyParameters) -> dict[str, Any]:
        """Return the agent's parameters: bytes, seconds."""
        return {
            "sizes_bytes": list(parameters.sizes or LADDER),
            "pages": parameters.pages,
            "stride_bytes": parameters.stride,
            "seconds": parameters.duration,
        }

    def expected_s(self, parameters: MemoryLatencyParameters) -> float:
        """Estimate the seconds of one cell."""
        sizes = parameters.sizes or LADDER
        return len(sizes) * parameters.duration + sum(sizes) * LAYING_S_PER_BYTE + PREPARATION_S

    def clocked_s(self, parameters: MemoryLatencyParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration * len(parameters.sizes or LADDER)

    def observe(
        self, parameters: MemoryLatencyParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the latency at each stated size that was measured, in seconds.

        Raises:
            KeyError: No size was measured.
            ValueError: A value is not a finite number.
        """
        measured = mapping(result, "latency")
        if not measured:
            raise KeyError("latency")
        return {
            metric.name: number(result, f"latency.{size}.median_s")
            for size, metric in zip(STATED, self.metrics, strict=True)
            if str(size) in measured
        }
