"""A cell's job on a cluster: its steps, their verification and the job's history."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tare.agent.client import Outcome
from tare.errors import InputError, MachineFault, WorkloadFault
from tare.events.cell_facts import CellFacts
from tare.run.cells.liveness import side_by_side
from tare.run.topologies.cluster.contract import LOGS_S
from tare.run.topologies.cluster.faults import fault_in, fault_in_logs, lines_of
from tare.run.topologies.cluster.folder import deletion
from tare.run.topologies.cluster.history import history_of
from tare.run.topologies.cluster.member import SHORT_S
from tare.run.topologies.cluster.spark import FORGET, spark_job, spark_losses
from tare.run.topologies.cluster.state import DATANODE_BEAN, error_lines, written
from tare.workloads.mapreduce.configuration import as_xml, hdfs, mapred
from tare.workloads.mapreduce.daemons import OWN_CONF, java
from tare.workloads.mapreduce.history import jobs_of, merge_records
from tare.workloads.mapreduce.job import HDFS, worded
from tare.workloads.mapreduce.spark import executors_of, submission

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import ProgressCallback
    from tare.run.topologies.cluster.contract import HadoopCluster
    from tare.workloads.mapreduce.job import Job, JobStep

ANSWER_S = 60.0
"""Seconds that a daemon may take to answer a simple request."""
HISTORY_S = 60.0
FAILED_S = 3.0
"""Seconds to wait for the history of a failed job: some jobs never get one."""
NOTES_S = 20.0
"""Seconds that reading the logs of tasks may take: their machines may be lost."""
_CLIENT = (
    'echo "TARE-BEGAN $(date +%s%3N)"; "$@" 2>&1; code=$?; echo "TARE-ENDED $code $(date +%s%3N)"'
)
_BEGAN, _ENDED = re.compile(r"TARE-BEGAN (\d+)"), re.compile(r"TARE-ENDED (\d+) (\d+)")
_CONFIGURE = (
    f'mkdir -p {OWN_CONF} && printf "%s" "$1" >{OWN_CONF}/mapred-site.xml && '
    f'printf "%s" "$2" >{OWN_CONF}/hdfs-site.xml'
)
_WRITTEN = f'curl -sS -m "$2" "http://$1/jmx?qry={DATANODE_BEAN}"'
_REMOVE = 'curl -sS -m "$2" -X DELETE "$1"'
T = TypeVar("T")


@dataclass(frozen=True)
class _Ran:
    """A measured step that has ended, and whose jobs' history is still to be read.

    Args:
        step: The step.
        result: Its result, to which the history is added.
        jobs: The ids of its jobs.
        at: Seconds from the common start to the start of the step.
        began_ms: The same moment on the master's clock, in ms since the epoch.
    """

    step: JobStep
    result: dict[str, Any]
    jobs: tuple[str, ...]
    at: float
    began_ms: int


@dataclass
class ClusterJob:
    """One cell's job on a cluster.

    Args:
        cluster: The running cluster.
        job: The job.
        deadline_s: Seconds after which it fails.
    """

    cluster: HadoopCluster
    job: Job
    deadline_s: float
    _began: float = 0.0
    _ran: list[_Ran] = field(default_factory=list)
    _phases: list[dict[str, Any]] = field(default_factory=list)
    _spent_s: dict[str, float] = field(default_factory=dict)

    async def run(self, *, barrier: Barrier, on_progress: ProgressCallback) -> Outcome:
        """Run all steps, verify their output, and return their results.

        Raises:
            MachineFault: A machine or daemon is lost, or a job failed or did not end: its leftovers
                are unknown, so the machines are replaced.
            WorkloadFault: The computed output is wrong.
        """
        try:
            async with asyncio.timeout(self.deadline_s):
                return await self._run(barrier, on_progress)
        except TimeoutError:
            await self._note_tasks()
            raise MachineFault(f"the job did not end within {self.deadline_s:.0f} s") from None
        except MachineFault as fault:
            barrier.abort(str(fault))
            await self._note_tasks()
            raise
        except BaseException as error:
            barrier.abort(str(error))
            raise

    async def _run(self, barrier: Barrier, on_progress: ProgressCallback) -> Outcome:
        foreign = next((step for step in self.job.steps if step.brings_archives), None)
        if self.cluster.outside and foreign is not None:
            raise WorkloadFault(
                f"{foreign.name}: the cluster's machines lack the archives of {foreign.main}",
                "remove `engine`, and `kmeans`: what Hadoop itself includes runs on any cluster",
            )
        try:
            return await self._steps(barrier, on_progress)
        except WorkloadFault:
            # The machines are kept, so the next cell must not find old files.
            await self._remove()
            raise

    async def _steps(self, barrier: Barrier, on_progress: ProgressCallback) -> Outcome:
        results: dict[str, Any] = {}
        steps = self.job.steps
        first, after = measured_of(steps)
        with self._spending("preparing"):
            for step in steps[:first]:
                results[step.name] = await self._step(step)
            before = await self._written()

        async def go() -> None:
            self._began = time.monotonic()

        await barrier.arrive(go)
        for step in steps[first:after]:
            results[step.name] = await self._step(step)
            on_progress(len(results) / len(steps), {"step": step.name})

        async def verify() -> None:
            for step in steps[after:]:
                results[step.name] = await self._step(step)
                on_progress(len(results) / len(steps), {"step": step.name})

        with self._spending("closing"):
            # Nothing is measured any more, so all of this may run concurrently.
            wrote, *_ = await side_by_side(self._written(), self._read_history(), verify())
            wrote -= before
            if wrong := self.job.check(results):
                raise WorkloadFault(wrong)
            await self._remove()
        local = sum(
            results[step.name]["job"]["counters"].get("local_written_bytes", 0)
            for step in steps[first:after]
            if "job" in results[step.name]
        )
        return Outcome(
            {
                "steps": results,
                "spent_s": self._spent_s,
                "hdfs_written_bytes": wrote,
                "written_bytes": wrote + local,
                "replication": self.cluster.layout.copies(self.job.copies),
                "phases": self._phases,
                "output": "\n".join(
                    _titled(name, each["output"]) for name, each in results.items()
                ),
            }
        )

    async def _step(self, step: JobStep) -> dict[str, Any]:
        dropped: list[Mapping[str, Any]] = []
        if step.cold:
            with self._spending("caches"):
                dropped = await self._alive(self._drop_caches())
        if step.script:
            try:
                value = await self._alive(self._script(step))
            except WorkloadFault as fault:
                raise MachineFault(f"{step.name}: {await self._explained(str(fault))}") from fault
            return {"took_s": float(value["wall_s"]), "output": value["output"]}
        if step.engine == "spark":
            # Its log only holds the last job.
            await self._read_history()
            await self._alive(self.cluster.master.run(FORGET))
        at = time.monotonic() - self._began
        value = await self._alive(self._client(step))
        output = str(value["output"])
        result: dict[str, Any] = {
            "took_s": float(value["wall_s"]),
            "output": output,
            "caches": dropped,
        }
        jobs = jobs_of(output)
        ended, began = _ENDED.search(output), _BEGAN.search(output)
        if ended is None or began is None or ended[1] != "0":
            # The reason has a few lines; the whole output is kept for further analysis.
            self.cluster.notes[f"{step.name}-client.log"] = output
            program, blamed = step.main.rpartition(".")[2], await self._blame(step, jobs)
            reason = await self._explained(error_lines(output), output + blamed)
            raise MachineFault(f"{step.name}: {program} failed{blamed}: {reason}")
        if step.engine == "spark":
            result["executors"] = executors_of(self.cluster.layout)
        elif not jobs and not step.alone:
            raise MachineFault(f"{step.name}: {step.main} reported no job: {error_lines(output)}")
        if step.measured and not step.alone:
            self._ran.append(_Ran(step, result, jobs, at, int(began[1])))
        return result

    async def _read_history(self) -> None:
        """Read the history of the measured jobs, after all of them have ended."""
        patience_s = self.cluster.patience(HISTORY_S)
        while self._ran:
            ran = self._ran.pop(0)
            if ran.step.engine == "spark":
                job = await self._alive(spark_job(self.cluster.master))
            else:
                reading = (history_of(self.cluster, each, patience_s) for each in ran.jobs)
                job = merge_records([await self._alive(each) for each in reading])
            ran.result["job"] = job
            self._add_phases(ran, job)

    async def _drop_caches(self) -> list[Mapping[str, Any]]:
        members = self.cluster.members.values()
        return await asyncio.gather(*(member.drop_caches() for member in members))

    async def _client(self, step: JobStep) -> dict[str, Any]:
        layout, master = self.cluster.layout, self.cluster.master
        if step.engine == "spark":
            try:
                argv = submission(layout, step.main, step.arguments, step.properties)
            except InputError as error:
                raise WorkloadFault(error.message, error.hint) from error
        else:
            if step.archives:
                # If both files have a property, the one that the client reads last applies.
                own = worded(step.properties)
                files = (mapred(layout, step.archives), hdfs(layout, layout.master))
                await master.run(_CONFIGURE, *(as_xml({**file, **own}) for file in files))
            argv = java(
                step.heap or layout.sizes.client,
                layout.processors,
                step.main,
                step.arguments,
                archives=step.archives,
            )
        env = {"HADOOP_USER_NAME": self.cluster.user}
        return await master.run(_CLIENT, *argv, env=env, timeout_s=self.deadline_s)

    async def _script(self, step: JobStep) -> dict[str, Any]:
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

    @property
    def _answer_s(self) -> float:
        """Seconds that a daemon may take to answer."""
        return self.cluster.patience(ANSWER_S)

    async def _remove(self) -> None:
        for path in self.job.remove:
            url = deletion(self.cluster.namenode, path, self.cluster.user)
            await self.cluster.master.run(
                _REMOVE, url, f"{self._answer_s:.0f}", timeout_s=self._answer_s + SHORT_S
            )

    async def _written(self) -> int:
        nodes = self.cluster.datanodes().values()
        reading = (
            self.cluster.master.output(
                _WRITTEN, node, f"{self._answer_s:.0f}", timeout_s=self._answer_s + SHORT_S
            )
            for node in nodes
        )
        return sum(map(written, await side_by_side(*reading)))

    async def _blame(self, step: JobStep, jobs: Sequence[str]) -> str:
        """Return which tasks of a failed job were lost, according to its history."""
        if step.engine == "spark":
            lost = await spark_losses(self.cluster.master, self.cluster.slaves)
            return f" ({'; '.join(lost[:2])})" if lost else ""
        if not jobs:
            return ""
        try:
            lost = (await history_of(self.cluster, jobs[-1], FAILED_S))["lost"]
        except (MachineFault, WorkloadFault, KeyError, TypeError, ValueError):
            return ""
        return f" ({'; '.join(lost[:2])})" if lost else ""

    async def _note_tasks(self) -> None:
        """Keep the logs of tasks, before the machines' disks are removed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.cluster.patience(NOTES_S)):
                await self.cluster.note_tasks()

    async def _explained(self, reason: str, whole: str = "") -> str:
        """Return a step's reason, with the name of a known fault and the daemons' lines on it."""
        logs = await self.cluster.logs(self.cluster.patience(LOGS_S))
        fault = fault_in(whole or reason)
        own = fault is not None
        fault = fault or fault_in_logs(logs)
        if fault is None:
            return reason
        parts = [f"{fault.words}: {reason}"]
        for name, log in logs.items():
            is_relevant = name.endswith(f"-{fault.daemon}.log") or not own
            if is_relevant and (lines := lines_of(fault, log)):
                parts.append(f"{name} says: {lines}")
        return "; ".join(parts)

    async def _alive(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``, unless a daemon ends before."""
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

    def _add_phases(self, ran: _Ran, job: Mapping[str, Any]) -> None:
        for name, begin_ms, end_ms in job["spans"]:
            begin_s, end_s = (ran.at + (ms - ran.began_ms) / 1e3 for ms in (begin_ms, end_ms))
            if end_s > begin_s:
                phase = {"name": f"{ran.step.name} {name}", "begin_s": begin_s, "end_s": end_s}
                self._phases.append(phase)

    @contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._spent_s[what] = self._spent_s.get(what, 0.0) + time.monotonic() - began


def job_facts(result: Mapping[str, Any]) -> CellFacts:
    """Return the facts on a cluster's job, without its printed output."""
    if "steps" not in result or "replication" not in result:
        return {}
    steps: dict[str, Any] = {
        name: {key: value for key, value in step.items() if key != "output"}
        for name, step in result["steps"].items()
    }
    return {
        "job": {
            "replication": result["replication"],
            "written_bytes": result["written_bytes"],
            "hdfs_written_bytes": result["hdfs_written_bytes"],
            "spent_s": result["spent_s"],
            "steps": steps,
        }
    }


def measured_of(steps: Sequence[JobStep]) -> tuple[int, int]:
    """Return the index of the first measured step, and the index after the last."""
    numbers = [number for number, step in enumerate(steps) if step.measured]
    return (numbers[0], numbers[-1] + 1) if numbers else (len(steps), len(steps))


def _titled(name: str, output: str) -> str:
    return f"=== {name}\n{output}"
