"""Tell what a description is, and read it."""

from __future__ import annotations

import tarfile
import xml.etree.ElementTree as ET
from pathlib import Path

from tare.errors import InputError
from tare.platforms.imported.libvirt_xml import read_domain
from tare.platforms.imported.model import LONGEST, Arm, Found, arm_of
from tare.platforms.imported.ovf import read_ovf
from tare.platforms.imported.proxmox import is_configuration, read_proxmox
from tare.platforms.imported.qemu_words import is_command, read_words

KNOWN = (
    "libvirt's XML (virsh dumpxml), a QEMU command line, a Proxmox configuration "
    "(/etc/pve/qemu-server/NUMBER.conf), an OVF descriptor or an OVA"
)


def import_file(path: Path) -> Arm:
    """Return the arm of what a file describes.

    Args:
        path: The file.

    Raises:
        InputError: It cannot be read, or is nothing that is known.
    """
    try:
        if tarfile.is_tarfile(path):
            return import_bytes(_descriptor(path), str(path))
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except tarfile.TarError as error:
        raise InputError(f"{path}: is no whole archive: {error}") from None
    return import_bytes(content, str(path))


def import_bytes(content: bytes, source: str) -> Arm:
    """Return the arm of what some bytes describe.

    Args:
        content: The description.
        source: Where it is from, for messages.

    Raises:
        InputError: It is nothing that is known.
    """
    if len(content) > LONGEST:
        raise InputError(f"{source}: is too long for a description", f"known: {KNOWN}")
    try:
        # Windows begins a file of text with a mark.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{source}: is no text", f"known: {KNOWN}") from None
    if not text.strip():
        # As a command leaves it that failed where its output was to go to a file.
        raise InputError(f"{source}: is empty", f"known: {KNOWN}")
    try:
        found = _understood(text)
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply for a description") from None
    except (ValueError, ET.ParseError) as error:
        raise InputError(f"{source}: {error}", f"known: {KNOWN}") from None
    return arm_of(found, source)


def _understood(text: str) -> Found:
    if not text.lstrip().startswith("<"):
        # A VM of Proxmox's may be called `kvm`, and so may the program of a command line.
        if is_command(text) and not is_configuration(text):
            return read_words(text)
        return read_proxmox(text)
    # Entities can make a page of text into a memory full of it, and no description has any.
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("has a document type of its own")
    root = ET.fromstring(text)
    name = root.tag.rpartition("}")[2]
    if name == "domain":
        return read_domain(root)
    if name == "Envelope":
        return read_ovf(root)
    raise ValueError(f"begins with <{name}>")


def _descriptor(path: Path) -> bytes:
    """Return the first descriptor in an OVA: it stands before the disks (DSP0243, 5.2)."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".ovf") and member.isfile() and member.size <= LONGEST:
                held = archive.extractfile(member)
                return b"" if held is None else held.read()
    raise InputError(f"{path}: has no OVF descriptor in it", f"known: {KNOWN}")
