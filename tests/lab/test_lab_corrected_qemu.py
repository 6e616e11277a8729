"""Only the faulty store of VMRUN is left out of QEMU, and only where it is found for certain."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.hosts.local import LocalHost
from tare.images import cache as store
from tare.lab.corrected_qemu import corrected, corrected_qemu
from tare.lab.emulator import emulator_of
from tare.lab.options import LabOptions

STORE = bytes.fromhex("89b354efffff")
NOP = bytes.fromhex("660f1f440000")


def injected(*, store: bytes = STORE, is_int: int = 0x3384, next_eip: int = 0x3388) -> bytes:
    """Return the case INTR of helper_vmrun, as GCC 12 compiled it for Debian's 7.2."""
    return (
        store
        + (b"\xc7\x83" + struct.pack("<i", is_int) + bytes(4))
        + (b"\x48\xc7\x83" + struct.pack("<i", next_eip) + b"\xff\xff\xff\xff")
        + bytes.fromhex("f605ba45b60002 0f856c010000 ba01000000 4889df e8a74f0500")
    )


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_nothing_but_the_store_is_changed(before: bytes, after: bytes) -> None:
    assert corrected(before + injected() + after) == before + injected(store=NOP) + after


@pytest.mark.parametrize(
    "program",
    [
        b"",
        injected() + b"\x90" + injected(),
        injected(store=NOP),
        # Another field of CPUX86State than exception_next_eip.
        injected(next_eip=0x3390),
        # A field behind the registers, where CPUState has none.
        injected(store=bytes.fromhex("89b354ef0000")),
        # The case SOFT: exception_is_int = 1.
        injected().replace(bytes(4), b"\1\0\0\0"),
    ],
)
def test_a_program_that_is_not_known_for_certain_is_left_alone(program: bytes) -> None:
    assert corrected(program) is None


@pytest.mark.fuzz
@given(st.binary(max_size=400))
def test_whatever_a_program_holds_is_read(program: bytes) -> None:
    assert corrected(program) is None or len(corrected(program) or b"") == len(program)


@pytest.fixture
def installed() -> Path:
    """Return the installed QEMU, or skip where it is one that needs no correction."""
    found = shutil.which("qemu-system-x86_64")
    if found is None or corrected(Path(found).read_bytes()) is None:
        pytest.skip("the installed QEMU has no store that is known to be faulty")
    return Path(found)


async def test_the_installed_qemu_runs_with_the_correction(installed: Path, tmp_path: Path) -> None:
    host = LocalHost()
    copy = await corrected_qemu(host, installed, tmp_path)
    assert copy is not None and copy.is_relative_to(tmp_path)
    asked = [[str(each), "-accel", "help"] for each in (installed, copy)]
    # The accelerator is a module of its own, which the copy finds as well.
    one, other = [(await host.run(argv, timeout_s=30)).stdout for argv in asked]
    assert one == other and b"tcg" in one
    before, after = installed.read_bytes(), copy.read_bytes()
    differing = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert len(differing) <= len(NOP) and differing[-1] - differing[0] < len(NOP)
    # A damaged copy is not used.
    copy.write_bytes(after[:1000])
    assert await corrected_qemu(host, installed, tmp_path) == copy
    assert copy.read_bytes() == after


async def test_a_qemu_without_the_fault_is_not_copied(tmp_path: Path) -> None:
    sound = tmp_path / "bin" / "qemu-system-x86_64"
    sound.parent.mkdir()
    sound.write_text("#!/bin/sh\necho QEMU emulator version 99\n")
    sound.chmod(0o755)
    for _ in range(2):
        assert await corrected_qemu(LocalHost(), sound, tmp_path / "cache") is None


async def test_a_copy_that_cannot_run_is_not_used(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "bin" / "qemu-system-x86_64"
    broken.parent.mkdir()
    broken.write_bytes(b"#!/nowhere/sh\n" + injected())
    broken.chmod(0o755)
    assert await corrected_qemu(LocalHost(), broken, tmp_path / "cache") is None


async def test_a_lab_runs_the_corrected_copy_and_records_it(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(installed.parent))
    found = await emulator_of(LocalHost(), LabOptions(), tmp_path)
    assert found.corrected and Path(found.program).is_relative_to(tmp_path)
    assert found.description == f"{found.version}, VMRUN corrected"
    # What a user names is run as it is.
    own = await emulator_of(LocalHost(), LabOptions(qemu=str(installed)), tmp_path)
    assert not own.corrected and own.program == str(installed)
    assert store.load(Path(found.program).parents[1]) == {"corrected": True}
