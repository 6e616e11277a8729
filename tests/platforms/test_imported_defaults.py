# ruff: noqa: E501 - descriptions stand as their tools write them
"""What a description leaves out follows its tool's defaults; what is odd in it is listed."""

from __future__ import annotations

from typing import Any

import pytest

from platforms.test_imported import DOMAIN, OVF, PROXMOX, imported, left
from tare.errors import InputError
from tare.platforms.imported.read import import_bytes

QEMU = "qemu-system-x86_64 -accel kvm -m 1G -smp 2"
DISK = f"{QEMU} -drive file=/x.img,format=raw,if=virtio"


def settings_of(text: str) -> dict[str, Any]:
    return dict(imported(text).settings)


# QEMU.


def test_a_command_line_is_as_qemu_takes_it() -> None:
    arm = settings_of("qemu-system-x86_64 -hda disk.qcow2")
    assert (arm["accelerator"], arm["machine"], arm["cpu"]) == ("tcg", "pc", "qemu64")
    assert arm["shape"] == {"vcpus": 1, "memory": "128MiB"}
    assert (arm["disk-cache"], arm["disk-format"]) == ("writeback", "qcow2")
    assert settings_of("qemu-system-x86_64 disk.qcow2") == arm
    # A line that lost its quotation marks has words that are not images.
    lost = imported(f"{QEMU} -append console=ttyS0 root=/dev/vda quiet")
    left(lost, "root=/dev/vda: it is not an option", "quiet: it is not an option")
    assert "disk-cache" not in lost.settings
    # QEMU's `host` may migrate, and Tare's own may not.
    assert settings_of(f"{QEMU} -cpu host")["cpu"] == "host"
    assert "cpu" not in settings_of(f"{QEMU} -cpu host,migratable=off")
    assert "cpu" not in settings_of(f"{QEMU} -cpu max")
    assert "memory" not in settings_of(f"{QEMU} -m lots")["shape"]


@pytest.mark.parametrize(
    ("words", "cache"),
    [
        ("cache.direct=on", "none"),
        ("cache.no-flush=on", "unsafe"),
        ("cache.writeback=off", "writethrough"),
        ("cache.writeback=off,cache.direct=on", "directsync"),
        ("cache=off", "none"),
        ("cache=writethrough", "writethrough"),
    ],
)
def test_a_cache_mode_is_read_in_its_parts(words: str, cache: str) -> None:
    assert settings_of(f"{DISK},{words}")["disk-cache"] == cache


def test_a_cache_mode_of_a_device_is_read_too() -> None:
    line = f"{QEMU} -blockdev raw,node-name=d,cache.direct=on,file.driver=file,file.filename=/x"
    assert (
        settings_of(f"{line} -device virtio-blk-pci,drive=d,write-cache=off")["disk-cache"]
        == "directsync"
    )
    assert settings_of(f"{line} -device virtio-blk-pci,drive=d")["disk-cache"] == "none"


def test_firmware_is_not_imported_as_a_disk() -> None:
    """Check that firmware, which nearly every command line with UEFI has, is not the disk."""
    flash = "-drive if=pflash,format=raw,readonly=on,file=/OVMF_CODE.fd -drive if=pflash,format=raw,file=/VARS.fd"
    whole = f"{QEMU} {flash} -drive file=/d.qcow2,if=virtio,format=qcow2,cache=none,aio=native"
    arm = imported(whole)
    assert (arm.settings["disk-format"], arm.settings["disk-aio"]) == ("qcow2", "native")
    assert arm.left[0] == "UEFI firmware: the kernel is booted directly"
    assert not any("disk 2" in each or "pflash" in each for each in arm.left)
    left(imported(f"{QEMU} -pflash x"), "UEFI firmware")
    left(imported(f"{QEMU} -machine q35,pflash0=code"), "UEFI firmware")
    left(imported(f"{QEMU} -drive if=floppy,file=x"), "-drive if=floppy")


def test_an_option_without_a_value_takes_none() -> None:
    arm = imported("qemu-system-x86_64 -no-fd-bootchk -m 2G -only-migratable -smp 3")
    assert arm.settings["shape"] == {"vcpus": 3, "memory": "2GiB"}


def test_a_microvm_stays_one() -> None:
    arm = imported(
        "qemu-system-x86_64 -M microvm,x-option-roms=off -enable-kvm -m 512 -drive id=d,file=x,if=none,format=raw "
        "-device virtio-blk-device,drive=d,num-queues=2 -netdev tap,id=n,vhost=on -device virtio-net-device,netdev=n"
    )
    assert (arm.settings["machine"], arm.settings["devices"], arm.settings["disk-queues"]) == (
        *("microvm", "paravirtual"),
        2,
    )
    left(arm, "-machine x-option-roms=off")
    assert not any("-device" in each for each in arm.left)


def test_a_card_is_connected_as_it_was() -> None:
    card = "-device virtio-net-pci-non-transitional,netdev=n"
    assert settings_of(f"{QEMU} -netdev user,id=n {card}")["network"] == "user"
    # QEMU carries packets itself by default.
    assert settings_of(f"{QEMU} -netdev tap,id=n {card}")["vhost"] == "off"
    assert "vhost" not in settings_of(f"{QEMU} -netdev tap,id=n,vhost=on {card}")
    left(imported(f"{QEMU} -netdev vhost-user,id=n,chardev=c {card}"), "network by vhost-user")
    assert settings_of(f"{QEMU} -nic user,model=virtio-net-pci")["network"] == "user"
    assert not any("nic" in each or "network" in each for each in settings_of(f"{QEMU} -nic none"))


def test_a_controller_has_the_queues_and_the_thread_of_its_disk() -> None:
    line = (
        f"{QEMU} -drive id=d,file=x,if=none,format=raw -object iothread,id=t "
        "-device virtio-scsi-pci,num_queues=4,iothread=t -device scsi-hd,drive=d"
    )
    arm = settings_of(line)
    assert (arm["disk-bus"], arm["disk-queues"], arm["iothread"]) == ("virtio-scsi", 4, True)
    other = settings_of(line.replace("scsi-hd", "virtio-blk-pci"))
    assert "disk-queues" not in other and "iothread" not in other


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-drive file=/dev/vg/a,format=raw,if=virtio", "a block device of the host"),
        ("-drive file=rbd:pool/a,format=raw,if=virtio", "a disk by rbd"),
        ("-drive file=x,format=raw,if=virtio,discard=unmap", "disk discard=unmap"),
        ("-drive file=x,format=raw,if=virtio,bps=100", "disk bps=100"),
        ("-readconfig /etc/q.cfg", "-readconfig /etc/q.cfg: what is in that file is not read"),
        ("-global kvm-pit.lost_tick_policy=delay", "-global kvm-pit"),
        ("-accel kvm,kernel-irqchip=split", "-accel kernel-irqchip=split"),
    ],
)
def test_unsupported_options_are_listed(words: str, message: str) -> None:
    left(imported(f"{QEMU} {words}"), message)


def test_foreign_processor_architectures_are_listed() -> None:
    left(imported("qemu-system-aarch64 -M virt -m 1G"), "processors of the kind aarch64")
    left(imported(DOMAIN.replace("arch='x86_64'", "arch='aarch64'")), "of the kind aarch64")


def test_command_inside_a_script_is_imported() -> None:
    arm = imported(f"#!/bin/sh\n# start the kvm guest\nexec {QEMU} \\\n  -cpu max\n")
    assert arm.settings["shape"]["vcpus"] == 2 and not any("guest" in each for each in arm.left)


# Proxmox.


def test_a_vm_may_be_called_as_the_program_is() -> None:
    arm = imported("# my kvm guest\nboot: order=scsi0\ncores: 2\nmemory: 1024\nname: kvm\n")
    assert (arm.name, arm.settings["shape"]) == ("kvm", {"vcpus": 2, "memory": "1GiB"})


def test_a_configuration_is_as_proxmox_takes_it() -> None:
    text = "memory: current=2048\ncores: 4\nvcpus: 2\nscsihw: virtio-scsi-pci\nunused0: a:b\n"
    arm = imported(
        f"{text}scsi0: local:101/vm-101-disk-0.qcow2,discard=on,size=32G\nnet0: virtio=AA\n"
    )
    assert arm.settings["shape"] == {"vcpus": 2, "memory": "2GiB", "disk": "32GiB"}
    assert (arm.settings["cpu"], arm.settings["network"]) == ("kvm64,+lahf_lm,+sep", "user")
    assert (arm.settings["disk-format"], arm.settings["disk-aio"]) == ("qcow2", "io_uring")
    left(arm, "vCPUs that may be added, up to 4", "Proxmox takes io_uring", "disk discard=on")
    assert not any("unused" in each for each in arm.left)
    left(imported(f"{text}scsi0: local-lvm:vm-1-disk-0,size=1G"), "storage local-lvm: on LVM")
    assert settings_of(f"{text}kvm: 0")["cpu"] == "qemu64"


@pytest.mark.parametrize(
    ("cpu", "model", "message"),
    [
        ("host,hidden=1", "host", "kvm-pv-eoi: no effect on a guest that does not see KVM"),
        ("host,phys-bits=40", "host,phys-bits=40", None),
        ("host,phys-bits=host", "host,host-phys-bits=on", None),
        (
            "x86-64-v2-AES,flags=+aes",
            "qemu64,+aes,+pni,+popcnt,+sse4.1,+sse4.2,+ssse3",
            None,
        ),
        ("custom-mine", "kvm64,+lahf_lm,+sep", "CPU custom-mine: its definition"),
        ("EPYC,flags=-pcid", "EPYC,-pcid,vendor=AuthenticAMD", None),
        ("Haswell", "Haswell,vendor=GenuineIntel", None),
    ],
)
def test_a_processor_of_proxmox(cpu: str, model: str | None, message: str | None) -> None:
    arm = imported(f"memory: 512\ncpu: {cpu}\n")
    assert arm.settings.get("cpu") == model
    own = {"kvm": False} if "hidden" in cpu else {"add": ["kvm-pv-eoi", "kvm-pv-unhalt"]}
    assert arm.settings["enlightenments"] == own
    cpus = [each for each in arm.left if "CPU" in each and "CPU enforce" not in each]
    assert ("CPU enforce" in "".join(arm.left)) is not cpu.startswith("host")
    assert (not cpus) if message is None else any(message in each for each in cpus)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "arch: amd64\ncores: 2\nmemory: 512\nrootfs: local-lvm:vm-1,size=8G",
            "describes a container",
        ),
        ("study: quick\nbaseline: bare\narms:\n", "describes no virtual machine"),
    ],
)
def test_descriptions_without_a_vm_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        imported(text)


# libvirt.


def test_a_domain_is_as_libvirt_takes_it() -> None:
    plain = "<domain type='kvm'><memory unit='GiB'>4</memory><vcpu>2</vcpu><devices>{}</devices></domain>"
    disk = "<disk type='file'><driver type='raw'/><target dev='vda' bus='virtio'/></disk>"
    arm = settings_of(plain.format(disk))
    assert (arm["machine"], arm["cpu"], arm["disk-cache"]) == ("pc", "qemu64", "writeback")
    default = disk.replace("type='raw'", "type='raw' cache='default'")
    assert settings_of(plain.format(default)) == arm


def test_smaller_current_memory_and_vcpus_are_listed() -> None:
    text = "<domain type='kvm'><currentMemory unit='GiB'>1</currentMemory><memory unit='GiB'>4</memory><vcpu current='2'>8</vcpu></domain>"
    arm = imported(text)
    assert arm.settings["shape"] == {"vcpus": 2, "memory": "4GiB"}
    left(arm, "currentMemory of 1024 MiB", "vCPUs that may be added, up to 8")
    assert not any("currentMemory" in each for each in imported(DOMAIN).left)


@pytest.mark.parametrize(
    ("devices", "options", "message"),
    [
        ("<interface type='hostdev'/>", {"nic": None}, "device interface hostdev"),
        ("<interface type='user'><model type='virtio'/></interface>", {"network": "user"}, None),
        (
            "<interface type='bridge'><model type='virtio'/><driver name='qemu'/></interface>",
            {"vhost": "off"},
            None,
        ),
        (
            "<interface type='vhostuser'><model type='virtio'/></interface>",
            {"network": None},
            "network interface on vhostuser",
        ),
        ("<interface type='bridge'><mtu size='9000'/></interface>", {}, "network interface <mtu>"),
        (
            "<interface type='bridge'><model type='virtio'/><driver><host csum='off'/></driver></interface>",
            {},
            "network interface host csum=off: write `nic-offloads`",
        ),
        (
            "<disk type='network'><source protocol='rbd'/><target dev='sda' bus='scsi'/></disk>"
            "<controller type='scsi' model='virtio-scsi'><driver queues='4' iothread='1'/></controller>",
            {"disk-queues": 4, "iothread": True, "disk-bus": "virtio-scsi"},
            "a disk by network rbd",
        ),
        (
            "<disk type='block'><target dev='vda' bus='virtio'/><blockio/></disk>",
            {},
            "a block device of the host",
        ),
        (
            "<disk type='file'><target dev='vda' bus='virtio'/><backingStore><source file='b'/></backingStore></disk>",
            {},
            "the image that the disk's image is laid over",
        ),
    ],
)
def test_devices_of_a_domain(devices: str, options: dict[str, Any], message: str | None) -> None:
    arm = imported(f"<domain type='kvm'><vcpu>1</vcpu><devices>{devices}</devices></domain>")
    assert {name: arm.settings.get(name) for name in options} == options
    if message is not None:
        left(arm, message)


def test_qemu_arguments_inside_a_domain_are_listed() -> None:
    text = (
        "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><vcpu>1</vcpu>"
        "<qemu:commandline><qemu:arg value='-overcommit'/></qemu:commandline></domain>"
    )
    left(imported(text), "<qemu:commandline> -overcommit: write `extra-args`")


# OVF.


def test_a_byte_order_mark_is_ignored() -> None:
    assert import_bytes(b"\xef\xbb\xbf" + OVF.encode(), "file") == imported(OVF)


def test_an_nvme_controller_is_not_imported_as_sata() -> None:
    nvme = OVF.replace("VirtualSCSI", "vmware.nvme.controller").replace(
        "<rasd:ResourceType>6<", "<rasd:ResourceType>20<"
    )
    assert settings_of(nvme)["disk-bus"] == "nvme"


def test_the_default_deployment_is_chosen_from_several() -> None:
    section = (
        "<DeploymentOptionSection><Configuration ovf:id='small'/>"
        "<Configuration ovf:id='large' ovf:default='true'/></DeploymentOptionSection>"
    )
    cpus = (
        "<Item ovf:configuration='small'><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType>"
        "<rasd:VirtualQuantity>1</rasd:VirtualQuantity></Item>"
        "<Item ovf:bound='max'><rasd:ResourceType>3</rasd:ResourceType>"
        "<rasd:VirtualQuantity>64</rasd:VirtualQuantity></Item></VirtualHardwareSection>"
    )
    several = OVF.replace("</DiskSection>", f"</DiskSection>{section}").replace(
        "</VirtualHardwareSection>", cpus
    )
    arm = imported(several)
    assert arm.settings["shape"]["vcpus"] == 2
    left(arm, "configuration small: `large` is taken")


def test_proxmox_says_of_a_mainboard_what_else_it_has() -> None:
    left(imported(f"machine: q35,viommu=virtio{PROXMOX}"), "machine viommu=virtio")
