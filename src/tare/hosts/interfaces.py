"""Network interfaces and namespaces that Tare made on a host: their removal."""

from __future__ import annotations

from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host

_IP_S = 20.0


async def remove_network_part(host: Host, kind: str, name: str) -> bool:
    """Remove an interface (``link``) or a network namespace (``netns``) by its name.

    Returns:
        Whether there was one.

    Raises:
        MachineFault: It is still there.
    """
    if kind == "netns":
        there, words = f"/run/netns/{name}", ["netns", "delete", name]
    else:
        there, words = f"/sys/class/net/{name}", ["link", "delete", name]
    if not await host.exists(Path(there)):
        return False
    done = await host.run(["ip", *words], timeout_s=_IP_S)
    # The end of a pair goes with the other, a moment after its namespace.
    if not done.ok and await host.exists(Path(there)):
        raise MachineFault(done.words())
    return True
