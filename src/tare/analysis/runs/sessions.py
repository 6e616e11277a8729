"""A run in sessions: arms of one boot of a computer against arms of another boot.

Two arms of different boots are never up at once, so within one round of sessions arm and session
cannot be separated: their ratio includes the computer's condition at the time. A round is then one
observation, whatever its number of blocks. Arms of one boot share their sessions, and are compared
block by block as usual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from tare.analysis.data.grouping import Block, BlockId, Measured
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.estimates import Pair, pair_up
from tare.analysis.effects.results import Key
from tare.analysis.effects.stopping import StoppingValue
from tare.events.session_progress import SessionResult

B = TypeVar("B", bound=Hashable)
T = TypeVar("T")
IN_ROUNDS = ", in rounds"


@dataclass(frozen=True)
class InSessions:
    """The blocks of runs that are one observation if arms of different boots are compared.

    Args:
        boots: The boot of each arm, including the common name of a baseline and its twin.
        rounds: The round of each block. Rounds that share a boot of the computer are one.
    """

    boots: Mapping[str, str]
    rounds: Mapping[BlockId, BlockId]

    def across(self, arm: str, other: str) -> bool:
        """Return whether two arms are of different boots."""
        return self.boots.get(arm, "") != self.boots.get(other, "")

    def pair(self, key: Key, measured: Measured, arm: str, baseline: str) -> Pair | None:
        """Return two arms of different boots as a pair, round by round; None: they share no round.

        Args:
            key: The key of the comparison.
            measured: Its values.
            arm: The arm.
            baseline: The other arm.
        """
        found = pair_up(key, self.round_by_round(measured), arm, baseline)
        return found and replace(found, each="round")

    def round_by_round(self, measured: Measured) -> Measured:
        """Return the same values with each round as one block, and its blocks as repeats."""
        found = replace(measured, arms={})
        for arm, blocks in measured.arms.items():
            rounds: dict[BlockId, Block] = {
                round_: list(chain.from_iterable(of_blocks))
                for round_, of_blocks in values_by_round(blocks.items(), self.rounds).items()
            }
            positive, raw = measured.positive((arm,)), measured.raw(arm)
            found.add(arm, rounds, positive=positive, raw=raw)
        return found

    def session_of(self, block: BlockId) -> Hashable:
        """Return an identity that an arm's blocks of one session share."""
        return self.rounds.get(block, block)


def session_blocks(runs: Sequence[RunData], pooled: Mapping[str, tuple[str, str]]) -> InSessions:
    """Return the blocks of runs that belong together; none for runs without sessions.

    Args:
        runs: The runs.
        pooled: Each baseline and its twin, which share a boot, by their joint name.
    """
    boots: dict[str, str] = {}
    rounds: dict[BlockId, BlockId] = {}
    for run in runs:
        boots |= {arm: each.boot for each in run.sessions for arm in each.cells}
        # Named differently from blocks: tests flip either rounds or blocks.
        name = f"{run.run}{IN_ROUNDS}"
        of_run = rounds_of_blocks(run.sessions)
        rounds |= {(run.run, block): (name, round_) for block, round_ in of_run.items()}
    boots |= {name: boots[first] for name, (first, _) in pooled.items() if first in boots}
    return InSessions(boots, rounds)


def independent_rounds(sessions: Sequence[SessionResult]) -> dict[int, int]:
    """Return for each round the first of the rounds that count as one with it.

    If the computer was not booted between two sessions, they are one, and so are their rounds: both
    have the same boot's condition.

    Args:
        sessions: The sessions that were begun.
    """
    one = {each.round: each.round for each in sessions}

    def first(round_: int) -> int:
        while one[round_] != round_:
            round_ = one[round_]
        return round_

    seen: dict[tuple[str, str], int] = {}
    for each in sorted(sessions, key=lambda each: each.round):
        for go in each.goes:
            if not go.booted:
                continue
            other = seen.setdefault((each.boot, go.booted), each.round)
            low, high = sorted((first(other), first(each.round)))
            one[high] = low
    return {round_: first(round_) for round_ in one}


def rounds_of_blocks(sessions: Sequence[SessionResult]) -> dict[int, int]:
    """Return the round of each block, or the first of the rounds that are one."""
    one = independent_rounds(sessions)
    return {block: one[each.round] for each in sessions for block in each.blocks}


def values_by_round(of_blocks: Iterable[tuple[B, T]], rounds: Mapping[B, B]) -> dict[B, list[T]]:
    """Return the values of blocks by round; blocks without a round are left out.

    Args:
        of_blocks: Each block with its value.
        rounds: The round of each block.
    """
    found: dict[B, list[T]] = {}
    for block, has in of_blocks:
        if block in rounds:
            found.setdefault(rounds[block], []).append(has)
    return found


def values_in_rounds(
    values: Iterable[StoppingValue], sessions: Sequence[SessionResult]
) -> tuple[list[StoppingValue], int]:
    """Return values with their round instead of their block, and the number of rounds.

    Args:
        values: Headline values of a run in sessions.
        sessions: The sessions that were begun.
    """
    rounds = rounds_of_blocks(sessions)
    gathered = values_by_round(((each.block, each) for each in values), rounds)
    in_rounds = [
        each._replace(block=round_) for round_, of_round in gathered.items() for each in of_round
    ]
    return in_rounds, len(set(rounds.values()))


def measured_in_turn(sessions: Sequence[SessionResult]) -> tuple[SessionResult, ...]:
    """Return the sessions in the order in which they were measured."""
    return tuple(sorted(sessions, key=lambda each: each.goes[0].began))


def early_sessions(sessions: Sequence[SessionResult]) -> list[tuple[int, int]]:
    """Return each session that was measured before the planned next one, with both numbers."""
    return [
        (each.number, each.goes[0].planned)
        for each in measured_in_turn(sessions)
        if each.goes[0].planned != each.number
    ]


def session_notes(run: RunData) -> list[str]:
    """Return notes on a run in sessions: inseparable effects, and differences from its plan.

    Args:
        run: Any run; one without sessions has no notes.
    """
    if not run.sessions:
        return []
    return [*_inseparable(run), *_orders(run), *_unplanned_notes(run)]


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
    """Return a note that drift does not cancel out if one boot was first more often."""
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


def _unplanned_notes(run: RunData) -> list[str]:
    notes = []
    if sooner := early_sessions(run.sessions):
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
