"""Set up a machine between a client and an origin: the origin, and the paths past the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import MachineFault
from tare.platforms.contract import SUBJECT
from tare.run.topologies.peers import Peer, started_origin
from tare.run.topologies.proxied_cell import ProxiedMachines
from tare.workloads.network.ends import ORIGIN, PEER

if TYPE_CHECKING:
    from tare.hosts.contract import Host
    from tare.platforms.contract import Machine
    from tare.platforms.linux.network import Network
    from tare.run.cells.place import Place
    from tare.run.probes.host_counters import HostSampler

RUNNING = 'for each in /proc/[0-9]*; do [ "$each/exe" -ef "$1" ] && echo "${each#/proc/}"; done; :'
"""Tells the processes that run a program, whatever they call themselves."""
LOOK_S = 60.0
INTERFACE = "straight"
CLIENT_ADDRESS, ORIGIN_ADDRESS = "169.254.171.1", "169.254.171.2"
"""Link-local (RFC 3927), and seen within the two namespaces alone."""
_IP_S = 20.0


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
    cpus = {"subject": placement.subject_on_host, **own}
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


async def direct_path(host: Host, network: Network, origin: str, mtu: int) -> str:
    """Join the namespaces of the peer and of an origin by a pair of interfaces.

    They go with the namespaces, which the network has noted and removes.

    Args:
        host: Where both are.
        network: The network that both are on.
        origin: The name of the origin, which has a namespace of its own there.
        mtu: The longest packet, in bytes.

    Returns:
        The address under which the client reaches the origin so.

    Raises:
        MachineFault: The host makes none.
    """
    there = network.links[origin].interface
    here = network.around_peer[-1]

    async def ip(*words: str) -> None:
        done = await host.run(("ip", *words), timeout_s=_IP_S)
        if not done.ok:
            raise MachineFault(
                "client and origin cannot be joined by a path that leads past the load balancer: "
                f"`ip {' '.join(words)}`: {done.words()}"
            )

    ends = (INTERFACE, "mtu", str(mtu), "type", "veth", "peer", "name", INTERFACE)
    await ip("-n", here, "link", "add", *ends, "mtu", str(mtu), "netns", there)
    for namespace, address in ((here, CLIENT_ADDRESS), (there, ORIGIN_ADDRESS)):
        # What IPv6 says by itself would be a load of its own.
        await ip("-n", namespace, "link", "set", INTERFACE, "addrgenmode", "none")
        await ip("-n", namespace, "addr", "add", f"{address}/30", "dev", INTERFACE)
        await ip("-n", namespace, "link", "set", INTERFACE, "up")
    return ORIGIN_ADDRESS
