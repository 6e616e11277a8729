"""The parts of a network on one host: each noted before it is made, and removed again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial

from tare.errors import MachineFault
from tare.hosts.interfaces import Interface, Namespace
from tare.hosts.ledger.resources import created
from tare.platforms.contract import Context

_IP_S = 20.0


class Parts:
    """Makes interfaces and network namespaces on a host.

    Args:
        context: The host and its ledger.
        held: Removes what was made when it is closed, the newest first.
        within: The network namespace of Tare's own in which interfaces are made, and with which
            they go; empty: the host's.
    """

    def __init__(self, context: Context, held: AsyncExitStack, within: str = "") -> None:
        self._host = context.host
        self._ledger = context.ledger
        self.held = held
        self.within = within

    async def interface(self, name: str, mtu: int, *kind: str) -> None:
        """Make an interface that keeps quiet; ``kind`` is its type as ``ip link add`` takes it.

        Raises:
            MachineFault: The host makes none; so do the other methods.
        """
        await self._make(Interface, name, "link", "add", name, "mtu", str(mtu), "type", *kind)
        await self.quiet(name)

    async def bridge(self, name: str, mtu: int, address: str) -> None:
        """Make a bridge that the host has an address on."""
        await self.interface(name, mtu, "bridge")
        await self.ip("addr", "add", f"{address}/24", "dev", name)
        await self.ip("link", "set", name, "up")

    async def tap(self, name: str, mtu: int, queues: int = 1, user: int | None = None) -> None:
        """Make a tap, which several at once may read and write with several queues.

        ``user`` may attach to it as well as root.
        """
        many = ("multi_queue",) if queues > 1 else ()
        owner = () if user is None else ("user", str(user))
        words = ("tuntap", "add", "dev", name, "mode", "tap", *many, *owner)
        await self._make(Interface, name, *words)
        await self.ip("link", "set", name, "mtu", str(mtu))
        await self.quiet(name)

    async def macvtap(self, name: str, lower: str, mac: str) -> str:
        """Make a macvtap on an interface, and return its device, by which it is read and written.

        With its lower interface it goes.
        """
        kind = ("type", "macvtap", "mode", "bridge")
        await self.ip("link", "add", name, "link", lower, "address", mac, *kind)
        await self.quiet(name)
        await self.ip("link", "set", name, "up")
        number = (await self._host.read(f"/sys/class/net/{name}/ifindex")).decode().strip()
        device = f"/dev/tap{number}"
        if not await self._host.exists(device):
            raise MachineFault(f"the host shows no {device} for the macvtap {name}")
        return device

    async def lend(self, interface: str, namespace: str) -> None:
        """Put an interface that is not Tare's into a namespace of Tare's until the end.

        It was down, and is down again. A physical one goes back by itself where its namespace ends,
        as after a kill (Linux's net/core/dev.c, ``default_device_exit_net``).
        """
        await self.run("ip", "link", "set", interface, "netns", namespace)
        self.held.push_async_callback(self._give_back, interface, namespace)

    async def _give_back(self, interface: str, namespace: str) -> None:
        # The shell is where the interface came from, and waits there while `ip` is elsewhere.
        script = 'ip -n "$1" link set "$2" netns $$ || exit 1; exit 0'
        # What does not go now goes with the namespace; or its owner has removed it meanwhile.
        words = ["sh", "-c", script, "sh", namespace, interface]
        await self._host.run(words, timeout_s=_IP_S)

    async def namespace(self, name: str) -> None:
        """Make a network namespace."""
        await self._make(Namespace, name, "netns", "add", name)
        await self.run("ip", "-n", name, "link", "set", "lo", "up")

    async def outlet(self, name: str, end: str, mtu: int, address: str) -> None:
        """Make a namespace with one interface, ``eth0``, whose other end is ``end``."""
        await self.namespace(name)
        inside = ("peer", "name", "eth0", "mtu", str(mtu), "netns", name)
        await self.interface(end, mtu, "veth", *inside)
        await self.run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        await self.run("ip", "-n", name, "link", "set", "eth0", "up")

    async def quiet(self, interface: str) -> None:
        """Keep IPv6 from announcing itself and looking for neighbours during measurements."""
        path = f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"
        # A namespace of Tare's own keeps all of its interfaces quiet.
        if not self.within and await self._host.exists(path):
            await self._host.write(path, b"1")

    async def ip(self, *words: str) -> None:
        """Run ``ip`` with these words, where the interfaces are."""
        await self.run("ip", *(("-n", self.within) if self.within else ()), *words)

    async def settings(self, namespace: str, values: Mapping[str, str]) -> None:
        """Write settings of a namespace of Tare's own: paths below ``/proc/sys/net`` to texts.

        What its kernel does not have is left out.
        """
        script = 'while [ $# -gt 1 ]; do [ ! -e "$1" ] || echo "$2" >"$1" || exit 1; shift 2; done'
        words = [word for name, text in values.items() for word in (f"/proc/sys/net/{name}", text)]
        around = ("nsenter", f"--net=/run/netns/{namespace}")
        await self.run(*around, "sh", "-c", script, "sh", *words)

    async def run(self, *words: str) -> str:
        """Run a command, and return what it printed."""
        done = await self._host.run(words, timeout_s=_IP_S)
        if not done.ok:
            where = "" if self._host.local else f" on {self._host.name}"
            raise MachineFault(
                f"no network can be made{where}: `{' '.join(words)}`: {done.words()}"
            )
        return done.stdout.decode(errors="replace")

    async def _make(self, part: type[Interface], name: str, *words: str) -> None:
        if self.within and part is Interface:
            # It goes with its namespace, which has an entry of its own.
            await self.ip(*words)
            return
        made = created(self._ledger, part(self._host, name, partial(self.run, "ip", *words)))
        await self.held.enter_async_context(made)
