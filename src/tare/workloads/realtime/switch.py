"""``switch``: measure the time of a switch between threads of one priority on one CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import numbers

SWITCH_S = 1.5e-6
THREAD_S = 60e-6
PREPARATION_S = 0.1


class SwitchParameters(Parameters):
    """How many threads hand the CPU round, and how often."""

    threads: int = Field(
        default=2,
        ge=1,
        le=1000,
        description="Number of threads in the ring; 1 measures a bare `sched_yield`, the floor.",
    )
    samples: int = Field(
        default=100_000,
        ge=1,
        le=10**9,
        description="Number of switches to measure, over all threads.",
    )
    intervals: int = Field(
        default=1_000,
        ge=1,
        le=1_000_000,
        description="Rows of the series of duration by the switch's number, with the extremes of "
        "each.",
    )
    raw: bool = Field(default=False, description="Keep the duration of every switch.")
    untrusted_clock: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="Measure even if the CPU does not declare a constant TSC that never stops. "
        "Emulators never declare it and are always allowed; the result then says so.",
    )


class Switch(Workload[SwitchParameters]):
    """Thread switch latency, as fayyad2013 calls it (section 6.2.2)."""

    name = "switch"
    resource = "latency"
    summary = (
        "Real-time threads of one priority share one CPU. Each stores the time and yields; the "
        "next one takes the difference."
    )
    parameters = SwitchParameters
    realtime = True
    from_machine = ("allow_untrusted_tsc",)
    metrics = (
        Metric(
            "latency-median",
            "s",
            "lower",
            "Median time of a switch.",
            headline=True,
            may_be_zero=False,
        ),
        Metric("latency-min", "s", "lower", "Shortest time of a switch."),
        Metric("latency-p99", "s", "lower", "99th percentile of a switch.", kind="tail"),
        Metric("latency-p99.9", "s", "lower", "99.9th percentile of a switch.", kind="tail"),
        Metric(
            "latency-max",
            "s",
            "lower",
            "Longest time of a switch.",
            kind="maximum",
            headline=True,
            may_be_zero=False,
        ),
    )

    def request(self, parameters: SwitchParameters) -> dict[str, Any]:
        """Return the agent's parameters: counts."""
        request: dict[str, Any] = {
            "threads": parameters.threads,
            "samples": parameters.samples,
            "intervals": parameters.intervals,
            "raw": parameters.raw,
        }
        if parameters.untrusted_clock == "allow":
            request["allow_untrusted_tsc"] = True
        return request

    def expected_s(self, parameters: SwitchParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.samples * SWITCH_S + parameters.threads * THREAD_S + PREPARATION_S

    def observe(self, parameters: SwitchParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics, in seconds."""
        return numbers(
            result,
            {
                "latency-median": "switch.median_s",
                "latency-min": "switch_min_s",
                "latency-p99": "switch.p99_s",
                "latency-p99.9": "switch.p999_s",
                "latency-max": "switch_max_s",
            },
        )
