"""The kernel's counters of a disk during a measurement, as collectl shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.workloads.contract import Metric
from tare.workloads.values import number

_FIELDS: Mapping[str, tuple[str, str, str]] = {
    "disk-read": ("read_bytes_per_s", "B/s", "Bytes that the machine's disk read per second."),
    "disk-written": ("write_bytes_per_s", "B/s", "Bytes that the disk wrote per second."),
    "disk-reads": ("reads_per_s", "1/s", "Read requests that the disk completed per second."),
    "disk-writes": ("writes_per_s", "1/s", "Write requests that the disk completed per second."),
    "disk-merged": (
        "merged_per_s",
        "1/s",
        "Requests that the kernel merged with a neighbouring one before the disk saw them, per "
        "second.",
    ),
    "disk-flushes": ("flushes_per_s", "1/s", "Flushes of the disk's write cache per second."),
    "disk-queue": ("queue", "1", "Requests in flight at the disk, on average."),
    "disk-wait": ("wait_s", "s", "Time from a request's arrival to its end, on average."),
    "disk-utilisation": ("utilisation", "1", "Share of the time with a request in flight."),
}

DISK_METRICS: tuple[Metric, ...] = tuple(
    Metric(name, unit, "neither", f"{summary[:-1]} (the kernel's counters).")
    for name, (_, unit, summary) in _FIELDS.items()
)
"""Facts of the disk in addition to a workload's own results: more is neither better nor worse."""


def disk_values(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the disk's metrics from an agent's result.

    Args:
        result: The agent's answer; its ``disk`` is null if there is no device to observe.

    Raises:
        KeyError: There is a disk, but one of its values is missing.
        ValueError: A value is not a finite number.
    """
    if not result.get("disk"):
        return {}
    return {name: number(result, f"disk.{field}") for name, (field, *_) in _FIELDS.items()}
