# ruff: noqa: E501 - descriptions stand as their tools write them
"""Descriptions of other tools become arms, and whatever is dropped is listed."""

from __future__ import annotations

import io
import shlex
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from run.run_driving import tare
from tare.errors import InputError
from tare.platforms.contract import Shape
from tare.platforms.imported.arm import Arm
from tare.platforms.imported.ovf import _unit
from tare.platforms.imported.parsing import UNITS, bytes_of, parse_whole_number
from tare.platforms.imported.read import import_bytes, import_file
from tare.platforms.libvirt.domain import Files, domain_xml
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.linux.network import Link
from tare.platforms.qemu.command import MachinePaths, command
from tare.platforms.qemu.enlightenments import USUAL_HYPERV
from tare.platforms.qemu.options import QemuOptions
from tare.run.catalog import build_catalog
from tare.study.reading.load import load_study

GIB = 1 << 30
DOMAIN = """
<domain type='kvm' id='3'>
  <name>Web 1</name><uuid>x</uuid>
  <memory unit='GiB'>4</memory><currentMemory unit='GiB'>4</currentMemory>
  <memoryBacking><hugepages><page size='2' unit='MiB'/></hugepages><locked/><nosharepages/></memoryBacking>
  <vcpu placement='static' cpuset='0-3'>2</vcpu><iothreads>1</iothreads>
  <numatune><memory mode='strict' nodeset='1'/><memnode cellid='0'/></numatune>
  <cputune><shares>512</shares><vcpupin vcpu='0' cpuset='1'/></cputune>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><loader>/ovmf</loader></os>
  <features><acpi/><hyperv><relaxed state='on'/></hyperv><ioapic driver='kvm'/></features>
  <cpu mode='custom' match='exact'><model>Haswell</model><feature policy='disable' name='tsx'/>
    <numa><cell id='0'/></numa></cpu>
  <clock offset='utc'><timer name='hpet' present='no'/></clock>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none' io='native'
      queues='4' discard='unmap'/><source file='/x'/><target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>
    <disk type='file' device='disk'><target dev='vdb' bus='virtio'/></disk>
    <interface type='bridge'><model type='e1000e'/></interface>
    <hostdev mode='subsystem' type='pci'/><graphics type='spice'/><tpm model='tpm-crb'/>
  </devices>
</domain>
"""
WORDS = """
/usr/bin/qemu-system-x86_64 -name guest=db,debug-threads=on -enable-kvm -m 2048 \\
  -smp 4,sockets=2,cores=1,threads=2 -cpu Skylake-Server,+avx512f -machine q35,kernel_irqchip=split,nvdimm=on \\
  -object iothread,id=io1 -overcommit cpu-pm=on \\
  -drive file=/dev/vg/a,if=none,id=d0,format=raw,cache=none,aio=io_uring,throttling.iops-total=100 \\
  -device virtio-blk-pci,drive=d0,iothread=io1,num-queues=2 \\
  -device virtio-net-pci,netdev=n0,mq=on -netdev tap,id=n0,vhost=on,queues=2 -device vfio-pci,host=01:00.0 \\
  -vga std -loadvm x
"""
PROXMOX = """
#comment
agent: 1
args: -no-hpet
affinity: 0-1
balloon: 0
bios: ovmf
cores: 2
cpu: host,flags=+aes;-pcid
hugepages: 1024
ide2: local:iso/debian.iso,media=cdrom
memory: 8192
name: mail
net0: virtio=AA:BB:CC:DD:EE:FF,bridge=vmbr0,queues=4
numa: 1
scsi0: local-lvm:vm-1-disk-0,aio=native,cache=none,iothread=1,size=32G,iops_rd=100
scsihw: virtio-scsi-single
sockets: 2

[before]
cores: 64
"""
OVF = """<?xml version="1.0"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData">
  <DiskSection><Disk ovf:capacity="40" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="vmdisk1"/></DiskSection>
  <VirtualSystem ovf:id="old-one"><VirtualHardwareSection>
    <Item><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType>
      <rasd:VirtualQuantity>2</rasd:VirtualQuantity><rasd:Reservation>500</rasd:Reservation></Item>
    <Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits><rasd:InstanceID>2</rasd:InstanceID>
      <rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>2048</rasd:VirtualQuantity></Item>
    <Item><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType>
      <rasd:ResourceType>6</rasd:ResourceType></Item>
    <Item><rasd:HostResource>ovf:/disk/vmdisk1</rasd:HostResource><rasd:InstanceID>9</rasd:InstanceID>
      <rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
    <Item><rasd:InstanceID>10</rasd:InstanceID><rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType>
      <rasd:ResourceType>10</rasd:ResourceType></Item>
    <Item><rasd:ElementName>GPU</rasd:ElementName><rasd:InstanceID>11</rasd:InstanceID>
      <rasd:ResourceType>99</rasd:ResourceType></Item>
  </VirtualHardwareSection></VirtualSystem>
</Envelope>
"""
WITHOUT_RELAXED = sorted({*USUAL_HYPERV} - {"hv-relaxed"})


def imported(text: str) -> Arm:
    return import_bytes(text.encode(), "file")


def left(arm: Arm, *words: str) -> None:
    for word in words:
        assert any(word in each for each in arm.left), (word, arm.left)


def test_a_domain_of_libvirts_becomes_an_arm() -> None:
    arm = imported(DOMAIN)
    assert arm.name == "web-1"
    assert arm.settings == {
        "platform": "qemu",
        "accelerator": "kvm",
        "machine": "q35",
        "devices": "paravirtual",
        "disk-cache": "none",
        "disk-aio": "native",
        "disk-queues": 4,
        "disk-format": "qcow2",
        "nic": "e1000e",
        "numa-node": 1,
        "cpu": "Haswell,-tsx",
        "hugepages": True,
        "hugepage-size": 2 << 20,
        "mlock": True,
        # The one enlightenment that the domain has, of those that Tare has usually.
        "enlightenments": {"hyperv": True, "remove": WITHOUT_RELAXED},
        # `cpuset` of <vcpu> applies to threads that are not named.
        "emulator-cpus": [0, 1, 2, 3],
        "scheduling": {"weight": 512},
        "shape": {"vcpus": 2, "memory": "4GiB"},
    }
    assert "scenarios" not in arm.text()
    left(
        arm,
        "pc-q35-7.2",
        "write `scheduling: {weight: 50}`",
        "vCPU 0 on CPU 1: ",
        "UEFI",
        "<cpu> numa",
        "<clock>",
        "memnode",
        "tpm",
    )
    left(arm, "discard=unmap", "disk 2", "hostdev", "ioapic", "nosharepages", "0-3")


def test_a_command_line_of_qemus_becomes_an_arm() -> None:
    arm = imported(WORDS)
    assert arm.name == "db"
    assert arm.settings == {
        "platform": "qemu",
        "accelerator": "kvm",
        "machine": "q35",
        "cpu": "Skylake-Server,+avx512f",
        "cpu-pm": True,
        "devices": "paravirtual",
        "disk-cache": "none",
        "disk-aio": "io_uring",
        "disk-format": "block",
        "disk-queues": 2,
        "iothread": True,
        "nic-queues": 2,
        "shape": {"vcpus": 4, "memory": "2GiB"},
    }
    left(arm, "threads of a core", "vfio-pci", "nvdimm=on", "throttling", "loadvm x")


def test_a_command_line_that_libvirt_writes_is_read_too() -> None:
    line = (
        "qemu-system-x86_64 -accel kvm -m 1024 -smp 1 -machine pc-q35-8.2,usb=off "
        """-blockdev '{"driver":"file","filename":"/x","aio":"io_uring","node-name":"s"}' """
        """-blockdev '{"node-name":"f","cache":{"direct":true},"driver":"qcow2","file":"s"}' """
        """-object '{"qom-type":"memory-backend-ram","id":"m","host-nodes":[0],"policy":"bind"}' """
        """-device '{"driver":"virtio-blk-pci","num-queues":3,"drive":"f","id":"v"}' """
        """-device '{"driver":"virtio-net-pci","netdev":"n"}' -device '{"driver":"ivshmem"}'"""
    )
    arm = imported(line)
    assert arm.settings["disk-queues"] == 3
    assert arm.settings["disk-cache"] == "none"
    # From the file's node, which the device does not name.
    assert arm.settings["disk-aio"] == "io_uring"
    assert arm.settings["disk-format"] == "qcow2"
    assert arm.settings["numa-node"] == 0
    assert arm.settings["devices"] == "paravirtual"
    left(arm, "ivshmem", "pc-q35-8.2")
    # As /proc has it, each word ends with a NUL.
    assert imported("\0".join([*shlex.split(line), ""])) == arm
    with pytest.raises(InputError):
        imported("qemu-system-x86_64 -device '{nothing'")


def test_a_configuration_of_proxmox_becomes_an_arm() -> None:
    arm = imported(PROXMOX)
    assert arm.name == "mail"
    assert arm.settings == {
        "platform": "qemu",
        "accelerator": "kvm",
        "machine": "pc",
        "cpu": "host,+aes,-pcid",
        "hugepages": True,
        "hugepage-size": 1 << 30,
        "devices": "paravirtual",
        "disk-bus": "virtio-scsi",
        "disk-cache": "none",
        "disk-aio": "native",
        "disk-format": "block",
        # What Proxmox makes QEMU offer to every guest.
        "enlightenments": {"add": ["kvm-pv-eoi", "kvm-pv-unhalt"]},
        "iothread": True,
        "nic-queues": 4,
        "emulator-cpus": [0, 1],
        "shape": {"vcpus": 4, "memory": "8GiB", "disk": "32GiB"},
    }
    left(arm, "vCPUs on CPUs 0-1: ", "args", "bios: ovmf", "numa", "iops_rd")
    # Tare's machines have no balloon either.
    assert not any("balloon" in each for each in arm.left)
    assert not any("controller" in each for each in arm.left)
    left(imported(PROXMOX.replace("scsihw: virtio-scsi-single", "")), "disk controller lsi: ")


def tuned(tune: str, disk: str = "", vcpus: str = "<vcpu>2</vcpu>") -> Arm:
    return imported(
        f"<domain type='kvm'><name>rt</name><memory unit='GiB'>2</memory>{vcpus}"
        f"<cputune>{tune}</cputune><devices>{disk}</devices></domain>"
    )


PINS = "<vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='3'/>"
THREADED = (
    "<disk type='file' device='disk'><driver name='qemu' type='raw' iothread='2'/>"
    "<target dev='vda' bus='virtio'/></disk>"
)
ON_CONTROLLER = (
    "<controller type='scsi' model='virtio-scsi'><driver iothread='2'/></controller>"
    "<disk type='file' device='disk'><target dev='sda' bus='scsi'/></disk>"
)


@pytest.mark.parametrize("disk", [THREADED, ON_CONTROLLER])
def test_threads_go_where_a_domain_has_them(disk: str) -> None:
    pins = (
        f"{PINS}<emulatorpin cpuset='0-1,^1,4'/><iothreadpin iothread='1' cpuset='5'/>"
        "<iothreadpin iothread='2' cpuset='1'/>"
    )
    arm = tuned(pins, disk)
    assert (arm.settings["emulator-cpus"], arm.settings["iothread-cpus"]) == ([0, 4], [1])
    assert yaml.safe_load(arm.text())["scenarios"] == {"pinned": {"subject": {"cpus": "pinned"}}}
    left(arm, "vCPU 0 on CPU 2: Tare chooses", "vCPU 1 on CPU 3: ", "iothreadpin 1 on CPUs 5: ")
    assert not any("iothreadpin 2" in each for each in arm.left)
    # Without a thread there is nothing to pin.
    assert "iothread-cpus" not in tuned(pins).settings


@pytest.mark.parametrize(
    "pins",
    [
        "<vcpupin vcpu='0' cpuset='2'/>",
        "<vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='2'/>",
        "<vcpupin vcpu='0' cpuset='2-3'/><vcpupin vcpu='1' cpuset='2-3'/>",
        "<vcpupin vcpu='0' cpuset='x'/><vcpupin vcpu='1' cpuset='99999'/>",
    ],
)
def test_only_a_cpu_for_each_vcpu_is_what_a_scenario_says(pins: str) -> None:
    arm = tuned(pins)
    assert not arm.pinned and "scenarios" not in arm.text()
    left(arm, "vCPU 0 on CPU")


@pytest.mark.parametrize(
    ("tune", "scheduling", "words"),
    [
        ("<shares>100</shares>", {"weight": 100}, ()),
        ("<shares>2048</shares>", {"weight": 2048}, ("{weight: 200}",)),
        # No group of version 2 has so much.
        ("<shares>262144</shares>", {"weight": 10000}, ()),
        ("<quota>50000</quota>", {"cap": 1.0}, ("at most 0.5 of a CPU for each vCPU by itself",)),
        (
            "<period>20000</period><quota>5000</quota>",
            {"cap": 0.5, "period": "20ms"},
            ("at most 0.25 of a CPU",),
        ),
        ("<global_quota>150000</global_quota><quota>-1</quota>", {"cap": 1.5}, ()),
        (
            "<global_quota>150000</global_quota><quota>90000</quota>",
            {"cap": 1.5},
            ("at most 0.9 of a CPU for each vCPU: ",),
        ),
        ("<emulator_quota>-1</emulator_quota>", None, ()),
        ("<emulator_quota>30000</emulator_quota>", None, ("0.3 of a CPU for QEMU's other",)),
        ("<quota>10</quota>", None, ("<cputune> quota 10 in 100000",)),
        (
            "<vcpusched vcpus='0-1' scheduler='fifo' priority='99'/><shares>512</shares>",
            {"policy": "fifo", "priority": 98},
            ("priority 99", "shares 512: it has no effect"),
        ),
        ("<vcpusched vcpus='0' scheduler='fifo'/>", None, ("one policy for all",)),
        ("<vcpusched vcpus='0-1' scheduler='rr' priority='1'/>", None, ("vcpusched rr",)),
        ("<cachetune vcpus='0-1'/>", None, ("cachetune vcpus=0-1",)),
    ],
)
def test_cpu_tuning_is_imported_or_listed(
    tune: str, scheduling: dict[str, Any] | None, words: tuple[str, ...]
) -> None:
    arm = tuned(tune)
    assert arm.settings.get("scheduling") == scheduling
    left(arm, *words)
    # Nothing else is listed except the disk and what it boots.
    listed = [each for each in arm.left if "disk" not in each and "boots" not in each]
    assert len(listed) == len(words), listed


def test_a_share_of_cpus_of_proxmox_is_that_of_the_arm() -> None:
    arm = imported("cores: 4\ncpulimit: 1.5\ncpuunits: 200\naffinity: 2,4-5\n")
    assert arm.settings["scheduling"] == {"cap": 1.5, "weight": 200}
    assert arm.settings["emulator-cpus"] == [2, 4, 5]
    left(arm, "vCPUs on CPUs 2,4-5: ", "cpuunits 200 on a host with version 1", "{weight: 20}")
    arm = imported("cores: 4\ncpulimit: 0\ncpuunits: 100\n")
    assert "scheduling" not in arm.settings or arm.settings["scheduling"] == {"weight": 100}
    assert not any("cpu" in each for each in arm.left if not each.startswith("CPU"))
    arm = imported("cores: 4\ncpulimit: half\ncpuunits: 0\naffinity: all\n")
    assert not {"scheduling", "emulator-cpus"} & set(arm.settings)
    left(arm, "cpulimit: half: ", "cpuunits 0: ", "vCPUs on CPUs all: ")


def test_a_descriptor_becomes_an_arm_alone_and_in_an_archive(tmp_path: Path) -> None:
    arm = imported(OVF)
    assert arm.name == "old-one"
    assert arm.settings["shape"] == {"vcpus": 2, "memory": "2GiB", "disk": "40GiB"}
    assert (arm.settings["devices"], arm.settings["disk-bus"]) == ("paravirtual", "virtio-scsi")
    assert arm.settings["nic"] == "vmxnet3"
    left(arm, "VirtualSCSI", "CPU reservation 500", "GPU")
    archive = tmp_path / "x.ova"
    with tarfile.open(archive, "w") as made:
        for name, content in (("x.ovf", OVF.encode()), ("x.vmdk", b"\0" * 4096)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    assert import_file(archive) == arm


PINNED = f"""<domain type='kvm'><name>rt</name><memory unit='GiB'>2</memory><vcpu>2</vcpu>
<cputune>{PINS}<emulatorpin cpuset='0'/><iothreadpin iothread='2' cpuset='1'/><quota>50000</quota></cputune>
<devices>{THREADED}</devices></domain>"""


@pytest.mark.parametrize(
    "text",
    [DOMAIN, WORDS, PROXMOX, OVF, PINNED],
    ids=["xml", "qemu", "pve", "ovf", "pinned"],
)
def test_the_printed_arm_is_part_of_a_valid_study(text: str, tmp_path: Path) -> None:
    arm = imported(text)
    study = tmp_path / "study.yaml"
    head = "study: x\nbaseline: bare\nworkloads: {numeric-sort: {}}\n"
    printed = arm.text().replace("arms:\n", "arms:\n  bare: {platform: bare}\n", 1)
    study.write_text(head + printed)
    loaded = load_study(study, build_catalog())
    assert loaded.arms[arm.name].platform == "qemu"
    assert loaded.shape_of(arm.name).vcpus == arm.settings["shape"]["vcpus"]


CACHES = ["none", "writeback", "writethrough", "directsync", "unsafe"]
OPTIONS = st.fixed_dictionaries(
    {
        "devices": st.sampled_from(["paravirtual", "emulated"]),
        "machine": st.sampled_from(["q35", "pc"]),
        "disk_cache": st.sampled_from(CACHES),
        "accelerator": st.sampled_from(["tcg", "kvm"]),
        "hugepages": st.booleans(),
    }
)
SHAPES = st.builds(Shape, st.integers(1, 16), st.integers(32, 4096).map(lambda mib: mib << 20))


def same(arm: Arm, wanted: dict[str, Any], shape: Shape) -> None:
    settings = {key.replace("-", "_"): value for key, value in arm.settings.items()}
    for name, value in wanted.items():
        assert settings.get(name, False) == value, (name, arm)
    size = yaml.safe_load(arm.text())["arms"][arm.name]["shape"]
    assert size["vcpus"] == shape.vcpus
    memory = size["memory"]
    number, unit = (
        (memory, 1) if isinstance(memory, int) else (int(memory[:-3]), UNITS[memory[-3:]])
    )
    assert number * unit == shape.memory


@given(OPTIONS, SHAPES)
def test_domains_of_tares_own_come_back_as_they_were(wanted: dict[str, Any], shape: Shape) -> None:
    files = Files(Path("/k"), Path("/i"), Path("/a"), Path("/c"), disk=Path("/d"))
    link = Link("tap", "10.0.0.2", 24, interface="tare-0")
    chosen = LibvirtOptions.model_validate(wanted)
    same(imported(domain_xml(chosen, "x", "u", shape, files, append=[], link=link)), wanted, shape)


@given(OPTIONS, SHAPES)
def test_commands_of_tares_own_come_back_as_they_were(wanted: dict[str, Any], shape: Shape) -> None:
    from platforms.test_qemu_command import IMAGE

    places = MachinePaths(Path("/q"), Path("/a"), Path("/c"), Path("/e"), disk=Path("/d"))
    chosen = QemuOptions.model_validate(wanted)
    line = shlex.join(command(chosen, IMAGE, "x", shape, places, append=["quiet"]))
    same(imported(line), wanted, shape)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "is not text"),
        (b"<html/>", "begins with <html>"),
        (b"<domain type='lxc'><vcpu>1</vcpu></domain>", "describes a container"),
        (b"<domain>", "no element found"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><domain/>", "document type"),
        (b"cores 2", "line 1 is not"),
        (b"qemu-system-x86_64 -m '1", "No closing quotation"),
        (b"x" * ((4 << 20) + 1), "too long"),
        (b"<Envelope/>", "describes no virtual machine"),
        (b"<domain type='kvm'><vcpu>1000000</vcpu></domain>", "vcpus|at most"),
    ],
)
def test_text_that_is_not_a_description_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        import_bytes(content, "file")


ALPHABET = st.sampled_from(
    [
        *("<", ">", "/", "'", '"', "=", ",", " ", "\n", ":", "-", "domain", "devices", "disk"),
        *(
            "driver",
            "cache",
            "qemu-system-x86_64",
            "-m",
            "-smp",
            "-device",
            "-drive",
            "4G",
            "99999",
        ),
        *("scsi0: ", "net0: ", "memory: ", "cpu: ", "Item", "Envelope", "VirtualSystem", "\0", "é"),
    ]
)


@pytest.mark.fuzz
@given(st.binary(max_size=200) | st.lists(ALPHABET, max_size=40).map(lambda p: "".join(p).encode()))
def test_any_bytes_are_an_arm_or_refused(content: bytes) -> None:
    try:
        arm = import_bytes(content, "file")
    except InputError:
        return
    assert set(yaml.safe_load(arm.text())["arms"]) == {arm.name}


@pytest.mark.fuzz
@given(st.data())
def test_a_damaged_description_is_an_arm_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([DOMAIN, WORDS, PROXMOX, OVF, PINNED]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    inserted = data.draw(st.text(max_size=8))
    try:
        arm = imported(text[:start] + inserted + text[end:])
    except (InputError, UnicodeEncodeError):
        return
    assert yaml.safe_load(arm.text())["arms"]
    assert all(each.isprintable() for each in arm.left)


@given(st.integers(0, 1 << 70))
def test_numbers_have_bounds(number: int) -> None:
    assert parse_whole_number(str(number)) == (number if number <= 1 << 60 else None)
    assert bytes_of(str(number), 1 << 20) == (number << 20 if number << 20 <= 1 << 60 else None)
    assert parse_whole_number(f"-{number}") is None


def test_units_of_both_kinds_are_known() -> None:
    assert (_unit("byte * 2^30"), _unit("MegaBytes"), _unit("byte")) == (GIB, 1 << 20, 1)
    assert _unit("parsec") is None


def test_the_command_prints_an_arm_and_refuses_other_files(tmp_path: Path) -> None:
    file = tmp_path / "x.xml"
    file.write_text(DOMAIN)
    done = tare("import", file)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["arms"]["web-1"]["cpu"] == "Haswell,-tsx"
    assert "# Not carried over:" in done.stdout
    file.write_text("<html/>")
    refused = tare("import", file)
    assert refused.returncode == 2
    assert "begins with <html>" in refused.stderr
    assert tare("import", tmp_path / "none").returncode == 2
