"""Guests of a host that is reached over SSH: here a server of the test's own, on loopback."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd, serving
from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.ssh.host import SshHost
from tare.images import ship
from tare.images.cache import KEPT_DAYS, default_cache, file_digest
from tare.images.ship import copy_to_host
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.qemu.machine import QemuMachine
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu, launch

SHAPE = Shape(vcpus=1, memory=192 << 20)
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
async def far(sshd: Sshd, agent_program: Path) -> AsyncIterator[SshHost]:
    async with SshHost(sshd.options(), agent_program) as host:
        yield host


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A file of many windows of a stream, and not a multiple of any of them."""
    file = tmp_path / "initramfs"
    file.write_bytes(os.urandom(9_000_001))
    return file


def shipped(sshd: Sshd) -> Path:
    return sshd.folder / "cache" / "tare" / "shipped"


# Files on their way.


async def test_a_file_of_this_computer_needs_no_copy(big: Path) -> None:
    assert await copy_to_host(LocalHost(), big) == big


async def test_a_file_travels_once_and_whole(far: SshHost, sshd: Sshd, big: Path) -> None:
    there = await copy_to_host(far, big)
    assert there.parent == shipped(sshd)
    assert there.read_bytes() == big.read_bytes()
    assert there.stat().st_mode & 0o077 == 0
    before = there.stat().st_ino
    assert await copy_to_host(far, big) == there
    assert there.stat().st_ino == before
    big.write_bytes(b"another version")
    assert await copy_to_host(far, big) != there


async def test_two_copies_at_once_are_one(far: SshHost, sshd: Sshd, big: Path) -> None:
    first, second = await asyncio.gather(copy_to_host(far, big), copy_to_host(far, big))
    assert first == second
    assert first.read_bytes() == big.read_bytes()
    assert not list(shipped(sshd).glob("*.part*"))


async def test_copy_that_was_truncated_later_is_made_again(far: SshHost, big: Path) -> None:
    there = await copy_to_host(far, big)
    os.truncate(there, 1000)
    assert await copy_to_host(far, big) == there
    assert there.read_bytes() == big.read_bytes()


async def test_a_copy_that_is_not_the_same_is_refused(
    far: SshHost, sshd: Sshd, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the file had changed between the check of it and its transfer.
    monkeypatch.setattr(ship, "file_digest", lambda path: "0" * 64)
    with pytest.raises(MachineFault, match="did not arrive unchanged") as refused:
        await copy_to_host(far, big)
    assert refused.value.transient
    assert not list(shipped(sshd).glob("0000*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs root")
async def test_a_host_without_room_says_so(far: SshHost, sshd: Sshd, big: Path) -> None:
    folder = shipped(sshd)
    folder.mkdir(parents=True, exist_ok=True)
    here = LocalHost()
    mounted = await here.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", str(folder)])
    if not mounted.ok:
        pytest.skip(f"nothing can be mounted here: {mounted.words()}")
    try:
        with pytest.raises(MachineFault, match="No space left on device") as refused:
            await copy_to_host(far, big)
        assert refused.value.hint == "make room on the host"
        assert not [path for path in folder.iterdir() if path.stat().st_size]
    finally:
        await here.run(["umount", str(folder)])


async def test_files_unused_for_a_month_are_removed_from_the_host(
    far: SshHost, sshd: Sshd, big: Path
) -> None:
    there = await copy_to_host(far, big)
    old = there.stat().st_mtime - (KEPT_DAYS + 2) * 86_400
    os.utime(there, (old, old))
    other = big.with_name("vmlinux")
    other.write_bytes(b"new")
    await copy_to_host(far, other)
    assert not there.exists()


async def test_a_cancelled_copy_is_not_used(far: SshHost, sshd: Sshd, big: Path) -> None:
    copying = asyncio.ensure_future(copy_to_host(far, big))
    await asyncio.sleep(0.02)
    copying.cancel()
    await asyncio.wait({copying})
    there = await copy_to_host(far, big)
    assert file_digest(there) == file_digest(big)


# A guest there.


@pytest.fixture
def context(far: SshHost, tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    ledger = Ledger(tmp_path / "ledger", host=far.name, boot=far.boot_id)
    here = LocalHost(agent_program)
    yield Context(far, ledger, default_cache(), agent_program, "rt", here=here)
    assert not ledger.open_entries()


async def boot(
    context: Context, options: QemuOptions, folder: Path, cpus: tuple[int, ...] = ()
) -> QemuMachine:
    prepared = await Qemu().prepare(context, options, SHAPE, True)
    spec = MachineSpec("tare-far-1-subject", SHAPE, cpus, folder / "tare-m", True)
    return await launch(context, options, prepared.extra["image"], spec)


@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.boots
async def test_a_guest_boots_and_measures_over_ssh(
    context: Context, sshd: Sshd, tmp_path: Path
) -> None:
    own, *others = sorted(os.sched_getaffinity(0))
    verdict = await Qemu().check(context, QemuOptions())
    assert verdict.usable
    assert verdict.emulated
    assert {"nice", "fifo"} <= verdict.capabilities.knobs
    options = QemuOptions.model_validate(
        {"scheduling": {"nice": 3}, "emulator_cpus": "other" if others else "same"}
    )
    machine = await boot(context, options, tmp_path, (own,))
    try:
        hello = await machine.ready(PATIENCE_S)
        assert hello.role == "init"
        # It booted the copy, not this computer's file.
        command = Path(f"/proc/{machine.pid}/cmdline").read_bytes().split(b"\0")
        kernel = Path(command[command.index(b"-kernel") + 1].decode())
        assert kernel.parent == shipped(sshd)
        (thread,) = await machine.vcpu_threads()
        assert os.sched_getaffinity(thread) == {own}
        emulator = set(others) or {own}
        rest = [t for t in await machine.threads() if t != thread]
        assert rest
        assert all(os.sched_getaffinity(t) == emulator for t in rest)
        assert machine.applied["emulator"]["cpus"] == sorted(emulator)
        (group,) = machine.applied["scheduling"]["threads"]
        assert group["nice"] == 3
        # The nice value of the session must not be that of all that Tare started there.
        assert os.getsid(machine.pid) == machine.pid
        result = await machine.agent.run(
            "tick", {"samples": 200, "allow_untrusted_tsc": True}, deadline_s=60
        )
        assert result.value["slowdown"] > 0
        cost = await machine.host_cost()
        assert cost["cpu_s"] > 0
        assert cost["vcpu_cpu_s"] > 0
    finally:
        await machine.stop()
    assert not (tmp_path / "tare-m").exists()
    assert not Path(f"/proc/{machine.pid}").exists()


@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.boots
async def test_a_host_that_is_lost_ends_its_guest_with_the_reason(
    sshd: Sshd, tmp_path: Path, agent_program: Path
) -> None:
    async with SshHost(sshd.options(patience_s=1), agent_program) as far:
        ledger = Ledger(tmp_path / "ledger", host=far.name, boot=far.boot_id)
        here = LocalHost(agent_program)
        context = Context(far, ledger, default_cache(), agent_program, "rt", here=here)
        machine = await boot(context, QemuOptions(), tmp_path)
        (keeper,) = [int(Path(f"/proc/{machine.pid}/stat").read_text().rsplit(")")[-1].split()[1])]
        os.kill(keeper, 9)
        fault = await asyncio.wait_for(machine.died, 60)
        assert fault.transient
        assert far.name in fault.message
        await machine.stop()
        # The next login finds the folder and removes it, or leaves it to the ledger.
        assert not (tmp_path / "tare-m").exists() or ledger.open_entries()
