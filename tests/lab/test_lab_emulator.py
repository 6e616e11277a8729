"""What a lab with Xen works around is what its own QEMU is known to break, and is in the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.test_lab_parts import IMAGE, value_after
from tare.hosts.local import LocalHost
from tare.lab.command import LabPaths, command
from tare.lab.emulator import (
    EAGER_FPU,
    NO_AVX,
    SOUND_FROM,
    Emulator,
    emulator_in,
    emulator_of,
)
from tare.lab.options import Hypervisor, LabOptions
from tare.platforms.qemu.command import SANDBOX
from tare.run.lifecycle.resume_checks import changed_hosts


def argv_of(hypervisor: str, version: str) -> tuple[str, str]:
    options = LabOptions(hypervisor)  # type: ignore[arg-type]
    argv = command(options, IMAGE, LabPaths(Path("/a")), "tare-a", Emulator(version))
    return value_after(argv, "-cpu")[0], value_after(argv, "-append")[0]


@pytest.fixture
def sound_from_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the traps of QEMU 10 for sound, and AVX for broken in all."""
    monkeypatch.setitem(SOUND_FROM, EAGER_FPU, (10, 0))
    monkeypatch.setitem(SOUND_FROM, NO_AVX, None)


@pytest.mark.parametrize("version", ["7.2.22", "10.0.2", "10.0.13", ""])
def test_known_faults_of_an_emulator_have_workarounds(version: str) -> None:
    processor, xen = argv_of("xen", version)
    assert NO_AVX in processor.split(",") and EAGER_FPU in xen.split()


@pytest.mark.parametrize(
    ("version", "old"),
    [("7.2.22", True), ("9.2.0", True), ("", True), ("10.0~rc1", True), ("10.0.2", False)],
)
@pytest.mark.usefixtures("sound_from_ten")
def test_a_workaround_is_dropped_where_an_emulator_needs_none(version: str, old: bool) -> None:
    processor, xen = argv_of("xen", version)
    assert (EAGER_FPU in xen.split()) == old
    assert NO_AVX in processor.split(",")
    # What Xen itself cannot bear is left out of any of them.
    assert {"-smap", "-smep", "-monitor", "+invtsc"} <= set(processor.split(","))


@pytest.mark.parametrize(
    ("hypervisor", "version", "corrected", "short_turns", "threads"),
    [
        ("kvm", "7.2.22", True, True, "single"),
        ("xen", "7.2.22", True, True, "single"),
        # Sound with a thread for each CPU.
        ("kvm", "10.0.2", True, True, "multi"),
        # With one thread most guests fall, or CPUs wait for 100 ms.
        ("kvm", "7.2.22", False, True, "multi"),
        ("kvm", "7.2.22", True, False, "multi"),
        ("none", "7.2.22", True, True, "multi"),
    ],
)
def test_a_lab_runs_its_cpus_as_its_emulator_bears_them(
    hypervisor: Hypervisor, version: str, corrected: bool, short_turns: bool, threads: str
) -> None:
    emulator = Emulator(version, corrected=corrected, short_turns=short_turns)
    argv = command(LabOptions(hypervisor), IMAGE, LabPaths(Path("/a")), "tare-a", emulator)
    assert value_after(argv, "-accel") == [f"tcg,thread={threads}"]
    # A run is not continued by an emulator that runs its CPUs otherwise.
    assert ("turns of 1 ms" in emulator.description) == (emulator.threads == "single")


def test_a_lab_without_xen_has_nothing_to_work_around() -> None:
    assert argv_of("kvm", "7.2.22") == argv_of("kvm", "10.0.2")
    assert argv_of("kvm", "7.2.22")[0] == "EPYC"


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 99))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("sound_from_ten")
def test_versions_are_compared_as_numbers(major: int, minor: int, patch: int) -> None:
    found = Emulator(f"{major}.{minor}.{patch}").workarounds
    assert (EAGER_FPU in found) == ((major, minor) < (10, 0))


@pytest.mark.fuzz
@given(st.text(max_size=30))
def test_any_version_text_of_a_program_is_accepted(text: str) -> None:
    assert set(emulator_in(text).workarounds) <= set(SOUND_FROM)


async def test_the_lab_s_own_program_is_asked(tmp_path: Path) -> None:
    program = tmp_path / "qemu"
    version = "echo 'QEMU emulator version 10.0.2 (Debian 1:10.0.2)'"
    program.write_text(f"#!/bin/sh\n{version}\n")
    program.chmod(0o755)
    host, options = LocalHost(tmp_path / "agent"), LabOptions(qemu=str(program))
    own = Emulator("10.0.2", filters=True, program=str(program))
    assert await emulator_of(host, options, tmp_path) == own
    # As one says that was built without seccomp.
    program.write_text(f"#!/bin/sh\n[ $1 = -sandbox ] && exit 1\n{version}\n")
    assert await emulator_of(host, options, tmp_path) == replace(own, filters=False)


@pytest.mark.parametrize("hypervisor", ["none", "kvm", "xen"])
def test_a_lab_filters_its_system_calls_where_its_qemu_can(hypervisor: Hypervisor) -> None:
    """It boots kernels, and Xens, that a study names."""
    options, places = LabOptions(hypervisor), LabPaths(Path("/a"))
    able = command(options, IMAGE, places, "tare-a", Emulator("7.2.22", filters=True))
    assert able[able.index("-sandbox") + 1] == SANDBOX
    assert "-sandbox" not in command(options, IMAGE, places, "tare-a", Emulator("7.2.22"))


def test_a_run_is_not_resumed_with_other_workarounds() -> None:
    then, now = ({"name": "h", "lab": {"workarounds": each}} for each in (EAGER_FPU, "none"))
    (phrase,) = changed_hosts(then, now)
    assert phrase == f"the list of workarounds of a lab with Xen is none, and was {EAGER_FPU}"
    assert changed_hosts(then, {"name": "h", "lab": {}}) == []
