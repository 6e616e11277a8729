"""The history server's record of an ended job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.run.topologies.cluster.member import SHORT_S
from tare.run.topologies.cluster.state import objects_in
from tare.workloads.mapreduce.history import (
    PHASES,
    counters_of,
    delay_of,
    lost_attempts,
    spans_of,
    task_of,
)

if TYPE_CHECKING:
    from tare.run.topologies.cluster.contract import HadoopCluster

LOOK_S = 0.2
AT_ONCE = 40
"""The most tasks in one request: more would not fit into one answer."""
ANSWER_S = 20.0
_GET = 'wait=$1; shift; curl -sS -m "$wait" -H "Accept: application/json" "$@"'


async def history_of(cluster: HadoopCluster, job: str, patience_s: float) -> dict[str, Any]:
    """Return the history server's record of a job, which it gets a moment after the job's end.

    Args:
        cluster: The running cluster.
        job: The job's id.
        patience_s: Seconds to wait for the record.

    Raises:
        MachineFault: It has no record of the job, or not of all its tasks.
        WorkloadFault: It does not answer.
    """
    until = time.monotonic() + patience_s
    while True:
        about, counters, tasks = await _get(
            cluster,
            [f"jobs/{job}", f"jobs/{job}/counters", f"jobs/{job}/tasks"],
            ["job", "jobCounters", "tasks"],
        )
        if about is not None and counters is not None and tasks is not None:
            break
        if time.monotonic() > until:
            raise MachineFault(f"the history server does not know {job}")
        await asyncio.sleep(LOOK_S)
    listed = list(tasks["tasks"].get("task", ()))
    attempts = await _attempts(cluster, job, [str(task["id"]) for task in listed])
    spans = spans_of(attempts)
    found = {span.name: span.seconds for span in spans}
    return {
        "id": job,
        "state": about["job"]["state"],
        "submitted_ms": about["job"].get("submitTime"),
        "started_ms": about["job"].get("startTime"),
        "finished_ms": about["job"].get("finishTime"),
        "maps": about["job"].get("mapsTotal"),
        "reduces": about["job"].get("reducesTotal"),
        "counters": counters_of(counters),
        "delay_s": delay_of(about["job"], spans),
        "phases": {name: found.get(name, 0.0) for name in PHASES},
        "spans": [[span.name, span.begin_ms, span.end_ms] for span in spans],
        "lost": lost_attempts(attempts),
    }


async def _attempts(
    cluster: HadoopCluster, job: str, tasks: Sequence[str]
) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for first in range(0, len(tasks), AT_ONCE):
        some = tasks[first : first + AT_ONCE]
        answers = await _ask(cluster, [f"jobs/{job}/tasks/{task}/attempts" for task in some])
        for answer in objects_in(answers):
            listed = answer.get("taskAttempts")
            if isinstance(listed, Mapping):
                found += list(listed.get("taskAttempt", ()))
    if missing := set(tasks) - {task_of(str(each["id"])) for each in found}:
        raise MachineFault(f"the history server does not list {sorted(missing)[0]}")
    return found


async def _get(
    cluster: HadoopCluster, paths: Sequence[str], keys: Sequence[str]
) -> list[Mapping[str, Any] | None]:
    """Return the object with each of these keys; None if there is none."""
    answers = list(objects_in(await _ask(cluster, paths)))
    return [next((each for each in answers if key in each), None) for key in keys]


async def _ask(cluster: HadoopCluster, paths: Sequence[str]) -> str:
    base = f"http://{cluster.history}/ws/v1/history/mapreduce"
    answer_s = cluster.patience(ANSWER_S)
    urls = [f"{base}/{path}" for path in paths]
    timeout_s = SHORT_S + answer_s * len(urls)
    return await cluster.master.output(_GET, f"{answer_s:.0f}", *urls, timeout_s=timeout_s)
