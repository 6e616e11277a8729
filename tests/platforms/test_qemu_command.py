from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tare.hosts import LocalHost
from tare.images.guest_image import GuestImage
from tare.images.modules import NEEDS
from tare.platforms.contract import Shape
from tare.platforms.linux.network import Link
from tare.platforms.qemu import nic
from tare.platforms.qemu.command import MachinePaths, command, kernel_arguments
from tare.platforms.qemu.machine import fits_socket
from tare.platforms.qemu.nic import MODELS
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu

IMAGE = GuestImage(Path("/k"), Path("/elf"), Path("/initramfs"), "digest", "6.1-rt", True, 0.0)
SHAPE = Shape(vcpus=3, memory=256 << 20)


def places(folder: str = "/run/t") -> MachinePaths:
    root = Path(folder)
    return MachinePaths(
        root / "qmp.sock", root / "agent.sock", root / "console.sock", root / "qemu.log"
    )


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


def test_kernel_arguments_change_no_measurement() -> None:
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
        assert "tare.align=600000000000" in words


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


TAP = Link("tap", "10.1.2.3", 24, "tare-1")


def networked(vhost: bool = False, **options: object) -> tuple[str, str]:
    """Return QEMU's options for the network card, and for what carries its packets."""
    chosen = QemuOptions.model_validate(options)
    argv = command(chosen, IMAGE, "tare-x", SHAPE, places(), append=(), link=TAP, vhost=vhost)
    card = next(word for word in argv if "netdev=net" in word)
    return card, argv[argv.index("-netdev") + 1]


@pytest.mark.parametrize("card", sorted(MODELS))
@pytest.mark.parametrize("devices", ["paravirtual", "emulated"])
def test_network_card_is_the_requested_one_with_any_devices(card: str, devices: str) -> None:
    card_words, _ = networked(nic=card, devices=devices)
    assert card_words.startswith(f"{MODELS[card]},")
    assert f"mac={TAP.mac}" in card_words
    assert card in QemuOptions.model_validate({"nic": card, "devices": devices}).needs
    assert card in NEEDS


@pytest.mark.parametrize(
    ("given_value", "meant"), [(True, "on"), (False, "off"), ("on", "on"), ("auto", "auto")]
)
def test_vhost_may_be_written_as_yaml_reads_it(given_value: object, meant: str) -> None:
    assert QemuOptions.model_validate({"vhost": given_value}).vhost == meant


def test_queues_offloads_and_vhost_reach_the_command_line() -> None:
    card, carrier = networked(vhost=True, nic_queues=3, nic_offloads=False)
    assert "mq=on,vectors=8" in card
    assert "guest_tso4=off" in card
    assert carrier.endswith(",queues=3,vhost=on")
    card, carrier = networked()
    assert "mq" not in card
    assert "=off" not in card
    assert carrier.endswith("downscript=no")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nic": "e1000", "nic_queues": 2}, "nic-queues needs `nic: virtio`"),
        ({"devices": "emulated", "vhost": "on"}, "vhost needs `nic: virtio`"),
        ({"nic": "tulip", "nic_offloads": False}, "nic-offloads needs `nic: virtio`"),
        ({"network": "user", "vhost": "on"}, "need a tap"),
        ({"nic": "ne2000"}, "Input should be"),
    ],
)
def test_options_that_a_card_lacks_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        QemuOptions.model_validate(options)


@pytest.mark.parametrize(
    ("options", "way", "there", "used"),
    [
        ({}, "tap", True, True),
        ({}, "tap", False, False),
        ({}, "user", True, False),
        ({"vhost": "off"}, "tap", True, False),
        ({"vhost": "on"}, "tap", False, True),
        ({"nic": "e1000e"}, "tap", True, False),
    ],
)
async def test_vhost_is_used_wherever_the_host_has_it(
    options: dict[str, object], way: str, there: bool, used: bool, tmp_path: Path
) -> None:
    device = tmp_path / "vhost-net"
    if there:
        device.touch()
    chosen = QemuOptions.model_validate(options)
    host = LocalHost(Path("/nothing"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(nic, "VHOST", str(device))
        assert await nic.uses_vhost(host, chosen, way) is used
        lacking = await nic.lacking_vhost(host, chosen)
    assert (lacking is not None) == (options == {"vhost": "on"} and not there)
    assert nic.record(chosen, used, Link("tap", "10.1.2.10", 24))["vhost"] is used


def test_reports_say_which_card_was_chosen() -> None:
    chosen = QemuOptions(nic="virtio", nic_queues=2, nic_offloads=False, vhost="off")
    description = Qemu().describe(chosen)
    for words in ("network card virtio", "2 pairs of queues", "no network offloads", "no vhost"):
        assert words in description
    assert "network card" not in Qemu().describe(QemuOptions())
