"""``wakeup``: measure how late a real-time thread runs after a timer or another CPU wakes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tare.units import Duration
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import numbers

NANOSECONDS = 1e9
HIGHEST_PRIORITY = 99
PREPARATION_S = 0.15


class WakeupParameters(Parameters):
    """What wakes the thread, and how often."""

    by: Literal["nanosleep", "timerfd", "futex"] = Field(
        default="nanosleep",
        description="The source of wake-ups: `clock_nanosleep` to absolute times, as cyclictest "
        "does; a `timerfd` that it reads; or a `futex` that a thread on another CPU wakes, which "
        "needs machines with 2 vCPUs.",
    )
    interval: Duration = Field(
        default=1e-3, ge=50e-6, le=1, description="Time from one wake-up to the next."
    )
    duration: Duration = Field(
        default=5.0, gt=0, le=1e6, description="Duration of the measurement."
    )
    priority: int = Field(
        default=HIGHEST_PRIORITY,
        ge=0,
        le=HIGHEST_PRIORITY,
        description="SCHED_FIFO priority of its threads within the machine; 0 uses the default "
        "policy, with which the kernel lets timers be up to 50 µs late.",
    )


class Wakeup(Workload[WakeupParameters]):
    """Wake-up latency, as cyclictest measures it."""

    name = "wakeup"
    resource = "latency"
    summary = (
        "A real-time thread of highest priority sleeps, and a timer or a thread on another CPU "
        "wakes it up. The latency is the time from the wake-up's due time until the thread runs."
    )
    parameters = WakeupParameters
    realtime = True
    metrics = (
        Metric(
            "latency-median",
            "s",
            "lower",
            "Median time to wake up.",
            headline=True,
            may_be_zero=False,
        ),
        Metric("latency-min", "s", "lower", "Shortest time to wake up."),
        Metric("latency-p99", "s", "lower", "99th percentile of the time to wake up.", kind="tail"),
        Metric(
            "latency-p99.9",
            "s",
            "lower",
            "99.9th percentile of the time to wake up.",
            kind="tail",
        ),
        Metric(
            "latency-max",
            "s",
            "lower",
            "Longest time to wake up.",
            kind="maximum",
            headline=True,
            may_be_zero=False,
        ),
    )

    def request(self, parameters: WakeupParameters) -> dict[str, Any]:
        """Return the agent's parameters: nanoseconds, and seconds."""
        request: dict[str, Any] = {
            "by": parameters.by,
            "interval_ns": round(parameters.interval * NANOSECONDS),
            "seconds": parameters.duration,
        }
        if parameters.priority != HIGHEST_PRIORITY:
            request["priority"] = parameters.priority
        return request

    def expected_s(self, parameters: WakeupParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.duration + PREPARATION_S

    def clocked_s(self, parameters: WakeupParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration

    def vcpus_for(self, parameters: WakeupParameters) -> int:
        """Return the minimum number of vCPUs: 2 for a futex, which one vCPU wakes for another."""
        return 2 if parameters.by == "futex" else 1

    def observe(self, parameters: WakeupParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics, in seconds."""
        return numbers(
            result,
            {
                "latency-median": "wakeup.median_s",
                "latency-min": "wakeup_min_s",
                "latency-p99": "wakeup.p99_s",
                "latency-p99.9": "wakeup.p999_s",
                "latency-max": "wakeup_max_s",
            },
        )
