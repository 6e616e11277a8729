"""Survivorship bias: differences that may only come from cells that failed in one of two arms.

A cell that failed has no value, and slow cells may be the ones that fail. An arm that loses them
looks better than it is, and a baseline that loses them makes arms look worse. Such a difference is
declared only if it remains when each lost cell counts as the worst possible value (worst ranks:
Lachin 1999).
"""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.effects.estimates import Pair
from tare.analysis.effects.findings import LostCells
from tare.analysis.effects.results import VerdictWord
from tare.analysis.statistics.tails import median_interval


def lost_alone(pair: Pair, baselines: Sequence[str], lost: LostCells) -> dict[VerdictWord, str]:
    """Describe the cells that failed in one arm only, by the verdict that their loss favours.

    Args:
        pair: The pair.
        baselines: The arms that are its baseline.
        lost: All cells that failed or were withheld.
    """
    found: dict[VerdictWord, str] = {}
    if ours := lost.of_arm_alone(pair.arm, baselines, pair.key):
        found["better"] = f"{pair.arm} failed in {_blocks(len(ours))} in which the baseline did not"
    theirs = [len(lost.of_arm_alone(base, (pair.arm,), pair.key)) for base in baselines]
    if any(theirs):
        base = baselines[theirs.index(max(theirs))]
        found["worse"] = f"{base} failed in {_blocks(max(theirs))} in which {pair.arm} did not"
    return found


def survivorship_bias(
    pair: Pair, baselines: Sequence[str], lost: LostCells, confidence: float
) -> dict[VerdictWord, str]:
    """Return the verdicts that lost cells may have caused, each with the reason.

    Args:
        pair: The pair.
        baselines: The arms that are its baseline.
        lost: All cells that failed or were withheld.
        confidence: The confidence of the interval that must exclude "even".
    """
    counts = {
        "better": len(lost.of_arm_alone(pair.arm, baselines, pair.key)),
        "worse": max(len(lost.of_arm_alone(base, (pair.arm,), pair.key)) for base in baselines),
    }
    less_is_better = pair.measured.better != "higher"
    return {
        word: why
        for word, why in lost_alone(pair, baselines, lost).items()
        if not _outlives(
            pair.differences, counts[word], confidence, above=(word == "worse") == less_is_better
        )
    }


def _outlives(differences: Sequence[float], lost: int, confidence: float, *, above: bool) -> bool:
    """Return whether the median differs from 0 even if lost blocks were far on the other side."""
    far = 1e9 * (1 + max(map(abs, differences)))
    ends = median_interval([*differences, *[-far if above else far] * lost], confidence)
    return ends is not None and (ends[0] > 0 if above else ends[1] < 0)


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"
