"""CPUs of a host that go offline or online during a run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from run import run_hostile
from tare.analysis import load_run
from tare.analysis.words import cpus_changed
from tare.errors import MachineFault
from tare.events import CellFinished, CpusChanged, read_events
from tare.hosts import LocalHost
from tare.run.hosts.cpu_watch import CpuWatch
from tare.study.planning.host_cpus import HostCpus


class Hotplugged(LocalHost):
    """A computer whose CPUs are those of a list, one entry for each look; the last one stays."""

    looks: list[tuple[int, ...]]

    def topology(self) -> HostCpus:
        return HostCpus(online=(0, 1, 2, 3))

    async def usable_cpus(self) -> tuple[int, ...]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


class Log:
    """Takes events."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def append(self, event: Any) -> None:
        self.events.append(event)


async def test_a_cell_during_which_a_cpu_went_offline_is_measured_again_and_reported(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before the batch, and after its only cell.
    Hotplugged.looks = [(0, 1, 2, 3), (0, 1, 2)]
    monkeypatch.setattr(run_hostile, "LocalHost", Hotplugged)
    fold = await run_hostile.run_twisted(run_hostile.honest, tmp_path / "run", agent_program)
    (change,) = fold.cpu_changes
    assert (change.gone, change.came, change.after) == ("3", "", "0-2")
    events = [record.event for record in read_events(tmp_path / "run" / "events.jsonl")]
    ended = [e for e in events if isinstance(e, CellFinished) and e.cell == change.cell]
    assert [each.status for each in ended] == ["failed", "ok"]
    assert "CPU 3 can no longer be used" in ended[0].reason
    assert all(done.result.status == "ok" for done in fold.finished.values())
    (sentence,) = cpus_changed([load_run(tmp_path / "run")])
    assert "changed in block 1" in sentence and change.cell in sentence


async def test_machines_are_not_placed_on_cpus_that_are_gone(agent_program: Path) -> None:
    host, log = Hotplugged(agent_program), Log()
    watch = CpuWatch(log)  # type: ignore[arg-type]
    Hotplugged.looks = [(0, 1, 2)]
    with pytest.raises(MachineFault, match="CPU 3, needed for its machines") as error:
        await watch.require(host, "", 1, {2, 3})
    assert not error.value.transient
    assert "start a new run" in error.value.hint
    await watch.require(host, "", 1, {1, 2})
    Hotplugged.looks = [(0, 1, 2, 3)]
    await watch.require(host, "", 2, {2, 3})
    assert [(each.gone, each.came) for each in log.events] == [("3", ""), ("", "3")]
    assert all(isinstance(each, CpusChanged) and not each.cell for each in log.events)


async def test_cpus_that_only_a_hypervisor_has_are_not_missed(agent_program: Path) -> None:
    Hotplugged.looks = [(0, 1, 2, 3)]
    watch = CpuWatch(Log())  # type: ignore[arg-type]
    await watch.require(Hotplugged(agent_program), "", 1, {6, 7})


async def duet(
    looks: list[tuple[int, ...]], folder: Path, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[CpusChanged], list[CellFinished]]:
    """Run a duet on a computer whose CPUs are those of some looks; return what was recorded."""
    Hotplugged.looks = looks
    monkeypatch.setattr(run_hostile, "LocalHost", Hotplugged)
    monkeypatch.setattr(run_hostile, "ABLE", replace(run_hostile.ABLE, pinning=True))
    study = run_hostile.STUDY.replace("most: 2", "most: 2, duet: true").replace("any", "pinned")
    monkeypatch.setattr(run_hostile, "STUDY", study)
    # Without a value of the baseline the run ends as failed.
    with suppress(AssertionError):
        await run_hostile.run_twisted(run_hostile.honest, folder, agent)
    events = [record.event for record in read_events(folder / "events.jsonl")]
    changes = [each for each in events if isinstance(each, CpusChanged)]
    return changes, [each for each in events if isinstance(each, CellFinished)]


async def test_a_change_during_a_duet_is_recorded_once_and_counts_for_both_arms(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [(0, 1, 2, 3), (0, 1, 2, 3), (1, 2, 3)]
    changes, ends = await duet(looks, tmp_path / "run", agent_program, monkeypatch)
    assert [(each.gone, each.came) for each in changes] == [("0", "")]
    for arm in ("good", "bad"):
        own = [each for each in ends if f"/{arm}/" in each.cell]
        assert [each.status for each in own] == ["failed", "ok"], own
        assert "CPU 0 can no longer be used" in own[0].reason


async def test_a_duet_is_not_placed_on_a_cpu_that_is_gone(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [(0, 1, 2, 3), (0, 1, 2, 3), (0,)]
    changes, ends = await duet(looks, tmp_path / "run", agent_program, monkeypatch)
    assert len(changes) == 1
    last = {each.cell: each for each in ends}
    assert {each.status for each in last.values()} == {"failed"}
    assert any("can no longer be used" in each.reason for each in last.values()), last
