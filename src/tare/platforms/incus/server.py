"""Requests to a server: its facts, Tare's own projects, and the instances in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Host
from tare.platforms.contract import Carrier
from tare.platforms.incus.parcels import CONFIGURATION, volume_backup
from tare.platforms.incus.session import IncusSession
from tare.platforms.vendors.session import NoSuchObject
from tare.study.planning.host_cpus import HostCpus

LOCK_S = 30.0
"""How long to wait for an object with which a server is still busy, in seconds."""
STOP_S = 30
LOOK_S = 10.0
_GOVERNORS = "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null | sort -u"
OFF = "Stopped"
OWNER = "user.tare"
"""The configuration key that marks an object as Tare's own."""
IMAGES, VOLUMES = "features.images", "features.storage.volumes"
"""The keys that give a project its own images and volumes, so that it lists no others."""
KINDS = {"vm": "virtual-machine", "container": "container"}
DRIVERS = {"vm": "qemu", "container": "lxc"}
_JUST_ENDS = "Invalid PID"
"""Incus's error for a container that no longer has a process (github.com/lxc/incus, 2614)."""
_NOT_OPERATIONAL = "Instance type not operational"


@dataclass(frozen=True)
class Facts:
    """Facts that a server reports about itself.

    Args:
        product: ``Incus`` or ``LXD``.
        version: Its version.
        kernel: Its host's kernel.
        drivers: Its drivers, ``lxc`` and ``qemu``, each with its version.
        architecture: Its host's architecture, such as ``x86_64``.
        clustered: Whether it belongs to a cluster.
        hyper_threading: Whether its host's cores run several threads: ``on``, ``off``; empty: it
            does not report it.
        power_policy: The frequency governors of its host's kernel; empty: there are none, or Tare
            cannot read them there, and the server does not report them.
    """

    product: str
    version: str
    kernel: str
    drivers: Mapping[str, str]
    architecture: str
    clustered: bool = False
    hyper_threading: str = ""
    power_policy: str = ""


def facts_of(answer: Any) -> Facts:
    """Read the facts from the answer to ``GET /1.0``; a missing one is empty."""
    env = answer.get("environment") if isinstance(answer, Mapping) else None
    env = env if isinstance(env, Mapping) else {}

    def parts(key: str) -> list[str]:
        return [part.strip() for part in str(env.get(key) or "").split("|") if part.strip()]

    versions = parts("driver_version")
    drivers = {
        name: versions[number] if number < len(versions) else ""
        for number, name in enumerate(parts("driver"))
    }
    product = {"incus": "Incus", "lxd": "LXD"}.get(str(env.get("server")), "Incus or LXD")
    return Facts(
        product,
        str(env.get("server_version") or "unknown"),
        str(env.get("kernel_version") or ""),
        drivers,
        str(env.get("kernel_architecture") or "x86_64"),
        env.get("server_clustered") is True,
    )


@dataclass(frozen=True)
class HugePages:
    """The huge pages of a server's host.

    Args:
        size: The size of each page in bytes.
        total: The number of reserved pages.
        free: The number of reserved pages that no machine uses.
    """

    size: int
    total: int
    free: int


class Server:
    """A server, used through an open session.

    Args:
        session: The session.
    """

    def __init__(self, session: IncusSession) -> None:
        self.session = session
        self.name = session.name

    async def facts(self) -> Facts:
        """Return the server's facts, with those that Tare reads on its host if it has access."""
        answer = facts_of(await self.session.ask("GET", "/1.0"))
        threads = threads_in(await self.session.ask("GET", "/1.0/resources"))
        policy = "" if self.session.host is None else await _governors(self.session.host)
        return replace(answer, hyper_threading=threads, power_policy=policy)

    async def rights(self) -> tuple[str, ...]:
        """Return Tare's rights there: a socket gives all rights, a certificate its own."""
        if self.session.host is not None:
            return ("the server's unix socket, which gives every right at it",)
        answer = await self.session.ask("GET", "/1.0")
        name = answer.get("auth_user_name") if isinstance(answer, Mapping) else None
        words = "a client's certificate that the server trusts"
        if not name:
            return (words,)
        try:
            known = await self.session.ask("GET", f"/1.0/certificates/{quote(str(name), '')}")
        except MachineFault:
            return (words,)
        restricted = isinstance(known, Mapping) and known.get("restricted") is True
        return (f"{words}, {'restricted' if restricted else 'not restricted'} to projects",)

    async def carrier(self) -> Carrier | None:
        """Return the CPUs and memory of its host; None: it does not report them."""
        host = self.session.host
        resources = await self.session.ask("GET", "/1.0/resources")
        cpus = cpus_in(resources)
        # If Tare has access to that host, it already knows more about the same CPUs.
        if not cpus.online or (host is not None and cpus.online == host.topology().online):
            return None
        memory = resources.get("memory") or {}
        total = int(memory.get("total") or 0)
        return Carrier(
            self.name,
            cpus,
            total,
            max(0, total - int(memory.get("used") or 0)) if total and host is None else None,
            len(_list_in(resources.get("cpu"), "sockets")),
            is_host=host is not None,
        )

    async def cpus(self) -> int:
        """Return the number of CPUs of its host; 0: it is not reported."""
        answer = await self.session.ask("GET", "/1.0/resources")
        cpu = answer.get("cpu") if isinstance(answer, Mapping) else None
        total = cpu.get("total") if isinstance(cpu, Mapping) else None
        return total if isinstance(total, int) else 0

    async def huge_pages(self) -> HugePages | None:
        """Return the huge pages of its host; None if it reports none of any size."""
        answer = await self.session.ask("GET", "/1.0/resources")
        memory = answer.get("memory") if isinstance(answer, Mapping) else None
        memory = memory if isinstance(memory, Mapping) else {}
        found = [memory.get(f"hugepages_{name}") for name in ("size", "total", "used")]
        size, total, used = (each if isinstance(each, int) else 0 for each in found)
        return HugePages(size, total // size, (total - used) // size) if size > 0 else None

    async def require(self, kind: str, facts: Facts) -> None:
        """Check that the server runs machines of a kind.

        Raises:
            InputError: It does not; the message quotes the server's reasons, if any.
        """
        if DRIVERS[kind] in facts.drivers:
            return
        why = [
            str(each.get("last_message"))
            for each in await self.session.ask("GET", "/1.0/warnings?recursion=1") or ()
            if each.get("type") == _NOT_OPERATIONAL and each.get("status") != "resolved"
        ]
        words = "virtual machines" if kind == "vm" else "containers"
        raise InputError(
            f"{self.name} runs no {words}: {'; '.join(why) or 'it has no driver for them'}",
            "VMs need /dev/kvm, the module vhost_vsock, QEMU and OVMF on its host "
            "(apt-get install --no-remove qemu-system-x86 ovmf)"
            if kind == "vm"
            else "",
        )

    async def pool(self, wanted: str | None) -> str:
        """Return the named storage pool, or the only one; raises InputError if there is none."""
        names = _names(await self.session.ask("GET", "/1.0/storage-pools"))
        return _chosen(self.name, "storage pool", "pool", wanted, names)

    async def nic(self, wanted: str | None) -> dict[str, str]:
        """Return a device on a network: the named one, or the only managed one.

        Raises:
            InputError: There is no such network.
        """
        listed = [
            each
            for each in await self.session.ask("GET", "/1.0/networks?recursion=1") or ()
            if each.get("managed") or each.get("type") == "bridge"
        ]
        names = [str(each["name"]) for each in listed if wanted or each.get("managed")]
        name = _chosen(self.name, "network", "network", wanted, names)
        if any(each["name"] == name and each.get("managed") for each in listed):
            return {"type": "nic", "network": name}
        return {"type": "nic", "nictype": "bridged", "parent": name}

    async def image(self, wanted: str) -> str:
        """Return the fingerprint of a VM image in the project ``default``.

        Raises:
            InputError: There is no VM image with that alias or fingerprint.
        """
        listed = await self.session.ask("GET", "/1.0/images?recursion=1") or ()
        for each in listed:
            aliases = [alias.get("name") for alias in each.get("aliases") or ()]
            if wanted in aliases or str(each["fingerprint"]).startswith(wanted):
                if each.get("type") == KINDS["vm"]:
                    return str(each["fingerprint"])
                raise InputError(f"{wanted} at {self.name} is the image of a container, not a VM's")
        raise InputError(
            f"{self.name} has no image {wanted}",
            "make one of the live image (`tare help incus`), or correct `image`",
        )

    async def make_project(self, name: str, owner: str, config: Mapping[str, str]) -> None:
        """Create a project that is marked as a machine's own."""
        body = {"name": name, "description": "made by Tare", "config": {OWNER: owner, **config}}
        await self.session.ask("POST", "/1.0/projects", body)

    async def bring_image(self, project: str, content: bytes) -> str:
        """Upload an image into a project, and return its fingerprint."""
        answer = await self.session.ask("POST", _url(project, "images"), content)
        return str(answer["fingerprint"])

    async def bring_volume(self, project: str, pool: str, name: str, content: bytes) -> None:
        """Upload a block volume with some content into a project."""
        path = _url(project, f"storage-pools/{quote(pool, '')}/volumes/custom")
        headers = {f"X-{product}-name": name for product in ("LXD", "Incus")}
        await self.session.ask("POST", path, volume_backup(name, pool, content), headers)

    async def make_volume(self, project: str, pool: str, name: str, size: int) -> None:
        """Create an empty block volume, with a size in bytes, in a project."""
        path = _url(project, f"storage-pools/{quote(pool, '')}/volumes/custom")
        config = {"size": str(size)}
        body = {"name": name, "type": "custom", "content_type": "block", "config": config}
        await self.session.ask("POST", path, body)

    async def make(self, project: str, instance: Mapping[str, Any]) -> None:
        """Create an instance."""
        await self.session.ask("POST", _url(project, "instances"), instance)

    async def bring_configuration(self, project: str, instance: str, content: bytes) -> None:
        """Write the agent's configuration into a container."""
        path = _url(project, f"instances/{instance}/files", f"&path={quote(CONFIGURATION, '')}")
        fields = {"uid": "0", "gid": "0", "mode": "0400", "type": "file"}
        headers = {f"X-{made}-{key}": fields[key] for made in ("LXD", "Incus") for key in fields}
        await self.session.ask("POST", path, content, headers)

    async def instance(self, project: str, name: str) -> Mapping[str, Any]:
        """Return the server's report on an instance; raises NoSuchObject if it is gone."""
        return dict(await self.session.ask("GET", _url(project, f"instances/{name}")))

    async def state(self, project: str, name: str) -> Mapping[str, Any]:
        """Return an instance's state; wait if it is about to end; raises NoSuchObject if gone."""
        path, deadline = _url(project, f"instances/{name}/state"), time.monotonic() + LOCK_S
        while True:
            try:
                return dict(await self.session.ask("GET", path))
            except MachineFault as fault:
                if _JUST_ENDS not in fault.message or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.2)

    async def list_copies(self, project: str, name: str) -> Sequence[str]:
        """Return the snapshots and backups of an instance, sorted by name."""
        found: list[str] = []
        for kind in ("snapshots", "backups"):
            listed = await self.session.ask("GET", _url(project, f"instances/{name}/{kind}"))
            found += [f"{kind[:-1]} {each}" for each in sorted(_names(listed))]
        return found

    async def start(self, project: str, name: str) -> None:
        """Start an instance."""
        body = {"action": "start", "timeout": -1}
        await self.session.ask("PUT", _url(project, f"instances/{name}/state"), body)

    async def stop(self, project: str, name: str) -> None:
        """Stop an instance at once; do nothing if it does not run or is gone."""
        body = {"action": "stop", "timeout": STOP_S, "force": True}
        with suppress(NoSuchObject):
            if await self._is_off(project, name):
                return
            try:
                await self.session.ask("PUT", _url(project, f"instances/{name}/state"), body)
            except MachineFault:
                # The server refuses to stop an instance that has just ended.
                if not await self._is_off(project, name):
                    raise

    async def _is_off(self, project: str, name: str) -> bool:
        return (await self.state(project, name)).get("status") == OFF

    async def make_network(self, name: str) -> None:
        """Create a bridge without addresses in the project `default`, marked with its name."""
        config = {"ipv4.address": "none", "ipv6.address": "none", OWNER: name}
        body = {"name": name, "type": "bridge", "config": config}
        await self.session.ask("POST", "/1.0/networks", body)

    async def has_network(self, name: str) -> bool:
        """Check whether a network that belongs to Tare is there."""
        try:
            found = await self.session.ask("GET", f"/1.0/networks/{quote(name, '')}")
        except NoSuchObject:
            return False
        return bool((found.get("config") or {}).get(OWNER) == name)

    async def remove_network(self, name: str) -> None:
        """Remove a network, if it exists."""
        with suppress(NoSuchObject):
            await self.session.ask("DELETE", f"/1.0/networks/{quote(name, '')}")

    async def has_project(self, name: str, owner: str) -> bool:
        """Check whether a project that belongs to Tare is there.

        Args:
            name: The project's name.
            owner: The machine for which it was made.
        """
        try:
            config = (await self.session.ask("GET", _project(name))).get("config") or {}
        except NoSuchObject:
            return False
        return bool(config.get(OWNER) == owner)

    async def remove_project(self, name: str) -> None:
        """Remove a project with all that is in it, if it exists.

        Raises:
            MachineFault: The project cannot be removed.
        """
        with suppress(NoSuchObject):
            config = (await self.session.ask("GET", _project(name))).get("config") or {}
            await self._empty(name, config)
            await self.session.ask("DELETE", _project(name))

    async def _empty(self, project: str, config: Mapping[str, Any]) -> None:
        """Remove a project's own objects; objects shared with other projects stay."""
        for name in _names(await self.session.ask("GET", _url(project, "instances"))):
            await self.stop(project, name)
            await self._delete(project, f"instances/{quote(name, '')}")
        if config.get(VOLUMES) == "true":
            for pool in _names(await self.session.ask("GET", "/1.0/storage-pools")):
                volumes = f"storage-pools/{quote(pool, '')}/volumes/custom"
                for name in _names(await self.session.ask("GET", _url(project, volumes))):
                    await self._delete(project, f"{volumes}/{quote(name, '')}")
        if config.get(IMAGES) == "true":
            for name in _names(await self.session.ask("GET", _url(project, "images"))):
                await self._delete(project, f"images/{name}")

    async def _delete(self, project: str, path: str) -> None:
        try:
            await self.session.ask("DELETE", _url(project, path))
        except NoSuchObject:
            return


def _project(name: str) -> str:
    return f"/1.0/projects/{quote(name, '')}"


def threads_in(answer: Any) -> str:
    """Return whether cores have several threads, from ``GET /1.0/resources``; empty: unknown."""
    cpu = answer.get("cpu") if isinstance(answer, Mapping) else None
    cores = [core for socket in _list_in(cpu, "sockets") for core in _list_in(socket, "cores")]
    known = [threads for core in cores if (threads := _list_in(core, "threads"))]
    return "" if not known else "on" if any(len(threads) > 1 for threads in known) else "off"


def cpus_in(resources: Any) -> HostCpus:
    """Read a host's CPUs from ``GET /1.0/resources`` (Incus, shared/api/resource.go)."""
    cpu = resources.get("cpu") if isinstance(resources, Mapping) else None
    siblings: dict[int, tuple[int, ...]] = {}
    nodes: dict[int, int] = {}
    packages: dict[int, int] = {}
    isolated: set[int] = set()
    for socket in _list_in(cpu, "sockets"):
        threads = [
            [each for each in _list_in(core, "threads") if each.get("online", True)]
            for core in _list_in(socket, "cores")
        ]
        first = min((int(each["id"]) for core in threads for each in core), default=0)
        for core in threads:
            numbers = tuple(sorted(int(each["id"]) for each in core))
            for each in core:
                number = int(each["id"])
                siblings[number], packages[number] = numbers, first
                nodes[number] = int(each.get("numa_node") or 0)
                if each.get("isolated"):
                    isolated.add(number)
    memory = resources.get("memory") if isinstance(resources, Mapping) else None
    return HostCpus(
        tuple(sorted(siblings)),
        siblings,
        nodes,
        frozenset(isolated),
        packages=packages,
        memory={
            int(each.get("numa_node") or 0): int(each.get("total") or 0)
            for each in _list_in(memory, "nodes")
        },
    )


def _list_in(answer: Any, key: str) -> list[Any]:
    """Return a list in an answer; empty if there is none."""
    found = answer.get(key) if isinstance(answer, Mapping) else None
    return found if isinstance(found, list) else []


async def _governors(host: Host) -> str:
    """Return the frequency governors of a host's CPUs; empty if there are none."""
    try:
        done = await host.run(["sh", "-c", _GOVERNORS], timeout_s=LOOK_S)
    except (OSError, MachineFault):
        return ""
    return ", ".join(done.stdout.decode("ascii", "replace").split())


def _url(project: str, path: str, more: str = "") -> str:
    return f"/1.0/{path}?project={quote(project, '')}{more}"


def _names(paths: Any) -> list[str]:
    """Return the names at the ends of paths such as ``/1.0/images/NAME?project=…``."""
    return [str(path).partition("?")[0].rpartition("/")[2] for path in paths or ()]


def _chosen(server: str, thing: str, option: str, wanted: str | None, names: list[str]) -> str:
    if wanted in names:
        return str(wanted)
    listed = ", ".join(sorted(names)) or "none"
    if wanted is not None:
        raise InputError(f"{server} has no {thing} {wanted}", f"it has: {listed}; name one")
    if len(names) == 1:
        return names[0]
    raise InputError(
        f"{server} has {len(names)} {thing}s",
        f"say by `{option}` which: {listed}"
        if names
        else f"make one there: incus {'storage' if option == 'pool' else option} create, or lxc …",
    )
