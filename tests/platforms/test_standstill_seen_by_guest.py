"""Each way in which a host keeps a machine from running is seen by the machine."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tare.hosts import LocalHost
from tare.platforms.linux.process_machine import freezers, is_any_stopped
from tare.platforms.linux.sockets import reached
from tare.platforms.qemu.qmp import Monitor
from tare.platforms.xen import toolstack
from tare.platforms.xen.machine import XenMachine
from tare.platforms.xen.output import domains

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can freeze a control group")
XL = """\
Name                                        ID   Mem VCPUs\tState\tTime(s)
Domain-0                                     0  1024     2     r-----      30.1
tare-x                                       5   256     1     --p---       1.5
tare-y                                       6   256     1     -b----       1.5
"""


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.send_signal(signal.SIGCONT)
        process.kill()


async def test_a_signal(sleeper: int, agent_program: Path) -> None:
    host = LocalHost(agent_program)
    assert not await is_any_stopped(host, [sleeper])
    os.kill(sleeper, signal.SIGSTOP)
    for _ in range(100):
        if await is_any_stopped(host, [sleeper]):
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("a stopped process was not seen")


TRACES = """\
import ctypes, os, sys, threading, time
def trace():
    # PTRACE_SEIZE and PTRACE_INTERRUPT (linux/ptrace.h), of a thread that is not the main one.
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (0x4206, 0x4207):
        if libc.ptrace(request, int(sys.argv[1]), None, None):
            os._exit(ctypes.get_errno())
    print("stopped", flush=True)
    time.sleep(60)
threading.Thread(target=trace).start()
"""


async def test_a_tracer_unless_it_is_the_machines_own(sleeper: int, agent_program: Path) -> None:
    host = LocalHost(agent_program)
    command = [sys.executable, "-c", TRACES, str(sleeper)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tracer:
        try:
            if tracer.stdout is None or not tracer.stdout.readline():
                pytest.skip(f"nothing may be traced here: error {tracer.wait()}")
            for _ in range(100):
                if await is_any_stopped(host, [sleeper]):
                    break
                await asyncio.sleep(0.02)
            else:
                pytest.fail("a traced process that is stopped was not seen")
            # So does gVisor, at each system call of what it carries.
            assert not await is_any_stopped(host, [tracer.pid, sleeper])
        finally:
            tracer.kill()


def group_of_freezer() -> Path | None:
    for base in (Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")):
        group = base / f"tare-test-{secrets.token_hex(4)}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / "freezer.state").exists() or (group / "cgroup.freeze").exists():
            return group
        group.rmdir()
    return None


@ROOT
async def test_a_frozen_control_group(sleeper: int, agent_program: Path) -> None:
    """As ``runc pause`` and a suspended slice of systemd's do it; the process's state is not T."""
    host, group = LocalHost(agent_program), group_of_freezer()
    if group is None:
        pytest.skip("no control group with a freezer can be made here")
    old = (group / "freezer.state").exists()
    file, on, off = (
        (group / "freezer.state", "FROZEN", "THAWED")
        if old
        else (group / "cgroup.freeze", "1", "0")
    )
    try:
        (group / "cgroup.procs").write_text(str(sleeper))
        assert not await is_any_stopped(host, [sleeper])
        file.write_text(on)
        for _ in range(100):
            if await is_any_stopped(host, [sleeper]):
                break
            await asyncio.sleep(0.02)
        else:
            pytest.fail("a frozen group was not seen")
        file.write_text(off)
        await asyncio.sleep(0.1)
        assert not await is_any_stopped(host, [sleeper])
    finally:
        file.write_text(off)
        (group.parent / "cgroup.procs").write_text(str(sleeper))
        await asyncio.sleep(0.1)
        group.rmdir()


def test_freezer_files_of_each_control_group_version() -> None:
    listed = b"7:freezer:/a/b\n3:cpu,cpuacct:/c\n0::/d.slice/e.scope\n"
    assert freezers(listed) == {
        "/sys/fs/cgroup/freezer/a/b/freezer.state",
        "/sys/fs/cgroup/d.slice/e.scope/cgroup.events",
    }
    # The root is never frozen, and what is outside of a namespace cannot be read.
    assert freezers(b"0::/\n7:freezer:/\n0::/../x\nodd\n") == set()


async def test_a_paused_domain_of_xens(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(host: object) -> Any:
        return domains(XL)

    monkeypatch.setattr(toolstack, "all_domains", listed)
    machine = XenMachine.__new__(XenMachine)
    machine._host = object()  # type: ignore[assignment]
    for number, paused in ((5, True), (6, False), (7, False)):
        machine.id = number
        assert await machine.stopped() is paused


@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed")
async def test_a_guest_that_its_qemu_has_paused(agent_program: Path, tmp_path: Path) -> None:
    host = LocalHost(agent_program)
    place = Path("/tmp") / f"tare-test-{secrets.token_hex(4)}"
    place.mkdir(mode=0o700)
    argv = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-m", "16M", "-machine", "pc",
            "-qmp", f"unix:{place}/qmp,server=on,wait=off", "-S"]  # fmt: skip
    process = await host.start(argv, log=tmp_path / "errors")
    try:
        ended = asyncio.get_running_loop().create_future()
        monitor = Monitor("x", await reached(host, place / "qmp", ended))
        await monitor.open()
        for command, paused in (("cont", False), ("stop", True), ("cont", False)):
            await monitor.execute(command)
            for _ in range(200):
                if monitor.paused is paused:
                    break
                await asyncio.sleep(0.01)
            assert monitor.paused is paused and monitor.ended_by == ""
        await monitor.close()
    finally:
        await process.kill()
        shutil.rmtree(place)
