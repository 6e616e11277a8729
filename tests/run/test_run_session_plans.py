"""The choice of the next session: any boot that is up, until all cells of a whole run are done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.test_run_resume_plans import ABILITIES, as_read, measured_block
from study.study_catalog import KINDS
from study.test_study_plan import TWO_CPUS
from study.test_study_sessions import STUDY, read
from tare.errors import InputError
from tare.events import (
    BlockFinished,
    CellFinished,
    Event,
    EventLog,
    Fold,
    PlatformChecked,
    RunResumed,
    RunStarted,
    SessionFinished,
    SessionStarted,
    fold_records,
)
from tare.run.lifecycle.cell_counts import account_of_sessions, cells_in_a_block, unfinished
from tare.run.lifecycle.folder import RunFolder
from tare.run.preflight.arm_facts import recorded, restored_facts
from tare.run.sessions import one_session
from tare.run.sessions.agenda_text import agenda_of, session_lines
from tare.run.sessions.boot_state import BootCheck
from tare.run.sessions.one_session import SessionContext
from tare.study.model.sessions import part_of
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.planning.session_plan import Session

SEED = 7
TWO_BLOCKS = STUDY.replace("  boots:", "  blocks: 1\n  boots:").replace("{least: 4}", "{least: 2}")


def plan_of(boot: str, facts: dict[str, ArmFacts]) -> Plan | None:
    part = part_of(read(TWO_BLOCKS), boot)
    own = {name: facts[name] for name in part.arms}
    try:
        return make_plan(part, SEED, own, {"": HostFacts(TWO_CPUS, 3.0)}, KINDS)
    except InputError:
        return None


def session_events(session: Session, plan: Plan, facts: dict[str, ArmFacts]) -> Iterator[Event]:
    """Yield the events of a session that is measured to its end."""
    cells = {arm: sum(len(b.cells) for b in plan.batches if b.arm == arm) for arm in plan.arms}
    yield SessionStarted(
        session=session.number, boot=session.boot, round=session.round, first=session.first,
        last=session.last, planned=session.number, cells=cells,
    )  # fmt: skip
    for name in plan.study.arms:
        yield PlatformChecked(
            arm=name, platform="bare", options={}, usable=facts[name].usable,
            facts=recorded(facts[name]),
        )  # fmt: skip
    for block in session.blocks:
        yield from measured_block(plan, block)
    yield SessionFinished(session=session.number)


def begun() -> RunStarted:
    study = read(TWO_BLOCKS).model_dump(mode="json")
    return RunStarted(
        run="r1", study=study, study_path="", study_sha256="", seed=SEED, host={}, versions={}
    )


@st.composite
def found(draw: st.DrawFn) -> dict[str, ArmFacts]:
    return {name: draw(ABILITIES) for name in ("bare", "bare-again", "pv", "em")}


@given(found(), found(), st.data())
def test_resume_plans_the_same_as_an_unbroken_run_for_any_boot(
    then: dict[str, ArmFacts], now: dict[str, ArmFacts], data: st.DataObject
) -> None:
    plans = {boot: plan_of(boot, then) for boot in ("metal", "kvm")}
    events: list[Event] = [begun()]
    agenda, fold = agenda_of(read(TWO_BLOCKS)), Fold()
    done: set[int] = set()
    while left := agenda.left(done):
        up = data.draw(st.sampled_from([each.boot for each in left]))
        session = next(each for each in left if each.boot == up)
        plan = plans[up]
        if plan is None or not plan.batches:
            return
        # What this boot's arms can do was found out when it was up first, and counts from then on.
        today = {name: now[name] if name in fold.platforms else then[name] for name in then}
        known = {name: each for name, each in fold.platforms.items() if name in plan.study.arms}
        again = plan_of(up, {**today, **restored_facts(known, {n: today[n] for n in known})})
        assert again == plan
        cut = data.draw(st.booleans())
        new = list(session_events(session, plan, then))
        events += new[: data.draw(st.integers(1, len(new) - 1))] if cut else new
        if cut:
            events.append(RunResumed(run="r1", versions={}))
        fold = fold_records(as_read(number, event) for number, event in enumerate(events))
        finished = {e.cell for e in events if isinstance(e, CellFinished)}
        for block in session.blocks:
            assert unfinished(plan, block, fold.finished) == [
                (batch, [cell for cell in batch.cells if cell.id not in finished])
                for batch in plan.block(block)
            ]
        assert (session.number in fold.sessions.done) == (not cut)
        done = set(fold.sessions.done)
    every = [cell.id for plan in plans.values() if plan for b in (1, 2) for batch in plan.block(b)
             for cell in batch.cells]  # fmt: skip
    assert set(every) == set(fold.finished)
    account = account_of_sessions(fold, read(TWO_BLOCKS))
    assert account.planned == account.counts["ok"] == len(every)
    assert cells_in_a_block(fold, read(TWO_BLOCKS)) == len(every) / 2


@pytest.mark.parametrize("still_up", [True, False])
async def test_a_block_that_failed_whole_is_held_against_what_is_up(
    still_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def looked(*_: Any) -> BootCheck:
        return BootCheck(still_up, "no answer")

    monkeypatch.setattr(one_session, "look", looked)
    study = read(STUDY.replace("  boots:", "  blocks: 2\n  boots:"))
    facts = dict.fromkeys(study.arms, ArmFacts(usable=True, max_vcpus=1))
    own = {name: facts[name] for name in part_of(study, "kvm").arms}
    plan = make_plan(part_of(study, "kvm"), SEED, own, {"": HostFacts(TWO_CPUS)}, KINDS)
    session = agenda_of(study).session(2)
    events = [
        event if not isinstance(event, CellFinished) else failed(event.cell)
        for event in session_events(session, plan, facts)
    ]
    fold = fold_records([as_read(0, begun())])
    given = SessionContext(
        study, tmp_path, agenda_of(study), SEED, "r1", RunFolder(tmp_path), fold, False, fail_open
    )
    messages: list[str] = []
    with EventLog(tmp_path / "events.jsonl") as log:
        blocks = one_session.SessionBlocks(given, messages.append, True, session, plan, log)
        dealt = blocks.given()
        assert (await anext(dealt)).number == 1
        for number, event in enumerate(events):
            if not isinstance(event, SessionFinished) and getattr(event, "block", 1) == 1:
                fold.take(as_read(number + 1, event))
        left = [each.number async for each in dealt]
    assert (left, blocks.ended) == (([2], "done") if still_up else ([], "gone"))
    assert (not still_up) == any("kvm is no longer up: no answer" in each for each in messages)


def failed(cell: str) -> CellFinished:
    return CellFinished(cell=cell, status="failed", reason="the connection broke")


def fail_open(_: tuple[str, ...]) -> EventLog:
    raise AssertionError("no stream is to be opened")


def test_the_plan_says_what_to_swap_and_how_long_it_takes() -> None:
    study = read(TWO_BLOCKS.replace("how: from disk B", "how: from disk B, takes: 1min"))
    facts = dict.fromkeys(study.arms, ArmFacts(usable=True, max_vcpus=1, boot_s=1.0))
    plan = make_plan(study, 1, facts, {"": HostFacts(TWO_CPUS)}, KINDS)
    assert list(session_lines(study, plan, lambda _: False)) == [
        "session 1: metal, block 1, about 10 s",
        "swap 1 of 3: boot the computer from disk B, then `tare resume DIR` (about 1 min)",
        "session 2: kvm, block 1, about 10 s",
        "swap 2 of 3: boot the computer again, from disk B, then `tare resume DIR` (about 1 min)",
        "session 3: kvm, block 2, about 10 s",
        "swap 3 of 3: boot the computer as metal, then `tare resume DIR` (about 10 min)",
        "session 4: metal, block 2, about 10 s",
        "12 min 40 s in all, with the swaps",
    ]
    # What boots for each batch by itself is not to be booted by anybody.
    by_itself = list(session_lines(study, plan, lambda boot: boot == "kvm"))
    assert [line.split(":")[0] for line in by_itself[:-1]] == [
        "session 1", "swap 1 of 2", "session 2", "session 3", "swap 2 of 2", "session 4"
    ]  # fmt: skip


def test_accepted_change_measures_sessions_of_open_rounds_again() -> None:
    study = read(TWO_BLOCKS)
    facts = dict.fromkeys(study.arms, ArmFacts(usable=True, max_vcpus=1))
    sessions = agenda_of(study).sessions
    events: list[Event] = [begun()]
    for session in sessions[:3]:
        plan = plan_of(session.boot, facts)
        assert plan is not None
        events += session_events(session, plan, facts)
        events += [BlockFinished(block=1)] if session.number == 2 else []
    events.append(RunResumed(run="r1", versions={}, changed=("the kernel is another",)))
    fold = fold_records(as_read(number, event) for number, event in enumerate(events))
    assert fold.sessions.done == {1, 2}
    assert {done.result.block for done in fold.finished.values()} == {1}
