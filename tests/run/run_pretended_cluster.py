"""A cluster without machines: a test answers the requests to its members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tare.agent.barrier import Barrier
from tare.agent.client import LoadHandle
from tare.agent.client import Outcome as Done
from tare.platforms.contract import Machine
from tare.run.topologies.cluster.cluster import RunningCluster
from tare.run.topologies.cluster.jobs import ClusterJob
from tare.run.topologies.cluster.member import SHORT_S, Member
from tare.workloads.mapreduce.configuration import ClusterLayout
from tare.workloads.mapreduce.job import Job
from tare.workloads.mapreduce.sizes import sizes_for

Answer = Callable[[str, tuple[str, ...]], str]
"""Takes a member's script and its arguments; returns the script's output, or raises."""
ENOUGH_S = 30.0


def client(output: str, code: int = 0) -> str:
    """Return what the client of a job prints that ended with ``code``."""
    return f"TARE-BEGAN 1\n{output}\nTARE-ENDED {code} 2\n"


@dataclass(frozen=True)
class Asked:
    """One question to a member."""

    name: str
    script: str
    words: tuple[str, ...]
    timeout_s: float


@dataclass
class PretendedMachine:
    """The parts of a machine that a member of a cluster uses."""

    shares_clock: bool = True
    reported: Mapping[str, Any] = field(default_factory=dict)

    async def forget_disk(self) -> Mapping[str, Any]:
        return self.reported


class Started:
    """A daemon that does not end."""

    def on_end(self, tell: Callable[[], None]) -> None:
        pass

    async def stop(self, timeout_s: float = 30.0) -> Done:
        return Done({})


@dataclass(frozen=True)
class PretendedMember(Member):
    """A member that records its requests."""

    answer: Answer = lambda script, words: ""
    asked: list[Asked] = field(default_factory=list)

    async def run(
        self,
        script: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        timeout_s: float = SHORT_S,
    ) -> dict[str, Any]:
        self.asked.append(Asked(self.name, script, arguments, timeout_s))
        return {"wall_s": 1.0, "output": self.answer(script, arguments)}

    async def start(self, argv: Sequence[str]) -> LoadHandle:
        self.asked.append(Asked(self.name, "start", tuple(argv), 0.0))
        return cast(LoadHandle, Started())


def layout_of(slaves: int) -> ClusterLayout:
    """Return how a cluster of a master and some slaves is laid out that wants three copies."""
    names = ("master", *(f"slave-{number}" for number in range(1, slaves + 1)))
    return ClusterLayout(
        addresses={name: f"10.0.0.{number}" for number, name in enumerate(names, 1)},
        slaves=names[1:],
        sizes=sizes_for(1 << 30, 1),
        processors=1,
        replication=3,
        block=32 << 20,
        sync=False,
        slow_start=1.0,
    )


def pretended(
    answer: Answer = lambda script, words: "", *, slaves: int = 4, slower: float = 1.0
) -> RunningCluster:
    """Return a cluster of a master and some slaves, which all give the same answers."""
    layout = replace(layout_of(slaves), slower=slower)
    machine = cast(Machine, PretendedMachine())
    asked: list[Asked] = []
    members = {
        name: PretendedMember(name, machine, address, answer, asked)
        for name, address in layout.addresses.items()
    }
    return RunningCluster(members, layout)


def asked_of(cluster: RunningCluster) -> list[Asked]:
    """Return all requests to members, in order."""
    master = cluster.master
    assert isinstance(master, PretendedMember)
    return master.asked


async def done(cluster: RunningCluster, job: Job) -> Mapping[str, Any]:
    """Return the result of a job."""
    work = ClusterJob(cluster, job, ENOUGH_S)
    return (await work.run(barrier=Barrier(1), on_progress=lambda *_: None)).value
