"""Set-up of a machine between a client and an origin: the origin, and a direct path past it."""

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
    from tare.run.cells.placement import BatchPlacement
    from tare.run.probes.host_counters import HostSampler

RUNNING = 'for each in /proc/[0-9]*; do [ "$each/exe" -ef "$1" ] && echo "${each#/proc/}"; done; :'
"""Lists the processes that run a program, whatever their names."""
LOOK_S = 60.0
INTERFACE = "straight"
CLIENT_ADDRESS, ORIGIN_ADDRESS = "169.254.171.1", "169.254.171.2"
"""Link-local (RFC 3927), and visible only within the two namespaces."""
_IP_S = 20.0


async def set_up_proxied(
    placing: BatchPlacement,
    subject: Machine,
    peer: Peer,
    companions: Mapping[str, Machine],
    own: Mapping[str, tuple[int, ...]],
    watch: HostSampler | None,
) -> ProxiedMachines:
    """Return the subject between its client and an origin; start an origin that is not a machine.

    Args:
        placing: The placement of the batch's machines.
        subject: The machine that is measured.
        peer: Its client.
        companions: The machines of the scenario's further roles, by role.
        own: The CPUs of a client and an origin that are processes on the subject's host.
        watch: The sampler that records who uses the host's CPUs.

    Raises:
        MachineFault: The origin does not start, or cannot be reached.
    """
    origin, direct = companions.get(ORIGIN), ""
    if origin is None:
        context, like = placing.home.context, placing.specs[SUBJECT]
        starting = started_origin(context, peer.network, like, own["origin"])
        origin = await placing.machines.enter_async_context(starting)
        if PEER not in companions:
            mtu = peer.network.links[origin.name].mtu
            direct = await direct_path(context.host, peer.network, origin.name, mtu)
    placement = placing.batch.placement
    arm = placing.arm
    carried = arm.platform.stated(arm.options).elsewhere
    # All machines on another computer have that computer's CPU numbers.
    subjects = placement.subject if carried and not own else placement.subject_on_host
    cpus = {"subject": subjects, **own}
    names = {PEER: "client", ORIGIN: "origin"}
    cpus |= {names[each.role]: each.cpus for each in placement.companions if each.role in names}
    elsewhere = frozenset(
        names[each.role] for each in placement.companions if each.host and each.role in names
    )
    home = placing.home.context
    tare = (os.getpid(),) if home.host.local else await processes_of(home.host, home.host_agent)
    network = peer.network
    return ProxiedMachines(
        subject,
        peer.machine,
        origin,
        network,
        cpus,
        None if carried else watch,
        tare,
        direct,
        elsewhere,
        carried=carried,
        unpinned=placement.unpinned,
    )


async def processes_of(host: Host, program: Path) -> tuple[int, ...]:
    """Return the processes of a host that run a program; for the agent, these are Tare's own.

    Raises:
        MachineFault: The host is lost.
    """
    done = await host.run(["sh", "-c", RUNNING, "sh", str(program)], timeout_s=LOOK_S)
    return tuple(int(word) for word in done.stdout.split() if word.isdigit())


async def direct_path(host: Host, network: Network, origin: str, mtu: int) -> str:
    """Join the namespaces of the peer and of an origin by a pair of interfaces.

    These are removed with the namespaces, which the network has recorded.

    Args:
        host: The host of both.
        network: The network of both.
        origin: The name of the origin, which has its own namespace there.
        mtu: The longest packet, in bytes.

    Returns:
        The address at which the client reaches the origin directly.

    Raises:
        MachineFault: The host cannot create the interfaces.
    """
    there = network.links[origin].interface
    here = network.around_peer[-1]

    async def ip(*words: str) -> None:
        done = await host.run(("ip", *words), timeout_s=_IP_S)
        if not done.ok:
            raise MachineFault(
                "client and origin cannot be joined by a path past the load balancer: "
                f"`ip {' '.join(words)}`: {done.words()}"
            )

    ends = (INTERFACE, "mtu", str(mtu), "type", "veth", "peer", "name", INTERFACE)
    await ip("-n", here, "link", "add", *ends, "mtu", str(mtu), "netns", there)
    for namespace, address in ((here, CLIENT_ADDRESS), (there, ORIGIN_ADDRESS)):
        # IPv6's own messages would be an additional load.
        await ip("-n", namespace, "link", "set", INTERFACE, "addrgenmode", "none")
        await ip("-n", namespace, "addr", "add", f"{address}/30", "dev", INTERFACE)
        await ip("-n", namespace, "link", "set", INTERFACE, "up")
    return ORIGIN_ADDRESS
