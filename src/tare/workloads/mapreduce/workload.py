"""What the workloads on a cluster of Hadoop have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field

from tare.workloads.contract import Need, Parameters, Workload
from tare.workloads.mapreduce.job import Job

SLAVES = frozenset(f"slave-{number}" for number in range(1, 17))
"""The roles of a cluster's machines beside its master."""


class ClusterParameters(Parameters):
    """What all jobs can be told."""

    replication: int | None = Field(
        default=None,
        ge=1,
        le=16,
        description="How many copies of each block are wanted; the cluster's own where it is "
        "left out. No more are made than there are slaves: `copies` says how many there were.",
    )

    @property
    def properties(self) -> dict[str, object]:
        """What a job's client sets."""
        return {} if self.replication is None else {"dfs.replication": self.replication}


C = TypeVar("C", bound=ClusterParameters)


class ClusterWorkload(Workload[C]):
    """A job on a cluster of Hadoop; :meth:`job` says which."""

    roles = SLAVES
    on_cluster = True
    needs: frozenset[Need] = frozenset({"toolbox", "toolbox-hadoop", "disk", "network"})
    carried_out_by = "program"

    @abstractmethod
    def job(self, parameters: C) -> Job:
        """Return what is done on the cluster."""

    def request(self, parameters: C) -> dict[str, Any]:
        """Return nothing: no single machine is asked."""
        return {}

    def ran(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what became of each step."""
        steps: Mapping[str, Any] = result["steps"]
        return steps
