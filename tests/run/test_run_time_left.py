"""The time left is also right after a resume, and Ctrl-C at any moment prints how to resume."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from run.test_run_cell_accounting import PLAN, ScriptedRun
from tare.cli.ending import resume_hint_on_interrupt
from tare.errors import MachineFault
from tare.events import (
    BlockFinished,
    BlockStarted,
    EventLog,
    Interrupted,
    Planned,
    RunFinished,
    RunResumed,
    RunStarted,
)
from tare.hosts.ledger.ledger import LOCAL, Ledger, ledger_path
from tare.run.lifecycle.execution import Execution
from tare.run.lifecycle.interrupt import StopRequest, listening
from tare.run.ui.progress import Tally

BLOCKS = 4
EXPECTED_S = 100.0
CELLS = [cell for batch in PLAN.block(2) for cell in batch.cells]
ASKING_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Hear them again: a command that says its last words hears none until it ends."""
    before = {each: signal.getsignal(each) for each in ASKING_TO_END}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def begun() -> ScriptedRun:
    scripted = ScriptedRun()
    planned = Planned(blocks_most=BLOCKS, cells_per_block=len(CELLS), expected_block_s=EXPECTED_S)
    scripted.happen(planned)
    return scripted


@given(st.integers(0, len(CELLS)))
def test_a_resumed_block_counts_by_its_cells_and_not_for_the_time_of_a_block(done: int) -> None:
    scripted = begun()
    scripted.block(1, dict.fromkeys(PLAN.arms, "ok"))
    took = list(scripted.fold.block.took_s)
    scripted.happen(BlockStarted(block=2, order=()))
    for cell in CELLS[:done]:
        scripted.cell(cell.id, cell.arm, 2, "ok")
    scripted.happen(RunResumed(run="ab12", versions={}))
    tally = Tally(scripted.fold, BLOCKS, clock=lambda: 1e9)
    per_block = took[0]
    left = (BLOCKS - 2) * per_block + per_block * (1 - done / len(CELLS))
    assert tally.left_s is not None
    assert math.isclose(tally.left_s, left)
    scripted.happen(BlockStarted(block=2, order=()))
    assert math.isclose(tally.left_s, left)
    scripted.happen(BlockFinished(block=2))
    assert scripted.fold.block.took_s == took
    assert scripted.fold.block.last_took_s is None
    assert math.isclose(tally.left_s, (BLOCKS - 2) * per_block)
    scripted.happen(BlockStarted(block=3, order=()), BlockFinished(block=3))
    assert len(scripted.fold.block.took_s) == 2


@given(st.floats(0.1, 40.0), st.integers(1, BLOCKS))
def test_the_time_left_ends_with_the_budget(blocks_of_budget: float, least: int) -> None:
    scripted = begun()
    scripted.block(1, dict.fromkeys(PLAN.arms, "ok"))
    (took_s,) = scripted.fold.block.took_s
    budget = blocks_of_budget * took_s
    tally = Tally(scripted.fold, BLOCKS, least, budget, clock=lambda: 1e9)
    whole = min(max(math.ceil(budget / took_s), least), BLOCKS)
    assert tally.expected_blocks == whole
    assert tally.left_s is not None
    assert math.isclose(tally.left_s, (whole - 1) * took_s)


STARTED = RunStarted(
    run="r", study={}, study_path="", study_sha256="", seed=1, host={}, versions={}
)


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (None, "to resume: tare resume"),
        (RunFinished(status="failed"), "to resume: tare resume"),
        (RunFinished(status="complete"), "the run is complete"),
    ],
)
def test_ctrl_c_while_nothing_listens_names_the_resume_command(
    ended: RunFinished | None, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        log.append(STARTED)
        if ended is not None:
            log.append(ended)
    with pytest.raises(typer.Exit) as status, resume_hint_on_interrupt(tmp_path):
        raise KeyboardInterrupt
    assert status.value.exit_code == 130
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_received_before_the_handler_count_as_ctrl_c(
    tmp_path: Path, number: signal.Signals, ctrl_c: Any
) -> None:
    """Also where Ctrl-C itself is ignored, as in the background of a script."""
    signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, ctrl_c)
    with resume_hint_on_interrupt(tmp_path):
        pass
    assert signal.getsignal(number) is signal.SIG_DFL
    with pytest.raises(typer.Exit) as status, resume_hint_on_interrupt(tmp_path):
        signal.raise_signal(number)
    assert status.value.exit_code == 130
    signal.signal(number, signal.SIG_IGN)
    # As under nohup.
    with resume_hint_on_interrupt(tmp_path):
        signal.raise_signal(number)


@pytest.mark.parametrize("number", ASKING_TO_END)
def test_a_second_request_to_end_does_not_come_between_the_last_words(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "events.jsonl").touch()
    messages: list[str] = []

    def impatient(*_: object) -> str:
        signal.raise_signal(number)
        return "to resume"

    monkeypatch.setattr("tare.cli.ending._resume_hint", impatient)
    monkeypatch.setattr(
        "tare.cli.ending.print_line", lambda words, *_, **__: messages.append(words)
    )
    signal.signal(number, signal.default_int_handler)
    with pytest.raises(typer.Exit) as status, resume_hint_on_interrupt(tmp_path):
        raise KeyboardInterrupt
    assert (status.value.exit_code, messages) == (130, ["to resume"])


async def test_a_run_stops_even_if_its_listener_is_gone() -> None:
    def gone(finishing: bool, reason: str) -> None:
        raise BrokenPipeError(finishing, reason)

    left: list[bool] = []
    work = asyncio.create_task(asyncio.sleep(60))
    stop = StopRequest(work, gone, lambda: left.append(True))
    stop.polite()
    assert stop.finishing and not left
    stop.polite()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert left == [True]


async def test_a_run_restores_the_previous_signal_handlers() -> None:
    def heard(number: int, frame: object) -> None:
        raise AssertionError(number, frame)

    task: Any = asyncio.current_task()
    before = signal.signal(signal.SIGTERM, heard)
    try:
        with listening(StopRequest(task, lambda *_: None, lambda: None), Path()):
            assert signal.getsignal(signal.SIGTERM) is not heard
        assert signal.getsignal(signal.SIGTERM) is heard
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ctrl_c_before_a_run_began_names_nothing_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), resume_hint_on_interrupt(tmp_path / "none"):
        raise KeyboardInterrupt
    assert not capsys.readouterr().out


def test_the_last_line_names_leftovers_and_the_command_that_removes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "run"
    folder.mkdir()
    with EventLog(folder / "events.jsonl") as log:
        log.append(STARTED)
    # One of another run; one of this run, but undone; this run's on two hosts, one named twice.
    for name, host, undone in (
        ("rx", "other@there", False),
        ("r-gone", "gone@there", True),
        ("r", LOCAL, False),
        ("r-there", "root@there", False),
    ):
        with Ledger(ledger_path(name), host=host) as ledger:
            entry = ledger.record("directory", path="/tmp/tare-x")
            if undone:
                ledger.done(entry)
    with pytest.raises(typer.Exit), resume_hint_on_interrupt(folder):
        raise KeyboardInterrupt
    assert capsys.readouterr().out.splitlines()[-1] == (
        "interrupted; to remove what is left on root@there and this computer: tare clean; "
        f"to resume: tare resume {folder}"
    )


async def test_a_stopped_run_is_not_failed_even_if_something_breaks_afterwards() -> None:
    happened: list[object] = []

    class Breaking(Execution):
        async def _blocks(self, stop: StopRequest) -> None:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(60)
            finally:
                raise MachineFault("the host is lost")

    given: Any = SimpleNamespace(
        append=happened.append, wall_s=0.0, run_hosts={}, path=Path(), started=None
    )
    execution = Breaking(given, given, given, {}, given, given, "r", given, given)
    assert await execution.run() is None
    assert happened == [Interrupted(finishing=False, reason="SIGTERM")]
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
