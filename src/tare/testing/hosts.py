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
    # /sys shows the network namespace in which it was mounted. This process ends with its test.
    "mount --rbind /sys/fs/cgroup /mnt; umount -l /sys; mount -t sysfs sysfs /sys; "
    "mount --rbind /mnt /sys/fs/cgroup; umount -l /mnt; "
    # The host also has its own names of network namespaces.
    "mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; echo ready; exec cat",
)
"""Mounts that show the process's network stack as a host would, until standard input ends."""
_OWN = ("/sys/class/net/", "/proc/sys/net/", "/run/netns/", "/proc/self/", "/proc/mounts")
"""The beginnings of paths whose content differs in the namespaces from that of the outer host."""
_LOOK_S = 30.0
_READY_S = 60.0
_NOT_FOUND = 127
"""The exit status of nsenter, as of a shell, if a command does not exist."""
_TOOLS = "test $(id -u) = 0 && command -v ip nsenter unshare"


class NamespaceHost(Host):
    """A host in namespaces of another host: it has its own network and shares the rest.

    Args:
        outside: The outer host.
        name: The name of this host.
        inside: The id of a process in the namespaces.
    """

    def __init__(self, outside: Host, name: str, inside: int) -> None:
        self.name = name
        self.local = outside.local
        self._outside = outside
        self._process = inside

    @property
    def agent(self) -> Path | None:
        """The path of the agent's copy on the outer host."""
        return self._outside.agent

    def under_another_name(self, name: str) -> NamespaceHost:
        """Return this host under another name; the two share everything."""
        return NamespaceHost(self._outside, name, self._process)

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in the namespaces."""
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
        """Return the id of the outer host's boot."""
        return self._outside.boot_id()

    def topology(self) -> HostCpus:
        """Return the CPUs of the outer host."""
        return self._outside.topology()


def _is_own(path: str | Path) -> bool:
    return str(path).startswith(_OWN)


def _printed(done: Completed) -> bytes:
    if not done.ok:
        raise OSError(done.words())
    return done.stdout


@dataclass(frozen=True)
class SecondHost:
    """A second host, and the platform of the machine on it.

    Args:
        context: The context of the host, with a ledger of its own.
        platform: The machine's platform; None: the platform under test, with the same options.
        options: The platform's options, if a platform is given.
    """

    context: Context
    platform: Platform[Any] | None = None
    options: PlatformOptions | None = None


@asynccontextmanager
async def second_host(context: Context, ledger: Path) -> AsyncIterator[Context | None]:
    """Create a second host on the first, with no network connection between the two.

    Args:
        context: The context of the first host.
        ledger: The path of the second host's ledger.

    Yields:
        The context of the second host. None if it cannot be created, which requires root, ``ip``
        and util-linux.

    Raises:
        MachineFault: The namespaces cannot be created.
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
