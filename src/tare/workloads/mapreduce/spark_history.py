"""Read a finished job from Spark's event log: phases, counters and delays.

Source of the names: org.apache.spark.util.JsonProtocol, Spark 3.5.6; every line is one event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tare.workloads.mapreduce.history import Span

PHASES = ("map", "reduce")
"""The phases: stages whose tasks write for a shuffle, and stages whose tasks write the result."""
EVENTS = ("ApplicationStart", "ApplicationEnd", "TaskEnd")
"""The events that Tare reads; in the log, their names begin with ``SparkListener``."""
_TYPES = {"ShuffleMapTask": "map", "ResultTask": "reduce"}
_SUCCESS = "Success"
MS_OF_NS = 1e-6


def events_in(log: str) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a log, which has one on each line; skip other lines."""
    for line in log.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and "Event" in found:
            yield found


def job_of_log(log: str) -> dict[str, Any]:
    """Return the record of a job, in the form of the record of a MapReduce job.

    Raises:
        KeyError: An event lacks a required field, or the log has no application.
        TypeError: An event has another structure.
        ValueError: No task succeeded, or a field is not a number.
    """
    tasks: list[Mapping[str, Any]] = []
    about: Mapping[str, Any] | None = None
    finished: int | None = None
    for event in events_in(log):
        kind = str(event["Event"]).removeprefix("SparkListener")
        if kind == "ApplicationStart":
            about = event
        elif kind == "ApplicationEnd":
            finished = int(event["Timestamp"])
        elif kind == "TaskEnd":
            tasks.append(event)
    if about is None:
        raise KeyError("SparkListenerApplicationStart")
    good = [task for task in tasks if _reason(task) == _SUCCESS]
    spans = spans_of(good)
    if not spans:
        raise ValueError("the job had no task that succeeded")
    submitted = int(about["Timestamp"])
    found = {span.name: span.seconds for span in spans}
    return {
        "id": str(about["App ID"]),
        "state": "SUCCEEDED" if finished is not None and len(good) == len(tasks) else "FAILED",
        "submitted_ms": submitted,
        "finished_ms": finished,
        "maps": sum(_phase(task) == "map" for task in good),
        "reduces": sum(_phase(task) == "reduce" for task in good),
        "stages": len({int(task["Stage ID"]) for task in good}),
        "counters": counters_of(good),
        "delay_s": max(0, spans[0].begin_ms - submitted) / 1e3,
        "scheduling_s": sum(map(scheduler_delay_s, good)),
        "phases": {name: found.get(name, 0.0) for name in PHASES},
        "spans": [[span.name, span.begin_ms, span.end_ms] for span in spans],
        "lost": lost_tasks(tasks),
    }


def spans_of(tasks: Sequence[Mapping[str, Any]]) -> tuple[Span, ...]:
    """Return a job's phases, one after the other, from the tasks that succeeded.

    As with MapReduce, a phase ends when its last task ends. If two phases overlap, the later one
    begins at the end of the earlier one.
    """
    found: list[Span] = []
    for name in PHASES:
        times = [_times(task) for task in tasks if _phase(task) == name]
        if times:
            begin = min(launch for launch, _ in times)
            begin = max(begin, found[-1].end_ms) if found else begin
            found.append(Span(name, begin, max(begin, *(finish for _, finish in times))))
    return tuple(found)


def counters_of(tasks: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the sums of Spark's counters over tasks, with MapReduce's names where they exist.

    Intermediate bytes are those written for shuffles and spilled to disks. Spark does not count
    spilled records.
    """
    sums = dict.fromkeys(("gc_ms", "cpu_ms", "shuffled_bytes", "local_written_bytes"), 0)
    sums |= dict.fromkeys(("disk_spilled_bytes", "input_bytes", "output_bytes"), 0)
    for task in tasks:
        metrics = task["Task Metrics"]
        read, wrote = metrics["Shuffle Read Metrics"], metrics["Shuffle Write Metrics"]
        spilled = int(metrics["Disk Bytes Spilled"])
        sums["gc_ms"] += int(metrics["JVM GC Time"])
        sums["cpu_ms"] += round(int(metrics["Executor CPU Time"]) * MS_OF_NS)
        sums["shuffled_bytes"] += int(read["Remote Bytes Read"]) + int(read["Local Bytes Read"])
        sums["local_written_bytes"] += int(wrote["Shuffle Bytes Written"]) + spilled
        sums["disk_spilled_bytes"] += spilled
        sums["input_bytes"] += int(metrics["Input Metrics"]["Bytes Read"])
        sums["output_bytes"] += int(metrics["Output Metrics"]["Bytes Written"])
    return sums


def scheduler_delay_s(task: Mapping[str, Any]) -> float:
    """Return the seconds of a task without its run and the transfer of its code and its result.

    Spark's own pages call this the scheduler delay (AppStatusUtils.schedulerDelay).
    """
    launch, finish = _times(task)
    metrics, info = task["Task Metrics"], task["Task Info"]
    fetching = int(info["Getting Result Time"])
    spent = (
        int(metrics["Executor Run Time"])
        + int(metrics["Executor Deserialize Time"])
        + int(metrics["Result Serialization Time"])
        + (finish - fetching if fetching else 0)
    )
    return max(0, finish - launch - spent) / 1e3


def lost_tasks(tasks: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence about each task that failed or was killed."""
    found = []
    for task in tasks:
        if (reason := _reason(task)) != _SUCCESS:
            info = task.get("Task Info")
            info = info if isinstance(info, Mapping) else {}
            end = task.get("Task End Reason")
            end = end if isinstance(end, Mapping) else {}
            words = " ".join(
                str(end[name]).strip().partition("\n")[0]
                for name in ("Class Name", "Description", "Loss Reason", "Kill Reason")
                if end.get(name)
            )
            where = info.get("Host", "?")
            found.append(
                f"task {info.get('Task ID', '?')} on {where}: {reason}"
                f"{f': {words[:300]}' if words else ''}"
            )
    return tuple(found)


def _reason(task: Mapping[str, Any]) -> str:
    end = task.get("Task End Reason")
    return str(end.get("Reason", "?")) if isinstance(end, Mapping) else "?"


def _phase(task: Mapping[str, Any]) -> str:
    return _TYPES.get(str(task["Task Type"]), "")


def _times(task: Mapping[str, Any]) -> tuple[int, int]:
    info = task["Task Info"]
    return int(info["Launch Time"]), int(info["Finish Time"])
