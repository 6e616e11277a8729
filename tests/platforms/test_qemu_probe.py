from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from images.images_fakes import FakeHost
from tare.hosts import Completed, Ledger
from tare.platforms import probe
from tare.platforms.base import Context
from tare.platforms.probe import Answer
from tare.platforms.qemu import Qemu
from tare.platforms.qemu_options import QemuOptions

BOOT = {
    "/proc/sys/kernel/random/boot_id": b"boot-1\n",
    "/proc/sys/kernel/osrelease": b"6.1\n",
}


def silent(argv: Sequence[str]) -> Completed:
    return Completed(0, b"", b"")


def refusing(words: bytes) -> FakeHost:
    return FakeHost(lambda argv: Completed(1, b"", words), {"/dev/kvm": b""})


@pytest.mark.parametrize(
    ("flags", "hint"),
    [(b"fpu vmx", "modprobe kvm_intel"), (b"fpu svm", "modprobe kvm_amd"), (b"fpu", "firmware")],
)
async def test_without_a_device_the_hint_follows_the_processor(flags: bytes, hint: str) -> None:
    answer = await probe.kvm_device(FakeHost(silent, {"/proc/cpuinfo": b"flags : " + flags}))
    assert not answer.usable
    assert "no /dev/kvm" in answer.reason
    assert hint in answer.hint


async def test_a_device_that_may_not_be_opened_says_which_group() -> None:
    words = b"qemu-system-x86_64: Could not access KVM kernel module: Permission denied\n"
    answer = await probe.kvm_device(refusing(words))
    assert not answer.usable
    assert "usermod -aG kvm" in answer.hint


async def test_a_device_that_creates_no_machine_says_so() -> None:
    words = b"qemu-system-x86_64: ioctl(KVM_CREATE_VM) failed: 16 Device or resource busy\n"
    answer = await probe.kvm_device(refusing(words))
    assert not answer.usable
    assert answer.reason.startswith("/dev/kvm opens, but no virtual machine can be created: ioctl")


async def test_a_device_that_works_so_far_is_no_more_than_that() -> None:
    answer = await probe.kvm_device(FakeHost(silent, {"/dev/kvm": b""}))
    assert answer == Answer(True, "/dev/kvm opens and creates a virtual machine")


async def test_an_answer_is_remembered_until_something_changes(tmp_path: Path) -> None:
    booted: list[str] = []

    async def boot() -> Answer:
        booted.append("once")
        return Answer(False, "a guest did not boot within 8 s")

    async def ask(image: str = "a", files: dict[str, bytes] = BOOT) -> Answer:
        return await probe.remembered(tmp_path, FakeHost(silent, files), {"image": image}, boot)

    first = await ask()
    assert await ask() == first
    assert len(booted) == 1
    assert first.hint.startswith("rm ")
    await ask(image="b")
    await ask(files={**BOOT, "/proc/sys/kernel/random/boot_id": b"boot-2\n"})
    assert len(booted) == 3
    Path(first.hint.split()[1]).write_text("damaged")
    await ask()
    assert len(booted) == 4


async def test_an_answer_that_is_not_sure_is_not_remembered(tmp_path: Path) -> None:
    booted: list[str] = []

    async def boot() -> Answer:
        booted.append("once")
        return Answer(False, "the host was busy", "try again", sure=False)

    for _ in range(2):
        answer = await probe.remembered(tmp_path, FakeHost(silent, BOOT), {}, boot)
        assert answer.hint == "try again"
    assert len(booted) == 2


async def test_a_host_without_qemu_says_what_to_install(tmp_path: Path) -> None:
    from tare.errors import InputError

    def answer(argv: Sequence[str]) -> Completed:
        if argv[0].startswith("qemu"):
            raise InputError(f"there is no command {argv[0]}")
        return Completed(0, b"x86_64\n", b"")

    ledger = Ledger(tmp_path / "ledger")
    context = Context(FakeHost(answer), ledger, tmp_path, Path("/agent"))
    verdict = await Qemu().check(context, QemuOptions())
    assert not verdict.usable
    assert verdict.reason == "qemu-system-x86_64 is not installed"
    assert verdict.hint == "apt-get install -y qemu-system-x86"
    assert verdict.emulated
