from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from images.images_fakes import FakeHost
from tare.hosts import Completed
from tare.platforms.qemu import kvm_memory
from tare.platforms.qemu.kvm_trial import TrialResult
from tare.platforms.qemu.options import QemuOptions

BOOT = {
    "/proc/sys/kernel/random/boot_id": b"boot-1\n",
    "/proc/sys/kernel/osrelease": b"6.1\n",
}


def silent(argv: Sequence[str]) -> Completed:
    return Completed(0, b"", b"")


async def test_an_answer_is_remembered_until_something_changes(tmp_path: Path) -> None:
    booted: list[str] = []

    async def boot() -> TrialResult:
        booted.append("once")
        return TrialResult(False, "a guest did not boot within 8 s")

    async def ask(image: str = "a", files: dict[str, bytes] = BOOT) -> TrialResult:
        host = FakeHost(silent, files)
        return await kvm_memory.known_or_booted(tmp_path, host, "real", {"image": image}, boot)

    first = await ask()
    assert await ask() == first
    assert len(booted) == 1
    (kept,) = re.findall(r"rm (\S+) && tare doctor", first.hint)
    await ask(image="b")
    await ask(files={**BOOT, "/proc/sys/kernel/random/boot_id": b"boot-2\n"})
    assert len(booted) == 3
    Path(kept).write_text("damaged")
    await ask()
    assert len(booted) == 4


def booted_again(files: dict[str, bytes], **others: bytes) -> dict[str, bytes]:
    return {**files, "/proc/sys/kernel/random/boot_id": b"boot-2\n", **others}


async def test_an_emulated_host_is_the_same_at_each_of_its_boots(tmp_path: Path) -> None:
    booted: list[bool] = []

    async def ask(usable: bool, files: dict[str, bytes], name: str = "lab") -> bool:
        async def boot() -> TrialResult:
            booted.append(usable)
            return TrialResult(usable, "found")

        host = FakeHost(silent, files)
        host.name = name
        return (await kvm_memory.known_or_booted(tmp_path, host, "emulated", {}, boot)).usable

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


async def test_concurrent_requests_wait_for_the_first_answer(tmp_path: Path) -> None:
    booted: list[str] = []

    async def boot() -> TrialResult:
        booted.append("once")
        await asyncio.sleep(0.05)
        return TrialResult(True, "a guest booted under KVM")

    host = FakeHost(silent, BOOT)
    asked = (kvm_memory.known_or_booted(tmp_path, host, "virtual", {}, boot) for _ in range(3))
    assert [each.usable for each in await asyncio.gather(*asked)] == [True] * 3
    assert booted == ["once"]


async def test_an_answer_that_is_not_sure_is_not_remembered(tmp_path: Path) -> None:
    booted: list[str] = []

    async def boot() -> TrialResult:
        booted.append("once")
        return TrialResult(False, "the host was busy", "try later", sure=False)

    for _ in range(2):
        answer = await kvm_memory.known_or_booted(
            tmp_path, FakeHost(silent, BOOT), "real", {}, boot
        )
        assert answer.hint == "try later"
    assert len(booted) == 2


KVM = QemuOptions(accelerator="kvm")
REFUSED = TrialResult(False, "KVM cannot run guests here", "use another host", words="MSR 0x10a")


async def test_plans_use_remembered_answers_and_start_nothing(tmp_path: Path) -> None:
    def nobody(argv: Sequence[str]) -> Completed:
        raise AssertionError(f"a plan starts nothing: {argv}")

    host = FakeHost(nobody, BOOT)
    assert await kvm_memory.remembered(tmp_path, host, KVM) is None
    await kvm_memory.note(tmp_path, host, KVM, REFUSED)
    assert await kvm_memory.remembered(tmp_path, host, KVM) == REFUSED
    worked = TrialResult(True, "a guest booted under KVM")
    await kvm_memory.note(tmp_path, host, KVM, worked)
    await kvm_memory.note(tmp_path, host, KVM, replace(REFUSED, sure=False))
    assert await kvm_memory.remembered(tmp_path, host, KVM) == worked
    # The same computer after a restart, but not another kernel, nor other options.
    again = FakeHost(nobody, booted_again(BOOT))
    assert await kvm_memory.remembered(tmp_path, again, KVM) == worked
    other = FakeHost(nobody, {**BOOT, "/proc/sys/kernel/osrelease": b"6.2"})
    assert await kvm_memory.remembered(tmp_path, other, KVM) is None
    assert (
        await kvm_memory.remembered(tmp_path, host, KVM.model_copy(update={"cpu": "qemu64"}))
        is None
    )


@pytest.mark.parametrize("files", [{}, {"/proc/sys/kernel/random/boot_id": b"boot-1"}])
async def test_answer_of_a_host_without_identity_is_not_kept(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    host = FakeHost(silent, files)
    await kvm_memory.note(tmp_path, host, KVM, REFUSED)
    assert await kvm_memory.remembered(tmp_path, host, KVM) is None
