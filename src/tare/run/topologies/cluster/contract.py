"""The interface of a cluster for a cell's job, whether it is Tare's own or existed before."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.run.topologies.cluster.member import Member
    from tare.workloads.mapreduce.configuration import ClusterLayout


LOGS_S = 20.0
"""Seconds that reading each log may take, because machines may not answer."""


class HadoopCluster(ABC):
    """A cluster that is running or being started."""

    members: Mapping[str, Member]
    """Its machines by name that are Tare's, whose page caches are dropped."""
    layout: ClusterLayout
    """Its configuration."""
    took_s: float
    """Seconds from ready machines to a ready cluster."""
    lost: asyncio.Future[str]
    """A future that is set with a sentence if a part of the cluster ends by itself."""
    folder: str
    """The folder of HDFS that all jobs use."""
    user: str
    """The user of HDFS."""
    outside: bool
    """Whether it existed before, on machines without Tare's agent."""
    notes: dict[str, str]
    """Further texts that are kept with its logs, by file name: the output of failed jobs."""

    @property
    @abstractmethod
    def master(self) -> Member:
        """The machine of the jobs' clients."""

    @property
    @abstractmethod
    def slaves(self) -> tuple[Member, ...]:
        """Tare's machines that hold data and run tasks."""

    @property
    @abstractmethod
    def namenode(self) -> str:
        """The HTTP address of HDFS: ``host:port``."""

    @property
    @abstractmethod
    def history(self) -> str:
        """The HTTP address of the history server."""

    @abstractmethod
    def datanodes(self) -> Mapping[str, str]:
        """Return the HTTP address of each DataNode, ``address:port``, by ``name:port``."""

    def patience(self, seconds: float) -> float:
        """Return a time limit for this cluster from the limit on hardware."""
        return seconds * self.layout.slower

    @abstractmethod
    async def bring_up(self) -> None:
        """Start the cluster, and return when it is ready.

        Raises:
            MachineFault: It is not ready in time; the message names what is missing.
        """

    @abstractmethod
    async def why(self, reason: str = "") -> str:
        """Return the most relevant log lines on a fault, to append to a sentence."""

    @abstractmethod
    async def logs(self, within_s: float) -> dict[str, str]:
        """Return the end of every log that can be read within the given seconds, by file name."""

    @abstractmethod
    async def note_tasks(self) -> None:
        """Keep the end of the logs of the newest job's tasks in :attr:`notes`."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the cluster, and remove everything of it."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the cluster's configuration, for the record."""
