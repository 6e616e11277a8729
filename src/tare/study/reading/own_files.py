"""The user's own files that a study names for the lab, checked before anything starts.

Their first bytes show the format: ELF (its specification, "e_ident"), gzip (RFC 1952), the boot
protocol's ``HdrS`` at 0x202 (Linux's Documentation/arch/x86/boot.rst), and multiboot's magic number
in the first 8 KiB (Multiboot Specification 0.6.96, "OS image format").
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from pathlib import Path

BUILT_XEN = "rtds"
_ELF = b"\x7fELF"
_GZIP = b"\x1f\x8b"
_HEAD = 8192
_MULTIBOOT = struct.pack("<I", 0x1BADB002)


def xen_file(value: str) -> str:
    """Return ``rtds``, or the path of a Xen that QEMU can boot.

    Raises:
        ValueError: It is neither; the message has the accepted values.
    """
    if value == BUILT_XEN:
        return value
    head = _head(value, "a Xen", "its file, or `rtds`")
    if head[:2] == _GZIP:
        try:
            with gzip.open(value) as packed:
                head = packed.read(_HEAD + 4096)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{value} cannot be unpacked: {error}; name another file") from error
    if head[:4] != _ELF or _MULTIBOOT not in head:
        raise ValueError(
            f"{value} is not a bootable Xen; name the `xen` or `xen.gz` of a build or of `/boot` "
            "(not `xen.efi`)"
        )
    return value


def kernel_file(value: str) -> str:
    """Return the path of a Linux kernel; raise ValueError as :func:`xen_file`."""
    head = _head(value, "a kernel", "the file of a vmlinuz")
    if head[0x202:0x206] != b"HdrS" and head[:4] != _ELF:
        raise ValueError(f"{value} is not a Linux kernel; name a vmlinuz (bzImage) or vmlinux")
    return value


def program_file(value: str) -> str:
    """Return the path of an executable program; raise ValueError as :func:`xen_file`."""
    _head(value, "a QEMU", "the file of a qemu-system-x86_64")
    if not os.access(value, os.X_OK):
        raise ValueError(f"{value} is not executable; chmod +x it, or name another file")
    return value


def _head(value: str, what: str, wanted: str) -> bytes:
    path = Path(value)
    if "/" not in value or not path.is_file():
        raise ValueError(
            f"there is no file {value} for {what}; give {wanted}, as a path with a `/`"
        )
    try:
        with path.open("rb") as file:
            return file.read(_HEAD + 4096)
    except OSError as error:
        raise ValueError(f"{value} cannot be read: {error.strerror}; name another file") from error
