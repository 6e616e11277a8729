"""What carries a cell's job out asks of a cluster, whether it is Tare's own or was there before."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.run.topologies.cluster.member import Member
    from tare.workloads.mapreduce.configuration import Layout


LOGS_S = 20.0
"""Seconds that each log may take, of machines that may have fallen silent."""


class HadoopCluster(ABC):
    """A cluster that is up, or about to be."""

    members: Mapping[str, Member]
    """Its machines by name, as far as they are Tare's; the page caches of these are dropped."""
    layout: Layout
    """How it works."""
    took_s: float
    """Seconds from machines that are ready to a cluster that is."""
    lost: asyncio.Future[str]
    """Set, with a sentence, when something of it ends that nobody asked to."""
    folder: str
    """The folder of HDFS that all jobs keep to."""
    user: str
    """As whom HDFS knows what is done."""
    outside: bool
    """Whether it was there before, and its machines have nothing of Tare's."""
    notes: dict[str, str]
    """What else is kept with its logs, by file name: all that a job that failed had to say."""

    @property
    @abstractmethod
    def master(self) -> Member:
        """The machine that the jobs' clients run on."""

    @property
    @abstractmethod
    def slaves(self) -> tuple[Member, ...]:
        """Those of its machines that are Tare's, hold data and run tasks."""

    @property
    @abstractmethod
    def namenode(self) -> str:
        """Where HDFS answers by HTTP: ``host:port``."""

    @property
    @abstractmethod
    def history(self) -> str:
        """Where the history server answers by HTTP."""

    @abstractmethod
    def datanodes(self) -> Mapping[str, str]:
        """Return where each DataNode answers by HTTP, ``address:port``, by ``name:port``."""

    def patience(self, seconds: float) -> float:
        """Return how long something may take that takes so long on hardware at most."""
        return seconds * self.layout.slower

    @abstractmethod
    async def bring_up(self) -> None:
        """Return when the cluster can be used.

        Raises:
            MachineFault: It cannot; what is lacking.
        """

    @abstractmethod
    async def why(self, reason: str = "") -> str:
        """Return what the log says that has most to do with a fault, to go behind a sentence."""

    @abstractmethod
    async def logs(self, within_s: float) -> dict[str, str]:
        """Return the last of every log that can be had within so many seconds, by file name."""

    @abstractmethod
    async def note_tasks(self) -> None:
        """Keep in :attr:`notes` the last of what the newest job's tasks logged."""

    @abstractmethod
    async def stop(self) -> None:
        """Leave nothing behind."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return how the cluster works, for the record."""
