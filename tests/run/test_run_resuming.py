"""A run is resumed on its own host, or the user accepts a break and the report shows it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.run_driving import TARE, Running, events, of_type
from run.test_run_cell_accounting import PLAN, ScriptedRun
from tare.errors import InputError
from tare.events import BlockStarted, ImageReady, Planned, PlatformChecked, RunResumed
from tare.platforms.contract import Capabilities, Prepared, Verdict
from tare.run.hosts.host_facts import _own_machine_id, computer_of, host_facts
from tare.run.lifecycle.resume_checks import (
    changed_arms,
    changed_hosts,
    require_as_begun,
    require_same_images,
    require_same_plan,
)

HOST = {
    "kernel": "6.1.0-18",
    "machine": "x86_64",
    "cpu_model": "Xeon",
    "cpus": 2,
    "online": [0, 1],
    "memory_bytes": 16 << 30,
    "os": "Debian 12",
    "computer": "0123456789ab",
}
OTHER = {
    "kernel": "6.1.0-19",
    "machine": "aarch64",
    "cpu_model": "Epyc",
    "cpus": 1,
    "online": [0],
    "memory_bytes": 8 << 30,
    "os": "Debian 13",
    "computer": "ba9876543210",
}


@given(st.sets(st.sampled_from(sorted(HOST))))
def test_each_thing_that_differs_of_a_host_is_named_once(keys: set[str]) -> None:
    now = {name: OTHER[name] if name in keys else value for name, value in HOST.items()}
    found = changed_hosts(HOST, now)
    assert len(found) == len(keys)
    assert changed_hosts({"": 1}, now) == []
    several = changed_hosts({"a": HOST, "b": HOST}, {"a": HOST, "b": now})
    assert len(several) == len(keys)
    assert all(phrase.endswith("(host b)") for phrase in several)


def test_a_twin_of_the_computer_is_not_taken_for_it() -> None:
    """Check the id: nothing else differs between twins of a cloud; older runs record no id."""
    ids = ("0123456789abcdef" * 2, "fedcba9876543210" * 2)
    one, twin = ({**HOST, "computer": computer_of(f"{each}\n")} for each in ids)
    (found,) = changed_hosts(one, twin)
    assert found.startswith("the computer itself, by its machine id, is ")
    assert not any(each[:6] in found for each in ids), "the id is confidential"
    before = {name: value for name, value in HOST.items() if name != "computer"}
    assert changed_hosts(before, twin) == changed_hosts(one, before) == []
    assert computer_of("") == computer_of("uninitialized\n") == ""
    facts = host_facts()
    assert ("computer" in facts) == bool(computer_of(_own_machine_id()))


def test_boot_menu_settings_and_a_few_pages_of_memory_do_not_differ() -> None:
    now = {**HOST, "kernel": "6.1.0-19-xen", "cpus": 1, "online": [0], "memory_bytes": 1 << 30}
    assert changed_hosts(HOST, now, {""}) == []
    assert changed_hosts(HOST, {**HOST, "memory_bytes": (16 << 30) - (9 << 20)}) == []
    assert changed_hosts(HOST, {**HOST, "cpu_model": "Epyc"}, {""}) == [
        "the processor is Epyc, and was Xeon"
    ]


def _verdict(version: str, network: frozenset[str]) -> Verdict:
    able = Capabilities(pinning=True, max_vcpus=2, min_memory=0, network=network)
    return Verdict(True, "", "", False, {"qemu": version}, able)


def _checked(**capabilities: object) -> PlatformChecked:
    able = {"pinning": True, "max_vcpus": 2, "network": ["tap", "user"], **capabilities}
    return PlatformChecked(
        arm="a", platform="qemu", options={}, usable=True, versions={"qemu": "7.2"},
        capabilities=able,
    )  # fmt: skip


def test_another_version_or_a_lost_way_to_a_network_is_a_difference() -> None:
    then = {"a": _checked(), "b": _checked()}
    both = frozenset({"user", "tap"})
    assert changed_arms(then, dict.fromkeys(then, _verdict("7.2", both))) == []
    assert changed_arms(then, dict.fromkeys(then, _verdict("8.0", both))) == [
        "qemu 8.0, and was 7.2 (arm a, b)"
    ]
    lost = {"a": _verdict("7.2", frozenset({"user"})), "b": _verdict("7.2", both)}
    assert changed_arms(then, lost) == ["its network: user, and was tap, user (arm a)"]


def test_difference_is_refused_with_both_ways_to_resume(tmp_path: Path) -> None:
    assert require_as_begun([], tmp_path, accepted=False) == ()
    assert require_as_begun(["x"], tmp_path, accepted=True) == ("x",)
    with pytest.raises(InputError, match="x; y") as refused:
        require_as_begun(["x", "y"], tmp_path, accepted=False)
    assert f"tare resume {tmp_path} --accept" in refused.value.hint


def test_a_plan_that_would_drop_cells_is_refused() -> None:
    scripted = ScriptedRun()
    cells = sum(len(batch.cells) for batch in PLAN.block(1))
    scripted.happen(Planned(blocks_most=2, cells_per_block=cells, expected_block_s=1.0))
    require_same_plan(scripted.fold, PLAN)
    scripted.happen(Planned(blocks_most=2, cells_per_block=cells + 1, expected_block_s=1.0))
    with pytest.raises(InputError, match=f"has {cells} cells .* had {cells + 1} when"):
        require_same_plan(scripted.fold, PLAN)


@given(st.integers(0, 3), st.booleans())
def test_after_a_break_only_whole_blocks_count(blocks: int, accepted: bool) -> None:
    scripted = ScriptedRun()
    for number in range(1, blocks + 1):
        scripted.block(number, dict.fromkeys(PLAN.arms, "ok"))
    whole = set(scripted.fold.finished)
    scripted.happen(BlockStarted(block=blocks + 1, order=()))
    half = PLAN.block(blocks + 1)[0].cells[0]
    scripted.cell(half.id, half.arm, blocks + 1, "ok")
    found = ("the kernel is 2, and was 1",) if accepted else ()
    scripted.happen(RunResumed(run="ab12", versions={"tare": "2"}, host={"cpus": 3}, changed=found))
    assert set(scripted.fold.finished) == (whole if accepted else whole | {half.id})
    assert [each.block for each in scripted.fold.breaks] == ([blocks] if accepted else [])
    # The next process compares with what was accepted.
    assert (scripted.fold.host, scripted.fold.versions) == ({"cpus": 3}, {"tare": "2"})


STUDY = """
study: moved
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  again: {twin-of: bare}
workloads:
  tick: {samples: 2000, repeats: 4}
"""


@pytest.mark.slow
@pytest.mark.boots
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be taken away")
def test_run_is_not_resumed_on_fewer_cpus_unless_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "moved.yaml", tmp_path / "run"
    study.write_text(STUDY)
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda event: event["type"] == "cell_finished")
        running.process.send_signal(signal.SIGINT)
        assert running.end()[0] == 130
    done = len(events(folder))
    cpu = str(min(os.sched_getaffinity(0)))

    def on_one(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["taskset", "-c", cpu, str(TARE), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    refused = on_one("resume", str(folder))
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert f"the set of CPUs that may be used is {cpu}, and was" in refused.stderr
    assert "--accept" in refused.stderr
    assert len(events(folder)) == done, "a refused resume wrote into the run"
    resumed_run = on_one("resume", str(folder), "--accept")
    assert resumed_run.returncode == 0, resumed_run.stdout + resumed_run.stderr
    (resumed,) = of_type(folder, "run_resumed")
    assert "its max vcpus: 1, and was" in resumed["changed"][1]
    first = of_type(folder, "cell_started")[0]["cell"]
    assert sum(e["cell"] == first for e in of_type(folder, "cell_started")) == 2
    assert "was continued" in (folder / "report.html").read_text()


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("now", ["a" * 64, "b" * 64])
def test_an_arm_that_would_boot_something_else_is_refused(recorded: bool, now: str) -> None:
    scripted = ScriptedRun()
    if recorded:
        scripted.happen(
            ImageReady(arm="vm", kernel="6.1", digest="a" * 64, cached=True, took_s=0.0)
        )
    prepared = {"vm": Prepared("6.1", now, True, 0.0)}
    if not recorded or now == "a" * 64:
        require_same_images(scripted.fold, prepared)
        return
    with pytest.raises(InputError, match=r"what arm vm boots has changed .*aaaa then, bbbb"):
        require_same_images(scripted.fold, prepared)


def test_a_lab_of_other_files_is_another_host() -> None:
    then = {**HOST, "lab": {"cpus": 2, "xen": {"file": "/a", "sha256": "1" * 64}}}
    same = {**HOST, "lab": {"cpus": 2, "xen": {"file": "/b", "sha256": "1" * 64}}}
    other = {**HOST, "lab": {"cpus": 2, "xen": {"file": "/a", "sha256": "2" * 64}}}
    assert changed_hosts(then, same) == []
    assert changed_hosts(then, other) == [f"the lab's Xen is {'2' * 12}, and was {'1' * 12}"]
    # Facts that the run did not record are not compared.
    assert changed_hosts({**HOST, "lab": {"cpus": 2}}, other) == []
    then, now = (
        {**HOST, "lab": {"releases": {"trixie": {"xen-utils-4.20": version}}}}
        for version in ("4.20.4", "4.20.5")
    )
    (found,) = changed_hosts(then, now)
    assert found == "xen-utils-4.20 of trixie is 4.20.5, and was 4.20.4"
    assert changed_hosts(then, {**HOST, "lab": {"releases": {}}}) == []
    then, now = ({**HOST, "lab": {"emulator": version}} for version in ("7.2.22", "10.0.13"))
    (found,) = changed_hosts(then, now)
    assert found == "the lab's emulator is QEMU 10.0.13, and was 7.2.22"
    # The computer that the lab is on is compared as well.
    assert len(changed_hosts(then, {**same, "cpu_model": "Epyc"})) == 1
