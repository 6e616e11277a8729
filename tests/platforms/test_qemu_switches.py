"""The switches that people turn: each reaches QEMU, and none that does not go together."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from platforms.test_qemu_command import IMAGE, SHAPE, line, places
from tare.errors import MachineFault
from tare.hosts import LocalHost
from tare.platforms.contract import Context
from tare.platforms.linux.disk import OwnDisk
from tare.platforms.qemu.command import DISK_DEVICE, DISK_NODE, DISK_THREAD, command
from tare.platforms.qemu.disk import prove_disk
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.platforms.qemu.qmp import Monitor
from tare.platforms.qemu.sockets import reached


def disk_of(argv: list[str]) -> tuple[str, str]:
    backend = next(word for word in argv if f"node-name={DISK_NODE}" in word)
    device = next(word for word in argv if f"id={DISK_DEVICE}," in word)
    return backend, device


def test_by_itself_qemu_decides_how_it_drives_a_disk() -> None:
    device = disk_of(line())[1]
    assert "num-queues" not in device
    assert "iothread" not in device
    assert "-object" not in line()


def test_the_disks_queues_and_thread_reach_qemu() -> None:
    argv = line(disk_queues=4, iothread=True)
    device = disk_of(argv)[1]
    assert "num-queues=4" in device.split(",")
    assert f"iothread={DISK_THREAD}" in device.split(",")
    assert f"iothread,id={DISK_THREAD}" in argv


def test_what_tare_does_not_know_comes_last_and_is_told() -> None:
    extra = ("-global", "virtio-blk-pci.packed=on")
    argv = line(extra_args=extra)
    assert argv[-3:] == [*extra, "-S"]
    described = Qemu().describe(QemuOptions(extra_args=extra))
    assert "extra arguments that Tare does not know: -global virtio-blk-pci.packed=on" in described


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"disk_queues": 2, "devices": "emulated"}, "disk-queues"),
        ({"iothread": True, "devices": "emulated"}, "iothread"),
        ({"disk_aio": "native", "disk_cache": "writeback"}, "disk-aio: native"),
        ({"disk_queues": 0}, "disk_queues"),
    ],
)
def test_what_does_not_go_together_is_refused(said: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        QemuOptions.model_validate(said)


class Answers:
    """A monitor that says what a test wants to hear; the real one is asked by the guests."""

    def __init__(self, said: dict[str, object]) -> None:
        self._said = said

    async def execute(self, command: str, **asked: object) -> object:
        if command == "qom-get":
            return self._said[str(asked["property"])]
        modes = {"writeback": True, "direct": True, "no-flush": False}
        return [{"inserted": {"node-name": DISK_NODE, "cache": modes}}]


@pytest.mark.parametrize(
    ("said", "maps", "words"),
    [
        ({"num-queues": 1, "iothread": f"/objects/{DISK_THREAD}"}, b"/[aio]", "num-queues"),
        ({"num-queues": 2, "iothread": ""}, b"/[aio]", "iothread"),
        ({"num-queues": 2, "iothread": f"/objects/{DISK_THREAD}"}, b"[heap]", "native"),
    ],
)
async def test_a_disk_that_is_driven_otherwise_fails_the_machine(
    said: dict[str, object], maps: bytes, words: str
) -> None:
    wanted = QemuOptions(disk_queues=2, iothread=True, disk_aio="native")
    disk = OwnDisk(Path("/d"), 1 << 20, True)
    with pytest.raises(MachineFault, match=words):
        await prove_disk("x", wanted, Answers(said), disk, maps)  # type: ignore[arg-type]
    right = {"num-queues": 2, "iothread": f"/objects/{DISK_THREAD}"}
    told = await prove_disk("x", wanted, Answers(right), disk, b"/[aio] (deleted)")  # type: ignore[arg-type]
    assert (told["num_queues"], told["aio"]) == (2, "native")


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
async def test_arguments_that_qemu_does_not_take_make_an_arm_unusable(context: Context) -> None:
    verdict = await Qemu().check(context, QemuOptions(extra_args=("-no-such-argument",)))
    assert not verdict.usable
    assert "no-such-argument" in f"{verdict.reason} {verdict.hint}"
    good = await Qemu().check(context, QemuOptions(extra_args=("-overcommit", "cpu-pm=off")))
    assert good.usable, good


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
@pytest.mark.parametrize(
    "said",
    [
        {"disk_queues": 3, "iothread": True, "disk_aio": "native"},
        {"machine": "pc", "disk_queues": 2, "disk_aio": "threads"},
        {"disk_aio": "io_uring", "disk_cache": "writeback"},
        {"devices": "emulated", "disk_aio": "native", "disk_cache": "directsync"},
    ],
    ids=["q35", "pc", "io_uring", "emulated"],
)
async def test_a_real_qemu_says_that_it_drives_the_disk_as_asked(
    said: dict[str, object],
) -> None:
    # Its guest waits for ever: only what QEMU and the kernel tell of the disk is looked at.
    folder = Path(tempfile.mkdtemp(prefix="tare-test-"))
    file = folder / "disk"
    file.write_bytes(bytes(1 << 20))
    root = places(str(folder))
    wanted = QemuOptions.model_validate(said)
    argv = command(wanted, IMAGE, "x", SHAPE, replace(root, disk=file), append=())
    for option in ("-kernel", "-initrd", "-append"):
        place = argv.index(option)
        del argv[place : place + 2]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        monitor = Monitor("x", await reached(LocalHost(), root.qmp, died))
        await monitor.open()
        maps = Path(f"/proc/{process.pid}/maps").read_bytes()
        told = await prove_disk("x", wanted, monitor, OwnDisk(file, 1 << 20, True), maps)
        await monitor.close()
        assert told["aio"] == wanted.disk_aio
        assert told.get("num_queues") == wanted.disk_queues
        assert ("iothread" in told) == wanted.iothread
    finally:
        process.kill()
        # Shown where the test fails.
        print(process.communicate()[1])
        shutil.rmtree(folder)
