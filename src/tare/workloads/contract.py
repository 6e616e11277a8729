"""The declaration of a workload: its parameters, its metrics, and how a result becomes values.

One file per workload subclasses :class:`Workload`, in Tare or in a package of its own;
`tare help extending` has a walk-through.

A guest sees the caches that its hypervisor shows, and a bare machine sees all the memory. If
workloads were sized by what they see, they would do different work in each arm. So the host
provides these facts as :class:`MachineFacts`, once and equally for all arms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from tare.events.metric import Metric as Metric
from tare.events.metric import Resource as Resource
from tare.workloads.additions import NOTHING, Additions

Need = Literal[
    "toolbox",
    "toolbox-build",
    "toolbox-hadoop",
    "toolbox-analytics",
    "disk",
    "network",
    "bridged",
    "msr",
]
"""The things that a workload can need of its machine: the toolbox (also the one for compiling, with
Hadoop, or for analytics on Hadoop), a disk, a network, a network on which the machine can connect
to others, and access to its processor's registers."""
NETWORK: frozenset[Need] = frozenset({"network"})
TopologyName = Literal["single", "pair", "proxied", "cluster"]
"""The machines that a workload uses: the measured machine alone; with a peer; between a client and
an origin; or with further machines as one cluster."""


@dataclass(frozen=True)
class DiskClaim:
    """The bytes that a result claims to have moved to and from a disk, without a cache.

    Args:
        read: Bytes read; None if reads may come from a cache.
        written: Bytes written; None if writes may stay in a cache.
        instead: The change of the study to suggest if the cache was measured.
        from_reads: The metrics that are wrong if a cache answered the reads; empty: all.
        from_writes: The metrics that are wrong if writes stayed in a cache; empty: all.
    """

    read: float | None = None
    written: float | None = None
    instead: str = ""
    from_reads: frozenset[str] = frozenset()
    from_writes: frozenset[str] = frozenset()


NO_CLAIM = DiskClaim()


class Parameters(BaseModel):
    """Base of every workload's parameters; field descriptions become the reference in docs."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


P = TypeVar("P", bound=Parameters)


class Work:
    """The work of a topology's machines; each topology except ``single`` has a subclass."""


class Workload(ABC, Generic[P]):
    """The declaration of one workload.

    Set the attributes on the class; if several workloads share a class, set them on each instance.
    """

    name: str
    """Its name in studies."""
    summary: str
    """A description of the measurement, in one sentence."""
    parameters: type[P]
    """The model of its parameters."""
    metrics: tuple[Metric, ...]
    """The metrics of a cell, whatever its parameters are, in the order of reports."""
    resource: Resource = "application"
    """The resource that it measures. The first screen of a report summarizes the headline metrics
    of each resource. A metric can name another resource."""
    realtime: bool = False
    """Whether a PREEMPT_RT kernel is the default image for it."""
    needs: frozenset[Need] = frozenset()
    """The things that its machine must have, whatever the parameters are."""
    memory: int = 0
    """The minimum memory, in bytes, of a machine that runs it."""
    carried_out_by: str = ""
    """The name of the agent's workload that runs it; empty: the same name. Several workloads can
    use one workload of the agent."""
    from_machine: tuple[str, ...] = ()
    """The facts of :class:`tare.workloads.contract.MachineFacts` that are added to its request, by
    their names in the agent."""
    roles: frozenset[str] = frozenset()
    """The roles of further machines that it works with, such as ``peer``."""
    topology: TopologyName = "single"
    """The machines that it uses. Each topology except ``single`` has a base class with a hook that
    returns the work of each machine: ``PairWorkload``, ``ProxiedWorkload`` and
    ``ClusterWorkload``."""
    neighbour_only: bool = False
    """Whether it ends when a subject does, so that it cannot be measured itself."""
    own_words: str = "output"
    """The field of the agent's result with the program's own output (JSON or text), which is
    kept."""
    logs_gaps: bool = False
    """Whether it logs interruptions of its own, so that the host's side of them is recorded."""
    keeps_busy: bool = True
    """Whether it needs a CPU at every moment as a neighbour's load, so that stalls are visible."""

    @abstractmethod
    def request(self, parameters: P) -> dict[str, Any]:
        """Return the ``params`` object for the agent (plain numbers, base SI units or ns)."""

    @abstractmethod
    def expected_s(self, parameters: P) -> float:
        """Estimate the seconds one cell takes on undisturbed hardware, for the plan."""

    def clocked_s(self, parameters: P) -> float:
        """Return the seconds of :meth:`expected_s` that are fixed, however slow the machine is.

        The rest is a fixed amount of work, which takes longer on a slower machine.
        """
        return 0.0

    @abstractmethod
    def observe(self, parameters: P, result: Mapping[str, Any]) -> dict[str, float]:
        """Turn the agent's result into one value per metric name, in SI units.

        Raises:
            KeyError: The result lacks a field that the metrics need.
            ValueError: A value is not a finite number, or not of the expected kind.
        """

    def needs_for(self, parameters: P) -> frozenset[Need]:
        """Return the things that its machine must have for these parameters."""
        return self.needs

    def memory_for(self, parameters: P) -> int:
        """Return the minimum memory, in bytes, of a machine that runs it with these parameters."""
        return self.memory

    def vcpus_for(self, parameters: P) -> int:
        """Return the minimum number of vCPUs of a machine that runs it with these parameters."""
        return 1

    def threads_for(self, parameters: P) -> int | None:
        """Return the number of CPUs that it uses as a neighbour's load; None: all that exist."""
        asked = self.request(parameters).get("threads")
        return None if asked is None else max(1, int(asked))

    def counts_memory(self, parameters: P) -> bool:
        """Return whether to count the host's memory traffic during the measurement."""
        return False

    def metrics_for(self, parameters: P) -> tuple[Metric, ...]:
        """Return the metrics of a cell with these parameters, in the order of reports."""
        return self.metrics

    def recorded_metrics(self, parameters: P) -> tuple[Metric, ...]:
        """Return :meth:`metrics_for`, each with its resource."""
        return tuple(
            metric._replace(resource=metric.resource or self.resource)
            for metric in self.metrics_for(parameters)
        )

    def disk_claim(self, parameters: P, result: Mapping[str, Any]) -> DiskClaim:
        """Return the bytes that the agent's result claims, to compare with the device's counters.

        Raises:
            KeyError: The result lacks a field.
            ValueError: A value is not a finite number.
        """
        return NO_CLAIM

    def adds(self, parameters: P) -> Additions:
        """Return its additions to the toolbox."""
        return NOTHING

    def program_of_study(self, parameters: P) -> tuple[str, ...]:
        """Return the program that the study itself names, with its arguments, or an empty tuple."""
        return ()

    def work(self, parameters: P) -> Work:
        """Return the work of its topology's machines; for a single machine, see :meth:`request`."""
        return Work()

    def on_slaves(self, parameters: P, slaves: int) -> P:
        """Return a job's parameters for a cluster with this number of slaves."""
        return parameters

    def ending(self, parameters: P) -> P:
        """Return parameters with which it ends by itself, as a subject must.

        Loads without a duration run until they are stopped, but nothing stops the subject.
        """
        return parameters

    def facts(self, parameters: P, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts of the agent's result that the cell's record keeps next to the values.

        Raises:
            KeyError: The result lacks them.
            ValueError: They are not of the expected kind.
        """
        return {}

    def partners(self, parameters: P) -> int:
        """Return the number of connections that the partner of a network load opens to it."""
        return 1

    @property
    def agent_name(self) -> str:
        """The workload's name in the agent."""
        return self.carried_out_by or self.name


@dataclass(frozen=True)
class MachineFacts:
    """The host's facts about a machine.

    Args:
        emulated: Whether an emulator runs it; an emulator never declares its TSC constant.
        memory: The shape's memory in bytes, for the bare host too; None if unknown.
        vcpus: Number of vCPUs of the subject; the bare host is limited to as many CPUs.
        last_level_cache: Size of one last-level cache of the *host*, in bytes; None if unknown.
        caches: Size of all data and unified caches of the host, in bytes; None if unknown.
    """

    emulated: bool = False
    memory: int | None = None
    vcpus: int | None = None
    last_level_cache: int | None = None
    caches: int | None = None

    def as_params(self) -> dict[str, Any]:
        """Return the known facts under their names in the agent."""
        known = {
            "allow_untrusted_tsc": self.emulated or None,
            "memory_bytes": self.memory,
            "threads": self.vcpus,
            "last_level_bytes": self.last_level_cache,
            "caches_bytes": self.caches,
        }
        return {name: value for name, value in known.items() if value is not None}


def fitted(
    workload: Workload[Any], request: Mapping[str, Any], facts: MachineFacts
) -> dict[str, Any]:
    """Return ``request`` with the facts that ``workload`` uses added; values in it take precedence.

    Args:
        workload: Lists the facts in its attribute ``from_machine``.
        request: The result of `Workload.request`.
        facts: The host's facts about the machine.
    """
    known = {
        name: value for name, value in facts.as_params().items() if name in workload.from_machine
    }
    return known | dict(request)
