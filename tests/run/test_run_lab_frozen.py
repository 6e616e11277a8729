"""A lab that falls silent is booted again and its batch repeated; a second time its cells fail."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deadlines import patient
from run.run_driving import Running, assert_no_ledger_is_left, events
from run.run_hostile import Message, Says, run_twisted
from run.test_run_lab import emulator
from tare.analysis import load_run
from tare.analysis.words import notes_on
from tare.errors import HostFroze
from tare.events import Fold
from tare.platforms.contract import Context
from tare.run.hosts.contract import LocalRunHost

FROZE = "the emulated host froze: it stopped answering"


class FreezingHost(LocalRunHost):
    """An emulated host as a run sees it, which freezes as a script determines.

    Args:
        found: For each fault in sequence, whether the host froze.
    """

    emulated = True

    def __init__(self, *given: Any, found: Sequence[bool]) -> None:
        super().__init__(*given)
        self.boots = 0
        self._found = list(found)

    async def under(self, boot: str, block: int) -> Context:
        if self.lost.done():
            self._lost = None
            self.boots += 1
        return self.context

    async def froze(self) -> HostFroze | None:
        if not self._found or not self._found.pop(0):
            return None
        fault = HostFroze(FROZE, console_tail=("rcu: INFO: rcu_sched self-detected stall",))
        self.lost.set_result(fault)
        return fault


class Silences:
    """Suppresses the first messages of one kind from agents.

    Args:
        times: The number of suppressed messages.
        hello: Whether hellos are suppressed; by default, results are.
    """

    def __init__(self, times: int, *, hello: bool = False) -> None:
        self._left = times
        self._hello = hello

    def __call__(self, message: Message) -> list[Says]:
        measured = message["type"] == "result" and "iterations_per_s" in message["value"]
        if message["type"] == "hello" if self._hello else measured:
            self._left -= 1
            if self._left >= 0:
                return []
        return [message]


async def frozen_run(
    folder: Path, agent: Path, found: Sequence[bool], *, hello: bool = False
) -> tuple[Fold, FreezingHost]:
    hosts: list[FreezingHost] = []

    def host(*given: Any) -> FreezingHost:
        hosts.append(FreezingHost(*given, found=found))
        return hosts[0]

    twist = Silences(len(found), hello=hello)
    fold = await run_twisted(twist, folder, agent, patience_s=patient(1.0), run_host=host)
    return fold, hosts[0]


def cell_of(fold: Fold, arm: str) -> Any:
    (cell,) = [each for each in fold.cell_results() if each.arm == arm]
    return cell


async def test_a_freeze_boots_the_host_again_and_repeats_the_batch(
    agent_program: Path, tmp_path: Path
) -> None:
    fold, host = await frozen_run(tmp_path / "run", agent_program, [True])
    assert cell_of(fold, "bad").status == cell_of(fold, "good").status == "ok"
    assert cell_of(fold, "bad").attempt == 2
    # The first try's reason is that the host froze, and not what its machine showed of that.
    assert FROZE in cell_of(fold, "bad").warnings[0]
    (freeze,) = fold.freezes
    assert (freeze.arm, freeze.block, freeze.repeated) == ("bad", 1, True)
    assert freeze.console_tail == ("rcu: INFO: rcu_sched self-detected stall",)
    assert host.boots == 1


async def test_two_freezes_of_a_batch_fail_its_cells_with_that_reason(
    agent_program: Path, tmp_path: Path
) -> None:
    fold, _ = await frozen_run(tmp_path / "run", agent_program, [True, True])
    assert cell_of(fold, "bad").status == "failed"
    assert cell_of(fold, "bad").reason == FROZE
    assert [each.repeated for each in fold.freezes] == [True, False]
    # Other batches of the run are not affected.
    assert cell_of(fold, "good").status == "ok"


async def test_a_freeze_uses_up_no_try_of_its_cell(agent_program: Path, tmp_path: Path) -> None:
    (fell_first, _), (froze_first, _), (fell_twice, _) = await asyncio.gather(
        frozen_run(tmp_path / "fell-first", agent_program, [False, True]),
        frozen_run(tmp_path / "froze-first", agent_program, [True, False]),
        frozen_run(tmp_path / "fell-twice", agent_program, [False, False]),
    )
    assert (cell_of(fell_first, "bad").status, cell_of(fell_first, "bad").attempt) == ("ok", 3)
    assert (cell_of(froze_first, "bad").status, cell_of(froze_first, "bad").attempt) == ("ok", 3)
    # Without a freeze two tries are all there are.
    assert (cell_of(fell_twice, "bad").status, cell_of(fell_twice, "bad").attempt) == ("failed", 2)


@pytest.mark.parametrize("freezes", [1, 2])
async def test_a_freeze_while_machines_boot_is_repeated_once_too(
    agent_program: Path, tmp_path: Path, freezes: int
) -> None:
    fold, _ = await frozen_run(tmp_path / "run", agent_program, [True] * freezes, hello=True)
    assert cell_of(fold, "bad").status == ("ok" if freezes == 1 else "failed")
    assert cell_of(fold, "bad").reason == ("" if freezes == 1 else FROZE)
    assert len(fold.freezes) == freezes
    assert cell_of(fold, "good").status == "ok"


async def test_the_report_counts_freezes(agent_program: Path, tmp_path: Path) -> None:
    await frozen_run(tmp_path / "run", agent_program, [True])
    notes = notes_on([load_run(tmp_path / "run")], 8, 0.95)
    (note,) = [note for note in notes if "froze" in note]
    assert "froze once (bad / alone in block 1)" in note
    assert "repeated" in note


STUDY = """
study: freezing
host: lab
lab: {memory: 2GiB}
baseline: kvm
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 192MiB}
arms:
  kvm: {platform: qemu, accelerator: kvm}
workloads:
  tick: {duration: 3s}
"""


@pytest.mark.slow
@pytest.mark.guest
@pytest.mark.boots
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.acceptance)])
def test_a_lab_that_is_really_stopped_in_a_cell_is_booted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder, study = tmp_path / "run", tmp_path / "freezing.yaml"
    study.write_text(STUDY)
    with Running(folder, "run", study, "--out", folder) as running:
        for attempt in range(1, times + 1):
            running.wait_for(
                lambda e, attempt=attempt: (  # type: ignore[misc]
                    e["type"] == "cell_started" and e["attempt"] == attempt
                ),
                limit_s=600,
            )
            os.kill(emulator(tmp_path), signal.SIGSTOP)
        code, output = running.end(limit_s=900)
    recorded = events(folder)
    freezes = [e for e in recorded if e["type"] == "lab_froze"]
    assert [e["repeated"] for e in freezes] == [True, False][:times], output
    assert all(e["reason"].startswith("the emulated host froze") for e in freezes)
    # Nobody is asked to log in to it.
    assert not [e for e in freezes if "ssh" in e["reason"] or "reachable" in e["reason"]]
    cells = {e["cell"]: e for e in recorded if e["type"] == "cell_finished"}
    assert len(cells) == 2
    first, second = cells.values()
    # On a busy computer what was measured in an emulated machine may be withheld.
    assert second["status"] in ("ok", "withheld")
    if times == 1:
        assert code == 0, output
        assert first["status"] in ("ok", "withheld")
    else:
        assert first["status"] == "failed"
        assert first["reason"].startswith("the emulated host froze")
    assert "froze" in output
    assert_no_ledger_is_left(tmp_path)
