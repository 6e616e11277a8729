"""Network interfaces and namespaces that Tare made on a host: their removal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import PREFIX, Refused, Undo

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


async def _undo_network(host: Host, entry: Entry) -> str:
    name = str(entry.details["name"])
    if not name.startswith(PREFIX) or "/" in name:
        raise Refused(f"its name does not begin with {PREFIX}")
    if entry.boot != host.boot_id():
        return ""
    what = "network namespace" if entry.kind == "netns" else "network interface"
    removed = await remove_network_part(host, entry.kind, name)
    return f"Removed {what} {name}." if removed else ""


UNDOERS: Mapping[str, Undo] = {"link": _undo_network, "netns": _undo_network}
