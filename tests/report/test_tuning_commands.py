"""The commands of the tuning table are executed: by QEMU, by libvirt, and by Proxmox's rules."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from platforms.libvirt_embedded import embedded
from platforms.proxmox_schema import RANGES, RIGHTS, ApiFault, check_format
from tare.platforms.linux.tickless import tickless_arguments
from tare.platforms.qemu.halt_polling import SETTING
from tare.platforms.qemu.options import QemuOptions
from tare.report.sections.tuning_commands import Commands, commands_for
from tare.run.catalog import build_catalog
from tare.study.reading.load import load_study

STUDIES = Path(__file__).parents[2] / "studies"
QEMU = "qemu-system-x86_64"
GUEST = "in the guest's kernel command line: "
OTHERS: tuple[dict[str, Any], ...] = (
    {"vhost": "on"},
    {"nic": "virtio"},
    {"nic": "vmxnet3"},
    {"disk-bus": "virtio-blk"},
    {"disk-format": "raw"},
    {"disk-queues": 4},
    {"cpu": "host"},
    {"cpu-features": ["+avx2", "-x2apic"]},
    {"enlightenments": {"hyperv": True}},
    {"shape": {"vcpus": 2}},
    {"shape": {"memory": "512MiB"}},
    {"threads": "single"},
    {"machine": "q35"},
)
"""Values that the studies do not have."""


def values() -> Iterator[dict[str, Any]]:
    """Return each value of a setting once that a report may recommend."""
    seen: list[Mapping[str, Any]] = []
    for name in ("tuning", "tuning-short"):
        study = load_study(STUDIES / f"{name}.yaml", build_catalog())
        for design in study.designs.values():
            for setting in design.settings:
                seen += [value for value in setting.values[1:] if value not in seen]
    yield from map(dict, [*seen, *OTHERS])


VALUES = tuple(values())


def named(value: dict[str, Any]) -> str:
    return " ".join(f"{key}={each}" for key, each in value.items())


def steps(text: str) -> list[str]:
    """Return the steps of a cell of the table, without the parentheses and their text."""
    return [re.sub(r" \([^)]*\)$", "", step) for step in text.split("; ")]


def run(*argv: str, **asked: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, **asked)


@pytest.fixture
def thread() -> Iterator[int]:
    """A thread that can be bound to CPUs."""
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


# QEMU.

ELLIPSES = (
    ("tap,", "id=net,ifname=tare-test,script=no,downscript=no"),
    ("memory-backend", "id=memory,size=64M"),
    ("driver=file", "node-name=own,filename={disk}"),
    ("driver=host_device", "node-name=own"),
    ("virtio-blk-pci", "drive=disk"),
    ("MODEL", "hv-crash"),
    ("…,cache=", "file={disk},format=raw,if=none,id=own"),
)
"""The text that replaces `…` in an argument, by its beginning; otherwise `netdev=net`."""
LACKING = {
    "-cpu host": "requires KVM",
    "hugetlb=on": "Cannot allocate memory|failed to resize",
    "vhost=on": "vhost",
    "host-nodes=1": "Invalid argument|cannot bind memory",
}
"""What QEMU may report where this computer lacks what an argument is about."""


def arguments(text: str, disk: Path) -> list[str]:
    """Return QEMU's arguments of a step, with a value in each place that the table leaves open."""
    found = []
    for word in shlex.split(text):
        filler = next(
            (filler for start, filler in ELLIPSES if word.startswith(start)), "netdev=net"
        )
        word = word.replace("drive=…", "drive=disk").replace("…", filler.format(disk=disk))
        word = word.replace("/dev/DEVICE", "/dev/null").replace("/dev/VG/LV", "/dev/null")
        found.append(word.replace("MODEL", "max"))
    if any("netdev=net" in word for word in found) and "-netdev" not in found:
        found += ["-netdev", "user,id=net"]
    if any("drive=disk" in word for word in found):
        found += ["-blockdev", "driver=null-co,node-name=disk"]
    return found


@pytest.mark.skipif(shutil.which(QEMU) is None, reason="QEMU is not installed")
@pytest.mark.parametrize("value", VALUES, ids=named)
def test_qemu_starts_with_each_option(value: dict[str, Any], tmp_path: Path, thread: int) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    options: list[str] = []
    for step in steps(commands_for(value).qemu):
        if step.startswith("-"):
            options += arguments(step, disk)
        elif step.startswith("taskset"):
            bound = step.replace("CPUS", "0").replace("0-N", "0").replace("THREAD", str(thread))
            assert run(*shlex.split(bound)).returncode == 0, bound
        elif step.startswith("qemu-img"):
            done = run(*shlex.split(step.replace("DISK", str(disk))))
            assert done.returncode == 0, done.stderr
        else:
            assert step.startswith((GUEST, "on the host: echo ")), step
    if not options:
        return
    apart = ("unshare", "--net") if any(word.startswith("tap,") for word in options) else ()
    base = (QEMU, "-S", "-nodefaults", "-display", "none", "-monitor", "stdio")
    if "-accel" not in options:
        # Translated code has a GiB by default, which QEMU would lock, too.
        options += ["-accel", "tcg,tb-size=16"]
    done = run(*apart, *base, *options, input="info status\nquit\n")
    if done.returncode:
        if "Operation not permitted" in done.stderr:
            pytest.skip(f"only root can try this: {done.stderr}")
        command = " ".join(options)
        excused = [words for part, words in LACKING.items() if part in command]
        assert excused and re.search(excused[0], done.stderr), f"{command}: {done.stderr}"
    else:
        assert "VM status: paused" in done.stdout


# The guest's kernel, and the host.


@pytest.mark.parametrize("value", VALUES, ids=named)
def test_arguments_of_the_guests_kernel_are_those_that_tare_measured(value: dict[str, Any]) -> None:
    text = commands_for(value).qemu
    if not text.startswith(GUEST):
        assert not any(key.startswith("guest-") for key in value)
        return
    asked = text.removeprefix(GUEST)
    if "nohz-full" in value:
        assert set(asked.replace("1-N", "1-3").split()) <= set(tickless_arguments(True, 4))
        return
    keys = {key.replace("-", "_"): each for key, each in value.items()}
    options = QemuOptions.model_validate({"accelerator": "kvm", **keys})
    assert asked == " ".join(options.guest_arguments)


def test_halt_polling_is_set_where_tare_sets_it() -> None:
    for text in commands_for({"halt-poll": "1ms"})[:3]:
        assert text == f"on the host: echo 1000000 > {SETTING}"


# Libvirt.

DOMAIN = """\
<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>tare-test-commands</name>
  <memory unit='MiB'>64</memory>
  <vcpu>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/tmp/tare-test-no-disk'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='ethernet'><model type='virtio'/></interface>
  </devices>
</domain>
"""
DEVICES = frozenset({"disk", "interface", "controller"})
SEVERAL = frozenset({"controller", "feature", "timer", "arg"})
SPACE = "{http://libvirt.org/schemas/domain/qemu/1.0}"
TAG = re.compile(r"<(?P<name>[\w:]+)(?P<attributes>[^>]*?)(?P<leaf>/?)>(?P<text>[^<]*)(?P<end></)?")


def merged(domain: ElementTree.Element, step: str) -> list[tuple[str, dict[str, str], str]]:
    """Write a step into a domain; return the path, attributes and text of each of its elements."""
    written = []
    for part in re.split(r", (?=<)", step):
        at, path = domain, "."
        for found in TAG.finditer(part):
            name = found["name"].replace("qemu:", SPACE)
            if at is domain and name in DEVICES:
                at, path = domain.find("devices"), "./devices"  # type: ignore[assignment]
            attributes = dict(re.findall(r"([\w-]+)='([^']*)'", found["attributes"]))
            inner = None if name.removeprefix(SPACE) in SEVERAL else at.find(name)
            inner = ElementTree.SubElement(at, name) if inner is None else inner
            inner.attrib |= attributes
            text = found["text"].strip()
            inner.text = text or inner.text
            written.append((f"{path}/{name}", attributes, text))
            if not (found["leaf"] or found["end"]):
                at, path = inner, f"{path}/{name}"
        assert path or written, part
    return written


@pytest.fixture(scope="module")
def libvirt_connection() -> Iterator[Any]:
    libvirt = pytest.importorskip("libvirt")
    with embedded() as uri:
        connection = libvirt.open(uri)
        yield connection
        connection.close()


@pytest.mark.parametrize("value", VALUES, ids=named)
def test_libvirt_keeps_each_element(
    value: dict[str, Any], libvirt_connection: Any, tmp_path: Path
) -> None:
    import libvirt

    domain = ElementTree.fromstring(DOMAIN)
    written: list[tuple[str, dict[str, str], str]] = []
    for step in steps(commands_for(value).libvirt):
        if not step.startswith("<"):
            assert step.startswith((GUEST, "on the host: echo ", "taskset -pc CPUS THREAD")), step
            continue
        if "<disk type='block'>" in step:
            # A file becomes a device: its path goes with it.
            source = domain.find("devices/disk/source")
            assert source is not None
            source.attrib.clear()
        written += merged(domain, step.replace("CPUS", "0").replace("0-N", "0").replace("…", "x"))
    if not written:
        return
    text = ElementTree.tostring(domain, encoding="unicode")
    defined = libvirt_connection.defineXMLFlags(text, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    try:
        kept = ElementTree.fromstring(defined.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    finally:
        defined.undefine()
    for path, attributes, inside in written:
        if path == "./memory":
            assert int(inside) << 10 == int(kept.findtext("memory") or 0)
            continue
        if path == "./os/type":
            attributes = {"machine": attributes["machine"]}
        assert any(
            attributes.items() <= each.attrib.items() or _same_machine(attributes, each.attrib)
            for each in kept.findall(path)
            if inside in ("", (each.text or "").strip())
        ), f"{path} {attributes}: {ElementTree.tostring(kept, encoding='unicode')}"


def _same_machine(asked: dict[str, str], kept: dict[str, str]) -> bool:
    """Return whether a machine is a version of the one asked for: libvirt stores the version."""
    machine = {"pc": "pc-i440fx", "q35": "pc-q35"}.get(asked.get("machine", ""), "-")
    return kept.get("machine", "").startswith(machine)


# Proxmox VE.

KEYS = {key for keys in RIGHTS.values() for key in keys} | set(RANGES)
FURTHER = frozenset({"affinity", "args", "hugepages", "numa"})
NUMBERED = re.compile(r"(net|numa|ide|sata|scsi|virtio)\d+")


def refused_by_proxmox(step: str) -> None:
    """Check a call of qm by the rules of its server.

    Raises:
        ApiFault: Proxmox refuses it.
    """
    words = shlex.split(step.replace("…", "1").replace("CPUS", "0-1").replace("MODEL", "host"))
    match words:
        case ["qm", "set", "VMID", "--delete", key]:
            assert key in FURTHER | KEYS
        case ["qm", "set", "VMID", *pairs]:
            assert pairs and len(pairs) % 2 == 0, step
            for option, value in zip(pairs[::2], pairs[1::2], strict=True):
                key = option.removeprefix("--")
                assert option.startswith("--") and (
                    key in FURTHER | KEYS or NUMBERED.fullmatch(key)
                ), f"qm has no option {option}"
                check_format(key, value)
        case ["qm", "disk", "move", "VMID", disk, storage, *rest]:
            assert NUMBERED.fullmatch(disk) and storage
            assert not rest or (rest[0] == "--format" and rest[1] in ("raw", "qcow2", "vmdk"))
        case _:
            raise AssertionError(f"not a call of qm: {step}")


@pytest.mark.parametrize("value", VALUES, ids=named)
def test_proxmox_takes_each_call(value: dict[str, Any]) -> None:
    commands = commands_for(value)
    assert isinstance(commands, Commands)
    for step in steps(commands.proxmox):
        if step.startswith("qm "):
            refused_by_proxmox(step)
        else:
            assert step in ("not offered", "always on for virtio") or step.startswith(
                (GUEST, "on the host: echo ", "in the guest: ethtool", "taskset -pc CPUS THREAD")
            ), step


@pytest.mark.parametrize(
    "wrong",
    [
        "qm set VMID --scsi0 STORAGE:VOLUME,aio=uring",
        "qm set VMID --virtio0 STORAGE:VOLUME,queues=4",
        "qm set VMID --net0 tulip,bridge=vmbr0",
        "qm set VMID --numa0 cpus=0,policy=strict",
        "qm set VMID --hugepages 4",
        "qm set VMID --cpu host,kvmclock=0",
    ],
)
def test_a_call_that_proxmox_refuses_is_found(wrong: str) -> None:
    with pytest.raises(ApiFault):
        refused_by_proxmox(wrong)
