"""The kernel that a host runs is the guests' only where it was seen to boot as one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from images.host_trees import TreeHost, tree
from tare.errors import InputError
from tare.hosts import Ledger
from tare.images import guest_image
from tare.images.cache import default_cache
from tare.platforms.contract import Context
from tare.platforms.qemu import kvm_trial
from tare.platforms.qemu import platform as qemu
from tare.platforms.qemu.kvm_trial import TrialResult
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.study.planning.guest_kernels import GuestKernels

TCG = QemuOptions(accelerator="tcg")
VERSION = "9.9.9-tare"


@pytest.fixture
def far(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    tree(tmp_path / "host", "boot/vmlinuz-linux", packed=".zst")
    with Ledger(tmp_path / "ledger") as ledger:
        host = TreeHost(tmp_path / "host")
        yield Context(host, ledger, tmp_path / "cache", agent_program)


async def answered(
    context: Context, monkeypatch: pytest.MonkeyPatch, answer: TrialResult
) -> list[str]:
    """Let every trial end so; return the kernels that were booted."""
    booted: list[str] = []

    async def once(context: Context, *words: object, **_: object) -> TrialResult:
        booted.append(words[1].kernel)  # type: ignore[attr-defined]
        return answer

    monkeypatch.setattr(qemu, "_boot_once", once)
    return booted


async def test_a_kernel_that_booted_is_remembered(
    far: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted = await answered(far, monkeypatch, TrialResult(True, "a guest booted under TCG"))
    for _ in range(2):
        assert await Qemu().guest_kernels(far, TCG) == GuestKernels(own=VERSION)
    assert booted == [VERSION]
    # Another kernel of the same name and version is another question.
    file = far.host.root / "boot/vmlinuz-linux"  # type: ignore[attr-defined]
    file.write_bytes(file.read_bytes() + b"signed again")
    assert await Qemu().guest_kernels(far, TCG) == GuestKernels(own=VERSION)
    assert booted == [VERSION] * 2


async def test_one_that_did_not_boot_is_refused_with_the_reason(
    far: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = TrialResult(
        False, "QEMU emulates a processor here, but a guest did not boot within 30 s"
    )
    await answered(far, monkeypatch, silent)
    kernels = await Qemu().guest_kernels(far, TCG)
    assert not kernels.own
    assert kernels.no_own == f"Linux {VERSION} was tried: {silent.reason}"


async def test_a_busy_host_is_asked_again(far: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    booted = await answered(far, monkeypatch, TrialResult(False, "the host was busy", sure=False))
    for _ in range(2):
        assert "the host was busy" in (await Qemu().guest_kernels(far, TCG)).no_own
    assert len(booted) == 2


async def test_drivers_for_the_arms_devices_must_exist(
    far: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted = await answered(far, monkeypatch, TrialResult(True, "a guest booted"))
    emulated = QemuOptions(accelerator="tcg", devices="emulated")
    kernels = await Qemu().guest_kernels(far, emulated)
    assert f"the kernel {VERSION} has no module e1000" in kernels.no_own
    toolbox = replace(far, needs=frozenset({"toolbox"}))
    assert "erofs" in (await Qemu().guest_kernels(toolbox, TCG)).no_own
    assert booted == []


async def test_a_host_without_an_image_tries_nothing(
    far: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted = await answered(far, monkeypatch, TrialResult(True, "a guest booted"))
    (far.host.root / "boot/vmlinuz-linux").unlink()  # type: ignore[attr-defined]
    kernels = await Qemu().guest_kernels(far, TCG)
    assert "there is no image of it in /boot" in kernels.no_own
    assert "reboot" in kernels.todo
    assert booted == []


async def test_an_emulated_host_and_a_release_keep_the_packaged_kernel(
    far: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted = await answered(far, monkeypatch, TrialResult(True, "a guest booted"))
    assert await Qemu().guest_kernels(replace(far, release="bookworm"), TCG) == GuestKernels()

    async def emulated(*_: object) -> str:
        return "emulated"

    monkeypatch.setattr(kvm_trial, "depth_of", emulated)
    assert await Qemu().guest_kernels(far, TCG) == GuestKernels()
    assert booted == []


async def test_kvm_is_tried_with_the_hosts_kernel_where_no_package_can_be_had(
    far: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def device(*_: object) -> TrialResult:
        return TrialResult(True, "it opens")

    monkeypatch.setattr(kvm_trial, "kvm_device", device)
    monkeypatch.setattr(kvm_trial, "taken", device)
    booted = await answered(far, monkeypatch, TrialResult(True, "a guest booted under KVM"))
    kvm = QemuOptions(accelerator="kvm")
    verdict = await Qemu().check(far, kvm)
    assert (verdict.usable, verdict.reason) == (True, "a guest booted under KVM")
    # One boot answers both questions.
    assert await Qemu().guest_kernels(far, kvm) == GuestKernels(own=VERSION)
    assert booted == [VERSION]


async def test_where_nothing_else_can_be_booted_the_hosts_kernel_says_what_kvm_does(
    far: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def device(*_: object) -> TrialResult:
        return TrialResult(True, "it opens")

    async def no_apt(*_: object) -> None:
        raise InputError("Fedora has no apt")

    monkeypatch.setattr(kvm_trial, "kvm_device", device)
    monkeypatch.setattr(kvm_trial, "taken", device)
    monkeypatch.setattr(guest_image, "find_kernel", no_apt)
    await answered(far, monkeypatch, TrialResult(False, "a guest did not boot within 12 s"))
    verdict = await Qemu().check(far, QemuOptions(accelerator="kvm"))
    assert (verdict.usable, verdict.reason) == (
        False, "a guest did not boot within 12 s"
    ), verdict.hint  # fmt: skip
    (far.host.root / "boot/vmlinuz-linux").unlink()  # type: ignore[attr-defined]
    verdict = await Qemu().check(far, QemuOptions(accelerator="kvm"))
    assert "there is no image of it in /boot" in verdict.reason


@pytest.mark.slow
@pytest.mark.boots
@pytest.mark.guest
@pytest.mark.parametrize(
    ("path", "packed"),
    [("usr/lib/modules/{}/vmlinuz", ".zst"), ("boot/vmlinuz-linux", ".xz")],
)
async def test_a_real_kernel_boots_however_it_is_laid_out(
    tmp_path: Path, agent_program: Path, path: str, packed: str
) -> None:
    kept, version = debian_kernel()
    root = tmp_path / "host"
    place = path.format(version)
    tree(root, place, (kept / "vmlinuz").read_bytes(), version=version, drivers={})
    lay_modules(kept / "modules" / version, root / "usr/lib/modules" / version, packed)
    with Ledger(tmp_path / "ledger") as ledger:
        context = Context(
            TreeHost(root, version, agent=agent_program), ledger, tmp_path / "cache", agent_program
        )
        assert await Qemu().guest_kernels(context, TCG) == GuestKernels(own=version)
        emulated = QemuOptions(accelerator="tcg", devices="emulated")
        assert await Qemu().guest_kernels(context, emulated) == GuestKernels(own=version)


def debian_kernel() -> tuple[Path, str]:
    """Return the folder of Debian's general kernel in the cache, and its version."""
    folder = default_cache() / "kernels"
    try:
        kept = folder / json.loads((folder / "generic.json").read_bytes())["key"]
        return kept, json.loads((kept / "manifest.json").read_bytes())["facts"]["version"]
    except OSError:
        pytest.skip("the general kernel is not in the cache")


def lay_modules(source: Path, target: Path, packed: str) -> None:
    from images.host_trees import PACKED

    for file in source.rglob("*"):
        copy = target / file.relative_to(source)
        if file.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".ko":
                copy = copy.with_name(copy.name + packed)
                copy.write_bytes(PACKED[packed](file.read_bytes()))
            else:
                copy.write_bytes(file.read_bytes())
