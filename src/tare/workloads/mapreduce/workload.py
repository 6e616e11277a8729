"""The common base of the workloads on a Hadoop cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import Field

from tare.workloads.contract import Metric, Need, Parameters, Work, Workload
from tare.workloads.mapreduce.job import Engine, Job
from tare.workloads.mapreduce.spark import LEAST_MEMORY

SLAVES = frozenset(f"slave-{number}" for number in range(1, 17))
"""The roles of a cluster's machines other than its master."""


class ClusterParameters(Parameters):
    """Parameters of all jobs."""

    replication: int | None = Field(
        default=None,
        ge=1,
        le=16,
        description="Number of copies of each block that the job writes. Default: the cluster's. "
        "There are never more than slaves; the metric `copies` has the actual number.",
    )

    per_slave: bool = Field(
        default=False,
        description="Apply sizes and numbers of tasks to each slave, so that more slaves have more "
        "work; otherwise they are totals, however many slaves there are.",
    )

    @property
    def properties(self) -> dict[str, object]:
        """Hadoop's properties that a job's client sets."""
        return {} if self.replication is None else {"dfs.replication": self.replication}


class EngineParameters(ClusterParameters):
    """Parameters of jobs that several engines can run."""

    engine: Engine = Field(
        default="mapreduce",
        description="The engine: Hadoop's MapReduce; `spark`: Spark 3.5.6 on the cluster's YARN, "
        "with one executor on each slave in place of its tasks; or `hive`: Hive 4.0.1 with "
        "MapReduce.",
    )

    @property
    def hadoop_properties(self) -> dict[str, object]:
        """Spark's properties that set those of the Hadoop client in a Spark job."""
        return {f"spark.hadoop.{name}": value for name, value in self.properties.items()}


class ProgramParameters(EngineParameters):
    """Parameters of jobs that are programs and not queries of tables."""

    engine: Literal["mapreduce", "spark"] = Field(
        default="mapreduce",
        description="The engine: Hadoop's MapReduce, or `spark`: Spark 3.5.6 on the cluster's "
        "YARN, with one executor on each slave in place of its tasks.",
    )


C = TypeVar("C", bound=ClusterParameters)
E = TypeVar("E", bound=EngineParameters)
MAPREDUCE_ALONE = ("shuffle", "sort", "spilled", "bytes-read", "bytes-written")
"""Metrics that Spark's event log does not have: its tasks fetch, sort and write at once, and it
counts other bytes of local disks."""


class ClusterWorkload(Workload[C]):
    """A job on a cluster of Hadoop; :meth:`job` says which."""

    roles = SLAVES
    topology = "cluster"
    needs: frozenset[Need] = frozenset({"toolbox", "toolbox-hadoop", "disk", "network"})
    carried_out_by = "program"
    grows: tuple[str, ...] = ("size",)
    """The parameters that are multiplied by the number of slaves if a study sets ``per-slave``."""

    def on_slaves(self, parameters: C, slaves: int) -> C:
        """Return the parameters of a job on this number of slaves; see :attr:`grows`."""
        if not parameters.per_slave:
            return parameters
        given = dict(parameters)
        more = {name: given[name] * slaves for name in self.grows}
        return parameters.model_copy(update=more)

    @abstractmethod
    def job(self, parameters: C) -> Job:
        """Return the job to run on the cluster."""

    def work(self, parameters: C) -> Work:
        """Return the job."""
        return self.job(parameters)

    def request(self, parameters: C) -> dict[str, Any]:
        """Return nothing: no single machine gets a request."""
        return {}

    def ran(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the outcome of each step."""
        steps: Mapping[str, Any] = result["steps"]
        return steps


class EngineWorkload(ClusterWorkload[E]):
    """A job that MapReduce or Spark runs; ``engine`` selects which."""

    step: str
    """The step that the engine runs; all others are the same with each engine."""

    def needs_for(self, parameters: E) -> frozenset[Need]:
        """Return the needs of its machines: Spark and Hive are in a toolbox of their own."""
        return self.needs | (set() if parameters.engine == "mapreduce" else {"toolbox-analytics"})

    def memory_for(self, parameters: E) -> int:
        """Return the minimum memory of a machine, in bytes; Spark and Hive need more."""
        return self.memory if parameters.engine == "mapreduce" else LEAST_MEMORY

    def metrics_for(self, parameters: E) -> tuple[Metric, ...]:
        """Return the metrics of a cell; with Spark, those that its event log has."""
        return (
            metrics_of_spark(self.step, self.metrics)
            if parameters.engine == "spark"
            else self.metrics
        )


def metrics_of_spark(step: str, metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """Return the metrics that exist if Spark runs a step."""
    without = {f"{step}-{name}" for name in MAPREDUCE_ALONE}
    return tuple(each for each in metrics if each.name not in without)
