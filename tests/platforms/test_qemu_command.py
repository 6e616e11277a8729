from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tare.images.guest_image import GuestImage
from tare.platforms.contract import Shape
from tare.platforms.qemu.command import Places, command, kernel_arguments
from tare.platforms.qemu.machine import fits_socket
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu

IMAGE = GuestImage(Path("/k"), Path("/elf"), Path("/initramfs"), "digest", "6.1-rt", True, 0.0)
SHAPE = Shape(vcpus=3, memory=256 << 20)


def places(folder: str = "/run/t") -> Places:
    root = Path(folder)
    return Places(root / "qmp.sock", root / "agent.sock", root / "console.sock", root / "qemu.log")


def line(**options: object) -> list[str]:
    chosen = QemuOptions.model_validate(options)
    words = kernel_arguments(chosen)
    return command(chosen, IMAGE, "tare-x", SHAPE, places(), append=words)


def test_nothing_beyond_what_is_asked_for_is_in_the_machine() -> None:
    argv = line()
    for word in ("-nodefaults", "-no-user-config", "-no-reboot", "-S"):
        assert word in argv
    assert argv[argv.index("-display") + 1] == "none"
    assert not any("hostfwd" in word or "netdev user" in word for word in argv)


def test_the_shape_is_what_was_asked_for() -> None:
    argv = line()
    assert argv[argv.index("-smp") + 1].startswith("3,")
    assert argv[argv.index("-m") + 1] == f"{256 << 10}K"
    assert argv[argv.index("-kernel") + 1] == "/elf"


@pytest.mark.parametrize(
    ("options", "present", "absent"),
    [
        ({}, ["virtio-net-pci", "virtio-blk-pci", "virtserialport"], ["e1000", "ide-hd"]),
        ({"devices": "emulated"}, ["e1000", "ide-hd"], ["virtio"]),
    ],
)
def test_devices_are_of_one_kind_only(
    options: dict[str, str], present: list[str], absent: list[str]
) -> None:
    devices = " ".join(line(**options))
    assert all(word in devices for word in present)
    assert not any(word in devices for word in absent)


def test_the_accelerator_decides_the_processor() -> None:
    tcg, kvm = line(), line(accelerator="kvm")
    assert tcg[tcg.index("-accel") + 1] == "tcg,thread=multi"
    assert tcg[tcg.index("-cpu") + 1] == "max"
    assert kvm[kvm.index("-accel") + 1] == "kvm"
    assert kvm[kvm.index("-cpu") + 1].startswith("host")


def test_huge_pages_back_all_of_the_memory() -> None:
    argv = line(hugepages=True)
    backend = argv[argv.index("-object") + 1]
    assert "hugetlb=on" in backend
    assert f"size={256 << 10}K" in backend
    assert "memory-backend=memory" in argv[argv.index("-machine") + 1]


def test_a_comma_in_a_path_stays_part_of_it() -> None:
    argv = command(QemuOptions(), IMAGE, "tare-x", SHAPE, places("/tmp/a,b"), append=())
    assert any("path=/tmp/a,,b/qmp.sock" in word for word in argv)


def test_the_kernel_is_told_nothing_that_changes_a_measurement() -> None:
    changing = ("mitigations", "nohz", "isolcpus", "clocksource", "tsc=", "nosmt", "idle=", "hz=")
    for devices, channel in (("paravirtual", "tare.agent"), ("emulated", "/dev/ttyS1")):
        words = kernel_arguments(QemuOptions.model_validate({"devices": devices}))
        assert not any(word.startswith(changing) for word in words)
        assert f"tare.channel={channel}" in words
        assert not any(word.startswith("tare.align") for word in words)


def test_work_begins_at_whole_minutes_where_time_counts_instructions() -> None:
    own = kernel_arguments(QemuOptions.model_validate({"clock": "instructions"}))
    hosts = kernel_arguments(QemuOptions(), counted=True)
    for words in (own, hosts):
        assert "tare.align=60000000000" in words


@pytest.mark.parametrize(
    "options",
    [{"acelerator": "kvm"}, {"accelerator": "hvf"}, {"cpu": "max -S"}, {"cpu": ""}, {"kernel": 3}],
)
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        QemuOptions.model_validate(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "QEMU TCG, paravirtual devices"),
        ({"accelerator": "kvm", "devices": "emulated"}, "QEMU KVM, emulated devices"),
        ({"machine": "pc", "cpu": "EPYC"}, "QEMU TCG, paravirtual devices, machine pc, CPU EPYC"),
    ],
)
def test_an_arm_is_described_in_words(options: dict[str, str], words: str) -> None:
    parsed = QemuOptions.model_validate(options)
    assert Qemu().describe(parsed) == words
    assert Qemu().emulated(parsed) == (parsed.accelerator == "tcg")


def test_sockets_with_long_names_go_elsewhere() -> None:
    assert fits_socket(Path("/tmp/tare-1"))
    assert not fits_socket(Path("/tmp") / ("x" * 100))
