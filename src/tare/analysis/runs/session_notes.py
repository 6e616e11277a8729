"""What a reader must know of a run in sessions, in sentences."""

from __future__ import annotations

from collections import Counter

from tare.analysis.data.rundata import RunData
from tare.analysis.runs.sessions import (
    independent_rounds,
    measured_in_turn,
    sooner_than_planned,
)


def session_notes(run: RunData) -> list[str]:
    """Return what cannot be separated in a run in sessions, and how it differs from its plan.

    Args:
        run: Any run; one without sessions has no notes.
    """
    if not run.sessions:
        return []
    return [*_inseparable(run), *_orders(run), *_not_as_planned(run)]


def _inseparable(run: RunData) -> list[str]:
    boots = {arm: each.boot for each in run.sessions for arm in each.cells}
    home, own = boots.get(run.baseline), run.own_baselines
    others = [
        arm
        for arm in run.arms
        if arm in boots and boots[arm] != home and boots.get(own.get(arm, "")) != boots[arm]
    ]
    if home is None or not others:
        return []
    whole = _whole_rounds(run)
    one = independent_rounds(run.sessions)
    rounds = len({one[round_] for round_ in whole})
    blocks = len({block for each in run.sessions if each.round in whole for block in each.blocks})
    notes = [
        f"{_listed(others)} and the baseline {run.baseline} were measured in different boots of "
        f"{_computer(run)}: within one round of sessions arm and session cannot be separated. So "
        f"each round counts once, and their results rest on {_counted(rounds, 'round')}, "
        f"not on {_counted(blocks, 'block')}."
    ]
    pair = run.study.get("aa")
    if pair and boots.get(str(pair[0])) == boots.get(str(pair[1])):
        notes.append(
            "The A/A pair is of one boot, so it does not say how far sessions of identical arms "
            "differ."
        )
    return notes


def _orders(run: RunData) -> list[str]:
    """Return that what drifts does not cancel out, where a boot was first more often."""
    first: dict[int, str] = {}
    whole = _whole_rounds(run)
    for each in measured_in_turn(run.sessions):
        if each.round in whole:
            first.setdefault(each.round, each.boot)
    boots = dict.fromkeys(each.boot for each in run.sessions)
    counts = Counter(first.values())
    if len(boots) != 2 or len({counts[boot] for boot in boots}) == 1:
        return []
    firsts = ", ".join(f"{boot} in {counts[boot]}" for boot in boots)
    return [
        f"The boots came first in different numbers of rounds ({firsts}): what drifts evenly, as "
        "temperature does, does not cancel out of their ratio."
    ]


def _not_as_planned(run: RunData) -> list[str]:
    notes = []
    if sooner := sooner_than_planned(run.sessions):
        listed = ", ".join(
            f"session {number} before session {planned}" for number, planned in sooner
        )
        notes.append(f"Sessions were measured as the computer was up, not as planned: {listed}.")
    notes += [
        f"Session {each.number} ({each.boot}) was measured in {len(each.goes)} goes."
        for each in run.sessions
        if len(each.goes) > 1
    ]
    one = independent_rounds(run.sessions)
    if merged := sorted(round_ for round_, first in one.items() if first != round_):
        listed = ", ".join(f"{round_} with {one[round_]}" for round_ in merged)
        notes.append(
            "The computer was not booted between some sessions of the same boot, so that their "
            f"rounds count as one: {listed}."
        )
    return notes


def _whole_rounds(run: RunData) -> frozenset[int]:
    """Return the rounds in which each boot has a session."""
    boots = {each.boot for each in run.sessions}
    there: dict[int, set[str]] = {}
    for each in run.sessions:
        there.setdefault(each.round, set()).add(each.boot)
    return frozenset(round_ for round_, found in there.items() if found == boots)


def _computer(run: RunData) -> str:
    asked = run.study.get("sessions")
    return str(asked["computer"]) if isinstance(asked, dict) else "the computer"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
