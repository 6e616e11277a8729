"""Two hosts on one computer: each with a network stack of its own, and a wire between them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hosts.hosts_sshd import SSHD, Sshd
from tare.hosts import Host, Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context
from tare.testing.hosts import READY, SHOWN, NamespaceHost

WIRE = ("192.0.2.1", "192.0.2.2")
"""The hosts' addresses on the wire between them (TEST-NET-1, RFC 5737)."""


def live_in(space: str) -> subprocess.Popen[bytes]:
    """Start what keeps namespaces of a host alive: that of its network, and one that shows it."""
    process = subprocess.Popen(
        ["nsenter", f"--net=/run/netns/{space}", *SHOWN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == READY
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


@contextmanager
def two_hosts(folder: Path, agent: Path, *, mtu: int = 1500) -> Iterator[tuple[Context, Context]]:
    """Hold two hosts; see that nothing of Tare's is left in them, nor in their ledgers.

    Args:
        folder: Where their ledgers are.
        agent: The agent's program.
        mtu: The MTU of the wire between them; 0: there is no wire.
    """
    spaces = [f"test-{os.getpid()}-{letter}" for letter in "ab"]
    with ExitStack() as held:
        for space in spaces:
            ip("netns", "add", space)
            held.callback(ip, "netns", "delete", space)
            ip("-n", space, "link", "set", "lo", "up")
        if mtu:
            far = ("peer", "name", "wire", "mtu", str(mtu), "netns", spaces[1])
            ip("-n", spaces[0], "link", "add", "wire", "mtu", str(mtu), "type", "veth", *far)
            for space, address in zip(spaces, WIRE, strict=True):
                ip("-n", space, "addr", "add", f"{address}/24", "dev", "wire")
                ip("-n", space, "link", "set", "wire", "up")
        living = [live_in(space) for space in spaces]
        for process in living:
            held.callback(end, process)
        first, second = (
            Context(
                NamespaceHost(LocalHost(agent), f"host-{letter}", process.pid),
                held.enter_context(Ledger(folder / f"ledger-{letter}", host=f"host-{letter}")),
                default_cache(),
                agent,
                "rt",
                here=LocalHost(agent),
            )
            for letter, process in zip("ab", living, strict=True)
        )
        yield first, second
        for context, space in zip((first, second), spaces, strict=True):
            assert context.ledger.open_entries() == ()
            assert "tare-" not in ip("-n", space, "-o", "link")


async def parts_in(host: Host) -> set[str]:
    """Return the interfaces and the namespaces on a host that look like Tare's."""
    links = await host.run(["ip", "-o", "link"], timeout_s=20)
    spaces = await host.run(["ip", "netns"], timeout_s=20)
    words = (links.stdout + spaces.stdout).decode().replace("@", " ").replace(":", " ").split()
    return {word for word in words if word.startswith("tare-")}


@contextmanager
def sshd_inside(context: Context, folder: Path) -> Iterator[Sshd]:
    """Hold an SSH server whose sessions are on a namespace host, and that is reached from here."""
    assert isinstance(context.host, NamespaceHost)
    server = Sshd(folder)
    one = context.host.inside([SSHD, "-i", "-f", str(folder / "config")])
    sessions: list[subprocess.Popen[bytes]] = []
    with socket.create_server(("127.0.0.1", server.port)) as listening:

        def serve() -> None:
            # As inetd does: each connection is a server's standard input and output.
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        both = connection.fileno()
                        sessions.append(subprocess.Popen(one, stdin=both, stdout=both))

        Path("/run/sshd").mkdir(exist_ok=True)
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()
            for session in sessions:
                session.terminate()
                session.wait()


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
