"""What machines and their peers are plugged into: a bridge, a router, or Open vSwitch.

The bridge is the host's own. A router and an Open vSwitch are in a network namespace of Tare's, so
that nothing of the host's own network is changed: neither whether it forwards packets, nor an Open
vSwitch that it has already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tare.errors import MachineFault
from tare.hosts import Host, start_owned
from tare.plaintext import plain_line
from tare.platforms.contract import Context
from tare.platforms.linux.network.parts import Parts
from tare.platforms.linux.process_machine import owned_directory, temporary_folder
from tare.study.model.platform_options import Switching

LOAD_OPENVSWITCH = "modprobe openvswitch"
LOAD_CONNTRACK = "apt-get install --no-remove iptables; modprobe nf_conntrack"

OPENVSWITCH = ("ovsdb-server", "ovs-vswitchd", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl")
"""Programs of the package openvswitch-switch; not all are in everybody's PATH."""
PATHS = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
OVS_BRIDGE = "tare0"
"""The bridge's name in its own namespace."""
_FOUND = 'for name; do command -v "$name" >/dev/null || { echo "$name"; exit 1; }; done'
_STEP_S = 60.0
_UP_S = 60.0
_END_S = 5.0
_ZONE = 1
"""The conntrack zone of what Open vSwitch tracks."""

ROUTER = {
    "ipv4/ip_forward": "1",
    # A machine asks for every other one's address itself: the router answers for them, at once.
    "ipv4/conf/all/proxy_arp": "1",
    "ipv4/conf/default/proxy_arp": "1",
    "ipv4/neigh/default/proxy_delay": "0",
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
}
"""Settings of a router's namespace, Linux's Documentation/networking/ip-sysctl.rst."""
TRACK = (
    *("iptables", "-w", "-A", "FORWARD"),
    *("-m", "conntrack", "--ctstate", "NEW,ESTABLISHED,RELATED", "-j", "ACCEPT"),
)
"""A rule by which the kernel tracks what a router forwards; iptables-extensions(8)."""
SILENT = {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}

OUTSIDE = {
    **SILENT,
    # A server may start after connections got their ports: reserve the servers' ports.
    "ipv4/ip_local_reserved_ports": "5201,7100-7400,8080-8081",
    "ipv4/ip_local_port_range": "1024 65535",
    "ipv4/tcp_max_syn_backlog": "16384",
    "ipv4/tcp_max_tw_buckets": "262144",
    # Keeps known neighbours valid for a whole batch, so that they are not resolved again.
    "ipv4/neigh/eth0/base_reachable_time_ms": "36000000",
}
"""Settings of the namespaces of the peer and of an origin: room for many short connections."""


class NetworkSwitch(Protocol):
    """A switch that connects machines' interfaces.

    Attributes:
        parts: Makes interfaces where it is.
        facts: What it is, for the record.
    """

    parts: Parts
    facts: Mapping[str, Any]

    async def attach(self, interface: str, address: str = "") -> None:
        """Plug an interface in, behind which an address is; raises MachineFault."""
        ...

    async def behind(self, interface: str, address: str) -> None:
        """Say that one more address is behind an interface that is plugged in already."""
        ...


class HostBridge:
    """The host's bridge, which is there already."""

    def __init__(self, parts: Parts, name: str) -> None:
        self.parts = parts
        self.name = name
        self.facts: Mapping[str, Any] = {"switch": "bridge"}

    async def attach(self, interface: str, address: str = "") -> None:
        """Put the interface on the bridge."""
        await self.parts.ip("link", "set", interface, "master", self.name, "up")

    async def behind(self, interface: str, address: str) -> None:
        """Do nothing: a bridge learns by itself who is where."""


class Router:
    """Routes of one address to each interface, and answers to who asks for another's address."""

    def __init__(self, parts: Parts, facts: Mapping[str, Any]) -> None:
        self.parts = parts
        self.facts = facts

    async def attach(self, interface: str, address: str = "") -> None:
        """Bring the interface up, and send there what is for its address."""
        await self.parts.ip("link", "set", interface, "up")
        if address:
            await self.behind(interface, address)

    async def behind(self, interface: str, address: str) -> None:
        """Send there what is for one more address."""
        await self.parts.ip("route", "add", f"{address}/32", "dev", interface)


class OpenSwitch:
    """A bridge of Open vSwitch, with daemons and a database of its own."""

    def __init__(self, parts: Parts, context: Context, folder: Path) -> None:
        self.parts = parts
        self.facts: Mapping[str, Any] = {"switch": "openvswitch"}
        self._context = context
        self._folder = folder

    async def attach(self, interface: str, address: str = "") -> None:
        """Make the interface a port."""
        await self.configure("add-port", OVS_BRIDGE, interface)
        await self.require(interface)
        await self.parts.ip("link", "set", interface, "up")

    async def behind(self, interface: str, address: str) -> None:
        """Do nothing: the switch learns by itself who is where."""

    async def configure(self, *words: str) -> str:
        """Run ``ovs-vsctl``, which waits until the switch has done it; raises MachineFault."""
        argv = [f"--db=unix:{self._folder}/db", f"--timeout={_STEP_S:.0f}", *words]
        return await output_of(self._context, "ovs-vsctl", *argv)

    async def require(self, interface: str) -> None:
        """Raise MachineFault unless the daemon made a port of an interface.

        Source: ovs-vswitchd.conf.db(5): ``ofport`` is negative or empty where it could not.
        """
        number = (await self.configure("get", "Interface", interface, "ofport")).strip()
        error = (await self.configure("get", "Interface", interface, "error")).strip()
        if not number.isdecimal():
            reason = error.strip('"') if error != "[]" else "its daemon gives no reason"
            raise MachineFault(f"Open vSwitch takes no port {interface}: {reason}")

    async def track(self) -> None:
        """Let the kernel's conntrack see every packet of IPv4, as a stateful firewall does.

        Source: ovs-actions(7), ``ct``, and the tutorial on conntrack of Open vSwitch's manual.
        """
        flows = (
            f"table=0,priority=10,ip,ct_state=-trk,actions=ct(table=1,zone={_ZONE})",
            f"table=1,priority=10,ip,ct_state=+trk+new,actions=ct(commit,zone={_ZONE}),normal",
            "table=1,priority=5,actions=normal",
        )
        for flow in flows:
            socket = f"unix:{self._folder}/{OVS_BRIDGE}.mgmt"
            await output_of(self._context, "ovs-ofctl", "add-flow", socket, flow)


async def router(
    context: Context, held: AsyncExitStack, namespace: str, own: str, conntrack: bool
) -> Router:
    """Make a router in a namespace.

    Args:
        context: The host and its ledger.
        held: Removes what was made.
        namespace: The name of the namespace.
        own: An address for the router itself.
        conntrack: Whether it keeps track of connections.

    Raises:
        MachineFault: The host makes none.
    """
    parts = await _room(context, held, namespace, ROUTER)
    await parts.ip("addr", "add", f"{own}/32", "dev", "lo")
    if conntrack:
        await output_of(context, "nsenter", f"--net=/run/netns/{namespace}", *TRACK)
    return Router(parts, {"switch": "routed", "conntrack": conntrack})


async def open_switch(
    context: Context, held: AsyncExitStack, namespace: str, conntrack: bool
) -> OpenSwitch:
    """Start an Open vSwitch in a namespace, by the kernel's path; see :func:`router`."""
    parts = await _room(context, held, namespace, {})
    host, ledger = context.host, context.ledger
    folder = temporary_folder(host) / f"{namespace}-ovs"
    await held.enter_async_context(owned_directory(host, ledger, folder))
    await output_of(context, "ovsdb-tool", "create", f"{folder}/conf.db", str(SCHEMA))
    around = ["nsenter", f"--net=/run/netns/{namespace}"]
    env = {**PATHS, "OVS_RUNDIR": str(folder), "OVS_DBDIR": str(folder), "OVS_LOGDIR": str(folder)}
    usual = ["--no-chdir", "-vconsole:warn", "-vsyslog:off"]
    database = ["ovsdb-server", *usual, f"--remote=punix:{folder}/db", f"{folder}/conf.db"]
    # The daemon looks for its bridges' sockets in this folder, not where the host's own are.
    daemon = ["ovs-vswitchd", *usual, f"--unixctl={folder}/ctl", f"unix:{folder}/db"]
    for argv, waits in ((database, folder / "db"), (daemon, folder / "ctl")):
        process = await start_owned(
            host, ledger, [*around, *argv], log=folder / f"{argv[0]}.log", env=env
        )
        held.push_async_callback(partial(process.end, _END_S))
        await _await_socket(
            context, waits, folder / f"{argv[0]}.log", lambda p=process: p.returncode
        )
    switch = OpenSwitch(parts, context, folder)
    version = (await output_of(context, "ovs-vswitchd", "--version")).split("\n")[0].split()[-1]
    switch.facts = {
        **switch.facts,
        "conntrack": conntrack,
        "openvswitch": version,
        "datapath": "the kernel's",
    }
    await switch.configure("--no-wait", "init")
    await switch.configure("add-br", OVS_BRIDGE)
    await switch.require(OVS_BRIDGE)
    if conntrack:
        await switch.track()
    return switch


async def lacking_switch(host: Host, wanted: Switching) -> tuple[str, str] | None:
    """Return what a host lacks of the switch that an arm wants, and what to do about it."""
    if wanted.kind == "openvswitch":
        shown = await host.run(
            ["sh", "-c", _FOUND, "sh", *OPENVSWITCH], timeout_s=_STEP_S, env=PATHS
        )
        if not shown.ok:
            lacks = f"`switch: openvswitch`: the host has no {shown.words() or OPENVSWITCH[0]}"
            return lacks, "apt-get install --no-remove openvswitch-switch"
        if not await host.exists("/sys/module/openvswitch"):
            return "`switch: openvswitch`: the host's kernel has no openvswitch", LOAD_OPENVSWITCH
    if wanted.conntrack and wanted.kind == "routed":
        # In a network of its own, which ends with it.
        tried = await host.run(["unshare", "--net", *TRACK], timeout_s=_STEP_S, env=PATHS)
        if not tried.ok:
            reason = plain_line(tried.words(), 200)
            return f"`conntrack: true`: no rule can be made ({reason})", LOAD_CONNTRACK
    if wanted.conntrack and not await host.exists("/proc/sys/net/netfilter/nf_conntrack_max"):
        return "`conntrack: true`: the host's kernel has no conntrack", "modprobe nf_conntrack"
    return None


async def output_of(context: Context, *words: str) -> str:
    """Return what a command printed; raises MachineFault where it fails."""
    done = await context.host.run(words, timeout_s=2 * _STEP_S, env=PATHS)
    if not done.ok:
        raise MachineFault(f"the switch cannot be made: `{' '.join(words)}`: {done.words()}")
    return done.stdout.decode(errors="replace")


async def _room(
    context: Context, held: AsyncExitStack, namespace: str, settings: Mapping[str, str]
) -> Parts:
    """Make the namespace that a switch is in."""
    await Parts(context, held).namespace(namespace)
    parts = Parts(context, held, namespace)
    await parts.settings(namespace, {**SILENT, **settings})
    return parts


async def _await_socket(context: Context, path: Path, log: Path, ended: Any) -> None:
    deadline = time.monotonic() + _UP_S
    while not await context.host.exists(path):
        if ended() is not None or time.monotonic() > deadline:
            words = (await context.host.read(log)).decode(errors="replace").strip()
            raise MachineFault(f"Open vSwitch does not start: {words.splitlines()[-1:]}")
        await asyncio.sleep(0.05)
