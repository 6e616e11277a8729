"""``tick``: time a busy loop repeatedly; time beyond its undisturbed duration was taken from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tare.units import Duration
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.hardware import SUMMARY, counted
from tare.workloads.values import at_least_one, number, numbers, per_second

NANOSECONDS = 1e9
DEFAULT_SAMPLES = 20_000
HIGHEST_PRIORITY = 99
PREPARATION_S = 0.1
BARE_READ_S = 15e-9
"""The approximate seconds of one read of the counter, including its recording."""


class TickParameters(Parameters):
    """How long to watch, and what counts as a gap."""

    samples: int | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="Number of samples. Default: 20000, if `duration` is not given either "
        "(fayyad2013 took 50 million in an hour).",
    )
    duration: Duration | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Take samples for this time, instead of a number of them.",
    )
    loop: Duration = Field(
        default=68e-6,
        ge=0,
        le=1,
        description="Undisturbed duration of the busy loop, calibrated in each machine; 0 reads "
        "the counter without a loop, to see the shortest gaps.",
    )
    threshold: Duration = Field(
        default=1e-6,
        ge=1e-9,
        le=1000,
        description="A sample that exceeds the undisturbed duration by this is a gap.",
    )
    log: int = Field(
        default=100_000,
        ge=0,
        le=100_000_000,
        description="Capacity of the log of gaps; further gaps are only counted and summed.",
    )
    intervals: int = Field(
        default=1_000,
        ge=1,
        le=1_000_000,
        description="Rows of the scatter of duration against time, with the extremes of each.",
    )
    priority: int = Field(
        default=HIGHEST_PRIORITY,
        ge=0,
        le=HIGHEST_PRIORITY,
        description="SCHED_FIFO priority of the measuring thread within the machine; 0 uses the "
        "default policy, as for a program that is not real-time.",
    )
    raw: bool = Field(default=False, description="Keep the duration of every sample.")
    untrusted_clock: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="Measure even if the CPU does not declare a constant TSC that never stops. "
        "Emulators never declare it and are always allowed; the result then says so.",
    )

    counters: bool = Field(
        default=False,
        description=f"{SUMMARY} The kernel then does a little more at each clock tick.",
    )

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.samples is not None and self.duration is not None:
            raise ValueError("give samples or duration, not both")
        if 0 < self.loop < 100e-9:
            raise ValueError("a loop takes at least 100ns; 0 means none")
        return self


class Tick(Workload[TickParameters]):
    """Clock tick processing duration, as fayyad2013 calls it (section 6.2.1)."""

    name = "tick"
    resource = "latency"
    summary = (
        "A real-time thread of highest priority times a busy loop without pauses. Excess over the "
        "undisturbed duration comes from interrupts or from a hypervisor that took the CPU away."
    )
    logs_gaps = True
    parameters = TickParameters
    realtime = True
    from_machine = ("allow_untrusted_tsc",)
    metrics = (
        Metric(
            "slowdown",
            "1",
            "lower",
            "Mean duration of the loop divided by its undisturbed duration. Left out if the "
            "machine was faster than that, because its speed changed.",
            headline=True,
            may_be_zero=False,
        ),
        Metric(
            "excess-max",
            "s",
            "lower",
            "The longest time by which the loop exceeded its undisturbed duration.",
            kind="maximum",
            headline=True,
            may_be_zero=True,
        ),
        Metric(
            "stolen-share",
            "1",
            "lower",
            "Share of the time that gaps took: their excess over the undisturbed duration.",
        ),
        Metric("gap-rate", "1/s", "lower", "Samples above the threshold, per second."),
        Metric(
            "undisturbed",
            "s",
            "neither",
            "Undisturbed duration: the mean of the densest stretch of durations (the mode), or of "
            "all without gaps if the counter's step is coarse in comparison. The loop is "
            "calibrated, so this does not show the machine's speed.",
        ),
        Metric("duration-min", "s", "neither", "Shortest duration of the loop."),
        Metric("duration-median", "s", "neither", "Median duration of the loop."),
        Metric("duration-p99", "s", "lower", "99th percentile of the duration.", kind="tail"),
        Metric("duration-p99.9", "s", "lower", "99.9th percentile of the duration.", kind="tail"),
        Metric("duration-p99.99", "s", "lower", "99.99th percentile of the duration.", kind="tail"),
        Metric("duration-max", "s", "lower", "Longest duration of the loop.", kind="maximum"),
        Metric("sample-rate", "1/s", "neither", "Samples per second."),
        Metric(
            "counter-step",
            "s",
            "neither",
            "The smallest difference between durations: the counter's step, or a bin of the "
            "histogram.",
        ),
        Metric(
            "loop-rate",
            "1/s",
            "higher",
            "Steps of the busy loop per second while undisturbed: the bare speed of the CPU.",
        ),
    )

    def request(self, parameters: TickParameters) -> dict[str, Any]:
        """Return the agent's parameters: nanoseconds, counts."""
        request: dict[str, Any] = {
            "loop_ns": parameters.loop * NANOSECONDS,
            "threshold_ns": parameters.threshold * NANOSECONDS,
            "log_capacity": parameters.log,
            "intervals": parameters.intervals,
            "raw": parameters.raw,
        }
        if parameters.duration is not None:
            request["seconds"] = parameters.duration
        else:
            request["samples"] = parameters.samples or DEFAULT_SAMPLES
        if parameters.priority != HIGHEST_PRIORITY:
            request["priority"] = parameters.priority
        if parameters.untrusted_clock == "allow":
            request["allow_untrusted_tsc"] = True
        if parameters.counters:
            request["counters"] = True
        return request

    def expected_s(self, parameters: TickParameters) -> float:
        """Estimate the seconds of one cell."""
        if parameters.duration is not None:
            return parameters.duration + PREPARATION_S
        return (parameters.samples or DEFAULT_SAMPLES) * (
            parameters.loop + BARE_READ_S
        ) + PREPARATION_S

    def clocked_s(self, parameters: TickParameters) -> float:
        """Return the seconds that the duration or the calibrated loop fixes on any machine."""
        if parameters.duration is not None:
            return parameters.duration
        return (parameters.samples or DEFAULT_SAMPLES) * parameters.loop

    def counts_memory(self, parameters: TickParameters) -> bool:
        """Return whether the study requests counters."""
        return parameters.counters

    def facts(self, parameters: TickParameters, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of the processor's counters, if the study requests them.

        Raises:
            ValueError: The counters' values have another form.
        """
        return counted(result)

    def observe(self, parameters: TickParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; no ``loop-rate`` without a loop, no ``slowdown`` after a speed-up.

        Raises:
            KeyError: A value is missing.
            ValueError: A value is not a finite number, or no time passed.
        """
        values = numbers(
            result,
            {
                "excess-max": "excess_max_s",
                "stolen-share": "stolen_share",
                "undisturbed": "undisturbed_s",
                "duration-min": "duration_min_s",
                "duration-median": "duration.median_s",
                "duration-p99": "duration.p99_s",
                "duration-p99.9": "duration.p999_s",
                "duration-p99.99": "duration.p9999_s",
                "duration-max": "duration_max_s",
                "sample-rate": "samples_per_s",
                "counter-step": "counter_step_s",
            },
        )
        if not _sped_up(result):
            values["slowdown"] = at_least_one(result, "slowdown")
        values["gap-rate"] = per_second(number(result, "gaps"), result, "seconds")
        if parameters.loop > 0:
            values |= numbers(result, {"loop-rate": "loop_rate"})
        return values


def _sped_up(result: Mapping[str, Any]) -> bool:
    """Return whether the machine was faster on average than undisturbed."""
    if result["slowdown"] is not None or "duration_mean_s" not in result:
        return False
    return number(result, "duration_mean_s") < number(result, "undisturbed_s")
