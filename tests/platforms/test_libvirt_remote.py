"""Libvirt of a host over SSH: a daemon and a server of the test's own, and real guests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hosts.hosts_sshd import Sshd, serving
from platforms.libvirt_embedded import CONFIGURED
from tare.errors import InputError, MachineFault
from tare.hosts import LocalHost, clean
from tare.hosts.ssh.host import SshHost
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.libvirt.connection import forwarded_uri
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.libvirt.platform import Libvirt, connected

SHAPE = Shape(vcpus=1, memory=192 << 20, disk=32 << 20)
PATIENCE_S = 300.0
LIBVIRTD = shutil.which("libvirtd") or "/usr/sbin/libvirtd"
# What it keeps is out of the way of a daemon that the computer may have.
ALONE = """
for d in /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /etc/libvirt; do
    mkdir -p "$d" && mount -t tmpfs tmpfs "$d"
done
cp "$1/qemu.conf" /etc/libvirt/
exec "$2" --config "$1/libvirtd.conf" --pid-file "$1/pid"
"""
SERVED = 'unix_sock_dir = "{folder}"\nauth_unix_rw = "none"\nlog_outputs = "3:stderr"\n'

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(os.geteuid() != 0, reason="libvirt's system driver needs root"),
]


@dataclass(frozen=True)
class Daemon:
    socket: Path

    @property
    def uri(self) -> str:
        """Its connection, by its name on its own host."""
        return f"qemu+unix:///system?socket={self.socket}"

    def domains(self) -> list[Any]:
        libvirt = pytest.importorskip("libvirt")
        opened = libvirt.open(self.uri)
        try:
            return list(opened.listAllDomains())
        finally:
            opened.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with serving_daemon() as running:
        yield running


@contextlib.contextmanager
def serving_daemon(configured: str = CONFIGURED) -> Iterator[Daemon]:
    """Hold a daemon of the test's own.

    Args:
        configured: The configuration of its QEMU driver.
    """
    pytest.importorskip("libvirt")
    if not Path(LIBVIRTD).exists():
        pytest.skip("there is no libvirtd: apt-get install libvirt-daemon-system")
    # Its name is short, for sockets' names are; pytest's are not.
    with tempfile.TemporaryDirectory(prefix="lvd-") as named:
        folder = Path(named)
        (folder / "qemu.conf").write_text(configured)
        (folder / "libvirtd.conf").write_text(SERVED.format(folder=folder))
        call = ["unshare", "--mount", "sh", "-ec", ALONE, "sh", str(folder), LIBVIRTD]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(call, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 30
            while not listens(folder / "libvirt-sock"):
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.skip(f"libvirtd does not start: {(folder / 'log').read_text()[-400:]}")
                time.sleep(0.05)
            yield Daemon(folder / "libvirt-sock")
        finally:
            process.terminate()
            process.wait(30)


def listens(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as tried:
        tried.connect(str(path))
        return True
    return False


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
async def afar(sshd: Sshd, context: Context) -> AsyncIterator[Context]:
    """A host over SSH, whose images are built on this computer."""
    async with SshHost(sshd.options(), context.agent) as host:
        yield replace(context, host=host, here=LocalHost(context.agent))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short, for sockets' names are."""
    with tempfile.TemporaryDirectory(prefix="lvm-") as named:
        yield Path(named)


async def test_a_connection_is_called_as_on_its_own_host(
    afar: Context, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with forwarded_uri(context.host, "qemu:///session") as here:
        assert here == "qemu:///session"
    with pytest.raises(InputError, match="only libvirt's system connection") as caught:
        async with forwarded_uri(afar.host, "qemu:///session"):
            pass
    assert "qemu:///system" in caught.value.hint
    monkeypatch.setattr("tare.platforms.libvirt.connection.SOCKETS", ("/nowhere/a", "/nowhere/b"))
    with pytest.raises(InputError, match=r"does not listen on .*neither /nowhere/a nor") as caught:
        async with forwarded_uri(afar.host, "qemu:///system"):
            pass
    assert "systemctl start" in caught.value.hint


async def test_a_forwarded_socket_leaves_no_folder_and_no_task_behind(
    afar: Context, daemon: Daemon
) -> None:
    async with forwarded_uri(afar.host, daemon.uri) as here:
        folder = Path(here.partition("?socket=")[2]).parent
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()
    others = asyncio.all_tasks()
    async with connected(afar.host, daemon.uri) as connection:
        assert set(await connection.versions()) == {"libvirt", "qemu"}
    assert not {task for task in asyncio.all_tasks() - others if "_pass" in repr(task)}


async def test_daemon_that_does_not_listen_is_reported(afar: Context, tmp_path: Path) -> None:
    uri = f"qemu+unix:///system?socket={tmp_path}/none"
    verdict = await Libvirt().check(afar, LibvirtOptions(uri=uri))
    assert not verdict.usable
    assert f"libvirt does not answer at {uri} of " in verdict.reason


async def test_cut_connection_is_reported(sshd: Sshd, context: Context, daemon: Daemon) -> None:
    options = sshd.options(patience_s=0.2, connect_s=5.0)
    async with SshHost(options, context.agent) as host, connected(host, daemon.uri) as connection:
        assert await connection.versions()
        sshd.stop()
        try:
            with pytest.raises(MachineFault):
                async with asyncio.timeout(60):
                    while True:
                        await connection.versions()
        finally:
            sshd.start()


@pytest.mark.slow
@pytest.mark.boots
async def test_a_guest_of_a_host_afar_is_pinned_measures_and_goes(
    afar: Context, daemon: Daemon, folder: Path
) -> None:
    platform, options = Libvirt(), LibvirtOptions(uri=daemon.uri, disk_format="qcow2")
    verdict = await platform.check(afar, options)
    assert verdict.usable, verdict.reason
    prepared = await platform.prepare(afar, options, SHAPE, realtime=False)
    cpus = afar.host.topology().online[:1]
    spec = MachineSpec("tare-afar", SHAPE, cpus, folder / "m", realtime=False)
    machine = await platform.start(afar, options, prepared, spec)
    try:
        hello = await machine.ready(PATIENCE_S)
        assert hello.proof["scratch"] and machine.applied["disk"]["format"] == "qcow2"
        assert [domain.name() for domain in daemon.domains()] == ["tare-afar"]
        for thread in await machine.vcpu_threads():
            assert os.sched_getaffinity(thread) == set(cpus)
        found = await machine.agent.run(
            "switch", {"threads": 2, "samples": 1000, "allow_untrusted_tsc": True}, deadline_s=60
        )
        assert found
    finally:
        await machine.stop()
    assert daemon.domains() == []
    assert not afar.ledger.open_entries()
    assert not (folder / "m").exists()


@pytest.mark.slow
@pytest.mark.boots
async def test_resources_left_on_a_remote_host_by_a_killed_run_are_removed(
    afar: Context, daemon: Daemon, folder: Path
) -> None:
    platform, options = Libvirt(), LibvirtOptions(uri=daemon.uri)
    prepared = await platform.prepare(afar, options, SHAPE, realtime=False)
    spec = MachineSpec("tare-left", SHAPE, (), folder / "m", realtime=False)
    machine = await platform.start(afar, options, prepared, spec)
    assert [domain.name() for domain in daemon.domains()] == ["tare-left"]
    messages = await clean(afar.host, afar.ledger, Libvirt.undoers)
    assert "Removed the domain tare-left." in messages
    assert daemon.domains() == []
    await machine.stop()
