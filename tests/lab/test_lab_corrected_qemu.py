"""QEMU is corrected only where the instructions to change are found for certain."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.hosts.local import LocalHost
from tare.images import cache as store
from tare.lab.corrected_qemu import TURN_NS, corrected, corrected_qemu, with_short_turns
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


LONG = struct.pack("<i", 100_000_000)
SHORT = struct.pack("<i", TURN_NS)


def turn_timer(*, period: bytes = LONG, other: bool = False) -> bytes:
    """Return rr_kick_thread and rr_start_kick_timer, as GCC 12 compiled them for Debian's 7.2.

    Args:
        period: What they add to the time.
        other: Whether the second one sets another timer.
    """
    ends = bytes.fromhex("53 bf01000000 e8e5f1ffff 488b3d46300000 488db0") + period
    ends += bytes.fromhex("e8e2f1ffff")
    begin = bytes.fromhex("bf01000000 e876f1ffff 488b3d")
    # Both name the timer by its distance from the next instruction.
    distance = 0x3046 + len(ends[:18]) - len(ends) - len(begin) - 4 + (8 if other else 0)
    begin += struct.pack("<i", distance)
    return ends + begin + bytes.fromhex("4883c418 488db0") + period + bytes.fromhex("e96ff1ffff")


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_nothing_but_the_period_is_changed(before: bytes, after: bytes) -> None:
    changed = with_short_turns(before + turn_timer() + after)
    assert changed == before + turn_timer(period=SHORT) + after


@pytest.mark.parametrize(
    "binary",
    [
        b"",
        turn_timer() + b"\x90" + turn_timer(),
        turn_timer(period=SHORT),
        # The timer of icount (accel/tcg/icount-common.c) has the same period.
        turn_timer(other=True),
        turn_timer()[:30],
    ],
)
def test_a_timer_that_is_not_known_for_certain_is_left_alone(binary: bytes) -> None:
    assert with_short_turns(binary) is None


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
def test_any_program_is_read_without_a_failure(program: bytes) -> None:
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
    found = await corrected_qemu(host, installed, tmp_path)
    assert found is not None and found.program.is_relative_to(tmp_path)
    copy = found.program
    asked = [[str(each), "-accel", "help"] for each in (installed, copy)]
    # The accelerator is a module of its own, which the copy finds as well.
    one, other = [(await host.run(argv, timeout_s=30)).stdout for argv in asked]
    assert one == other and b"tcg" in one
    before, after = installed.read_bytes(), copy.read_bytes()
    differing = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert len(differing) <= len(NOP) and differing[-1] - differing[0] < len(NOP)
    # A damaged copy is not used.
    copy.write_bytes(after[:1000])
    assert await corrected_qemu(host, installed, tmp_path) == found
    assert copy.read_bytes() == after


async def test_the_installed_module_runs_with_short_turns(installed: Path, tmp_path: Path) -> None:
    host = LocalHost()
    found = await corrected_qemu(host, installed, tmp_path)
    assert found is not None
    modules = sorted(tmp_path.glob("qemus/*/lib/*/qemu/*.so"))
    if not modules:
        pytest.skip("the installed QEMU keeps its accelerator in the program")
    assert found.short_turns
    own = [each for each in modules if not each.is_symlink()]
    assert [each.name for each in own] == ["accel-tcg-x86_64.so"]
    (other,) = installed.resolve().parent.parent.glob("lib/*/qemu/accel-tcg-x86_64.so")
    before, after = other.read_bytes(), own[0].read_bytes()
    differing = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert len(before) == len(after) and 0 < len(differing) <= 2 * len(LONG)
    # It is this one that the copy loads.
    quits = 'echo quit | "$0" -machine none -accel tcg -display none -monitor stdio'
    assert (await host.run(["sh", "-c", quits, str(found.program)], timeout_s=60)).ok
    own[0].write_bytes(b"damaged")
    assert not (await host.run(["sh", "-c", quits, str(found.program)], timeout_s=60)).ok


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
    assert found.description.startswith(f"{found.version}, VMRUN corrected")
    assert found.threads == ("single" if found.short_turns else "multi")
    # A program that a user names runs unchanged.
    own = await emulator_of(LocalHost(), LabOptions(qemu=str(installed)), tmp_path)
    assert not own.corrected and own.program == str(installed)
    assert store.load(Path(found.program).parents[1]) == {
        "corrected": True,
        "short_turns": found.short_turns,
    }
