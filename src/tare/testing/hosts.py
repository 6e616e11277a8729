"""A second host for tests: the same computer, with a network stack and mounts of its own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import InputError, MachineFault
from tare.hosts import Completed, Host, Ledger, Process

if TYPE_CHECKING:
    from tare.platforms.contract import Context, Platform, PlatformOptions
    from tare.study.planning.host_cpus import HostCpus

READY = b"ready\n"
SHOWN = (
    *("unshare", "--mount", "--propagation", "slave", "sh", "-ec"),
    # /sys shows the network namespace that mounted it. The process ends with its test.
    "mount --rbind /sys/fs/cgroup /mnt; umount -l /sys; mount -t sysfs sysfs /sys; "
    "mount --rbind /mnt /sys/fs/cgroup; umount -l /mnt; "
    # The names of the namespaces that are made on the host are its own, too.
    "mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; echo ready; exec cat",
)
"""Shows a network stack as a host does, until standard input ends: it runs in that stack."""
_OWN = ("/sys/class/net/", "/proc/sys/net/", "/run/netns/", "/proc/self/", "/proc/mounts")
"""What begins the paths that its namespaces show otherwise than the host that it is on."""
_LOOK_S = 30.0
_READY_S = 60.0
_NOT_FOUND = 127
"""nsenter's status where there is no such command, as a shell's."""
_TOOLS = "test $(id -u) = 0 && command -v ip nsenter unshare"


class NamespaceHost(Host):
    """A host in namespaces of another: its network is its own, the rest is the other's.

    Args:
        outside: The host that it is on.
        name: Its name.
        inside: The id of a process in the namespaces.
    """

    def __init__(self, outside: Host, name: str, inside: int) -> None:
        self.name = name
        self.local = outside.local
        self._outside = outside
        self._process = inside

    @property
    def agent(self) -> Path | None:
        """Where the host that it is on has its own copy of the agent."""
        return self._outside.agent

    def under_another_name(self, name: str) -> NamespaceHost:
        """Return it as a host of another name, with which it shares everything."""
        return NamespaceHost(self._outside, name, self._process)

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return how a command is called so that it runs in the namespaces."""
        return ["nsenter", f"--target={self._process}", "--net", "--mount", *argv]

    async def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a command to its end; see :class:`tare.hosts.contract.Host`."""
        done = await self._outside.run(self.inside(argv), input=input, timeout_s=timeout_s, env=env)
        if done.returncode == _NOT_FOUND and done.stderr.startswith(b"nsenter: "):
            raise InputError(f"there is no command {argv[0]}")
        return done

    async def start(
        self,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        cpus: Sequence[int] | None = None,
    ) -> Process:
        """Start a command that dies with Tare; see :class:`tare.hosts.contract.Host`."""
        if self.local and shutil.which(argv[0]) is None:
            raise InputError(f"there is no command {argv[0]}")
        return await self._outside.start(self.inside(argv), log=log, env=env, cpus=cpus)

    async def read(self, path: str | Path) -> bytes:
        """Return a file's content; raises OSError."""
        if not _is_own(path):
            return await self._outside.read(path)
        return _printed(await self.run(["cat", str(path)], timeout_s=_LOOK_S))

    async def write(self, path: str | Path, data: bytes) -> None:
        """Write a file in one piece; raises OSError."""
        if not _is_own(path):
            await self._outside.write(path, data)
        else:
            _printed(await self.run(["tee", str(path)], input=data, timeout_s=_LOOK_S))

    async def exists(self, path: str | Path) -> bool:
        """Return whether there is a file or directory at ``path``."""
        if not _is_own(path):
            return await self._outside.exists(path)
        return (await self.run(["test", "-e", str(path)], timeout_s=_LOOK_S)).ok

    async def remove(self, path: str | Path) -> None:
        """Remove a file or a whole directory; nothing happens if it is not there."""
        await self._outside.remove(path)

    async def connect_unix(
        self, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a stream to a listening UNIX socket; raises OSError."""
        return await self._outside.connect_unix(path)

    async def open_terminal(
        self, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a terminal, for all byte values; raises OSError."""
        return await self._outside.open_terminal(path)

    def boot_id(self) -> str:
        """Return the id of the boot of the host that it is on."""
        return self._outside.boot_id()

    def topology(self) -> HostCpus:
        """Return the CPUs of the host that it is on."""
        return self._outside.topology()


def _is_own(path: str | Path) -> bool:
    return str(path).startswith(_OWN)


def _printed(done: Completed) -> bytes:
    if not done.ok:
        raise OSError(done.words())
    return done.stdout


@dataclass(frozen=True)
class SecondHost:
    """A second host, and what the machine on it is.

    Args:
        context: The host, with a ledger of its own.
        platform: What the machine is of; None: the platform under test, with the same options.
        options: The platform's options, where one is named.
    """

    context: Context
    platform: Platform[Any] | None = None
    options: PlatformOptions | None = None


@asynccontextmanager
async def second_host(context: Context, ledger: Path) -> AsyncIterator[Context | None]:
    """Hold a second host on the first, which nothing but Tare's own streams connects with it.

    Args:
        context: The first host.
        ledger: Where the second one's ledger is written.

    Yields:
        The second host; None where it cannot be made: that takes root, ``ip`` and util-linux.

    Raises:
        MachineFault: Its namespaces cannot be made.
    """
    outside = context.host
    if not (await outside.run(["sh", "-c", _TOOLS], timeout_s=_LOOK_S)).ok:
        yield None
        return
    process = await outside.start(["unshare", "--net", *SHOWN])
    try:
        async with asyncio.timeout(_READY_S):
            if await process.stdout.readline() != READY:
                raise MachineFault(f"{outside.name} makes no namespaces for a second host")
        host = NamespaceHost(outside, f"{outside.name}-second", process.pid)
        await host.run(["ip", "link", "set", "lo", "up"], timeout_s=_LOOK_S)
        with Ledger(ledger, host=host.name, boot=host.boot_id) as noted:
            yield replace(context, host=host, ledger=noted, here=context.builder)
    finally:
        await process.kill()
