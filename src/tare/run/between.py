"""Where a machine stands between a client and an origin: the origin, and the paths past it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tare.platforms.contract import SUBJECT
from tare.run.peers import Peer, started_origin
from tare.run.straight import straight_path
from tare.run.through import Between
from tare.workloads.network.ends import ORIGIN, PEER

if TYPE_CHECKING:
    from tare.platforms.contract import Machine
    from tare.run.host_counters import HostSampler
    from tare.run.place import Place


async def stood_between(
    place: Place,
    subject: Machine,
    peer: Peer,
    companions: Mapping[str, Machine],
    own: Mapping[str, tuple[int, ...]],
    watch: HostSampler | None,
) -> Between:
    """Return the subject between its client and an origin, which is started where it is no machine.

    Args:
        place: Where the batch's machines are started.
        subject: The machine that is measured.
        peer: Its client.
        companions: The machines of the scenario's further roles, by role.
        own: The CPUs of a client and of an origin that are processes beside the subject.
        watch: Where it is taken down who uses the host's CPUs.

    Raises:
        MachineFault: The origin does not start, or cannot be reached.
    """
    origin, straight = companions.get(ORIGIN), ""
    if origin is None:
        context, like = place.home.context, place.specs[SUBJECT]
        starting = started_origin(context, peer.network, like, own["origin"])
        origin = await place.machines.enter_async_context(starting)
        if PEER not in companions:
            mtu = peer.network.links[origin.name].mtu
            straight = await straight_path(context.host, peer.network, origin.name, mtu)
    cpus = {"subject": place.batch.placement.subject, **own}
    for role, name in ((PEER, "client"), (ORIGIN, "origin")):
        if role in companions:
            cpus[name] = ()
    tare = (os.getpid(),) if place.home.context.host.local else ()
    return Between(
        subject, peer.machine, origin, peer.network, cpus, watch, tare, straight=straight
    )
