"""Caps planted into real clusters: the run's own counters name each, in the phase that it is in."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deadlines import patient
from run.run_clusters import NEEDS
from run.run_driving import Running, assert_no_ledger_is_left, of_type
from tare.analysis import load_run
from tare.analysis.topics.job_phases import phase_uses
from tare.hosts import LocalHost
from tare.platforms.linux.cgroups import cgroup_mounts
from tare.report.sections.mapreduce import finding

BLKIO = Path("/sys/fs/cgroup/blkio")
pytestmark = [
    *NEEDS,
    pytest.mark.acceptance,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not BLKIO.is_dir(), reason="control groups of version 1 cap the disk"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a slave has a CPU to itself"),
]
# A slave has one CPU, on which two tasks work at a time: that is the cap of the CPU.
STUDY = """
study: caps
baseline: ARM
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 1GiB, disk: 1GiB}
arms:
  ARM: {platform: ARM}
scenarios:
  one: {subject: {cpus: pinned}, cluster: {slaves: 1, tasks: 2, cpus: own}}
workloads:
  wordcount: {copies: 6}
  dfsio: {size: 48MiB, files: 1}
"""
BYTES_S = 3 << 20
LOOK_S = 0.2
GONE_S = 20.0
SLAVE = "slave-1"
MOUNTED = re.compile(r"^\d+ \d+ (\d+:\d+) / (\S+)", re.MULTILINE)
"""A file system with its device (proc_pid_mountinfo(5))."""


def disk_of(machine: str) -> str | None:
    """Return the device of a machine's own disk, ``major:minor``; None while it has none."""
    mounts = MOUNTED.findall(Path("/proc/self/mountinfo").read_text())
    return next((device for device, place in mounts if f"/{machine}-" in place), None)


@contextmanager
def capped_group() -> Iterator[Path]:
    group = BLKIO / f"tare-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        until = time.monotonic() + patient(GONE_S)
        while group.is_dir():
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (BLKIO / "cgroup.procs").write_text(pid)
            # What is just ending is in no list any more, and still in the group.
            with suppress(OSError):
                group.rmdir()
            assert time.monotonic() < until, "the capped group cannot be removed"
            time.sleep(LOOK_S)


def slow_down(group: Path, device: str) -> None:
    """Let the processes of a group read and write a device no faster than that.

    Set once: the kernel restarts its count each time (`tg_conf_updated` in blk-throttle.c), and
    what is larger than it lets pass until the next time would wait for ever.
    """
    for way in ("read", "write"):
        (group / f"blkio.throttle.{way}_bps_device").write_text(f"{device} {BYTES_S}")


def join(group: Path, memory: Path) -> None:
    """Have the processes of a memory control group in the capped one too."""
    with suppress(OSError):
        for pid in (memory / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group / "cgroup.procs").write_text(pid)


@pytest.mark.parametrize("platform", ["bare", "oci"])
def test_a_planted_cpu_cap_and_a_planted_disk_cap_are_named_in_the_right_phase(
    tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch, agent_program: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "caps.yaml", tmp_path / "run"
    study.write_text(STUDY.replace("ARM", platform))
    mounts = asyncio.run(cgroup_mounts(LocalHost(agent_program)))
    capped: set[str] = set()
    with capped_group() as group, Running(folder, "run", study, "--out", folder) as running:
        while running.process.poll() is None:
            time.sleep(LOOK_S)
            begun = of_type(folder, "cell_started")
            if not begun or begun[-1]["workload"] != "dfsio":
                continue
            if len(of_type(folder, "cell_finished")) == len(begun):
                continue
            machine = begun[-1]["machines"][SLAVE]
            memory, device = mounts.of("memory", machine), disk_of(machine)
            assert memory is not None and device is not None, (memory, device)
            if machine not in capped:
                slow_down(group, device)
                capped.add(machine)
            # Tasks that are started later are born into it.
            join(group, memory)
        code, output = running.end()
    assert code == 0, output
    assert capped
    uses = phase_uses([load_run(folder)])
    # If a phase has too few samples, its counters are not conclusive.
    named = {(use.workload, use.step, use.phase, use.limit) for use in uses if use.limit}
    assert {last for *at, last in named if at == ["wordcount", "count", "map"]} == {"CPU"}, uses
    assert {last for *at, last in named if at == ["dfsio", "read", "map"]} == {"disk"}, uses
    reason = finding(uses)
    assert "count map" in reason.partition(" by CPU")[0], reason
    assert "read map by disk" in reason, reason
    assert_no_ledger_is_left(tmp_path)
