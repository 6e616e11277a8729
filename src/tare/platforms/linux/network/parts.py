"""The parts of a network on one host: each noted before it is made, and removed again."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Literal

from tare.errors import MachineFault
from tare.hosts.interfaces import remove_network_part
from tare.hosts.ledger.ledger import Entry
from tare.platforms.contract import Context

_IP_S = 20.0


class Parts:
    """Makes interfaces and network namespaces on a host.

    Args:
        context: The host and its ledger.
        held: Removes what was made when it is closed, the newest first.
    """

    def __init__(self, context: Context, held: AsyncExitStack) -> None:
        self._host = context.host
        self._ledger = context.ledger
        self._held = held

    async def interface(self, name: str, mtu: int, *kind: str) -> None:
        """Make an interface that keeps quiet; ``kind`` is its type as ``ip link add`` takes it.

        Raises:
            MachineFault: The host makes none; so do the other methods.
        """
        await self._own("link", name)
        await self.ip("link", "add", name, "mtu", str(mtu), "type", *kind)
        await self.quiet(name)

    async def bridge(self, name: str, mtu: int, address: str) -> None:
        """Make a bridge that the host has an address on."""
        await self.interface(name, mtu, "bridge")
        await self.ip("addr", "add", f"{address}/24", "dev", name)
        await self.ip("link", "set", name, "up")

    async def tap(
        self, name: str, mtu: int, bridge: str, queues: int = 1, user: int | None = None
    ) -> None:
        """Make a tap on a bridge, which several at once may read and write with several queues.

        ``user`` may attach to it as well as root.
        """
        await self._own("link", name)
        many = ("multi_queue",) if queues > 1 else ()
        owner = () if user is None else ("user", str(user))
        await self.ip("tuntap", "add", "dev", name, "mode", "tap", *many, *owner)
        await self.ip("link", "set", name, "mtu", str(mtu), "master", bridge, "up")

    async def namespace(self, name: str, end: str, mtu: int, bridge: str, address: str) -> None:
        """Make a namespace with one interface, whose other end is on a bridge."""
        await self._own("netns", name)
        await self.ip("netns", "add", name)
        inside = ("peer", "name", "eth0", "mtu", str(mtu), "netns", name)
        await self.interface(end, mtu, "veth", *inside)
        await self.ip("link", "set", end, "master", bridge, "up")
        await self.ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            await self.ip("-n", name, "link", "set", interface, "up")

    async def quiet(self, interface: str) -> None:
        """Keep IPv6 from announcing itself and looking for neighbours during measurements."""
        path = f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"
        if await self._host.exists(path):
            await self._host.write(path, b"1")

    async def ip(self, *words: str) -> None:
        """Run ``ip`` with these words."""
        await self.run("ip", *words)

    async def run(self, *words: str) -> None:
        """Run a command."""
        done = await self._host.run(words, timeout_s=_IP_S)
        if not done.ok:
            where = "" if self._host.local else f" on {self._host.name}"
            raise MachineFault(
                f"no network can be made{where}: `{' '.join(words)}`: {done.words()}"
            )

    async def _own(self, kind: Literal["link", "netns"], name: str) -> None:
        entry = self._ledger.record(kind, name=name)
        self._held.push_async_callback(self._remove, entry)

    async def _remove(self, entry: Entry) -> None:
        await remove_network_part(self._host, entry.kind, str(entry.details["name"]))
        self._ledger.done(entry)
