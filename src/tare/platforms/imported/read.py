"""Recognise the format of a description, and read it."""

from __future__ import annotations

import json
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

from tare.errors import InputError
from tare.platforms.imported.arm import Arm, arm_of
from tare.platforms.imported.command_line import is_command
from tare.platforms.imported.firecracker import is_firecracker, read_firecracker
from tare.platforms.imported.kubevirt import documents, is_kubevirt, read_kubevirt
from tare.platforms.imported.libvirt_xml import read_domain
from tare.platforms.imported.model import LONGEST, Description
from tare.platforms.imported.notes import Node
from tare.platforms.imported.ovf import read_ovf
from tare.platforms.imported.proxmox import is_configuration, read_proxmox
from tare.platforms.imported.qemu_words import read_words
from tare.platforms.imported.vmx import is_vmx, read_vmx
from tare.platforms.imported.xl import is_xl, read_xl

SOURCES: Mapping[str, str] = {
    "libvirt's XML": "virsh dumpxml NAME",
    "a QEMU command line": "cat /proc/PID/cmdline, or ps -ww -o args= -p PID",
    "a Proxmox configuration": "/etc/pve/qemu-server/NUMBER.conf, or qm config NUMBER",
    "an OVF descriptor or an OVA": "an export of vSphere, VirtualBox or XenServer",
    "a Xen guest's xl.cfg": "/etc/xen/NAME.cfg",
    "a VMware .vmx file": "the machine's folder on its datastore",
    "a Firecracker configuration": "its --config-file, or GET /vm/config",
    "a KubeVirt VirtualMachine(Instance)": "kubectl get vm NAME -o yaml",
}
"""The supported sources, and how to get each of them."""
KNOWN = "; ".join(f"{what} ({how})" for what, how in SOURCES.items())


def import_file(path: Path) -> Arm:
    """Return the arm for the machine that a file describes.

    Args:
        path: The file; ``-`` is standard input.

    Raises:
        InputError: The file cannot be read, or describes no virtual machine in a known format.
    """
    if str(path) == "-":
        return import_bytes(sys.stdin.buffer.read(LONGEST + 1), "standard input")
    try:
        if path.is_file() and tarfile.is_tarfile(path):
            return import_bytes(_descriptor(path), str(path))
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except tarfile.TarError as error:
        raise InputError(f"{path}: is not a complete archive: {error}") from None
    # If a machine has no name, Proxmox names it by its number.
    return import_bytes(content, str(path), f"vm{path.stem}" if path.stem.isdigit() else "")


def import_bytes(content: bytes, source: str, name: str = "") -> Arm:
    """Return the arm for the machine that some bytes describe.

    Args:
        content: The description.
        source: The origin of the description, for messages.
        name: The machine's name if the description contains none.

    Raises:
        InputError: The bytes describe no virtual machine in a known format.
    """
    if len(content) > LONGEST:
        raise InputError(f"{source}: is too long for a description", f"known: {KNOWN}")
    try:
        # Windows begins a text file with a byte order mark.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{source}: is not text", f"known: {KNOWN}") from None
    if not text.strip():
        # A command that failed leaves an empty file if its output was redirected to the file.
        raise InputError(f"{source}: is empty", f"known: {KNOWN}")
    try:
        found = _understood(text)
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply for a description") from None
    except (ValueError, ET.ParseError) as error:
        raise InputError(f"{source}: {error}", f"known: {KNOWN}") from None
    found.name = found.name or name
    return arm_of(found, source)


def _understood(text: str) -> Description:
    begin = text.lstrip()[:1]
    if begin == "<":
        return _read_xml(text)
    if begin == "{":
        return _read_json(text)
    if is_kubevirt(text):
        return read_kubevirt(documents(text))
    if is_vmx(text):
        return read_vmx(text)
    # A Proxmox VM may be called `kvm`, like the program of a command line.
    if is_configuration(text):
        return read_proxmox(text)
    # An xl configuration may name the QEMU that emulates its devices.
    if is_xl(text):
        return read_xl(text)
    return read_words(text) if is_command(text) else read_proxmox(text)


def _read_json(text: str) -> Description:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} is not JSON: {error.msg}") from None
    if isinstance(value, dict) and is_firecracker(value):
        return read_firecracker(value)
    if isinstance(value, dict) and "apiVersion" in value:
        return read_kubevirt([value])
    raise ValueError("is JSON, but not a Firecracker configuration or a KubeVirt machine")


def _read_xml(text: str) -> Description:
    # Entities can expand a short text until it fills the memory; no real description has any.
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("declares its own document type")
    root = Node(ET.fromstring(text))
    if root.tag == "domain":
        return read_domain(root)
    if root.tag == "Envelope":
        return read_ovf(root)
    raise ValueError(f"begins with <{root.tag}>")


def _descriptor(path: Path) -> bytes:
    """Return the first descriptor in an OVA, which precedes the disks (DSP0243, 5.2)."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".ovf") and member.isfile() and member.size <= LONGEST:
                held = archive.extractfile(member)
                return b"" if held is None else held.read()
    raise InputError(f"{path}: has no OVF descriptor in it", f"known: {KNOWN}")
