"""A plan reports missing memory, disks and kernels, as a run would."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.run_driving import of_type, tare
from study.test_study_plan import small
from tare.platforms.host_hypervisor import hypervisors_of
from tare.registry import installed
from tare.run.hosts.booted import booted_here
from tare.run.preflight.capacity import machines_of, own_memory
from tare.study.planning.cells import Batch
from tare.study.planning.placement import CompanionPlacement, NeighbourPlacement, Placement

STUDY = """study: x
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  guest: {platform: qemu, accelerator: tcg}
"""
TICK = "workloads: {tick: {samples: 2000}}\n"
WITH_NEIGHBOURS = (
    "scenarios: {c: {neighbours: [{load: cpu-load}, {load: cpu-load}, {load: cpu-load}]}}\n"
)
DISK_FREE = max(shutil.disk_usage(place).free for place in (tempfile.gettempdir(), "/var/tmp"))
CASES = {
    "memory": ("shape: {memory: 900TiB}\n" + TICK, "900 TiB of memory are wanted, and the host"),
    "sum": (
        f"shape: {{memory: {int(own_memory() * 0.4)}}}\n" + WITH_NEIGHBOURS + TICK,
        "are wanted in 4 machines at once",
    ),
    "disk": ("shape: {disk: 900TiB}\nworkloads: {fio: {}}\n", "disk of 900 TiB is wanted"),
    "disks": (
        f"shape: {{disk: {int(DISK_FREE * 0.4)}}}\n" + WITH_NEIGHBOURS + "workloads: {fio: {}}\n",
        "4 machines' disks of",
    ),
    "kernel": ("kernel: 9.9.9-none\n" + TICK, "has no package for the kernel '9.9.9-none'"),
    "file": ("kernel: /none/vmlinuz\n" + TICK, "there is no kernel file /none/vmlinuz"),
    "deadline": ("workloads: {tick: {deadline: 0s}}\n", "deadline: must be more than 0"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_missing_resources_are_found_before_anything_starts(
    case: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rest, reason = CASES[case]
    study, folder = tmp_path / "s.yaml", tmp_path / "run"
    study.write_text(STUDY + rest)
    out: tuple[str | Path, ...] = ("--out", folder) if command == "run" else ()
    done = tare(command, study, *out)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert reason in done.stderr
    assert not folder.exists()


@pytest.mark.parametrize(("memory", "larger"), [("1300MiB", True), ("60GiB", False)])
def test_studies_too_large_for_the_usual_lab_are_referred_to_the_large_one(
    memory: str, larger: bool, tmp_path: Path
) -> None:
    study = tmp_path / "s.yaml"
    study.write_text(f"{STUDY}shape: {{memory: {memory}}}\n{WITH_NEIGHBOURS}{TICK}")
    done = tare("plan", study, "--host", "lab")
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert ("--set lab=large" in done.stderr) == larger
    assert "and the host has 4 GiB" in done.stderr


CPUS = {
    "emulator": "platform: qemu, accelerator: tcg, emulator-cpus: [0, 4095]",
    "disk-thread": "platform: qemu, accelerator: tcg, iothread: true, iothread-cpus: [4095]",
    "libvirt": "platform: libvirt, emulator-cpus: [4095]",
    "dom0": "platform: xen, type: pv, dom0-cpus: [4095]",
}


@pytest.mark.parametrize("case", CPUS)
def test_an_arm_that_names_a_cpu_that_is_not_there_is_skipped_by_plan(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if booted_here(hypervisors_of(installed().platforms.values())):
        pytest.skip("its hypervisor alone knows the CPUs of this computer")
    study = tmp_path / "s.yaml"
    arms = STUDY.replace("platform: qemu, accelerator: tcg", CPUS[case])
    study.write_text(arms + TICK)
    done = tare("plan", study)
    output = " ".join(done.stdout.split())
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "guest skipped: `" in output
    assert "-cpus`: the host has no CPU 4095 (known without a check)" in output
    assert "name some of those it has: 0" in output


def test_a_run_skips_it_with_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = tmp_path / "s.yaml"
    study.write_text(STUDY.replace("tcg", "tcg, emulator-cpus: [4095]") + TICK)
    done = tare("run", study, "--out", tmp_path / "run")
    (guest,) = (
        each for each in of_type(tmp_path / "run", "platform_checked") if each["arm"] == "guest"
    )
    assert not guest["usable"], done.stdout
    assert guest["reason"] == "`emulator-cpus`: the host has no CPU 4095"
    started = {each["arm"] for each in of_type(tmp_path / "run", "machine_starting")}
    assert started == {"bare"}


SIZES = st.none() | st.integers(1, 1 << 40)


@given(st.lists(SIZES), st.lists(st.tuples(SIZES, st.sampled_from(["", "other"]))))
def test_every_machine_that_is_booted_at_once_counts_where_it_is(
    neighbours: list[int | None], companions: list[tuple[int | None, str]]
) -> None:
    study = small(STUDY + "workloads: {tick: {samples: 1}}\n")
    placement = Placement(
        neighbours=tuple(NeighbourPlacement("cpu-load", {}, (), size) for size in neighbours),
        companions=tuple(
            CompanionPlacement(f"c{number}", memory=size, host=host)
            for number, (size, host) in enumerate(companions)
        ),
    )
    found = machines_of(study, Batch(1, "guest", "alone", (), placement))
    own = study.shape_of("guest").memory
    away = [size or own for size, host in companions if host]
    total = own + sum(size or own for size in neighbours)
    total += sum(size or own for size, _ in companions)
    assert sum(map(sum, found.values())) == total
    assert found.get("other", []) == away


@pytest.mark.parametrize("more", ["", "  small: {platform: qemu, accelerator: tcg}\n"])
def test_an_impossible_shape_skips_its_arm_alone(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = tmp_path / "s.yaml"
    study.write_text(
        "study: large\nbaseline: bare\nblocks: {least: 1, most: 1}\n"
        f"arms:\n  bare: {{platform: bare}}\n{more}"
        "  large: {platform: qemu, accelerator: tcg, shape: {vcpus: 4096}}\n"
        "workloads: {numeric-sort: {duration: 1s}}\n"
    )
    done = tare("plan", study)
    output = " ".join(done.stdout.split())
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "skipped: wants 4096 vCPUs; this platform allows at most" in output
    assert "set `vcpus` in its `shape`, or in the scenario, to " in output
    assert "what to install" not in output
    assert ("nothing is compared" in output) == (not more)
    if not more:
        ran = tare("run", study, "--out", tmp_path / "run")
        assert ran.returncode == 0, (ran.stdout, ran.stderr)
        progress = " ".join(ran.stdout.split())
        assert "nothing is compared" in progress and "what to install" not in progress
        (started,) = of_type(tmp_path / "run", "run_started")
        assert started["study"]["arms"]["bare"]["shape"] is None
