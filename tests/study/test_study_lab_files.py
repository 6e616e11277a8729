"""The user's own files for the lab are checked before anything starts."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.study.reading.own_files import kernel_file, program_file, xen_file

MULTIBOOT = struct.pack("<I", 0x1BADB002)
XEN = b"\x7fELF" + bytes(60) + MULTIBOOT + bytes(100)
LINUX = bytes(0x202) + b"HdrS" + bytes(64)


def written(folder: Path, content: bytes, mode: int = 0o644) -> str:
    file = folder / "file"
    file.write_bytes(content)
    file.chmod(mode)
    return str(file)


def test_valid_files_are_accepted(tmp_path: Path) -> None:
    for content in (XEN, gzip.compress(XEN)):
        assert xen_file(written(tmp_path, content)) == str(tmp_path / "file")
    assert xen_file("rtds") == "rtds"
    for content in (LINUX, b"\x7fELF" + bytes(600)):
        assert kernel_file(written(tmp_path, content)) == str(tmp_path / "file")
    assert program_file(written(tmp_path, b"#!/bin/sh\n", 0o755)) == str(tmp_path / "file")


@pytest.mark.parametrize(
    ("check", "content", "says"),
    [
        (xen_file, LINUX, "is not a bootable Xen"),
        (xen_file, b"\x7fELF" + bytes(600), "is not a bootable Xen"),
        (xen_file, b"MZ" + XEN, "not `xen.efi`"),
        (xen_file, gzip.compress(XEN, mtime=0)[:20], "cannot be unpacked"),
        (kernel_file, XEN[4:], "not a Linux kernel"),
        (program_file, b"#!/bin/sh\n", "is not executable"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, check: type[str], content: bytes, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        check(written(tmp_path, content))


@pytest.mark.parametrize("check", [xen_file, kernel_file, program_file])
def test_missing_file_is_reported(check: type[str], tmp_path: Path) -> None:
    for value in (str(tmp_path / "none"), str(tmp_path), "xen-4.17"):
        with pytest.raises(ValueError, match="there is no file"):
            check(value)


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for packed in (content, gzip.compress(content), gzip.compress(content)[:-3]):
            path = written(Path(folder), packed)
            for check in (xen_file, kernel_file, program_file):
                try:
                    assert check(path) == path
                except ValueError as refusal:
                    assert path in str(refusal)
