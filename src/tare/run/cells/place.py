"""Where the machines of one batch are started, and what joins them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.platforms.contract import SUBJECT, MachineSpec, Shape
from tare.platforms.host_hypervisor import hypervisor_of
from tare.platforms.linux.process_machine import temporary_folder
from tare.run.cells.sites import ReadyArm, Site
from tare.run.topologies.peers import Connection, outside_cpus, shared_out

if TYPE_CHECKING:
    from tare.study.planning.cells import Batch


@dataclass(frozen=True)
class Place:
    """Where the machines of one batch are started.

    Args:
        batch: The batch.
        arm: Its arm.
        home: The arm's host.
        abroad: Other hosts that the scenario names, by name.
        machines: Ends what was started, in reverse order.
        connection: What joins the machines; None where nothing does.
        specs: What was started, by role.
    """

    batch: Batch
    arm: ReadyArm
    home: Site
    abroad: Mapping[str, Site]
    machines: AsyncExitStack
    connection: Connection | None = None
    specs: dict[str, MachineSpec] = field(default_factory=dict)

    def outside(self) -> dict[str, tuple[int, ...]]:
        """Return the CPUs of a client and of an origin that are processes beside the subject.

        Where a hypervisor is below the host's kernel, that kernel carries all packets of machines,
        on CPUs of which it has only some: it keeps one for that.
        """
        boot = self.arm.platform.stated(self.arm.options).host_boot
        free = outside_cpus(self.home.context, self.specs[SUBJECT])
        client, origin = shared_out(free, spare=bool(hypervisor_of(boot)))
        return {"client": client, "origin": origin}

    @property
    def lost(self) -> tuple[asyncio.Future[MachineFault], ...]:
        """Each set when a host is lost, or what joins the hosts."""
        hosts = (site.run_host.lost for site in (self.home, *self.abroad.values()))
        joined = () if self.connection is None else (self.connection.whole.lost,)
        return (*hosts, *joined)


def spec_at(
    place: Place,
    site: Site,
    name: str,
    shape: Shape,
    cpus: tuple[int, ...],
    role: str,
    *,
    uses_disk: bool,
) -> MachineSpec:
    """Return what a machine is to be, and note it where something joins the machines.

    Args:
        place: Where those of its batch are started.
        site: Where this one is.
        name: Its name, unique on the host.
        shape: Its size.
        cpus: Host CPUs for its vCPUs; empty: anywhere.
        role: Its role.
        uses_disk: Whether a workload of the batch uses a disk of the machine's own.
    """
    # Nobody can have made it beforehand: its name is known to nobody.
    workdir = temporary_folder(site.context.host) / f"{name}-{secrets.token_hex(4)}"
    spec = MachineSpec(
        name,
        shape,
        cpus,
        workdir,
        place.arm.realtime,
        role,
        site.prepared.toolbox,
        uses_disk=uses_disk,
        within=() if cpus or site is not place.home else place.batch.placement.within,
        carried=bool(place.batch.placement.carrier),
    )
    if place.connection is None:
        return spec
    placed = place.batch.placement
    cluster = placed.cluster is not None
    place.specs[role] = replace(
        spec,
        network=place.connection.whole.on(site.context.host.name),
        way=place.connection.way,
        own_address=cluster or role in {each.role for each in placed.companions},
        keeps_memory=cluster,
    )
    return place.specs[role]


def connected_by(place: Place, spec: MachineSpec) -> dict[str, Any]:
    """Return how a machine was connected, for the record."""
    if place.connection is None:
        return {}
    whole = place.connection.whole
    link = whole.links[spec.name]
    return {"network": {"way": link.way, "address": link.address, **link.facts, **whole.facts}}
