"""Where the machines of one batch are started, and what joins them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.platforms.contract import SUBJECT, MachineSpec
from tare.platforms.host_hypervisor import hypervisor_of
from tare.run.peers import Connection, outside_cpus, shared_out
from tare.run.sites import ReadyArm, Site

if TYPE_CHECKING:
    from tare.study.cells import Batch


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


def connected_by(place: Place, spec: MachineSpec) -> dict[str, Any]:
    """Return how a machine was connected, for the record."""
    if place.connection is None:
        return {}
    whole = place.connection.whole
    link = whole.links[spec.name]
    return {"network": {"way": link.way, "address": link.address, **link.facts, **whole.facts}}
