"""A finished job by Spark's event log: phases, counters and delays.

Source of the names: org.apache.spark.util.JsonProtocol, Spark 3.5.6; every line is one event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tare.workloads.mapreduce.history import Span

PHASES = ("map", "reduce")
"""Stages whose tasks write for a shuffle, and those whose tasks write the result."""
EVENTS = ("ApplicationStart", "ApplicationEnd", "TaskEnd")
"""What of it is read; each is called ``SparkListener…``."""
_TYPES = {"ShuffleMapTask": "map", "ResultTask": "reduce"}
_SUCCESS = "Success"
MS_OF_NS = 1e-6


def events_in(log: str) -> Iterator[Mapping[str, Any]]:
    """Give the events of a log, one a line; what is none is passed over."""
    for line in log.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and "Event" in found:
            yield found


def job_of_log(log: str) -> dict[str, Any]:
    """Return what is kept of a job, in the form in which MapReduce's history is kept.

    Raises:
        KeyError: An event lacks what it always has, or there is no application in it.
        TypeError: One is built otherwise.
        ValueError: No task succeeded, or a number is none.
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

    As with MapReduce a phase ends with the last task that is in it, and where two overlap, the
    later one begins with the end of the one before.
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
    """Return the sums over tasks of what Spark counts, under the names that MapReduce's have.

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
    """Return the seconds of a task that were neither its run nor its data's way there and back.

    It is what Spark's own pages call the scheduler delay (AppStatusUtils.schedulerDelay).
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
