"""What goes wrong while a session with a host over SSH lasts: breaks, kills, reboots."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hosts.hosts_sshd import HERE, Sshd, Way, folder_of, gone, keepers, make_key
from tare.errors import InputError, MachineFault
from tare.hosts import Ledger, start_owned
from tare.hosts.processes import start_time
from tare.hosts.ssh.host import SshHost


async def test_nothing_is_lost_when_connections_break(
    sshd: Sshd, way: Way, agent_program: Path
) -> None:
    notices: list[str] = []
    sent = os.urandom(1 << 16) * 100
    async with SshHost(sshd.options(port=way.port), agent_program, tell=notices.append) as host:
        process = await host.start(["cat"])

        async def send() -> None:
            for start in range(0, len(sent), 1 << 16):
                process.stdin.write(sent[start : start + (1 << 16)])
                await process.stdin.drain()
            process.stdin.close()

        running = asyncio.create_task(host.run(["sh", "-c", "sleep 1; echo done"]))
        sending = asyncio.create_task(send())
        got = b""
        for part in range(3):
            got += await process.stdout.readexactly(1 << 20)
            (way.cut if part != 1 else sshd.cut)()
        got += await process.stdout.read()
        await sending
        assert got == sent
        assert await process.wait() == 0
        assert (await running).stdout == b"done\n"
    assert sum("broke" in text for text in notices) >= 2
    assert sum("connected again" in text for text in notices) >= 2


async def test_a_silent_connection_is_replaced(sshd: Sshd, way: Way, agent_program: Path) -> None:
    notices: list[str] = []
    options = sshd.options(port=way.port, silence_s=1.0)
    async with SshHost(options, agent_program, tell=notices.append) as host:
        process = await host.start(["cat"])
        way.silent = True
        process.stdin.write(b"into the void\n")
        while not notices:
            await asyncio.sleep(0.02)
        assert "nothing was received for 1 s" in notices[0]
        way.cut()
        way.silent = False
        assert await process.stdout.readline() == b"into the void\n"


async def test_a_server_that_is_killed_and_comes_back(sshd: Sshd, agent_program: Path) -> None:
    async with SshHost(sshd.options(), agent_program) as host:
        process = await host.start(["cat"])
        sshd.stop()
        process.stdin.write(b"still here\n")
        running = asyncio.create_task(host.run(["echo", "later"]))
        await asyncio.sleep(0.5)
        sshd.start()
        assert await process.stdout.readline() == b"still here\n"
        assert (await running).stdout == b"later\n"


async def test_a_server_that_does_not_come_back(sshd: Sshd, agent_program: Path) -> None:
    notices: list[str] = []
    options = sshd.options(patience_s=0.5, lease_s=2)
    host = SshHost(options, agent_program, tell=notices.append)
    await host.connect()
    process = await host.start(["sleep", "300"])
    running = asyncio.create_task(host.run(["sleep", "300"]))
    reading = asyncio.create_task(process.stdout.read())
    await asyncio.sleep(0.1)
    sshd.stop()
    for waiting in (process.wait(), running):
        with pytest.raises(MachineFault, match=r"did not come back within 0\.5 s") as fault:
            await waiting
        assert fault.value.transient
    with pytest.raises(ConnectionResetError):
        await reading
    with pytest.raises(MachineFault, match="cannot be reached"):
        await host.read("/proc/version")
    with pytest.raises(MachineFault):
        await process.kill()
    # The lease ends what nobody can reach any more.
    await gone(process.pid)
    assert "did not come back" in notices[-1]
    # And the host can be used again once it is back.
    sshd.start()
    assert (await host.run(["echo", "new"])).stdout == b"new\n"
    await host.close()


async def test_a_host_that_comes_back_late_is_cleared(sshd: Sshd, agent_program: Path) -> None:
    options = sshd.options(patience_s=0.3, lease_s=300)
    async with SshHost(options, agent_program) as host:
        process = await host.start(["sleep", "300"])
        (keeper,) = keepers(sshd)
        folder = folder_of(keeper)
        sshd.stop()
        with pytest.raises(MachineFault, match="did not come back"):
            await process.wait()
        assert await start_time(HERE, process.pid) is not None
        sshd.start()
        assert (await host.run(["true"])).ok
        await asyncio.gather(gone(process.pid), gone(keeper))
        assert not folder.exists()


async def test_a_wrong_key_after_a_break_is_final(
    sshd: Sshd, agent_program: Path, tmp_path: Path
) -> None:
    host = SshHost(sshd.options(), agent_program)
    await host.connect()
    process = await host.start(["sleep", "300"])
    sshd.stop()
    sshd.host_key.unlink()
    make_key(sshd.host_key)
    sshd.start()
    with pytest.raises(InputError, match="differs from the one in"):
        await process.wait()
    await host.close()
    for keeper in keepers(sshd):
        shutil.rmtree(folder_of(keeper))
        os.kill(keeper, signal.SIGKILL)


async def test_a_killed_keeper_takes_its_processes_along(sshd: Sshd, agent_program: Path) -> None:
    async with SshHost(sshd.options(), agent_program) as host:
        process = await host.start(["sleep", "300"])
        (keeper,) = keepers(sshd)
        folder = folder_of(keeper)
        os.kill(keeper, signal.SIGKILL)
        await gone(process.pid)
        with pytest.raises(MachineFault, match="its processes of Tare have ended") as caught:
            await process.wait()
        assert caught.value.transient
        await process.kill()
        assert process.returncode == -signal.SIGKILL
        assert (await host.run(["echo", "again"])).stdout == b"again\n"
        assert not folder.exists()


async def test_cancelled_requests_do_not_delay_the_end_of_the_loop(
    sshd: Sshd, agent_program: Path
) -> None:
    """End as an event loop that ends early: it cancels all tasks, even those awaiting an answer."""
    async with SshHost(sshd.options(lease_s=2), agent_program) as host:
        process = await host.start(["sleep", "600"])
        own = asyncio.current_task()
        for task in asyncio.all_tasks() - {own}:
            task.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(MachineFault, match="was interrupted"):
                await process.wait()


async def test_closing_ends_all_and_leaves_nothing(sshd: Sshd, agent_program: Path) -> None:
    host = SshHost(sshd.options(), agent_program)
    await host.connect()
    process = await host.start(["sh", "-c", "sleep 300 & echo $!; wait"])
    inner = int(await process.stdout.readline())
    (keeper,) = keepers(sshd)
    folder = folder_of(keeper)
    assert folder.is_dir()
    await host.close()
    await asyncio.gather(gone(process.pid), gone(inner), gone(keeper))
    assert not folder.exists()
    with pytest.raises(MachineFault, match="was closed"):
        await process.wait()


PARENT = """
import asyncio, sys, os
from pathlib import Path
from tare.hosts.ssh.host import SshHost
from tare.hosts.ssh.options import SshOptions
async def main():
    port, user, known, key, agent = sys.argv[1:]
    host = SshHost(SshOptions("127.0.0.1", user, Path(known), int(port), Path(key), lease_s=2),
                   Path(agent))
    await host.connect()
    process = await host.start(["sleep", "300"])
    print(process.pid, flush=True)
    await process.wait()
asyncio.run(main())
"""


async def test_no_process_outlives_a_killed_tare(sshd: Sshd, agent_program: Path) -> None:
    options = sshd.options()
    words = [str(sshd.port), options.user, sshd.known_hosts, sshd.user_key, agent_program]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *map(str, words)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert await start_time(HERE, child) is not None
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await gone(child)
    while keepers(sshd):
        await asyncio.sleep(0.02)


@pytest.mark.skipif(os.geteuid() != 0, reason="pretending a reboot needs root")
async def test_a_reboot_is_noticed(tmp_path: Path, agent_program: Path) -> None:
    folder = tmp_path / "sshd"
    folder.mkdir()
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")
    mount = f'mount --bind {boot} /proc/sys/kernel/random/boot_id && exec "$@"'
    sshd = Sshd(folder, wrap=("unshare", "--mount", "sh", "-c", mount, "sh"))
    probe = subprocess.run([*sshd.wrap, "true"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip(f"no mount namespace here: {probe.stderr.decode()}")
    notices: list[str] = []
    try:
        sshd.start()
        host = SshHost(sshd.options(), agent_program, tell=notices.append)
        await host.connect()
        assert host.boot_id() == "first"
        with Ledger(tmp_path / "ledger", host=host.name, boot=host.boot_id) as ledger:
            process = await start_owned(host, ledger, ["sleep", "300"])
            (entry,) = ledger.open_entries()
            assert entry.boot == "first"
            before = keepers(sshd)
            sshd.stop()
            for keeper in before:
                os.kill(keeper, signal.SIGKILL)
            boot.write_text("second\n")
            sshd.start()
            with pytest.raises(MachineFault, match="was rebooted") as fault:
                await process.wait()
            assert fault.value.transient
            await process.kill()
            assert ledger.open_entries() == ()
        assert (await host.run(["echo", "up"])).stdout == b"up\n"
        assert host.boot_id() == "second"
        assert any("was rebooted" in text for text in notices)
        await host.close()
    finally:
        sshd.stop()
