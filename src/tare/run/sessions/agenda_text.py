"""Texts about sessions: the next session, the swap that it needs, and its duration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tare.study.model.sessions import plan_in
from tare.study.planning.session_plan import Agenda, Session, agenda
from tare.units import format_duration

if TYPE_CHECKING:
    from tare.study.model.study import Study
    from tare.study.planning.plan import Plan
    from tare.study.planning.session_plan import Sessions

ByItself = Callable[[str], bool]
SHOWN = 12
"""The plan has one line for each of this many sessions; the rest continues in the same way."""


def agenda_of(study: Study) -> Agenda:
    """Return the sessions of a study in sessions."""
    assert study.sessions is not None
    return agenda(study.sessions, study.blocks)


def boot_instruction(sessions: Sessions, boot: str, last: str) -> str:
    """Return the instruction to start a boot of the computer.

    Args:
        sessions: How the computer is booted.
        boot: The boot to start.
        last: The boot of the session before; empty: nothing was measured yet.
    """
    again = "again, " if boot == last else ""
    return f"boot {sessions.computer} {again}{_way(sessions, boot)}"


def _way(sessions: Sessions, boot: str) -> str:
    how = sessions.boots[boot].how
    return how if how else f"as {boot}"


def swap(sessions: Sessions, planned: Agenda, next_: Session, by_itself: ByItself) -> str:
    """Return the instruction that precedes a session, with the number of swaps.

    Args:
        sessions: How the computer is booted.
        planned: All sessions.
        next_: The session to measure.
        by_itself: Returns for a boot whether the computer boots for each batch by itself.
    """
    swaps = _swaps(planned, by_itself)
    what = boot_instruction(sessions, next_.boot, _boot_before(planned, next_))
    if next_.number not in swaps:
        return f"first, {what}" if next_.number == 1 else what
    last = planned.least * len(sessions.boots)
    least = sum(number <= last for number in swaps)
    total = f"{least}" if least == len(swaps) else f"{least} to {len(swaps)}"
    return f"swap {swaps.index(next_.number) + 1} of {total}: {what}"


def _boot_before(planned: Agenda, session: Session) -> str:
    return planned.session(session.number - 1).boot if session.number > 1 else ""


def _swaps(planned: Agenda, by_itself: ByItself) -> list[int]:
    """Return the numbers of the sessions for which the user has to boot the computer."""
    return [
        each.number
        for each in planned.sessions[1:]
        if _boot_before(planned, each) != each.boot or not by_itself(each.boot)
    ]


def session_lines(study: Study, plan: Plan, by_itself: ByItself) -> Iterator[str]:
    """Yield the lines of a plan on its sessions: their sequence, the swaps and the times.

    Args:
        study: A study in sessions.
        plan: Its plan for all arms.
        by_itself: Returns for a boot whether the computer boots for each batch by itself.
    """
    sessions, planned = study.sessions, agenda_of(study)
    assert sessions is not None
    block_s = {boot: plan_in(plan, study, boot).block_s for boot in sessions.boots}
    swaps = _swaps(planned, by_itself)
    whole_s = least_s = 0.0
    for each in planned.sessions:
        takes_s = sessions.boots[each.boot].takes if each.number in swaps else 0.0
        measured_s = block_s[each.boot] * len(each.blocks)
        whole_s += takes_s + measured_s
        least_s = whole_s if each.round <= planned.least else least_s
        if each.number > SHOWN:
            continue
        if each.number in swaps:
            what = swap(sessions, planned, each, by_itself)
            yield f"{what}, then `tare resume DIR` (about {format_duration(takes_s)})"
        yield f"session {each.number}: {described(each)}, about {format_duration(measured_s)}"
    if len(planned.sessions) > SHOWN:
        yield f"and so on, to session {len(planned.sessions)}"
    spans = dict.fromkeys(map(format_duration, (least_s, whole_s)))
    yield f"{' to '.join(spans)} in all, with the swaps"


def described(session: Session) -> str:
    """Return a session as a phrase: its boot and its blocks."""
    first, last = session.first, session.last
    blocks = f"block {first}" if first == last else f"blocks {first} to {last}"
    return f"{session.boot}, {blocks}"


def deviation(session: Session, planned: Session) -> str:
    """Return a sentence if a session is measured out of sequence; empty if it is the next."""
    if session.number == planned.number:
        return ""
    return (
        f"session {session.number} ({session.boot}) is measured now, because that boot is up; "
        f"session {planned.number} ({planned.boot}) was next in the plan"
    )
