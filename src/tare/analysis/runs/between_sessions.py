"""A run in sessions: how much of the blocks' variance is between rounds of sessions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.data.grouping import BlockId
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Effect
from tare.analysis.runs.between_hosts import LEAST_BLOCKS, share_between
from tare.analysis.runs.sessions import InSessions, by_round, in_sessions
from tare.events.session_progress import SessionResult


@dataclass(frozen=True)
class OverSessions:
    """One effect between arms of different boots.

    Args:
        effect: Over rounds.
        arm_first: The geometric mean of the rounds in which the arm's session came first; None
            where there is none.
        baseline_first: The same of those in which the baseline's did.
        share: The part of a block's variance that is between rounds, 0 to 1; None if sessions
            have one block each, so that the two cannot be separated.
    """

    effect: Effect
    arm_first: float | None
    baseline_first: float | None
    share: float | None


def over_sessions(comparison: Comparison) -> tuple[OverSessions, ...]:
    """Return the effects of a run in sessions whose arms are of different boots."""
    sessions = comparison.runs[0].sessions if len(comparison.runs) == 1 else ()
    if not sessions:
        return ()
    known = in_sessions(comparison.runs, {})
    return tuple(
        _over(effect, known, sessions)
        for effect in comparison.effects
        if effect.each == "round"
        and effect.headline
        and effect.scale == "ratio"
        and effect.kind == "typical"
    )


def _over(effect: Effect, known: InSessions, sessions: Sequence[SessionResult]) -> OverSessions:
    first = _first_boots(known, sessions)
    by_boot: dict[str, list[float]] = {}
    for block in effect.block_effects:
        by_boot.setdefault(first.get((block.run, block.block), ""), []).append(
            math.log(block.value)
        )
    return OverSessions(
        effect,
        _mean(by_boot.get(known.boots[effect.arm], ())),
        _mean(by_boot.get(known.boots[effect.baseline], ())),
        _share(effect, known),
    )


def _mean(logs: Sequence[float]) -> float | None:
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _first_boots(known: InSessions, sessions: Sequence[SessionResult]) -> Mapping[BlockId, str]:
    """Return by round the boot that was measured first; not of rounds that count as one."""
    began: dict[int, list[tuple[float, str]]] = {}
    for each in sessions:
        began.setdefault(each.round, []).append((each.goes[0].began, each.boot))
    of_round: dict[BlockId, set[int]] = {}
    for each in sessions:
        for run, block in known.rounds:
            if block in each.blocks:
                of_round.setdefault(known.rounds[run, block], set()).add(each.round)
    return {
        name: min(began[next(iter(rounds))])[1]
        for name, rounds in of_round.items()
        if len(rounds) == 1
    }


def _share(effect: Effect, known: InSessions) -> float | None:
    over = {(b.run, b.block): b.value for b in effect.arm_summary.blocks}
    under = {(b.run, b.block): b.value for b in effect.baseline_summary.blocks}
    ratios = ((block, math.log(over[block] / under[block])) for block in over if block in under)
    logs = by_round(ratios, known.rounds)
    samples = [values for values in logs.values() if len(values) >= LEAST_BLOCKS]
    return share_between(samples) if len(samples) > 1 else None
