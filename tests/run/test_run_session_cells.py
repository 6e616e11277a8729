"""Results of a session's cells, when it is complete, and when no further round is needed."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from run.test_run_session_plans import SEED, TWO_BLOCKS
from study.test_study_sessions import read
from tare.events.session_progress import Go, SessionResult
from tare.run.catalog import build_catalog
from tare.run.lifecycle.cell_counts import account_of_sessions, cells_in_a_block
from tare.run.lifecycle.folder import RunFolder
from tare.run.lifecycle.setup import Decision
from tare.run.sessions.boot_state import boots_by_itself
from tare.run.sessions.session_loop import RunInSessions
from tare.study.reading.load import parse_study


def metal(**cells: int) -> SessionResult:
    """Return a session of the blocks 1 to 3."""
    return SessionResult(1, "metal", 1, 1, 3, cells, ())


def cell(arm: str, block: int, status: str = "ok") -> Any:
    return SimpleNamespace(
        result=SimpleNamespace(arm=arm, block=block, status=status, reason="why")
    )


def fold_of(*sessions: SessionResult, cells: tuple[Any, ...] = (), **ended: int) -> Any:
    return SimpleNamespace(
        arms_ended=[SimpleNamespace(arm=arm, block=block) for arm, block in ended.items()],
        sessions=SimpleNamespace(begun={each.number: each for each in sessions}),
        finished=dict(enumerate(cells)),
        wall_s=100.0,
    )


def carrier(fold: Any, text: str = TWO_BLOCKS) -> RunInSessions:
    return RunInSessions(
        read(text), "r1", SEED, RunFolder(Path("nowhere")), fold, None,
        lambda *_: Decision(True, "not precise enough"), (), lambda *_: None, lambda _: None,
    )  # fmt: skip


def test_cells_of_an_arm_that_ended_are_skipped_from_the_next_block_on() -> None:
    cells = (cell("bare", 1), cell("bare", 2, "failed"), cell("again", 1))
    account = account_of_sessions(fold_of(metal(bare=1, again=2), cells=cells, again=2), read())
    assert account.planned == 9
    assert dict(account.counts) == {"ok": 2, "failed": 1, "withheld": 0, "skipped": 2, "left": 4}


def test_arms_of_a_boot_that_was_not_up_are_taken_to_have_as_many_cells_as_the_others() -> None:
    assert cells_in_a_block(fold_of(), read()) == 0
    # For bare and its twin 2 and 4 are known; pv and em are taken for 3 each.
    known = metal(**{"bare": 2, "bare-again": 4})
    assert cells_in_a_block(fold_of(known), read()) == 12


def test_a_session_is_whole_once_each_arm_has_all_cells_of_each_block() -> None:
    session = metal(bare=2)
    every = [cell("bare", block) for block in (1, 2, 3) for _ in range(2)]
    for missing in range(len(every)):
        some = tuple(every[:missing] + every[missing + 1 :])
        assert not carrier(fold_of(session, cells=some))._measured_whole(session)
        # Another arm's cells, or more of another block, are none of it.
        others = (*some, cell("pv", 1 + missing // 2), cell("bare", 1 + (missing // 2 + 1) % 3))
        assert not carrier(fold_of(session, cells=others))._measured_whole(session)
    assert carrier(fold_of(session, cells=tuple(every)))._measured_whole(session)
    # An arm that ended in block 2 has none in block 3, but all of block 2.
    assert carrier(fold_of(session, cells=tuple(every[:4]), bare=2))._measured_whole(session)
    assert not carrier(fold_of(session, cells=tuple(every[:3]), bare=2))._measured_whole(session)


@pytest.mark.parametrize(
    ("budget", "last", "continues", "reason"),
    [
        ("", False, True, "not precise enough"),
        ("", True, False, "2 blocks are done, the most asked for"),
        ("101s", False, True, "not precise enough"),
        ("100s", False, False, "the budget of 1 min 40 s is spent"),
        ("100s", True, False, "2 blocks are done, the most asked for"),
    ],
)
def test_no_round_is_begun_beyond_the_most_or_the_budget(
    budget: str, last: bool, continues: bool, reason: str
) -> None:
    asked = "{least: 2" + (f", budget: {budget}" if budget else "")
    running = carrier(fold_of(), TWO_BLOCKS.replace("{least: 2", asked))
    assert running._judged(2, last=last) == Decision(continues, reason)


def test_the_last_boot_of_a_computer_is_that_of_the_session_begun_last() -> None:
    first, second = (
        SessionResult(number, "metal", number, number, number, {}, (
            Go(began=began, booted=booted, planned=1, ended=math.inf),
        ))
        for number, began, booted in ((1, 20.0, "later"), (2, 10.0, "earlier"))
    )  # fmt: skip
    assert carrier(fold_of(first, second))._previous_boot_text("metal") == "later"
    assert carrier(fold_of(first, second))._previous_boot_text("kvm") == ""


@pytest.mark.parametrize(("reboots", "by_itself"), [((1, 1), True), ((1, 0), False)])
def test_a_computer_boots_by_itself_only_if_all_arms_of_a_boot_allow_it(
    reboots: tuple[int, int], by_itself: bool
) -> None:
    text = TWO_BLOCKS
    for arm, reboot in zip(("qemu}", "qemu, devices: emulated}"), reboots, strict=True):
        way = f"ssh, ssh: vm, user: me, reboot: {str(bool(reboot)).lower()}}}"
        text = text.replace(f"platform: {arm}", f"platform: {way}")
    study = parse_study(text.encode(), "s.yaml", build_catalog())
    assert boots_by_itself(study, "kvm") is by_itself
    assert not boots_by_itself(study, "metal")
