"""Libvirt's API, called in threads; its library is loaded only when it is used."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Host
from tare.hosts.forwarded_socket import carried_socket
from tare.platforms.libvirt.disturbances import PAUSED, SUSPENDED, DomainReport, look_at
from tare.study.planning.host_cpus import HostCpus

INSTALL = (
    "pip install 'hypertare[libvirt]' (it is built with: apt-get install --no-remove libvirt-dev "
    "gcc pkg-config python3-dev)"
)
CALL_S = 90.0
T = TypeVar("T")

ENDS = {1: "the guest powered itself off", 2: "somebody destroyed it", 3: "its QEMU was killed"}
"""Why a domain is off, by libvirt's ``virDomainShutoffReason``; others are reported by number."""
_OFF = 5


def load() -> Any:
    """Load and return libvirt's module.

    Raises:
        InputError: The module is not installed.
    """
    try:
        module = importlib.import_module("libvirt")
    except ImportError as error:
        raise InputError(f"libvirt's Python library is not there: {error}", INSTALL) from None
    # A failure raises an exception. Without this handler the library would also print it.
    module.registerErrorHandler(_say_nothing, None)
    return module


def _say_nothing(*_: Any) -> None:
    """Ignore an error, because its exception reports it."""


class Connection:
    """A connection to libvirt.

    Args:
        uri: The connection's URI, as used on this computer.
        name: The connection's name in messages.
    """

    def __init__(self, uri: str, name: str) -> None:
        self._uri = uri
        self._name = name
        self._library = load()
        self._open: Any = None

    async def open(self) -> None:
        """Connect.

        Raises:
            InputError: Libvirt does not answer.
        """
        try:
            self._open = await self._call(self._library.open, self._uri)
        except MachineFault as fault:
            raise InputError(
                f"libvirt does not answer at {self._name}: {fault.message}",
                "is its daemon running? try: systemctl start libvirtd",
            ) from None

    async def close(self) -> None:
        """Close the connection, if it is open."""
        if self._open is not None:
            opened, self._open = self._open, None
            await asyncio.to_thread(opened.close)

    async def versions(self) -> dict[str, str]:
        """Return the versions of libvirt and of its QEMU."""
        own = await self._call(self._open.getLibVersion)
        qemu = await self._call(self._open.getVersion)
        return {"libvirt": _dotted(own), "qemu": _dotted(qemu)}

    async def capabilities(self, machine: str, kind: str) -> str:
        """Return the capabilities of domains of a type here, as XML.

        Raises:
            MachineFault: No domains of that type can run here.
        """
        return str(
            await self._call(self._open.getDomainCapabilities, None, "x86_64", machine, kind, 0)
        )

    async def host_cpus(self) -> HostCpus:
        """Return the CPUs and the memory of each NUMA node of libvirt's host."""
        return cpus_in(str(await self._call(self._open.getCapabilities)))

    async def define(self, xml: str) -> None:
        """Define a domain; raises MachineFault with libvirt's message."""
        await self._call(self._open.defineXML, xml)

    async def start_paused(self, uuid: str) -> None:
        """Start a domain with its vCPUs paused."""
        domain = await self._domain(uuid)
        await self._call(domain.createWithFlags, self._library.VIR_DOMAIN_START_PAUSED)

    async def resume(self, uuid: str) -> None:
        """Let a paused domain's vCPUs run."""
        await self._call((await self._domain(uuid)).resume)

    async def live_xml(self, uuid: str) -> str:
        """Return a running domain's XML."""
        return str(await self._call((await self._domain(uuid)).XMLDesc, 0))

    async def scheduling(self, uuid: str) -> dict[str, int]:
        """Return a domain's CPU settings in the host's control groups, by libvirt's names."""
        return dict(await self._call((await self._domain(uuid)).schedulerParameters))

    async def look(self, uuid: str) -> DomainReport:
        """Return libvirt's present report on a domain; raises NoSuchDomain if there is none."""
        domain = await self._domain(uuid)
        return await self._call(look_at, self._library, self._open, domain)

    async def is_held(self, uuid: str) -> bool:
        """Check whether a domain is paused or asleep."""
        state, _ = await self._call((await self._domain(uuid)).state)
        return state in (PAUSED, SUSPENDED)

    async def why_off(self, uuid: str) -> str:
        """Return why a domain is off, in words; empty if it is not."""
        state, reason = await self._call((await self._domain(uuid)).state)
        if state != _OFF:
            return ""
        return ENDS.get(reason, f"it is off for libvirt's reason {reason}")

    async def has(self, uuid: str, name: str) -> bool:
        """Check whether there is a domain with this UUID and name."""
        try:
            return bool((await self._domain(uuid)).name() == name)
        except NoSuchDomain:
            return False

    async def remove(self, uuid: str) -> None:
        """Destroy and undefine a domain, if it exists."""
        with contextlib.suppress(NoSuchDomain):
            domain = await self._domain(uuid)
            # `destroy` fails if the domain is already off.
            with contextlib.suppress(MachineFault):
                await self._call(domain.destroy)
            await self._call(domain.undefineFlags, _WITH_ALL)

    async def _domain(self, uuid: str) -> Any:
        return await self._call(self._open.lookupByUUIDString, uuid)

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            async with asyncio.timeout(CALL_S):
                return await asyncio.to_thread(function, *arguments)
        except TimeoutError:
            raise MachineFault(f"libvirt did not answer within {CALL_S:g} s") from None
        except self._library.libvirtError as error:
            kind = NoSuchDomain if error.get_error_code() == _NO_DOMAIN else MachineFault
            raise kind(str(error)) from error


def cpus_in(capabilities: str) -> HostCpus:
    """Read a host's CPUs from its capabilities (libvirt.org, "Driver capabilities XML format").

    Args:
        capabilities: The XML that ``virConnectGetCapabilities`` returns.
    """
    siblings: dict[int, tuple[int, ...]] = {}
    nodes: dict[int, int] = {}
    memory: dict[int, int] = {}
    sockets: dict[int, list[int]] = {}
    for cell in ET.fromstring(capabilities).iterfind("host/topology/cells/cell"):
        node = int(cell.get("id", "0"))
        memory[node] = int(cell.findtext("memory", "0")) << 10
        for cpu in cell.iterfind("cpus/cpu"):
            # An offline CPU has only its number.
            if (threads := cpu.get("siblings")) is None:
                continue
            number = int(cpu.get("id", "0"))
            nodes[number] = node
            siblings[number] = _numbers(threads)
            sockets.setdefault(int(cpu.get("socket_id", "0")), []).append(number)
    packages = {cpu: min(each) for each in sockets.values() for cpu in each}
    return HostCpus(tuple(sorted(siblings)), siblings, nodes, packages=packages, memory=memory)


def _numbers(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs such as ``0,4-6``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


_WITH_ALL = 1 | 2 | 16
"""``VIR_DOMAIN_UNDEFINE_MANAGED_SAVE``, ``…_SNAPSHOTS_METADATA`` and ``…_CHECKPOINTS_METADATA``.
Without these flags, libvirt refuses to undefine a domain that somebody saved or snapshotted."""
_NO_DOMAIN = 42
"""``VIR_ERR_NO_DOMAIN``, libvirt/virterror.h."""


class NoSuchDomain(MachineFault):
    """There is no such domain."""


def _dotted(number: int) -> str:
    """Format libvirt's version number, which is major * 1,000,000 + minor * 1000 + release."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


SOCKETS = ("/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock")
"""The sockets of a host's daemons, that of QEMU's own driver first (libvirt.org, "Daemons")."""
SYSTEM = "/system"


@asynccontextmanager
async def forwarded_uri(host: Host, uri: str) -> AsyncIterator[str]:
    """Forward the connection to a host's libvirt to this computer, if the host is remote.

    Args:
        host: The host of libvirt.
        uri: The connection's URI, as used on that host.

    Yields:
        The connection's URI, as used on this computer. It must be opened once, and immediately.

    Raises:
        InputError: The connection cannot be forwarded.
    """
    if host.local:
        yield uri
        return
    # If the socket cannot be forwarded, the connection breaks, and libvirt's library reports that.
    async with carried_socket(host, await _socket(host, uri)) as here:
        yield f"qemu+unix://{SYSTEM}?socket={urllib.parse.quote(here)}"


async def _socket(host: Host, uri: str) -> str:
    parts = urllib.parse.urlsplit(uri)
    if parts.path != SYSTEM:
        raise InputError(
            f"of {host.name}, which is reached over SSH, only libvirt's system connection can be "
            f"used, and not {uri}",
            f"write `uri: qemu://{SYSTEM}`, or run Tare on that host",
        )
    if named := urllib.parse.parse_qs(parts.query).get("socket"):
        return named[0]
    for socket in SOCKETS:
        if await host.exists(socket):
            return socket
    raise InputError(
        f"libvirt does not listen on {host.name}: neither {SOCKETS[0]} nor {SOCKETS[1]} is there",
        "is its daemon running? try there: systemctl start libvirtd",
    )
