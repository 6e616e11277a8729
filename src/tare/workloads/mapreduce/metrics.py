"""The metrics that all jobs of a cluster have, and their values in a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.workloads.contract import Metric
from tare.workloads.mapreduce import spark_history
from tare.workloads.mapreduce.history import PHASES
from tare.workloads.mapreduce.job import Engine
from tare.workloads.values import mapping, number

_WHOLE = {
    "written": ("B", "Bytes that DataNodes and tasks wrote to all machines' disks together."),
    "copies": (
        "1",
        "Number of copies of each block of the job's output: the requested number, limited by the "
        "number of machines that can hold them.",
    ),
}
_OF_STEP: Mapping[str, tuple[str, tuple[str, ...], float, str]] = {
    "gc": ("s", ("gc_ms",), 1e-3, "Time that all tasks together spent collecting garbage."),
    "cpu": ("s", ("cpu_ms",), 1e-3, "CPU time of all tasks together."),
    "spilled": (
        "1",
        ("spilled",),
        1.0,
        "Records that tasks spilled to disk between map and reduce.",
    ),
    "intermediate": ("B", ("local_written_bytes",), 1.0, "Bytes that tasks wrote outside HDFS."),
    "shuffled": ("B", ("shuffled_bytes",), 1.0, "Bytes that reduces fetched from maps."),
    "bytes-read": (
        "B",
        ("hdfs_read_bytes", "local_read_bytes"),
        1.0,
        "Bytes that tasks read, from HDFS and from local intermediate files.",
    ),
    "bytes-written": (
        "B",
        ("hdfs_written_bytes", "local_written_bytes"),
        1.0,
        "Bytes that tasks wrote, to HDFS (before replication) and outside it.",
    ),
}


def whole_metrics() -> tuple[Metric, ...]:
    """Return the metrics of a cell as a whole."""
    return tuple(Metric(name, unit, "neither", summary) for name, (unit, summary) in _WHOLE.items())


def step_metrics(step: str, phases: tuple[str, ...] = PHASES) -> tuple[Metric, ...]:
    """Return the metrics of a step from the job history; their names begin with the step's."""
    return (
        *(
            Metric(f"{step}-{phase}", "s", "lower", f"Its part until the last {phase} ended.")
            for phase in phases
        ),
        Metric(f"{step}-wait", "s", "lower", "From the job's submission to the start of its first "
        "task: YARN's overhead."),
        *(
            Metric(f"{step}-{name}", unit, "neither", summary)
            for name, (unit, _, _, summary) in _OF_STEP.items()
        ),
    )  # fmt: skip


def whole_values(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of :func:`whole_metrics`.

    Raises:
        KeyError: A value is missing.
        ValueError: A value is not a number.
    """
    return {"written": number(result, "written_bytes"), "copies": number(result, "replication")}


def step_values(
    result: Mapping[str, Any], step: str, phases: tuple[str, ...] = PHASES
) -> dict[str, float]:
    """Return the values of :func:`step_metrics`.

    Raises:
        KeyError: A value is missing.
        ValueError: A value is not a number.
    """
    job = mapping(mapping(mapping(result, "steps"), step), "job")
    counters = mapping(job, "counters")
    found = {f"{step}-{phase}": number(job, ("phases", phase)) for phase in phases}
    found[f"{step}-wait"] = number(job, "delay_s")
    for name, (_, summed, scale, _) in _OF_STEP.items():
        # Hadoop omits counters that it never incremented, such as shuffles of a map-only job.
        if all(counter in counters for counter in summed):
            found[f"{step}-{name}"] = scale * sum(number(counters, each) for each in summed)
    return found


def engine_values(result: Mapping[str, Any], step: str, engine: Engine) -> dict[str, float]:
    """Return the values of :func:`step_metrics` that the step's engine reports.

    Raises:
        KeyError: A value is missing.
        ValueError: A value is not a number.
    """
    return step_values(result, step, spark_history.PHASES if engine == "spark" else PHASES)


def took(result: Mapping[str, Any], step: str) -> float:
    """Return the seconds that a step's client ran; raises KeyError and ValueError."""
    return number(result, ("steps", step, "took_s"))
