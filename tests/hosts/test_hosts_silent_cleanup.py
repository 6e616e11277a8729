"""A silent host: what clears up waits for it once, and not at all once Tare is to end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from hosts.hosts_sshd import Sshd, Way, gone
from tare.errors import MachineFault
from tare.hosts.leaving import Leaving
from tare.hosts.ssh import wire
from tare.hosts.ssh.connect import log_in
from tare.hosts.ssh.host import SshHost
from tare.hosts.ssh.options import SshOptions


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LEAVING_S", 1.0)


@pytest.mark.parametrize("leave_first", [True, False])
async def test_one_who_leaves_gives_a_silent_host_up_for_good(
    sshd: Sshd, way: Way, agent_program: Path, leave_first: bool
) -> None:
    notices: list[str] = []
    leaving = Leaving()
    options = sshd.options(port=way.port, silence_s=1.0, patience_s=300, connect_s=300, lease_s=2)
    host = SshHost(options, agent_program, tell=notices.append, leaving=leaving)
    await host.connect()
    process = await host.start(["sleep", "300"])
    way.silent = True
    if not leave_first:
        while not notices:
            await asyncio.sleep(0.02)
    began = time.monotonic()
    leaving.leave()
    with pytest.raises(MachineFault, match="did not come back within 1 s"):
        async with asyncio.timeout(30):
            await process.wait()
    assert any("is waited for at most 1 s more" in notice for notice in notices) is not leave_first
    # The clean-up sends one request after another, and all are answered at once.
    way.silent = False
    for _ in range(10):
        with pytest.raises(MachineFault, match="not tried again because Tare is ending"):
            await host.read("/proc/version")
    with pytest.raises(MachineFault, match="not tried again"):
        await host.connect()
    assert time.monotonic() - began < 10
    await host.close()
    await gone(process.pid)


async def test_one_who_leaves_still_clears_a_host_that_answers(
    sshd: Sshd, agent_program: Path, tmp_path: Path
) -> None:
    leaving = Leaving()
    async with SshHost(sshd.options(), agent_program, leaving=leaving) as host:
        process = await host.start(["sleep", "300"])
        leaving.leave()
        await asyncio.sleep(1.5)
        await process.kill()
        await host.write(tmp_path / "file", b"here")
        await host.remove(tmp_path / "file")
        assert not await host.exists(tmp_path / "file")


async def test_one_who_leaves_ends_a_login_that_is_under_way(
    sshd: Sshd, way: Way, agent_program: Path
) -> None:
    way.silent = True
    leaving = Leaving()
    options = sshd.options(port=way.port, connect_s=300)
    host = SshHost(options, agent_program, leaving=leaving)
    connecting = asyncio.create_task(host.connect())
    await asyncio.sleep(0.5)
    leaving.leave()
    with pytest.raises(MachineFault, match="no longer waited for, because Tare is ending"):
        async with asyncio.timeout(10):
            await connecting
    await host.close()


async def test_a_login_that_took_long_to_fail_is_not_repeated_by_each_that_clears_up(
    sshd: Sshd, way: Way, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins: list[SshOptions] = []

    async def counted(options: SshOptions) -> Any:
        logins.append(options)
        return await log_in(options)

    options = sshd.options(port=way.port, silence_s=3.0, patience_s=0.5, connect_s=5.0, lease_s=5)
    host = SshHost(options, agent_program)
    await host.connect()
    process = await host.start(["sleep", "300"])
    way.silent = True
    with pytest.raises(MachineFault, match="did not come back"):
        await process.wait()
    monkeypatch.setattr(wire, "log_in", counted)
    for _ in range(10):
        with pytest.raises(MachineFault, match="did not let Tare in within 5 s"):
            await host.read("/proc/version")
    assert len(logins) == 1
    # A request for the host itself tries it, and finds that it is back.
    way.cut()
    way.silent = False
    await host.connect()
    assert await host.read("/proc/version")
    await host.close()
