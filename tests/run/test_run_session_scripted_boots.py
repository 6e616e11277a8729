"""A computer with scripted boots: the measurements, messages and waits of each process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from run.test_run_session_plans import SEED, TWO_BLOCKS, begun
from study.test_study_sessions import read
from tare.events import (
    RunFinished,
    SessionFinished,
    SessionStarted,
    Waiting,
    fold_records,
    read_fold,
)
from tare.run.lifecycle.folder import RunFolder
from tare.run.lifecycle.setup import Decision
from tare.run.sessions import session_loop
from tare.run.sessions.boot_state import BootCheck
from tare.run.sessions.one_session import Ended
from tare.run.sessions.session_loop import RunInSessions
from tare.study.planning.session_plan import Session


@dataclass
class Played:
    """A computer, and the measurements on it."""

    up: str
    booted: str = ""
    by_itself: bool = False
    asked: list[str] = field(default_factory=list)
    measured: list[tuple[int, int]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """The boots that are up after a swap in the middle of a session."""
    then: Callable[[Session], None] = lambda _: None

    async def look(self, study: Any, boot: str) -> BootCheck:
        self.asked.append(boot)
        there = boot in self.up.split()
        return BootCheck(there, "" if there else "no answer", self.booted if there else "")

    async def measure(
        self, given: Any, setup: Any, session: Session, planned: Session, booted: str
    ) -> Ended:
        log = given.open(())
        self.measured.append((session.number, planned.number))
        log.append(
            SessionStarted(
                session=session.number, boot=session.boot, round=session.round,
                first=session.first, last=session.last, planned=planned.number,
                cells={"bare": len(self.gone)}, booted=booted,
            )
        )  # fmt: skip
        if self.gone:
            self.up = self.gone.pop()
            return "gone"
        log.append(SessionFinished(session=session.number))
        self.then(session)
        return "done"


@pytest.fixture
def computer(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played("metal")
    monkeypatch.setattr(session_loop, "look", played.look)
    monkeypatch.setattr(session_loop, "measure", played.measure)
    monkeypatch.setattr(session_loop, "boots_by_itself", lambda *_: played.by_itself)
    monkeypatch.setattr(session_loop, "run_session", _no_session)
    monkeypatch.setattr(session_loop, "POLL_S", 0.001)
    monkeypatch.setattr(session_loop, "replace", lambda setup, **_: setup)
    return played


class _no_session:  # noqa: N801 - it stands for a function
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


async def carried(
    folder: Path, begin: bool = False, wait: bool = False
) -> tuple[RunFinished | Waiting | None, list[str]]:
    messages: list[str] = []
    run = RunFolder(folder)
    fold = fold_records(()) if begin else read_fold(run.events)
    sessions = RunInSessions(
        read(TWO_BLOCKS), "r1", SEED, run, fold, begun() if begin else None,
        lambda *_: Decision(False, "enough"), (), lambda *_: None, messages.append, wait=wait,
    )  # fmt: skip
    return await sessions.execute(), messages


async def test_each_process_measures_the_booted_arms_and_names_the_next_boot(
    computer: Played, tmp_path: Path
) -> None:
    waiting, _ = await carried(tmp_path, begin=True)
    assert isinstance(waiting, Waiting)
    assert (waiting.boot, waiting.swap) == ("kvm", "swap 1 of 3: boot the computer from disk B")
    computer.up = "kvm"
    waiting, _ = await carried(tmp_path)
    # The next session has the same boot: without a reboot, the two would be one.
    assert isinstance(waiting, Waiting)
    assert waiting.swap == "swap 2 of 3: boot the computer again, from disk B"
    waiting, _ = await carried(tmp_path)
    assert isinstance(waiting, Waiting) and waiting.boot == "metal"
    computer.up = "metal"
    finished, _ = await carried(tmp_path)
    assert isinstance(finished, RunFinished)
    assert computer.measured == [(1, 1), (2, 2), (3, 3), (4, 4)]


async def test_resume_takes_what_is_up_and_says_that_it_is_not_what_was_planned(
    computer: Played, tmp_path: Path
) -> None:
    await carried(tmp_path, begin=True)
    waiting, output = await carried(tmp_path)
    assert computer.measured == [(1, 1), (4, 2)]
    assert isinstance(waiting, Waiting) and waiting.boot == "kvm"
    assert any(
        "session 4 (metal) is measured now, because that boot is up" in each for each in output
    )
    # Nothing is left for metal: nothing is measured, and the stream is unchanged.
    before = (tmp_path / "events.jsonl").read_bytes()
    waiting, output = await carried(tmp_path)
    assert isinstance(waiting, Waiting) and computer.measured[2:] == []
    assert (tmp_path / "events.jsonl").read_bytes() == before
    assert "kvm is not up: no answer" in output


async def test_sessions_of_one_boot_are_reported(computer: Played, tmp_path: Path) -> None:
    computer.booted = "same"
    await carried(tmp_path, begin=True)
    _, output = await carried(tmp_path)
    assert any("metal was not booted since session 1" in each for each in output)


async def test_boot_with_a_slightly_different_time_is_the_same(
    computer: Played, tmp_path: Path
) -> None:
    computer.booted = "since:1000"
    await carried(tmp_path, begin=True)
    computer.booted = "since:1030"
    _, output = await carried(tmp_path)
    assert any("metal was not booted since session 1" in each for each in output)
    begun = read_fold(RunFolder(tmp_path).events).sessions.begun.values()
    assert {go.booted for each in begun for go in each.goes} == {"since:1000"}


async def test_a_waiting_run_measures_all_boots_in_turns(computer: Played, tmp_path: Path) -> None:
    boots = iter([("kvm", "2"), ("kvm", "3"), ("metal", "4"), ("", "")])
    computer.booted = "1"

    def swap(_: Session) -> None:
        computer.up, computer.booted = next(boots)

    computer.then = swap
    finished, output = await carried(tmp_path, begin=True, wait=True)
    assert isinstance(finished, RunFinished) and finished.status == "failed"
    assert "nothing is compared" in finished.reason
    assert computer.measured == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert not any("waited for" in each for each in output)


async def test_a_computer_that_shows_no_boot_must_have_been_away(
    computer: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ups = iter(["kvm", *["kvm"] * 3, "", "kvm", "metal"])
    look = computer.look

    async def looked(study: Any, boot: str) -> BootCheck:
        if len(computer.measured) == 2:
            computer.up = next(ups)
        return await look(study, boot)

    def swap(session: Session) -> None:
        computer.up = "metal" if session.number == 3 else "kvm"

    computer.then = swap
    monkeypatch.setattr(session_loop, "look", looked)
    finished, output = await carried(tmp_path, begin=True, wait=True)
    assert isinstance(finished, RunFinished)
    assert computer.measured == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert next(ups) == "metal"
    assert "swap 2 of 3: boot the computer again, from disk B; waiting for it" in output


async def test_a_computer_that_boots_for_each_batch_need_not_be_booted_by_anybody(
    computer: Played, tmp_path: Path
) -> None:
    computer.up, computer.by_itself = "metal kvm", True
    finished, _ = await carried(tmp_path, begin=True)
    assert isinstance(finished, RunFinished)
    assert computer.measured == [(1, 1), (2, 2), (3, 3), (4, 4)]


async def test_session_that_was_swapped_too_early_resumes_later(
    computer: Played, tmp_path: Path
) -> None:
    computer.gone = ["kvm"]
    waiting, _ = await carried(tmp_path, begin=True)
    # What is up instead is measured at once, and session 1 is still the next in the plan.
    assert computer.measured == [(1, 1), (2, 1)]
    assert isinstance(waiting, Waiting) and waiting.session == 1


async def test_sessions_completed_by_a_killed_process_are_not_measured_again(
    computer: Played, tmp_path: Path
) -> None:
    def killed(_: Session) -> None:
        raise KeyboardInterrupt

    computer.then = killed
    with pytest.raises(KeyboardInterrupt):
        await carried(tmp_path, begin=True)
    lines = (tmp_path / "events.jsonl").read_text().splitlines(keepends=True)
    assert "session_finished" in lines[-1]
    (tmp_path / "events.jsonl").write_text("".join(lines[:-1]))
    (tmp_path / "events.last").unlink()
    computer.up, computer.then = "kvm", lambda _: None
    await carried(tmp_path)
    assert computer.measured[1:] == [(2, 2)]


async def test_each_block_is_finished_once_across_processes(
    computer: Played, tmp_path: Path
) -> None:
    for number, up in enumerate(("metal", "kvm", "kvm", "metal")):
        computer.up, computer.booted = up, str(number)
        await carried(tmp_path, begin=not number)
    computer.up = ""
    kinds = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").open()]
    assert [each["block"] for each in kinds if each["type"] == "block_finished"] == [1, 2]
    assert kinds[-1]["type"] == "run_finished"


async def test_first_session_needs_no_reboot_though_the_last_boot_is_the_same(
    computer: Played, tmp_path: Path
) -> None:
    computer.up = ""
    waiting, _ = await carried(tmp_path, begin=True)
    assert isinstance(waiting, Waiting)
    assert waiting.swap == "first, boot the computer as metal"
