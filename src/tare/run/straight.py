"""The straight path: a pair of interfaces between client and origin, with no switching between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.errors import MachineFault

if TYPE_CHECKING:
    from tare.hosts.contract import Host
    from tare.platforms.linux.network import Network

INTERFACE = "straight"
CLIENT, ORIGIN = "169.254.171.1", "169.254.171.2"
"""Link-local (RFC 3927), and seen within the two namespaces alone."""
_IP_S = 20.0


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
    for namespace, address in ((here, CLIENT), (there, ORIGIN)):
        # What IPv6 says by itself would be a load of its own.
        await ip("-n", namespace, "link", "set", INTERFACE, "addrgenmode", "none")
        await ip("-n", namespace, "addr", "add", f"{address}/30", "dev", INTERFACE)
        await ip("-n", namespace, "link", "set", INTERFACE, "up")
    return ORIGIN
