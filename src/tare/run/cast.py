"""The machines of one batch by their roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tare.platforms.contract import SUBJECT
from tare.workloads.network.ends import ORIGIN, PEER

if TYPE_CHECKING:
    from tare.platforms.contract import Machine
    from tare.run.cluster.contract import HadoopCluster
    from tare.run.neighbours import Neighbour
    from tare.run.peers import Peer
    from tare.run.through import Between


@dataclass(frozen=True)
class Cast:
    """Who is there while a cell is measured.

    Args:
        subject: The machine that is measured.
        neighbours: Machines that carry loads meanwhile.
        peer: The other end of workloads that have two: a process of the host, or a machine.
        between: What goes on where the subject stands between the peer and an origin.
        companions: The machines that the workload works with, by role.
        cluster: The cluster that subject and companions are, where they are one.
    """

    subject: Machine
    neighbours: tuple[Neighbour, ...] = ()
    peer: Peer | None = None
    between: Between | None = None
    companions: Mapping[str, Machine] = field(default_factory=dict)
    cluster: HadoopCluster | None = None

    @property
    def carriers(self) -> tuple[Machine, ...]:
        """Those that carry the measured work: of a cluster all, and none of one that Tare found."""
        if self.cluster is None:
            return (self.subject,)
        return () if self.cluster.outside else (self.subject, *self.companions.values())

    @property
    def measuring(self) -> Mapping[str, Machine]:
        """The machines whose clocks values are taken with, by role; slaves only work."""
        return {role: each for role, each in self.machines.items() if role not in self.companions}

    @property
    def machines(self) -> Mapping[str, Machine]:
        """All machines by role."""
        there = {SUBJECT: self.subject, **{each.role: each.machine for each in self.neighbours}}
        there |= self.companions
        if self.peer is not None:
            there[PEER] = self.peer.machine
        if self.between is not None:
            there[ORIGIN] = self.between.origin
        return there
