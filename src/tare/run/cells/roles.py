"""The machines of one batch by their roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tare.platforms.contract import SUBJECT
from tare.run.topologies.kinds import MissingTopology, Single, Topology

if TYPE_CHECKING:
    from tare.platforms.contract import Machine
    from tare.run.cells.neighbours import Neighbour
    from tare.run.topologies.peers import Peer
    from tare.workloads.contract import TopologyName


@dataclass(frozen=True)
class Roles:
    """The machines that run while a cell is measured.

    Args:
        subject: The machine that is measured.
        neighbours: Machines that run loads meanwhile.
        peer: The other end of the batch's network: a process on the host, or a machine.
        companions: The machines that the workload works with, by role.
        topologies: The topologies that these machines form, in addition to the single subject.
    """

    subject: Machine
    neighbours: tuple[Neighbour, ...] = ()
    peer: Peer | None = None
    companions: Mapping[str, Machine] = field(default_factory=dict)
    topologies: tuple[Topology, ...] = ()

    def topology(self, name: TopologyName) -> Topology:
        """Return a topology by its name; `Missing` if the machines do not form it."""
        every = (Single(self.subject), *self.topologies)
        return next(
            (each for each in every if each.name == name), MissingTopology(self.subject, name)
        )

    @property
    def measuring(self) -> Mapping[str, Machine]:
        """The machines with whose clocks values are measured, by role; companions only work."""
        return {role: each for role, each in self.machines.items() if role not in self.companions}

    @property
    def machines(self) -> Mapping[str, Machine]:
        """All machines by role."""
        machines = {SUBJECT: self.subject, **{each.role: each.machine for each in self.neighbours}}
        machines |= self.companions
        for topology in self.topologies:
            machines |= topology.outside
        return machines
