"""Set up a machine between a client and an origin: the origin, and the paths past the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tare.platforms.contract import SUBJECT
from tare.run.peers import Peer, started_origin
from tare.run.proxied_cell import ProxiedMachines
from tare.run.straight import direct_path
from tare.workloads.network.ends import ORIGIN, PEER

if TYPE_CHECKING:
    from tare.hosts.contract import Host
    from tare.platforms.contract import Machine
    from tare.run.host_counters import HostSampler
    from tare.run.place import Place

RUNNING = 'for each in /proc/[0-9]*; do [ "$each/exe" -ef "$1" ] && echo "${each#/proc/}"; done; :'
"""Tells the processes that run a program, whatever they call themselves."""
LOOK_S = 60.0


async def set_up_proxied(
    place: Place,
    subject: Machine,
    peer: Peer,
    companions: Mapping[str, Machine],
    own: Mapping[str, tuple[int, ...]],
    watch: HostSampler | None,
) -> ProxiedMachines:
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
            straight = await direct_path(context.host, peer.network, origin.name, mtu)
    placement = place.batch.placement
    cpus = {"subject": placement.subject, **own}
    names = {PEER: "client", ORIGIN: "origin"}
    cpus |= {names[each.role]: each.cpus for each in placement.companions if each.role in names}
    elsewhere = frozenset(
        names[each.role] for each in placement.companions if each.host and each.role in names
    )
    home = place.home.context
    tare = (os.getpid(),) if home.host.local else await processes_of(home.host, home.host_agent)
    network = peer.network
    return ProxiedMachines(
        subject, peer.machine, origin, network, cpus, watch, tare, straight, elsewhere
    )


async def processes_of(host: Host, program: Path) -> tuple[int, ...]:
    """Return the processes of a host that run a program: of the agent, what Tare itself has there.

    Raises:
        MachineFault: The host is lost.
    """
    said = await host.run(["sh", "-c", RUNNING, "sh", str(program)], timeout_s=LOOK_S)
    return tuple(int(word) for word in said.stdout.split() if word.isdigit())
