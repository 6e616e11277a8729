"""What looks like a difference, and may come of cells that failed in one arm and not in the other.

A cell that failed has no value, and the slow ones may be what fails: an arm that loses them looks
better than it is, and a baseline that does makes arms look worse. Such a difference is declared
only if it outlives the worst that the lost cells may have been (worst ranks: Lachin 1999).
"""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.effects.estimates import Pair
from tare.analysis.effects.findings import LostCells
from tare.analysis.effects.results import VerdictWord
from tare.analysis.statistics.tails import median_interval


def lost_alone(pair: Pair, baselines: Sequence[str], lost: LostCells) -> dict[VerdictWord, str]:
    """Return of which side's cells alone some failed, in words, by how the arm looks for it.

    Args:
        pair: The pair.
        baselines: The arms that are its baseline.
        lost: All cells that do not count.
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
    """Return the verdicts that lost cells may have made, with why.

    Args:
        pair: The pair.
        baselines: The arms that are its baseline.
        lost: All cells that do not count.
        confidence: Of the interval that has to leave "even" out.
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
    """Return whether the median lies beside 0 even if lost blocks were far on the other side."""
    far = 1e9 * (1 + max(map(abs, differences)))
    ends = median_interval([*differences, *[-far if above else far] * lost], confidence)
    return ends is not None and (ends[0] > 0 if above else ends[1] < 0)


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"
