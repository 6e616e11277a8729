"""An OpenSSH server of the test's own, and a way to it that can be slow, silent or cut."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tare.hosts import LocalHost
from tare.hosts.processes import start_time
from tare.hosts.ssh.options import SshOptions

HERE = LocalHost()
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def free_port() -> int:
    """Return a port that nobody takes before the test does.

    Each worker has ports of its own, below those that the kernel gives to connections
    (32768, ip_local_port_range).
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw9").removeprefix("gw")) % 10
    first = 12_000 + 2_000 * worker
    while True:
        port = random.randrange(first, first + 2_000)
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port


def make_key(path: Path) -> Path:
    call = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(call, check=True)
    return path


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


@dataclass
class Sshd:
    """A server on loopback with keys of its own, run as the current user."""

    folder: Path
    wrap: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        if not Path(SSHD).exists():
            pytest.skip("there is no sshd: apt-get install openssh-server")
        self.host_key = make_key(self.folder / "host_key")
        self.user_key = make_key(self.folder / "user_key")
        self.known_hosts = self.folder / "known_hosts"
        public = (self.folder / "host_key.pub").read_text()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}")
        (self.folder / "authorized").write_text((self.folder / "user_key.pub").read_text())
        (self.folder / "config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\n"
            f"HostKey {self.host_key}\n"
            f"AuthorizedKeysFile {self.folder}/authorized\n"
            f"SetEnv XDG_CACHE_HOME={self.folder}/cache TARE_LOCKS={self.folder}/locks\n"
            "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            "LogLevel ERROR\n"
        )

    def start(self) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        call = [*self.wrap, SSHD, "-D", "-e", "-f", str(self.folder / "config")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(call, stderr=log)
        deadline = time.monotonic() + 20
        while not self._greets():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _greets(self) -> bool:
        """Return whether a server answers, which a process that only holds the port does not.

        A server that was just stopped may have been forking for a connection. Its child holds the
        listening port for a moment, takes connections and never answers them.
        """
        # From another address: a connection from the port to itself is made where nobody listens.
        to, source = ("127.0.0.1", self.port), ("127.0.0.2", 0)
        with (
            contextlib.suppress(OSError),
            socket.create_connection(to, timeout=1, source_address=source) as made,
        ):
            return made.recv(4) == b"SSH-"
        return False

    def cut(self) -> None:
        """Kill the processes that serve connections; new ones are still taken."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Freeze the server: connections stay, new ones are made, and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        assert self.process is not None
        self._signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the processes of sessions, not to what was started by them."""
        assert self.process is not None
        for child in children_of(self.process.pid):
            for pid in (*children_of(child), child):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                        os.kill(pid, number)

    def stop(self) -> None:
        if self.process is not None:
            # First the listener: what it accepts after the cut would outlive it.
            self.process.send_signal(signal.SIGSTOP)
            self.cut()
            self.process.kill()
            self.process.wait()
            self.process = None

    def options(self, **changes: Any) -> SshOptions:
        known: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "known_hosts": self.known_hosts,
            "key": self.user_key,
            "lease_s": 20,
        }
        return SshOptions(**{**known, **changes})

    def in_a_study(self, address: str = "127.0.0.1") -> str:
        """Return the keys by which a host or an arm of a study is reached.

        The user may have an SSH configuration, which must not affect the tests.
        """
        return (
            f"ssh: {address}, port: {self.port}, user: {getpass.getuser()}, "
            f"known-hosts: {self.known_hosts}, key: {self.user_key}, ssh-config: none"
        )


@contextmanager
def serving(folder: Path) -> Iterator[Sshd]:
    """Hold an SSH server that keeps its files in a folder, which is made where it is not there."""
    folder.mkdir(exist_ok=True)
    server = Sshd(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@dataclass
class Way:
    """A way to a port that can be slow, silent, or closed."""

    target: int
    delay_s: float = 0.0
    silent: bool = False
    port: int = 0
    address: str = "127.0.0.1"
    passed: int = 0

    async def __aenter__(self) -> Way:
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        for task in self._tasks:
            task.cancel()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.address, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break all connections; new ones are still taken."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        """Break all connections and refuse new ones."""
        self._server.close()
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        ways = ((reader, far_writer), (far_reader, writer))
        for source, sink in ways:
            self._writers.add(sink)
            task = asyncio.create_task(self._pass(source, sink, writer, far_writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *both: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if self.silent:
                    continue
                self.passed += len(data)
                await asyncio.sleep(self.delay_s)
                sink.write(data)
                await sink.drain()
        for writer in both:
            self._writers.discard(writer)
            writer.transport.abort()


async def gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while await start_time(HERE, pid) is not None:
        assert time.monotonic() < deadline, "the process lives on"
        await asyncio.sleep(0.02)


def keepers(sshd: Sshd) -> list[int]:
    """Return the ids of the keepers that were started through this server."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            environment = (entry.parent / "environ").read_bytes()
            if b"--serve" in words and str(sshd.folder).encode() in environment:
                found.append(int(entry.parent.name))
    return found


def folder_of(keeper: int) -> Path:
    return Path(Path(f"/proc/{keeper}/cmdline").read_bytes().split(b"\0")[-2].decode())
