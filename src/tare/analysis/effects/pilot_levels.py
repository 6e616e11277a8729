"""The levels that a pilot's values have, and how often each is worth repeating.

From the bottom: cells of one boot, boots (blocks), and in sessions rounds of sessions. A level of
which the pilot has one only tells nothing: its price is then part of the level above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.analysis.effects.verdict import LEVEL
from tare.analysis.runs.sessions import by_round
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.repeats import Repeats, choose_repeats
from tare.study.planning.session_plan import THERE_AND_BACK

Place = tuple[int, int]
"""A block, and which of its repeats."""
LEAST_COST_S = 1e-3
LEAST_BLOCKS = 8
LEAST_ROUNDS = least_blocks(LEVEL)
"""With fewer there is no verdict on arms of different boots."""


@dataclass(frozen=True)
class Asked:
    """What is asked of a ratio.

    Args:
        half_width: The half-width of its logarithm.
        confidence: Of that interval.
    """

    half_width: float
    confidence: float


@dataclass(frozen=True)
class Chosen:
    """What is chosen for one ratio.

    Args:
        repeats: Cells per boot.
        blocks: Blocks in all.
        half_width: The half-width of the logarithm to be expected.
        cost_s: What it costs.
        rounds: Rounds of sessions that the blocks are in; 0 without sessions.
    """

    repeats: int
    blocks: int
    half_width: float
    cost_s: float
    rounds: int = 0


def over_blocks(
    ratios: Mapping[Place, float], costs_s: tuple[float, float], asked: Asked
) -> Chosen | None:
    """Choose repeats and blocks; None where the pilot has no two blocks.

    Args:
        ratios: Log-ratios by block and repeat.
        costs_s: What one more costs by itself: a cell, and a boot.
        asked: What is asked.
    """
    values = _whole_blocks(ratios)
    if len(values) < 2:
        return None
    (repeats,), found = _cheapest(values, costs_s, asked, LEAST_BLOCKS)
    return _chosen(repeats, found)


def over_rounds(
    ratios: Mapping[Place, float],
    rounds: Mapping[int, int],
    costs_s: tuple[float, float, float],
    asked: Asked,
) -> Chosen | None:
    """Choose repeats, blocks of a session, and rounds; None where the pilot has no two rounds.

    Args:
        ratios: Log-ratios by block and repeat.
        rounds: By block the round that it is of.
        costs_s: What one more costs by itself: a cell, a boot, and a round's swaps.
        asked: What is asked.
    """
    values = _whole_rounds(ratios, rounds)
    if len(values) < 2:
        return None
    (repeats, blocks), found = _cheapest(values, costs_s, asked, LEAST_ROUNDS)
    assert found.blocks is not None
    # Sessions go there and back.
    if odd := found.blocks % THERE_AND_BACK:
        least = found.blocks + THERE_AND_BACK - odd
        (repeats, blocks), found = _cheapest(values, costs_s, asked, least)
    return _chosen(repeats, found, in_session=blocks)


def _chosen(repeats: int, found: Repeats, in_session: int = 0) -> Chosen:
    assert found.blocks is not None
    assert found.half_width is not None
    assert found.cost_s is not None
    blocks, rounds = found.blocks, 0
    if in_session:
        blocks, rounds = blocks * in_session, blocks
    return Chosen(repeats, blocks, found.half_width, found.cost_s, rounds)


def _cheapest(
    values: np.ndarray, costs_s: Sequence[float], asked: Asked, least: int
) -> tuple[list[int], Repeats]:
    """Return how often each level below the highest is repeated, and all that was reckoned."""
    merged: list[float] = []
    kept: list[int] = []
    cost = 0.0
    for level, own in enumerate(costs_s):
        cost += own
        highest = level == values.ndim - 1
        if highest or values.shape[values.ndim - 1 - level] > 1:
            merged.append(max(cost, LEAST_COST_S))
            kept.append(level)
            cost = 0.0
    shape = [values.shape[values.ndim - 1 - level] for level in reversed(kept)]
    found = choose_repeats(
        values.reshape(shape),
        merged,
        half_width=asked.half_width,
        confidence=asked.confidence,
        least_blocks=least,
    )
    per_level = [1] * (values.ndim - 1)
    for level, repeats in zip(kept[:-1], found.per_level, strict=True):
        per_level[level] = repeats
    return per_level, found


def _whole_blocks(values: Mapping[Place, float]) -> np.ndarray:
    """Return the values of the blocks that have all repeats, of shape (blocks, repeats)."""
    blocks = sorted({block for block, _ in values})
    repeats = sorted({repeat for _, repeat in values})
    whole = [block for block in blocks if all((block, repeat) in values for repeat in repeats)]
    return np.array([[values[block, repeat] for repeat in repeats] for block in whole]).reshape(
        len(whole), len(repeats)
    )


def _whole_rounds(values: Mapping[Place, float], rounds: Mapping[int, int]) -> np.ndarray:
    """Return values of shape (rounds, blocks, repeats): as many as can be had of equal rounds."""
    repeats = sorted({repeat for _, repeat in values})
    blocks = [
        block
        for block in sorted({block for block, _ in values})
        if all((block, repeat) in values for repeat in repeats)
    ]
    of_rounds = list(by_round(((block, block) for block in blocks), rounds).values())
    # The last round may be shorter, and rounds that count as one are longer; two must be left.
    sizes = sorted((len(each) for each in of_rounds), reverse=True)[1:]
    size = max(sizes, key=lambda n: n * sum(len(each) >= n for each in of_rounds), default=0)
    whole = [each[:size] for each in of_rounds if len(each) >= size]
    table = [[[values[block, repeat] for repeat in repeats] for block in each] for each in whole]
    return np.array(table).reshape(len(whole), size, len(repeats))
