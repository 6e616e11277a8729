"""The live image boots by BIOS and by UEFI, dials back, measures, and does only what it must."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from images.live_guest import END_S, Booted, Firmware, LiveMachine, Medium, booted, make_disc
from tare.errors import WorkloadFault
from tare.images.live.disc import TOOLS

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in (*TOOLS, "qemu-system-x86_64")),
        reason="xorriso, mtools or QEMU is not installed",
    ),
]

HELLO_S = 300.0
SHORT = {"seconds": 0.2}
SIZE = 48 << 20
MAIL = {"work": "varmail", "seconds": 0.3, "files": 40, "mean_bytes": 4096, "threads": 4}
MAIL |= {"memory_bytes": 256 << 20}


@pytest.fixture(scope="module")
def image(agent_program: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tare-live-") as folder:
        yield make_disc(agent_program, Path(folder) / "tare.iso", None)


@pytest.fixture(scope="module")
def equipped(agent_program: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tare-live-") as folder:
        yield make_disc(agent_program, Path(folder) / "tare.iso", "base")


async def measured(machine: Booted, *, without_disk: bool = False) -> dict[str, Any]:
    """Check that it measures and ends on request; return the proof of its hello."""
    try:
        hello = await machine.client.hello(HELLO_S)
        assert hello.role == "init"
        done = await machine.client.run("numeric-sort", SHORT, deadline_s=END_S)
        assert done.value["iterations_per_s"] > 0
        if without_disk:
            await refused_work(machine, hello.proof)
        await machine.client.shutdown()
        assert await asyncio.wait_for(machine.process.wait(), END_S) == 0
    except BaseException:
        print(machine.console_text())
        raise
    key = str(machine.caller.configuration["key"])
    assert key not in machine.console_text() and key not in repr(hello.proof)
    return dict(hello.proof)


async def test_live_image_boots_from_a_cd_by_bios_and_formats_only_empty_disks(
    image: Path, tmp_path: Path
) -> None:
    disks = (disk(tmp_path / "begun", 1080), disk(tmp_path / "ended", SIZE - 20))
    kept = [file.read_bytes() for file in disks]
    machine = LiveMachine(image, "bios", disks=disks, scratch=SIZE)
    async with booted(machine, tmp_path) as found:
        proof = await measured(found, without_disk=True)
    live = proof["live"]
    why = live["scratch"]["reason"]
    assert "vda has something on it" in why and "vdb has something on it" in why
    assert [file.read_bytes() for file in disks] == kept
    assert live["network"] == {"interface": "eth0", "by": "DHCP", "driver": "e1000"}
    assert live["configuration"].startswith("/dev/sr")
    assert live["toolbox"]["on"] is None
    assert proof["machine"]["uefi"] is False
    assert live["lockdown"] == "none"


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("firmware", "medium", "nic", "lockdown"),
    [
        ("uefi", "cd", "e1000e", "none"),
        ("secure", "cd", "virtio-net-pci", "integrity"),
        ("secure", "disk", "vmxnet3", "integrity"),
        ("bios", "disk", "rtl8139", "none"),
        ("bios", "cd", "tulip", "none"),
    ],
)
async def test_live_image_boots_with_any_firmware_from_any_medium(
    image: Path, tmp_path: Path, firmware: Firmware, medium: Medium, nic: str, lockdown: str
) -> None:
    async with booted(LiveMachine(image, firmware, medium, nic, 640), tmp_path) as machine:
        proof = await measured(machine)
    assert proof["machine"]["uefi"] is (firmware != "bios")
    # Debian's kernel trusts root less where Secure Boot was on.
    assert proof["live"]["lockdown"] == lockdown


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("medium", "memory", "on", "device"),
    [("disk", 512, "disk", "vda3"), ("cd", 1536, "memory", "ram0")],
)
async def test_no_cell_reads_the_toolbox_from_a_cd(
    equipped: Path, tmp_path: Path, medium: Medium, memory: int, on: str, device: str
) -> None:
    machine = LiveMachine(equipped, "bios", medium, "virtio-net-pci", memory)
    async with booted(machine, tmp_path) as found:
        hello = await found.client.hello(HELLO_S)
        assert hello.proof["live"]["toolbox"] == {"on": on, "device": device}
        settings = {"steps": [{"argv": ["bzip2", "--help"]}]}
        done = await found.client.run("program", settings, deadline_s=END_S)
        assert done.value


@pytest.mark.acceptance
async def test_too_little_memory_for_the_toolbox_is_reported(
    equipped: Path, tmp_path: Path
) -> None:
    async with booted(LiveMachine(equipped, "bios", "cd"), tmp_path) as machine:
        hello = await machine.client.hello(HELLO_S)
        proof = hello.proof["live"]["toolbox"]
        assert proof["on"] is None and "attach the image to it as a disk" in proof["reason"]


def disk(file: Path, at: int | None = None) -> Path:
    """Make a disk; with something of somebody's at one place."""
    with file.open("wb") as opened:
        opened.truncate(SIZE)
        if at is not None:
            opened.seek(at)
            opened.write(b"somebody's")
    return file


async def refused_work(machine: Booted, proof: Mapping[str, Any]) -> None:
    """Check that a machine has no disk of its own, and that workloads report why."""
    scratch = proof["live"]["scratch"]
    assert scratch["device"] is None and proof["scratch"] is None
    with pytest.raises(WorkloadFault) as fault:
        await machine.client.run("filebench", MAIL, deadline_s=END_S)
    assert scratch["reason"] in str(fault.value)


async def refused(machine: LiveMachine, folder: Path) -> str:
    """Return why a machine has no disk of its own; nothing was written to any."""
    kept = [file.read_bytes() for file in machine.disks]
    async with booted(machine, folder) as found:
        hello = await found.client.hello(HELLO_S)
        await refused_work(found, hello.proof)
        await found.client.shutdown()
        assert await asyncio.wait_for(found.process.wait(), END_S) == 0
    assert [file.read_bytes() for file in machine.disks] == kept
    return str(hello.proof["live"]["scratch"]["reason"])


@pytest.mark.acceptance
async def test_two_empty_disks_are_ambiguous_and_not_formatted(
    equipped: Path, tmp_path: Path
) -> None:
    disks = (disk(tmp_path / "one"), disk(tmp_path / "other"))
    machine = LiveMachine(equipped, "bios", "disk", memory=512, disks=disks, scratch=SIZE)
    assert "vdb and vdc are all empty" in await refused(machine, tmp_path)


@pytest.mark.acceptance
async def test_without_a_toolbox_nothing_is_formatted(image: Path, tmp_path: Path) -> None:
    machine = LiveMachine(image, "bios", disks=(disk(tmp_path / "one"),), scratch=SIZE)
    why = await refused(machine, tmp_path)
    assert "mkfs.ext4" in why and "`tare image live`" in why


@pytest.mark.acceptance
async def test_a_module_is_given_its_parameters_of_the_command_line(
    agent_program: Path, tmp_path: Path
) -> None:
    # The module's complaint about the value shows that it got the parameter.
    word = "virtio_blk.num_request_queues=several"
    image = await asyncio.to_thread(make_disc, agent_program, tmp_path / "tare.iso", None, (word,))
    machine = LiveMachine(image, "bios", configured=False, disks=(disk(tmp_path / "one"),))
    async with booted(machine, tmp_path) as found, asyncio.timeout(HELLO_S):
        while "virtio_blk.ko: Invalid argument" not in found.console_text():
            await asyncio.sleep(0.5)


@pytest.mark.acceptance
async def test_without_a_configuration_it_says_what_it_waits_for(
    image: Path, tmp_path: Path
) -> None:
    machine = LiveMachine(image, "bios", configured=False)
    async with booted(machine, tmp_path) as found:
        async with asyncio.timeout(HELLO_S):
            while "has the label TARE-CFG" not in found.console_text():
                await asyncio.sleep(0.5)
        # It continues to wait, and has reached nobody.
        await asyncio.sleep(3)
        assert found.process.returncode is None
        assert not found.caller.channel.dialled


@pytest.mark.acceptance
async def test_live_image_connects_over_a_serial_port_with_its_key(
    image: Path, tmp_path: Path
) -> None:
    async with booted(LiveMachine(image, "bios", nic="", serial=True), tmp_path) as machine:
        proof = await measured(machine)
    assert proof["live"]["network"] is None
    assert machine.greeted == machine.caller.configuration["key"]
