"""QEMU runs as a separate user, without rights it does not need, and with filtered calls."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.linux.sockets import reached
from tare.platforms.qemu.command import PROGRAM, SANDBOX, MachinePaths, command, kernel_arguments
from tare.platforms.qemu.confinement import Confinement, confinement, groups_of, prove_confined
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu, launch
from tare.platforms.qemu.qmp import Monitor

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give QEMU another user")
SHAPE = Shape(1, 192 << 20)
FILES = [Path("/cache/vmlinuz"), Path("/cache/a,b/init.cpio"), Path("/cache/toolbox.img")]


def test_files_are_passed_by_descriptors_wherever_they_are_named() -> None:
    argv = [
        "qemu-system-x86_64",
        *("-kernel", "/cache/vmlinuz", "-initrd", "/cache/a,b/init.cpio"),
        *("-blockdev", "driver=file,node-name=toolbox,filename=/cache/toolbox.img"),
        *("-append", "root=/cache/other", "-device", "x=y"),
    ]
    started = Confinement(True, 1_900_000_001, (36, 108), mlock=True).around(argv, FILES)
    assert started[:2] == ["sh", "-c"]
    assert started[4:8] == ["3 4 5", *map(str, FILES)]
    assert started[8:10] == ["prlimit", "--memlock=unlimited"]
    assert "--reuid=1900000001" in started and "--groups=36,108" in started
    qemu = started[started.index("qemu-system-x86_64") :]
    assert qemu[1:5] == ["-kernel", "/dev/fd/3", "-initrd", "/dev/fd/4"]
    assert qemu[6] == "driver=file,node-name=toolbox,filename=/dev/fd/5"
    assert qemu[7:] == argv[7:]


def test_a_qemu_that_is_not_confined_is_started_as_it_is() -> None:
    assert Confinement().around(["qemu", "x"], FILES) == ["qemu", "x"]


@ROOT
async def test_devices_are_opened_through_their_groups_except_the_group_of_root(
    agent_program: Path,
) -> None:
    host = LocalHost(agent_program)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        devices = [Path(place) / name for name in ("kvm", "vhost-net", "tun")]
        for device, group, mode in zip(
            devices, (4711, 4712, 0), (0o660, 0o660, 0o666), strict=True
        ):
            device.touch()
            os.chown(device, 0, group)
            device.chmod(mode)
        assert await groups_of(host, devices) == (4711, 4712)
        found = await confinement(host, QemuOptions(), own=[], files=[], devices=devices)
        assert found.uid is not None and found.groups == (4711, 4712), found
        assert "--groups=4711,4712" in found.around(["qemu"], [])
        assert await groups_of(host, [devices[2], Path(place) / "none"]) == ()
        devices[2].chmod(0o660)
        refused = await confinement(host, QemuOptions(), own=[], files=[], devices=devices)
        assert refused.uid is None and str(devices[2]) in refused.reason
    assert "--clear-groups" in Confinement(True, 1_900_000_001).around(["qemu"], [])


@ROOT
async def test_file_that_the_user_cannot_open_is_reported(
    agent_program: Path, tmp_path: Path
) -> None:
    host = LocalHost(agent_program)
    hidden = tmp_path / "kernel"
    hidden.write_text("x")
    hidden.chmod(0o600)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        own = [Path(place)]
        found = await confinement(host, QemuOptions(), own=own, files=[hidden], devices=[])
        assert found.uid is None and "/dev/fd/3" in found.reason and found.sandbox
        hidden.chmod(0o644)
        found = await confinement(host, QemuOptions(), own=own, files=[hidden], devices=[])
        assert found.uid is not None and Path(place).stat().st_uid == found.uid
        device = tmp_path / "device"
        found = await confinement(host, QemuOptions(), own=own, files=[hidden], devices=[device])
        assert found.uid is None and str(device) in found.reason
        # Where nobody may lift the limit, such as in a container, QEMU stays who Tare is.
        locked = QemuOptions(mlock=True)
        found = await confinement(host, locked, own=own, files=[hidden], devices=[])
        assert (found.uid is None) == ("prlimit" in found.reason)
    asked = QemuOptions(confined=False)
    assert await confinement(host, asked, own=[], files=[], devices=[]) == Confinement()


@ROOT
async def test_a_qemu_that_its_user_cannot_run_stays_who_tare_is(
    agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = LocalHost(agent_program)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        hidden = Path(place) / "bin"
        hidden.mkdir()
        program = hidden / PROGRAM
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        # One of a user's own counts, and not the one that everybody would find.
        asked = confinement(host, QemuOptions(), own=[], files=[], devices=[], program=str(program))
        assert f"may not run {program}" in (await asked).reason
        monkeypatch.setenv("PATH", f"{hidden}:{os.environ['PATH']}")
        found = await confinement(host, QemuOptions(), own=[], files=[], devices=[])
        assert found.uid is None and f"may not run {program}" in found.reason
        Path(place).chmod(0o755)
        found = await confinement(host, QemuOptions(), own=[], files=[], devices=[])
        assert found.uid is not None


async def test_missing_confinement_is_a_fault(agent_program: Path) -> None:
    host = LocalHost(agent_program)
    with pytest.raises(MachineFault, match="its own user"):
        await prove_confined(host, "m", os.getpid(), Confinement(True, 1_900_000_001))
    with pytest.raises(MachineFault, match="system calls"):
        await prove_confined(host, "m", os.getpid(), Confinement(True))
    assert await prove_confined(host, "m", os.getpid(), Confinement()) == {
        "uid": None,
        "reason": "",
        "sandbox": False,
    }


def status_of(pid: int) -> Mapping[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


@ROOT
@pytest.mark.guest
@pytest.mark.parametrize("devices", ["paravirtual", "emulated"])
async def test_qemu_makes_its_machine_without_rights(
    agent_program: Path, tmp_path: Path, devices: str
) -> None:
    """Nothing is run in it: it has read all that it boots by the time it obeys its monitor."""
    host = LocalHost(agent_program)
    options = QemuOptions.model_validate({"devices": devices})
    place = Path("/tmp") / f"tare-test-{secrets.token_hex(4)}"
    with Ledger(tmp_path / "ledger") as ledger:
        context = Context(host, ledger, default_cache(), agent_program, "rt")
        prepared = await Qemu().prepare(context, options, SHAPE, True)
        image = prepared.extra["image"]
        try:
            place.mkdir(mode=0o700)
            disk, toolbox = place / "disk.img", tmp_path / "toolbox.img"
            disk.touch(0o600)
            os.truncate(disk, 64 << 20)
            toolbox.write_bytes(bytes(1 << 20))
            files = [image.boot_kernel, image.initramfs, toolbox]
            confined = await confinement(host, options, own=[place, disk], files=files, devices=[])
            assert confined.uid is not None, confined.reason
            places = MachinePaths(
                qmp=place / "qmp",
                agent=place / "agent",
                console=place / "console",
                errors=place / "errors",
                disk=disk,
                toolbox=toolbox,
            )
            append = kernel_arguments(options)
            argv = command(options, image, "t", SHAPE, places, append=append)
            log = tmp_path / "errors"
            process = await host.start(confined.around(argv, files), log=log)
            ended = asyncio.get_running_loop().create_future()
            monitor = Monitor("t", await reached(host, places.qmp, ended))
            try:
                await monitor.open()
                proven = await prove_confined(host, "t", process.pid, confined)
                assert proven == {"uid": confined.uid, "sandbox": True}
            finally:
                await process.kill()
                await monitor.close()
            assert "denied" not in log.read_text()
        finally:
            shutil.rmtree(place)


@ROOT
@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.boots
async def test_a_guest_boots_in_a_qemu_without_rights(agent_program: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        host = LocalHost(agent_program)
        context = Context(host, ledger, default_cache(), agent_program, "rt")
        options, shape = QemuOptions(), Shape(1, 192 << 20, 64 << 20)
        prepared = await Qemu().prepare(context, options, shape, True)
        workdir = Path("/tmp") / f"tare-test-{secrets.token_hex(4)}"
        spec = MachineSpec("tare-test-confined", shape, (), workdir, True)
        machine = await launch(context, options, prepared.extra["image"], spec)
        try:
            hello = await machine.ready(180)
            assert hello.proof["scratch"]["file_system"] == "ext4"
            applied: Mapping[str, Any] = machine.applied["runs_as"]
            status = status_of(machine.pid)
            assert applied["sandbox"] and applied["uid"] >= 1_900_000_000, applied
            assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(applied["uid"])}
            assert status["Groups"] == "" and int(status["CapEff"], 16) == 0
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
            command = Path(f"/proc/{machine.pid}/cmdline").read_bytes().split(b"\0")
            assert SANDBOX.encode() in command and b"/dev/fd/3" in command
        finally:
            await machine.stop()
        assert ledger.open_entries() == ()


@ROOT
async def test_qemu_dies_with_tare_though_it_has_another_user(agent_program: Path) -> None:
    """The kernel forgets that with a change of user; setpriv is to remind it."""
    started = Confinement(True, 1_900_000_001).around(["setpriv", "--dump"], [])
    process = await LocalHost(agent_program).start(started)
    output = (await process.stdout.read()).decode()
    assert "uid: 1900000001" in output and "Parent death signal: KILL" in output
    await process.wait()
