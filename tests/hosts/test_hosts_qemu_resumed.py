"""A QEMU that waits is resumed by the agent on its host, and its monitor is opened again."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.errors import MachineFault
from tare.hosts import Host
from tare.platforms.linux.sockets import reached
from tare.platforms.qemu.machine import let_go
from tare.platforms.qemu.qmp import Monitor


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    socket = tmp_path / "qmp"
    argv = ["qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none", "-S"]
    with subprocess.Popen([*argv, "-qmp", f"unix:{socket},server=on,wait=off"]) as qemu:
        yield socket
        qemu.kill()


Died = asyncio.Future[MachineFault]


@pytest.fixture
async def died() -> Died:
    return asyncio.get_running_loop().create_future()


@pytest.fixture
async def monitor(host: Host, place: Path, died: Died) -> Monitor:
    monitor = Monitor("m", await reached(host, place, died))
    await monitor.open()
    return monitor


async def test_guest_resumes_and_its_monitor_is_opened_again(
    host: Host, monitor: Monitor, place: Path, died: Died, agent_program: Path
) -> None:
    assert (await monitor.execute("query-status"))["status"] == "prelaunch"
    again = await let_go(host, host.agent or agent_program, "m", monitor, place, died)
    assert (await again.execute("query-status"))["status"] == "running"
    await again.close()


async def test_missing_listener_is_reported(
    host: Host, monitor: Monitor, place: Path, died: Died, agent_program: Path
) -> None:
    agent, nowhere = host.agent or agent_program, place.with_name("elsewhere")
    with pytest.raises(MachineFault, match=r"did not run cont: .*elsewhere"):
        await let_go(host, agent, "m", monitor, nowhere, died)
