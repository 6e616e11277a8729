"""Read a finished job from Hadoop's history server: phases, counters and delays.

Source of the names: MapReduce History Server REST APIs, Hadoop 3.4.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PHASES = ("map", "shuffle", "sort", "reduce")
COUNTERS = {
    "GC_TIME_MILLIS": "gc_ms",
    "CPU_MILLISECONDS": "cpu_ms",
    "SPILLED_RECORDS": "spilled",
    "MAP_OUTPUT_BYTES": "map_output_bytes",
    "REDUCE_SHUFFLE_BYTES": "shuffled_bytes",
    "FILE_BYTES_READ": "local_read_bytes",
    "FILE_BYTES_WRITTEN": "local_written_bytes",
    "HDFS_BYTES_READ": "hdfs_read_bytes",
    "HDFS_BYTES_WRITTEN": "hdfs_written_bytes",
    "CHECKSUM": "checksum",
}
"""Maps each of Hadoop's counters that Tare keeps to its name in the record."""
_JOB = re.compile(r"\bjob_\d+_\d+\b")


@dataclass(frozen=True)
class Span:
    """A phase of a job; times are in milliseconds since the epoch."""

    name: str
    begin_ms: int
    end_ms: int

    @property
    def seconds(self) -> float:
        """The duration of the phase."""
        return (self.end_ms - self.begin_ms) / 1e3


def jobs_of(output: str) -> tuple[str, ...]:
    """Return the ids of the jobs in a client's output, each once, in their order."""
    return tuple(dict.fromkeys(_JOB.findall(output)))


def merge_records(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the records of jobs that a client ran one after the other into one record.

    Args:
        jobs: The record of each job, in order; at least one.

    Returns:
        The same keys, and ``jobs``: the jobs' ids. Counters, phases, delays and numbers of tasks
        are sums, and ``state`` is the last job's.
    """
    first, last = jobs[0], jobs[-1]
    counters: dict[str, int] = {}
    phases: dict[str, float] = {}
    for job in jobs:
        for name, count in job["counters"].items():
            counters[name] = counters.get(name, 0) + count
        for name, seconds in job["phases"].items():
            phases[name] = phases.get(name, 0.0) + seconds
    return {
        **last,
        "jobs": [job["id"] for job in jobs],
        "submitted_ms": first["submitted_ms"],
        "started_ms": first["started_ms"],
        "maps": sum(job["maps"] or 0 for job in jobs),
        "reduces": sum(job["reduces"] or 0 for job in jobs),
        "counters": counters,
        "delay_s": sum(job["delay_s"] for job in jobs),
        "phases": phases,
        "spans": [span for job in jobs for span in job["spans"]],
        "lost": tuple(lost for job in jobs for lost in job["lost"]),
    }


def counters_of(answer: Mapping[str, Any]) -> dict[str, int]:
    """Return a job's totals from the answer of ``/jobs/ID/counters``.

    Raises:
        KeyError: The answer has no counters.
        TypeError: The answer has another structure.
        ValueError: A counter is not a number.
    """
    found: dict[str, int] = {}
    for group in answer["jobCounters"].get("counterGroup", ()):
        for counter in group.get("counter", ()):
            if (name := COUNTERS.get(counter["name"])) is not None:
                found[name] = found.get(name, 0) + int(counter["totalCounterValue"])
    if not found.get("cpu_ms", 1):
        # Every task takes some time, so 0 means that Hadoop could not measure it.
        del found["cpu_ms"]
    return found


def spans_of(attempts: Sequence[Mapping[str, Any]]) -> tuple[Span, ...]:
    """Return a job's phases, one after the other, from its tasks' successful attempts.

    A phase ends when its last task ends. If two phases overlap, the later one begins at the end of
    the earlier one. A job without reduces has only one phase.

    Args:
        attempts: The answer of ``/tasks/ID/attempts`` for each task.

    Raises:
        KeyError: An attempt lacks a time.
        TypeError: An attempt has another structure.
        ValueError: A time is not a number.
    """
    good = [each for each in attempts if each["state"] == "SUCCEEDED"]
    maps = [each for each in good if each["type"] == "MAP"]
    reduces = [each for each in good if each["type"] == "REDUCE"]
    found: list[Span] = []

    def add(name: str, begin_ms: int, end_ms: int) -> None:
        begin_ms = max(begin_ms, found[-1].end_ms) if found else begin_ms
        found.append(Span(name, begin_ms, max(begin_ms, end_ms)))

    if maps:
        add("map", _minimum(maps, "startTime"), _maximum(maps, "finishTime"))
    if reduces:
        add("shuffle", _minimum(reduces, "startTime"), _maximum(reduces, "shuffleFinishTime"))
        add("sort", _minimum(reduces, "shuffleFinishTime"), _maximum(reduces, "mergeFinishTime"))
        add("reduce", _minimum(reduces, "mergeFinishTime"), _maximum(reduces, "finishTime"))
    return tuple(found)


def delay_of(job: Mapping[str, Any], spans: Sequence[Span]) -> float:
    """Return the seconds from a job's submission to the start of its first task.

    In this time, YARN assigns a machine to the application master, starts it, and assigns a machine
    to the task. For single tasks, the history server does not report when they were requested.

    Args:
        job: The answer of ``/jobs/ID``.
        spans: The job's phases.

    Raises:
        KeyError: The answer has no time of submission.
        ValueError: No task of the job succeeded.
    """
    if not spans:
        raise ValueError("the job had no task that succeeded")
    return max(0, spans[0].begin_ms - int(job["submitTime"])) / 1e3


def task_of(attempt: str) -> str:
    """Return the id of an attempt's task: ``task_1_2_m_3`` for ``attempt_1_2_m_3_0``."""
    return "task" + attempt.removeprefix("attempt").rpartition("_")[0]


def lost_attempts(attempts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence about each attempt that failed or was killed."""
    return tuple(
        f"{each['id']} on {each.get('nodeHttpAddress', '?')}: {each['state']}"
        + (f": {first}" if (first := _first_line(each.get("diagnostics"))) else "")
        for each in attempts
        if each["state"] not in ("SUCCEEDED", "RUNNING")
    )


def _first_line(text: object) -> str:
    lines = str(text or "").strip().splitlines()
    return lines[0] if lines else ""


def _minimum(attempts: Sequence[Mapping[str, Any]], name: str) -> int:
    return min(int(each[name]) for each in attempts)


def _maximum(attempts: Sequence[Mapping[str, Any]], name: str) -> int:
    return max(int(each[name]) for each in attempts)
