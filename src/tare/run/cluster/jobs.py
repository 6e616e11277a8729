"""Carry a job out on a cluster, and gather what is known of it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tare.agent.client import Outcome
from tare.errors import InputError, MachineFault, WorkloadFault
from tare.hosts.ledger.hdfs import deletion
from tare.run.cluster.faults import fault_in, fault_in_logs, lines_of
from tare.run.cluster.spark import FORGET, spark_job, spark_losses
from tare.run.cluster.state import DATANODE_BEAN, objects_in, telling, written
from tare.workloads.mapreduce.configuration import as_xml, mapred
from tare.workloads.mapreduce.daemons import OWN_CONF, java
from tare.workloads.mapreduce.history import (
    PHASES,
    counters_of,
    delay_of,
    jobs_of,
    lost_attempts,
    spans_of,
    task_of,
    whole_of,
)
from tare.workloads.mapreduce.job import HDFS, worded
from tare.workloads.mapreduce.spark import executors_of, submission

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import ProgressCallback
    from tare.run.cluster.contract import HadoopCluster
    from tare.workloads.mapreduce.job import Job, Step

HISTORY_S = 60.0
FAILED_S = 3.0
"""Seconds that the history server is asked of a job that failed: of some it never hears."""
LOOK_S = 0.2
AT_ONCE = 40
"""Tasks that are asked for at once: more would not fit into one answer."""
_CLIENT = (
    'echo "TARE-BEGAN $(date +%s%3N)"; "$@" 2>&1; code=$?; echo "TARE-ENDED $code $(date +%s%3N)"'
)
_BEGAN, _ENDED = re.compile(r"TARE-BEGAN (\d+)"), re.compile(r"TARE-ENDED (\d+) (\d+)")
_CONFIGURE = f'mkdir -p {OWN_CONF} && printf "%s" "$1" >{OWN_CONF}/mapred-site.xml'
_GET = 'curl -sS -m 20 -H "Accept: application/json" "$@"'
_WRITTEN = f'for node; do curl -sS -m 20 "http://$node/jmx?qry={DATANODE_BEAN}"; done'
T = TypeVar("T")


@dataclass
class ClusterJob:
    """One cell's job on a cluster.

    Args:
        cluster: It is up.
        job: What to do.
        deadline_s: Seconds after which it is given up.
    """

    cluster: HadoopCluster
    job: Job
    deadline_s: float
    _began: float = 0.0
    _phases: list[dict[str, Any]] = field(default_factory=list)

    async def carry_out(self, *, barrier: Barrier, on_progress: ProgressCallback) -> Outcome:
        """Do all steps, verify what they made, and return what became of them.

        Raises:
            MachineFault: A machine or daemon is lost, a job failed or did not end: nobody knows
                what it left, so the machines are made anew.
            WorkloadFault: What was computed is wrong.
        """
        try:
            async with asyncio.timeout(self.deadline_s):
                return await self._carry_out(barrier, on_progress)
        except TimeoutError:
            raise MachineFault(f"the job did not end within {self.deadline_s:.0f} s") from None
        except BaseException as error:
            barrier.abort(str(error))
            raise

    async def _carry_out(self, barrier: Barrier, on_progress: ProgressCallback) -> Outcome:
        told: dict[str, Any] = {}
        steps = self.job.steps
        if self.cluster.outside and (strange := next(filter(_brings_archives, steps), None)):
            raise WorkloadFault(
                f"{strange.name}: the cluster's machines lack the archives of {strange.main}",
                "leave out `engine`, and `kmeans`: what Hadoop itself brings is done on any",
            )
        await self._remove()
        first = next((i for i, step in enumerate(steps) if step.measured), len(steps))
        for step in steps[:first]:
            told[step.name] = await self._step(step)
        before = await self._written()

        async def go() -> None:
            self._began = time.monotonic()

        await barrier.arrive(go)
        for number, step in enumerate(steps[first:], start=first):
            told[step.name] = await self._step(step)
            on_progress((number + 1) / len(steps), {"step": step.name})
        wrote = await self._written() - before
        if wrong := self.job.check(told):
            raise WorkloadFault(wrong)
        await self._remove()
        local = sum(
            told[step.name]["job"]["counters"].get("local_written_bytes", 0)
            for step in steps[first:]
            if "job" in told[step.name]
        )
        layout = self.cluster.layout
        return Outcome(
            {
                "steps": told,
                "hdfs_written_bytes": wrote,
                "written_bytes": wrote + local,
                "replication": layout.effective_replication,
                "phases": self._phases,
                "output": "\n".join(_titled(name, each["output"]) for name, each in told.items()),
            }
        )

    async def _step(self, step: Step) -> dict[str, Any]:
        dropped = await self._alive(self._drop_caches()) if step.cold else []
        at = time.monotonic() - self._began
        if step.script:
            try:
                value = await self._alive(self._script(step))
            except WorkloadFault as fault:
                raise MachineFault(f"{step.name}: {await self._named(str(fault))}") from fault
            return {"took_s": float(value["wall_s"]), "output": value["output"]}
        value = await self._alive(self._client(step))
        output = str(value["output"])
        told: dict[str, Any] = {
            "took_s": float(value["wall_s"]),
            "output": output,
            "caches": dropped,
        }
        jobs = jobs_of(output)
        ended, began = _ENDED.search(output), _BEGAN.search(output)
        if ended is None or began is None or ended[1] != "0":
            program, blamed = step.main.rpartition(".")[2], await self._blame(step, jobs)
            said = await self._named(telling(output), output + blamed)
            raise MachineFault(f"{step.name}: {program} failed{blamed}: {said}")
        if step.engine == "spark":
            told["job"] = await self._alive(spark_job(self.cluster.master))
            told["executors"] = executors_of(self.cluster.layout)
        elif step.alone:
            return told
        elif not jobs:
            raise MachineFault(f"{step.name}: {step.main} told of no job: {telling(output)}")
        else:
            patience_s = self.cluster.patience(HISTORY_S)
            told["job"] = whole_of([await self._alive(self._history(j, patience_s)) for j in jobs])
        if step.measured:
            self._shade(step.name, at, int(began[1]), told["job"])
        return told

    async def _drop_caches(self) -> list[Mapping[str, Any]]:
        members = self.cluster.members.values()
        return await asyncio.gather(*(member.drop_caches() for member in members))

    async def _client(self, step: Step) -> dict[str, Any]:
        layout, master = self.cluster.layout, self.cluster.master
        if step.engine == "spark":
            try:
                argv = submission(layout, step.main, step.arguments, step.properties)
            except InputError as error:
                raise WorkloadFault(error.message, error.hint) from error
            await master.run(FORGET)
        else:
            if step.archives:
                own = {**mapred(layout, step.archives), **worded(step.properties)}
                await master.run(_CONFIGURE, as_xml(own))
            argv = java(
                step.heap or layout.sizes.client,
                layout.processors,
                step.main,
                step.arguments,
                archives=step.archives,
            )
        env = {"HADOOP_USER_NAME": self.cluster.user}
        return await master.run(_CLIENT, *argv, env=env, timeout_s=self.deadline_s)

    async def _script(self, step: Step) -> dict[str, Any]:
        cluster = self.cluster
        ports = " ".join(
            f"--resolve {name}:{address.partition(':')[0]}"
            for name, address in cluster.datanodes().items()
        )
        env = {
            "TARE_NAMENODE": cluster.namenode,
            "TARE_USER": cluster.user,
            "TARE_RESOLVE": ports,
        }
        return await cluster.master.run(HDFS + step.script, env=env, timeout_s=self.deadline_s)

    async def _remove(self) -> None:
        for path in self.job.remove:
            url = deletion(self.cluster.namenode, path, self.cluster.user)
            await self.cluster.master.run('curl -sS -m 60 -X DELETE "$1"', url)

    async def _written(self) -> int:
        nodes = self.cluster.datanodes().values()
        return written(await self.cluster.master.output(_WRITTEN, *nodes))

    async def _history(self, job: str, patience_s: float) -> dict[str, Any]:
        """Ask the history server of a job, which hears of it a moment after its end."""
        until = time.monotonic() + patience_s
        while True:
            about, counters, tasks = await self._get(
                [f"jobs/{job}", f"jobs/{job}/counters", f"jobs/{job}/tasks"],
                ["job", "jobCounters", "tasks"],
            )
            if about is not None and counters is not None and tasks is not None:
                break
            if time.monotonic() > until:
                raise MachineFault(f"the history server knows nothing of {job}")
            await asyncio.sleep(LOOK_S)
        listed = list(tasks["tasks"].get("task", ()))
        attempts = await self._attempts(job, [str(task["id"]) for task in listed])
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

    async def _attempts(self, job: str, tasks: Sequence[str]) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for first in range(0, len(tasks), AT_ONCE):
            some = tasks[first : first + AT_ONCE]
            said = await self._ask([f"jobs/{job}/tasks/{task}/attempts" for task in some])
            for told in objects_in(said):
                listed = told.get("taskAttempts")
                if isinstance(listed, Mapping):
                    found += list(listed.get("taskAttempt", ()))
        if missing := set(tasks) - {task_of(str(each["id"])) for each in found}:
            raise MachineFault(f"the history server does not tell of {sorted(missing)[0]}")
        return found

    async def _get(
        self, paths: Sequence[str], keys: Sequence[str]
    ) -> list[Mapping[str, Any] | None]:
        """Return the objects that have these keys, each None where there was none."""
        told = list(objects_in(await self._ask(paths)))
        return [next((each for each in told if key in each), None) for key in keys]

    async def _ask(self, paths: Sequence[str]) -> str:
        master = self.cluster.master
        base = f"http://{self.cluster.history}/ws/v1/history/mapreduce"
        return await master.output(_GET, *(f"{base}/{path}" for path in paths))

    async def _blame(self, step: Step, jobs: Sequence[str]) -> str:
        """Say which tasks of a failed job were lost, as far as its history tells."""
        if step.engine == "spark":
            lost = await spark_losses(self.cluster.master, self.cluster.slaves)
            return f" ({'; '.join(lost[:2])})" if lost else ""
        if not jobs:
            return ""
        try:
            lost = (await self._history(jobs[-1], FAILED_S))["lost"]
        except (MachineFault, WorkloadFault, KeyError, TypeError, ValueError):
            return ""
        return f" ({'; '.join(lost[:2])})" if lost else ""

    async def _named(self, told: str, whole: str = "") -> str:
        """Return what a step told, after the name of the fault and with what daemons log of it."""
        fault, logs = fault_in(whole or told), await self.cluster.logs()
        own = fault is not None
        fault = fault or fault_in_logs(logs)
        if fault is None:
            return told
        said = [f"{fault.words}: {told}"]
        for name, log in logs.items():
            telling_log = name.endswith(f"-{fault.daemon}.log") or not own
            if telling_log and (lines := lines_of(fault, log)):
                said.append(f"{name} says: {lines}")
        return "; ".join(said)

    async def _alive(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` returns, unless a daemon ends before."""
        task = asyncio.ensure_future(work)
        lost = self.cluster.lost
        try:
            either: list[asyncio.Future[Any]] = [task, lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if lost.done():
            raise MachineFault(f"{lost.result()}{await self.cluster.why()}")
        return task.result()

    def _shade(self, step: str, at: float, began_ms: int, job: Mapping[str, Any]) -> None:
        for name, begin_ms, end_ms in job["spans"]:
            begin_s, end_s = (at + (ms - began_ms) / 1e3 for ms in (begin_ms, end_ms))
            if end_s > begin_s:
                self._phases.append({"name": f"{step} {name}", "begin_s": begin_s, "end_s": end_s})


def job_facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a cell's record keeps of a job on a cluster: all but what was printed."""
    if "steps" not in result or "replication" not in result:
        return {}
    steps = {
        name: {key: value for key, value in told.items() if key != "output"}
        for name, told in result["steps"].items()
    }
    names = ("replication", "written_bytes", "hdfs_written_bytes")
    return {"job": {**{name: result[name] for name in names}, "steps": steps}}


def _brings_archives(step: Step) -> bool:
    return step.engine == "spark" or bool(step.archives)


def _titled(name: str, output: str) -> str:
    return f"=== {name}\n{output}"
