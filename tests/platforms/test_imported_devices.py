"""The devices and the memory of other tools' descriptions, each imported by itself or listed."""

from __future__ import annotations

import pytest

from platforms.test_imported import DOMAIN, imported, left


@pytest.mark.parametrize(
    ("disk", "card", "board", "devices", "bus"),
    [
        ("virtio-blk-pci", "virtio-net-pci", "q35", "paravirtual", None),
        ("virtio-blk-pci", "e1000", "q35", "emulated", "virtio-blk"),
        ("scsi-hd", "virtio-net-pci", "pc", "paravirtual", "virtio-scsi"),
        ("nvme", "virtio-net-pci", "q35", "paravirtual", "nvme"),
        ("ide-hd", "e1000", "q35", "emulated", None),
        ("ide-hd", "e1000", "pc", "emulated", None),
        ("ide-hd", "virtio-net-pci", "pc", "paravirtual", "ide"),
        ("ide-hd", "virtio-net-pci", "q35", "paravirtual", "ahci"),
    ],
)
def test_disk_and_card_are_carried_over_each_by_itself(
    disk: str, card: str, board: str, devices: str, bus: str | None
) -> None:
    arm = imported(
        f"qemu-system-x86_64 -accel kvm -m 1024 -smp 1 -machine {board} "
        f"-drive id=d,file=/x,format=raw,if=none -device {disk},drive=d -device {card}"
    )
    assert (arm.settings["devices"], arm.settings.get("disk-bus")) == (devices, bus)
    assert not any("disk on" in each or "devices are taken" in each for each in arm.left)


@pytest.mark.parametrize(
    ("disk", "card", "devices", "nic"),
    [
        ("virtio-blk-pci", "e1000e", "paravirtual", "e1000e"),
        ("ide-hd", "rtl8139", "emulated", "rtl8139"),
        (None, "vmxnet3", "emulated", "vmxnet3"),
        ("virtio-blk-pci", "pcnet", "paravirtual", None),
    ],
)
def test_a_card_that_is_an_option_of_its_own_is_carried_over(
    disk: str | None, card: str, devices: str, nic: str | None
) -> None:
    attached = f"-drive id=d,file=/x,format=raw,if=none -device {disk},drive=d " if disk else ""
    arm = imported(f"qemu-system-x86_64 -accel kvm -m 1024 -smp 1 {attached}-device {card}")
    assert (arm.settings["devices"], arm.settings.get("nic")) == (devices, nic)
    assert any(
        "network interface pcnet: Tare has virtio, e1000, " in each for each in arm.left
    ) is (nic is None)


def test_memory_that_is_made_ready_beforehand_is_carried_over() -> None:
    line = "qemu-system-x86_64 -accel kvm -m 1024 -smp 1"
    touched = imported(f"{line} -mem-prealloc -S")
    assert (touched.settings["prealloc"], touched.settings.get("hugepages")) == (True, None)
    for words in (
        "-mem-prealloc -mem-path /dev/hugepages",
        "-mem-path /dev/hugepages -mem-prealloc",
    ):
        arm = imported(f"{line} {words}")
        assert (arm.settings.get("prealloc"), arm.settings["hugepages"]) == (None, True)
        assert not any("mem" in each for each in arm.left)
    left(imported(f"{line} -mem-path /dev/shm"), "-mem-path /dev/shm")
    left(imported(DOMAIN.replace("nodeset='1'", "nodeset='0-1'")), "NUMA nodes 0-1: write `numa")


def test_disk_on_an_unknown_bus_is_listed() -> None:
    arm = imported(DOMAIN.replace("dev='vda' bus='virtio'", "dev='sda' bus='usb'"))
    left(arm, "disk on usb: the usual bus is taken")
    assert "disk-bus" not in arm.settings
    scsi = DOMAIN.replace("dev='vda' bus='virtio'", "dev='sda' bus='scsi'").replace(
        "<devices>", "<devices><controller type='scsi' model='lsilogic'/>", 1
    )
    left(imported(scsi), "disk controller lsilogic: virtio-scsi is taken")
    assert imported(scsi).settings["disk-bus"] == "virtio-scsi"
