from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.images_fakes import FakeHost
from tare.hosts import Completed, Ledger
from tare.platforms import probe
from tare.platforms.base import Context
from tare.platforms.probe import Answer
from tare.platforms.qemu import Qemu
from tare.platforms.qemu_command import trial
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
        host = FakeHost(silent, files)
        return await probe.remembered(tmp_path, host, "real", {"image": image}, boot)

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


def booted_again(files: dict[str, bytes], **others: bytes) -> dict[str, bytes]:
    return {**files, "/proc/sys/kernel/random/boot_id": b"boot-2\n", **others}


async def test_an_emulated_host_is_the_same_at_each_of_its_boots(tmp_path: Path) -> None:
    booted: list[bool] = []

    async def ask(usable: bool, files: dict[str, bytes], name: str = "lab") -> bool:
        async def boot() -> Answer:
            booted.append(usable)
            return Answer(usable, "found")

        host = FakeHost(silent, files)
        host.name = name
        return (await probe.remembered(tmp_path, host, "emulated", {}, boot)).usable

    # What did not work may be another time's bad luck, so it is asked again at the next boot.
    assert not await ask(False, BOOT)
    assert not await ask(True, BOOT)
    assert await ask(True, booted_again(BOOT))
    assert await ask(False, {**BOOT, "/proc/sys/kernel/random/boot_id": b"boot-3\n"})
    assert booted == [False, True]
    assert await ask(False, BOOT, "lab-by-another-port")
    # This computer, another kernel or another processor is another matter.
    assert not await ask(False, booted_again(BOOT), "local")
    assert not await ask(False, {**BOOT, "/proc/sys/kernel/osrelease": b"6.2"})
    assert not await ask(False, {**BOOT, "/proc/cpuinfo": b"flags : svm"})
    assert booted == [False, True, False, False, False]


async def test_whoever_asks_meanwhile_waits_for_the_answer(tmp_path: Path) -> None:
    booted: list[str] = []

    async def boot() -> Answer:
        booted.append("once")
        await asyncio.sleep(0.05)
        return Answer(True, "a guest booted under KVM")

    host = FakeHost(silent, BOOT)
    asked = (probe.remembered(tmp_path, host, "virtual", {}, boot) for _ in range(3))
    assert [each.usable for each in await asyncio.gather(*asked)] == [True] * 3
    assert booted == ["once"]


@pytest.mark.parametrize(
    ("hypervisor", "depth"),
    [
        ({"announced": False, "signatures": []}, "real"),
        ({"announced": True, "signatures": ["KVMKVMKVM"]}, "virtual"),
        ({"announced": True, "signatures": ["TCGTCGTCGTCG"]}, "emulated"),
    ],
)
async def test_what_a_host_is_decides_how_long_a_boot_may_take(
    hypervisor: dict[str, object], depth: probe.Depth
) -> None:
    proof = json.dumps({"hypervisor": hypervisor}).encode()
    found = await probe.depth_of(FakeHost(lambda argv: Completed(0, proof, b"")), Path("/agent"))
    assert found == depth
    assert max(probe.BOOT_DEADLINES_S["emulated"]) > 60 > max(probe.BOOT_DEADLINES_S["virtual"])


async def test_a_host_whose_agent_tells_nothing_may_be_virtual() -> None:
    assert await probe.depth_of(FakeHost(silent), Path("/agent")) == "virtual"


async def test_options_that_qemu_would_leave_out_are_an_answer() -> None:
    options = QemuOptions.model_validate(
        {"accelerator": "kvm", "enlightenments": {"add": ["kvm-pv-ipi"]}}
    )
    warned = b"%s: warning: host doesn't support requested feature: CPUID.40000001H:EAX.%s [bit 1]"

    def answering(flag: bytes) -> FakeHost:
        words = warned % (b"qemu-system-x86_64", flag)
        return FakeHost(lambda argv: Completed(0, b"", words))

    left_out = await probe.taken(answering(b"kvm-pv-ipi"), trial(options))
    assert not left_out.usable
    assert "CPUID.40000001H:EAX.kvm-pv-ipi" in left_out.reason
    # What nobody asked for by name may be missing: the model's own features.
    assert (await probe.taken(answering(b"kvm-pv-eoi"), trial(options))).usable


async def test_an_answer_that_is_not_sure_is_not_remembered(tmp_path: Path) -> None:
    booted: list[str] = []

    async def boot() -> Answer:
        booted.append("once")
        return Answer(False, "the host was busy", "try again", sure=False)

    for _ in range(2):
        answer = await probe.remembered(tmp_path, FakeHost(silent, BOOT), "real", {}, boot)
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
