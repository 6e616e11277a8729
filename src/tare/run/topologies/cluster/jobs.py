"""Carry a job out on a cluster, and gather what is known of it."""

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
from tare.run.cells.alive import side_by_side
from tare.run.topologies.cluster.contract import LOGS_S
from tare.run.topologies.cluster.faults import fault_in, fault_in_logs, lines_of
from tare.run.topologies.cluster.folder import deletion
from tare.run.topologies.cluster.history import history_of
from tare.run.topologies.cluster.member import SHORT_S
from tare.run.topologies.cluster.spark import FORGET, spark_job, spark_losses
from tare.run.topologies.cluster.state import DATANODE_BEAN, telling, written
from tare.workloads.mapreduce.configuration import as_xml, hdfs, mapred
from tare.workloads.mapreduce.daemons import OWN_CONF, java
from tare.workloads.mapreduce.history import jobs_of, whole_of
from tare.workloads.mapreduce.job import HDFS, worded
from tare.workloads.mapreduce.spark import executors_of, submission

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import ProgressCallback
    from tare.run.topologies.cluster.contract import HadoopCluster
    from tare.workloads.mapreduce.job import Job, Step

ANSWER_S = 60.0
"""Seconds that a daemon may take to answer what is quickly done."""
HISTORY_S = 60.0
FAILED_S = 3.0
"""Seconds that the history server is asked of a job that failed: of some it never hears."""
NOTES_S = 20.0
"""Seconds that the logs of tasks may take: their machines may be lost."""
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
    """A measured step that has ended, and whose jobs are still to be asked of.

    Args:
        step: What it was.
        told: What is told of it, to which its jobs are added.
        jobs: Their ids.
        at: Seconds from the common start to its own.
        began_ms: The same moment on the master's clock, in ms since the epoch.
    """

    step: Step
    told: dict[str, Any]
    jobs: tuple[str, ...]
    at: float
    began_ms: int


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
    _ran: list[_Ran] = field(default_factory=list)
    _phases: list[dict[str, Any]] = field(default_factory=list)
    _spent_s: dict[str, float] = field(default_factory=dict)

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
            await self._note_tasks()
            raise MachineFault(f"the job did not end within {self.deadline_s:.0f} s") from None
        except MachineFault as fault:
            barrier.abort(str(fault))
            await self._note_tasks()
            raise
        except BaseException as error:
            barrier.abort(str(error))
            raise

    async def _carry_out(self, barrier: Barrier, on_progress: ProgressCallback) -> Outcome:
        strange = next((step for step in self.job.steps if step.brings_archives), None)
        if self.cluster.outside and strange is not None:
            raise WorkloadFault(
                f"{strange.name}: the cluster's machines lack the archives of {strange.main}",
                "leave out `engine`, and `kmeans`: what Hadoop itself brings is done on any",
            )
        try:
            return await self._steps(barrier, on_progress)
        except WorkloadFault:
            # The machines are kept, and what the next cell writes has to find nothing in its way.
            await self._remove()
            raise

    async def _steps(self, barrier: Barrier, on_progress: ProgressCallback) -> Outcome:
        told: dict[str, Any] = {}
        steps = self.job.steps
        first, after = measured_of(steps)
        with self._spending("preparing"):
            for step in steps[:first]:
                told[step.name] = await self._step(step)
            before = await self._written()

        async def go() -> None:
            self._began = time.monotonic()

        await barrier.arrive(go)
        for step in steps[first:after]:
            told[step.name] = await self._step(step)
            on_progress(len(told) / len(steps), {"step": step.name})

        async def verify() -> None:
            for step in steps[after:]:
                told[step.name] = await self._step(step)
                on_progress(len(told) / len(steps), {"step": step.name})

        with self._spending("closing"):
            # Nothing is measured any more, so that none of this need wait for the rest of it.
            wrote, *_ = await side_by_side(self._written(), self._ask(), verify())
            wrote -= before
            if wrong := self.job.check(told):
                raise WorkloadFault(wrong)
            await self._remove()
        local = sum(
            told[step.name]["job"]["counters"].get("local_written_bytes", 0)
            for step in steps[first:after]
            if "job" in told[step.name]
        )
        return Outcome(
            {
                "steps": told,
                "spent_s": self._spent_s,
                "hdfs_written_bytes": wrote,
                "written_bytes": wrote + local,
                "replication": self.cluster.layout.copies(self.job.copies),
                "phases": self._phases,
                "output": "\n".join(_titled(name, each["output"]) for name, each in told.items()),
            }
        )

    async def _step(self, step: Step) -> dict[str, Any]:
        dropped: list[Mapping[str, Any]] = []
        if step.cold:
            with self._spending("caches"):
                dropped = await self._alive(self._drop_caches())
        if step.script:
            try:
                value = await self._alive(self._script(step))
            except WorkloadFault as fault:
                raise MachineFault(f"{step.name}: {await self._named(str(fault))}") from fault
            return {"took_s": float(value["wall_s"]), "output": value["output"]}
        if step.engine == "spark":
            # Its log is that of the last job alone.
            await self._ask()
            await self._alive(self.cluster.master.run(FORGET))
        at = time.monotonic() - self._began
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
            # A reason is a few lines; whoever searches wants all of them.
            self.cluster.notes[f"{step.name}-client.log"] = output
            program, blamed = step.main.rpartition(".")[2], await self._blame(step, jobs)
            said = await self._named(telling(output), output + blamed)
            raise MachineFault(f"{step.name}: {program} failed{blamed}: {said}")
        if step.engine == "spark":
            told["executors"] = executors_of(self.cluster.layout)
        elif not jobs and not step.alone:
            raise MachineFault(f"{step.name}: {step.main} told of no job: {telling(output)}")
        if step.measured and not step.alone:
            self._ran.append(_Ran(step, told, jobs, at, int(began[1])))
        return told

    async def _ask(self) -> None:
        """Ask what became of the measured jobs, all of which have ended."""
        patience_s = self.cluster.patience(HISTORY_S)
        while self._ran:
            ran = self._ran.pop(0)
            if ran.step.engine == "spark":
                job = await self._alive(spark_job(self.cluster.master))
            else:
                asked = (history_of(self.cluster, each, patience_s) for each in ran.jobs)
                job = whole_of([await self._alive(each) for each in asked])
            ran.told["job"] = job
            self._shade(ran, job)

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
        else:
            if step.archives:
                # Of a property in both files that counts which the client happens to read last.
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

    @property
    def _answer_s(self) -> float:
        """Seconds that a daemon has to answer."""
        return self.cluster.patience(ANSWER_S)

    async def _remove(self) -> None:
        for path in self.job.remove:
            url = deletion(self.cluster.namenode, path, self.cluster.user)
            await self.cluster.master.run(
                _REMOVE, url, f"{self._answer_s:.0f}", timeout_s=self._answer_s + SHORT_S
            )

    async def _written(self) -> int:
        nodes = self.cluster.datanodes().values()
        asked = (
            self.cluster.master.output(
                _WRITTEN, node, f"{self._answer_s:.0f}", timeout_s=self._answer_s + SHORT_S
            )
            for node in nodes
        )
        return sum(map(written, await side_by_side(*asked)))

    async def _blame(self, step: Step, jobs: Sequence[str]) -> str:
        """Say which tasks of a failed job were lost, as far as its history tells."""
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
        """Keep what tasks logged, before it goes with the machines' disks."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.cluster.patience(NOTES_S)):
                await self.cluster.note_tasks()

    async def _named(self, told: str, whole: str = "") -> str:
        """Return what a step told, after the name of the fault and with what daemons log of it."""
        logs = await self.cluster.logs(self.cluster.patience(LOGS_S))
        fault = fault_in(whole or told)
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

    def _shade(self, ran: _Ran, job: Mapping[str, Any]) -> None:
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
    """Return what a cell's record keeps of a job on a cluster: all but what was printed."""
    if "steps" not in result or "replication" not in result:
        return {}
    steps: dict[str, Any] = {
        name: {key: value for key, value in told.items() if key != "output"}
        for name, told in result["steps"].items()
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


def measured_of(steps: Sequence[Step]) -> tuple[int, int]:
    """Return where the measured steps begin, and where they have all been done."""
    places = [number for number, step in enumerate(steps) if step.measured]
    return (places[0], places[-1] + 1) if places else (len(steps), len(steps))


def _titled(name: str, output: str) -> str:
    return f"=== {name}\n{output}"
