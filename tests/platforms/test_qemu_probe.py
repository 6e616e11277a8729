from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.images_fakes import FakeHost
from tare.errors import InputError, MachineFault, TareError
from tare.hosts import Completed, Ledger, LocalHost
from tare.platforms.contract import Context
from tare.platforms.qemu import kvm_trial as probe
from tare.platforms.qemu.command import trial
from tare.platforms.qemu.kvm_trial import TrialResult
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu


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
    assert answer.reason == "/dev/kvm opens, but no virtual machine can be created"
    assert answer.hint.endswith(
        '(QEMU reported: "ioctl(KVM_CREATE_VM) failed: 16 Device or resource busy")'
    )


async def test_a_working_kvm_device_is_reported_without_further_claims() -> None:
    answer = await probe.kvm_device(FakeHost(silent, {"/dev/kvm": b""}))
    assert answer == TrialResult(True, "/dev/kvm opens and creates a virtual machine")


@pytest.mark.parametrize(
    ("hypervisor", "depth"),
    [
        ({"announced": False, "signatures": []}, "real"),
        ({"announced": True, "signatures": ["KVMKVMKVM"]}, "virtual"),
        ({"announced": True, "signatures": ["TCGTCGTCGTCG"]}, "emulated"),
    ],
)
async def test_the_boot_deadline_depends_on_the_kind_of_host(
    hypervisor: dict[str, object], depth: probe.Depth
) -> None:
    proof = json.dumps({"hypervisor": hypervisor}).encode()
    found = await probe.depth_of(FakeHost(lambda argv: Completed(0, proof, b"")), Path("/agent"))
    assert found == depth
    assert max(probe.BOOT_DEADLINES_S["emulated"]) > 60 > max(probe.BOOT_DEADLINES_S["virtual"])


async def test_host_whose_agent_reports_nothing_may_be_virtual() -> None:
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
    assert left_out.reason == "this host has no kvm-pv-ipi for guests, which is asked for"
    assert "CPUID.40000001H:EAX.kvm-pv-ipi" in left_out.hint
    # What nobody asked for by name may be missing: the model's own features.
    assert (await probe.taken(answering(b"kvm-pv-eoi"), trial(options))).usable


REFUSED = {
    "KVM cannot run guests here": b"error: failed to set MSR 0x10a to 0x400000000c000069\n"
    b"../../target/i386/kvm/kvm.c:3183: kvm_buf_set_msrs: Assertion `ret == cpu' failed.\n",
    "QEMU may not lock its memory here": b"mlockall: Cannot allocate memory\n",
    "QEMU does not start with these options": b"Property 'max-x86_64-cpu.foo' not found\n",
}


@pytest.mark.parametrize(("reason", "words"), REFUSED.items())
async def test_a_refusal_is_a_sentence_with_what_to_do_before_qemus_words(
    reason: str, words: bytes
) -> None:
    options = QemuOptions(accelerator="kvm")
    answer = await probe.taken(refusing(b"qemu-system-x86_64: " + words), trial(options))
    assert not answer.usable
    assert answer.reason.startswith(reason)
    todo, _, output = answer.hint.partition(" (QEMU reported: ")
    assert todo
    assert output.startswith(f'"{words.decode().splitlines()[0]}')
    # The words are in one line, and nowhere else.
    assert "\n" not in answer.hint
    assert words.decode().splitlines()[0] not in f"{answer.reason} {todo}"


@pytest.mark.parametrize(
    ("release", "hint"),
    [
        (b"ID=debian\n", "apt-get install --no-remove qemu-system-x86"),
        (b'ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install qemu-kvm"),
        (b"ID=arch\n", "pacman -S --needed qemu-system-x86"),
    ],
)
async def test_a_host_without_qemu_says_what_to_install(
    tmp_path: Path, release: bytes, hint: str
) -> None:
    def answer(argv: Sequence[str]) -> Completed:
        if argv[0].startswith("qemu"):
            raise InputError(f"there is no command {argv[0]}")
        return Completed(0, b"x86_64\n", b"")

    ledger = Ledger(tmp_path / "ledger")
    host = FakeHost(answer, {"/etc/os-release": release})
    context = Context(host, ledger, tmp_path, Path("/agent"))
    verdict = await Qemu().check(context, QemuOptions())
    assert not verdict.usable
    assert verdict.reason == "qemu-system-x86_64 is not installed"
    assert verdict.hint == hint
    assert verdict.emulated
    assert verdict.lasting


@pytest.mark.parametrize(
    ("fault", "lasting"), [(MachineFault("it did not answer"), False), (InputError("no"), True)]
)
async def test_an_unanswered_question_is_asked_again(
    tmp_path: Path, fault: TareError, lasting: bool
) -> None:
    def answer(argv: Sequence[str]) -> Completed:
        raise fault

    context = Context(FakeHost(answer), Ledger(tmp_path / "ledger"), tmp_path, Path("/agent"))
    verdict = await Qemu().check(context, QemuOptions(accelerator="kvm"))
    assert not verdict.usable
    assert verdict.lasting is lasting


@pytest.mark.parametrize("sure", [True, False])
async def test_an_answer_that_is_not_sure_does_not_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent_program: Path, sure: bool
) -> None:
    async def device(*_: object) -> TrialResult:
        return TrialResult(False, "a guest did not boot while others used the CPUs", sure=sure)

    monkeypatch.setattr(probe, "kvm_device", device)
    with Ledger(tmp_path / "ledger") as ledger:
        context = Context(LocalHost(agent_program), ledger, tmp_path, agent_program)
        verdict = await Qemu().check(context, QemuOptions(accelerator="kvm"))
    assert "others used the CPUs" in verdict.reason
    assert verdict.lasting is sure
