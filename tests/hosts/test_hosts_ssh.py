"""What goes wrong between Tare and a host that it reaches over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd, Way, free_port, make_key
from tare.errors import InputError, MachineFault
from tare.hosts import Ledger, LocalHost, start_owned
from tare.hosts.processes import start_time
from tare.hosts.ssh import SshHost

HERE = LocalHost()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = Sshd(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
async def way(sshd: Sshd) -> AsyncIterator[Way]:
    async with Way(sshd.port) as way:
        public = (sshd.folder / "host_key.pub").read_text()
        with sshd.known_hosts.open("a") as known:
            known.write(f"[127.0.0.1]:{way.port} {public}")
        yield way


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


# Before a session.


async def test_a_refused_connection_is_told(sshd: Sshd, agent_program: Path) -> None:
    port = free_port()
    with pytest.raises(MachineFault, match="cannot be reached") as told:
        await SshHost(sshd.options(port=port), agent_program).connect()
    assert told.value.transient
    assert f"ssh -p {port}" in told.value.hint


async def test_an_unknown_key_is_refused_with_its_fingerprint(
    sshd: Sshd, agent_program: Path
) -> None:
    for content in ("", "example.com ssh-ed25519 AAAA\n"):
        sshd.known_hosts.write_text(content)
        with pytest.raises(InputError, match="does not name the key") as told:
            await SshHost(sshd.options(), agent_program).connect()
        call = ["ssh-keygen", "-lf", str(sshd.host_key)]
        shown = subprocess.run(call, capture_output=True, text=True, check=True)
        assert shown.stdout.split()[1] in told.value.hint
    # The hint's own command makes it work.
    command = told.value.hint.partition("run: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    async with SshHost(sshd.options(), agent_program) as host:
        assert (await host.run(["true"])).ok


async def test_no_file_of_known_keys(sshd: Sshd, agent_program: Path) -> None:
    sshd.known_hosts.unlink()
    with pytest.raises(InputError, match="there is no file") as told:
        await SshHost(sshd.options(), agent_program).connect()
    assert "SHA256:" in told.value.hint


async def test_a_wrong_key_is_refused(sshd: Sshd, agent_program: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'other.pub').read_text()}")
    with pytest.raises(InputError, match="another key") as told:
        await SshHost(sshd.options(), agent_program).connect()
    assert "ssh-keygen -f" in told.value.hint


async def test_a_refused_login_is_told(sshd: Sshd, agent_program: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "stranger")
    with pytest.raises(InputError, match="refuses the login") as told:
        await SshHost(sshd.options(key=key), agent_program).connect()
    assert f"-i {key}" in told.value.hint


async def test_files_that_are_missing_are_named(sshd: Sshd, agent_program: Path) -> None:
    with pytest.raises(InputError, match="no key file /no/key"):
        await SshHost(sshd.options(key=Path("/no/key")), agent_program).connect()
    with pytest.raises(InputError, match="no host named"):
        await SshHost(sshd.options(host="no-such-host.invalid"), agent_program).connect()


async def test_secrets_stay_secret(
    sshd: Sshd,
    agent_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("TARE_TEST_PASSWORD", "hunter2")
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    file.chmod(0o600)
    key = make_key(tmp_path / "stranger")
    for options in (
        sshd.options(key=key, password_env="TARE_TEST_PASSWORD"),
        sshd.options(key=key, password_file=file),
    ):
        assert options.password() == "hunter2"
        host = SshHost(options, agent_program)
        with pytest.raises(InputError) as told:
            await host.connect()
        assert "hunter2" not in f"{options!r} {host!r} {told.value!r} {told.value} {caplog.text}"
    file.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        sshd.options(password_file=file).password()
    with pytest.raises(InputError, match="TARE_NO_SUCH"):
        sshd.options(passphrase_env="TARE_NO_SUCH").passphrase()


async def test_a_silent_host_is_told(sshd: Sshd, way: Way, agent_program: Path) -> None:
    way.silent = True
    with pytest.raises(MachineFault, match=r"within 0\.5 s") as told:
        await SshHost(sshd.options(port=way.port, connect_s=0.5), agent_program).connect()
    assert told.value.transient


async def test_a_slow_host_is_only_slow(sshd: Sshd, way: Way, agent_program: Path) -> None:
    way.delay_s = 0.03
    async with SshHost(sshd.options(port=way.port), agent_program) as host:
        assert (await host.run(["cat"], input=bytes(1 << 18))).stdout == bytes(1 << 18)


async def test_the_agent_is_copied_once_and_again_when_damaged(
    sshd: Sshd, agent_program: Path
) -> None:
    async with SshHost(sshd.options(), agent_program) as host:
        first = host.agent.stat()
    async with SshHost(sshd.options(), agent_program) as host:
        assert host.agent.stat().st_mtime_ns == first.st_mtime_ns
    host.agent.write_bytes(b"damaged")
    async with SshHost(sshd.options(), agent_program) as host:
        assert host.agent.read_bytes() == agent_program.read_bytes()
        assert "tare-agent-" in str(host.agent)


async def test_an_agent_for_another_processor(
    sshd: Sshd, agent_program: Path, tmp_path: Path
) -> None:
    content = bytearray(agent_program.read_bytes())
    content[18:20] = (183 if content[18] != 183 else 62).to_bytes(2, "little")
    (tmp_path / "agent").write_bytes(content)
    with pytest.raises(InputError, match="processor of kind"):
        await SshHost(sshd.options(), tmp_path / "agent").connect()


# While a session lasts.


async def test_nothing_is_lost_when_connections_break(
    sshd: Sshd, way: Way, agent_program: Path
) -> None:
    told: list[str] = []
    sent = os.urandom(1 << 16) * 100
    async with SshHost(sshd.options(port=way.port), agent_program, tell=told.append) as host:
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
    assert sum("broke" in text for text in told) >= 2
    assert sum("connected again" in text for text in told) >= 2


async def test_a_silent_connection_is_replaced(sshd: Sshd, way: Way, agent_program: Path) -> None:
    told: list[str] = []
    options = sshd.options(port=way.port, silence_s=1.0)
    async with SshHost(options, agent_program, tell=told.append) as host:
        process = await host.start(["cat"])
        way.silent = True
        process.stdin.write(b"into the void\n")
        while not told:
            await asyncio.sleep(0.02)
        assert "nothing came for 1 s" in told[0]
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
    told: list[str] = []
    options = sshd.options(patience_s=0.5, lease_s=2)
    host = SshHost(options, agent_program, tell=told.append)
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
    assert "did not come back" in told[-1]
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
    with pytest.raises(InputError, match="another key"):
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
        with pytest.raises(MachineFault, match="what ran there has ended") as told:
            await process.wait()
        assert told.value.transient
        await process.kill()
        assert process.returncode == -signal.SIGKILL
        assert (await host.run(["echo", "again"])).stdout == b"again\n"
        assert not folder.exists()


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
from tare.hosts.ssh import SshHost
from tare.hosts.ssh_options import SshOptions
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
    told: list[str] = []
    try:
        sshd.start()
        host = SshHost(sshd.options(), agent_program, tell=told.append)
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
        assert any("was rebooted" in text for text in told)
        await host.close()
    finally:
        sshd.stop()


async def test_options_are_plain(sshd: Sshd) -> None:
    options = replace(sshd.options(), port=22, host="xen.example")
    assert options.name == f"{options.user}@xen.example"
    assert " -p " not in options.login
