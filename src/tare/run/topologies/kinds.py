"""The topologies in which a cell's work runs on the machines of its batch, one class for each.

A workload names its topology (``Workload.topology``). The machines of a batch may form several: a
subject with a peer runs workloads of one machine as well as those of two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tare.errors import WorkloadFault
from tare.workloads import MachineFacts, fitted
from tare.workloads.contract import Work
from tare.workloads.network.ends import ORIGIN, PEER, Ends, ProxiedEnds

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import Outcome, ProgressCallback
    from tare.platforms.contract import Machine
    from tare.run.cells.duet import Turns
    from tare.run.topologies.cluster.contract import HadoopCluster
    from tare.run.topologies.peers import Peer
    from tare.run.topologies.proxied_cell import ProxiedMachines
    from tare.workloads.contract import Parameters, TopologyName, Workload

W = TypeVar("W", bound=Work)


@dataclass(frozen=True)
class CellWork:
    """The work of one cell.

    Args:
        workload: The workload.
        parameters: Its parameters, with which it ends by itself.
        facts: The host's facts of the machines.
        barrier: The barrier at which all machines of the cell wait for their common start.
        deadline_s: Seconds after which the work fails.
        on_progress: Receives the progress.
        turns: Its turns, if it alternates with an arm that runs at the same time.
    """

    workload: Workload[Any]
    parameters: Parameters
    facts: MachineFacts
    barrier: Barrier
    deadline_s: float
    on_progress: ProgressCallback
    turns: Turns

    def described(self, kind: type[W]) -> W:
        """Return the workload's description of the machines' work.

        Args:
            kind: The type of description that the topology needs.

        Raises:
            WorkloadFault: The workload describes another type of work.
        """
        work = self.workload.work(self.parameters)
        if not isinstance(work, kind):
            topology = self.workload.topology
            raise WorkloadFault(
                f"{self.workload.name} has the topology {topology}, whose work is of the type "
                f"{kind.__name__}, and not {type(work).__name__}"
            )
        return work


class Topology(ABC):
    """Machines of a batch that work together in one way."""

    name: ClassVar[TopologyName]
    """Its name in workloads."""
    takes_turns: ClassVar[bool] = False
    """Whether the work has several parts, and takes a turn for each part by itself."""
    uses_own_disk: ClassVar[bool] = True
    """Whether work that needs a disk uses the subject's own, whose use the host counts."""

    def __init__(self, subject: Machine) -> None:
        self.subject = subject

    @property
    def carriers(self) -> tuple[Machine, ...]:
        """The machines that carry the work: their cost on their hosts is that of the cell."""
        return (self.subject,)

    @property
    def outside(self) -> Mapping[str, Machine]:
        """The machines that it adds to those of the scenario, by role."""
        return {}

    def parameters(self, workload: Workload[Any], parameters: Parameters) -> Parameters:
        """Return a workload's parameters adapted to these machines."""
        return parameters

    @abstractmethod
    async def run(self, work: CellWork) -> Outcome:
        """Run a cell's work from the common start to its end.

        Raises:
            MachineFault: A machine is lost.
            WorkloadFault: The work failed.
        """


class Single(Topology):
    """The subject without other machines."""

    name = "single"

    async def run(self, work: CellWork) -> Outcome:
        """Run the work with the subject's agent."""
        return await self.subject.agent.run(
            work.workload.agent_name,
            fitted(work.workload, work.workload.request(work.parameters), work.facts),
            cpus=self.subject.inner_cpus,
            barrier=work.barrier,
            deadline_s=work.deadline_s,
            on_progress=work.on_progress,
        )


class Pair(Topology):
    """The subject and a peer: one is the server, the other the client."""

    name = "pair"

    def __init__(self, subject: Machine, peer: Peer) -> None:
        super().__init__(subject)
        self._peer = peer

    @property
    def outside(self) -> Mapping[str, Machine]:
        """The peer."""
        return {PEER: self._peer.machine}

    async def run(self, work: CellWork) -> Outcome:
        """Run the server at one end and the client at the other."""
        ends = work.described(Ends)
        return await self._peer.run(
            ends,
            self.subject,
            barrier=work.barrier,
            deadline_s=work.deadline_s,
            on_progress=work.on_progress,
        )


class Proxied(Topology):
    """The subject between a client and an origin."""

    name = "proxied"
    takes_turns = True

    def __init__(self, machines: ProxiedMachines) -> None:
        super().__init__(machines.subject)
        self._machines = machines

    @property
    def outside(self) -> Mapping[str, Machine]:
        """The origin; the client is the peer."""
        return {ORIGIN: self._machines.origin}

    async def run(self, work: CellWork) -> Outcome:
        """Run both servers, and one load of the client after another."""
        ends = work.described(ProxiedEnds)
        return await self._machines.run(
            ends,
            barrier=work.barrier,
            deadline_s=work.deadline_s,
            on_progress=work.on_progress,
            turns=work.turns,
        )


class Clustered(Topology):
    """The subject and its companions as one running cluster of Hadoop.

    Args:
        subject: The machine of the job's client.
        companions: The other machines of the cluster by role.
        cluster: The cluster.
    """

    name = "cluster"
    uses_own_disk = False

    def __init__(
        self, subject: Machine, companions: Mapping[str, Machine], cluster: HadoopCluster
    ) -> None:
        super().__init__(subject)
        self._companions = companions
        self._cluster = cluster

    @property
    def carriers(self) -> tuple[Machine, ...]:
        """All machines of the cluster; none if the cluster existed before."""
        return () if self._cluster.outside else (self.subject, *self._companions.values())

    def parameters(self, workload: Workload[Any], parameters: Parameters) -> Parameters:
        """Return the parameters of a job for the number of slaves."""
        scaled: Parameters = workload.on_slaves(parameters, len(self._cluster.layout.slaves))
        return scaled

    async def run(self, work: CellWork) -> Outcome:
        """Run all steps of the job."""
        # Imported here, because few runs have a cluster.
        from tare.run.topologies.cluster.jobs import ClusterJob
        from tare.workloads.mapreduce.job import Job, moved

        job = moved(work.described(Job), self._cluster.folder)
        running = ClusterJob(self._cluster, job, work.deadline_s)
        return await running.run(barrier=work.barrier, on_progress=work.on_progress)


class MissingTopology(Topology):
    """A topology that the machines of a batch do not form."""

    def __init__(self, subject: Machine, name: TopologyName) -> None:
        super().__init__(subject)
        self._needed = "cluster" if name == "cluster" else "peer"

    async def run(self, work: CellWork) -> Outcome:
        """Raise WorkloadFault: a required machine is missing."""
        raise WorkloadFault(f"{work.workload.name} needs a {self._needed}, and there is none")
