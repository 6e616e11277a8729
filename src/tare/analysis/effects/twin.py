"""The baseline and its twin taken together: the same machine, booted twice in each block."""

from __future__ import annotations

import math

from tare.analysis.data.grouping import Block, BlockId, Measured


def taken_together(measured: Measured, arms: tuple[str, ...]) -> dict[BlockId, Block]:
    """Return the blocks of several arms that are the same: of each block what there is.

    Where each has one value in a block, their mean stands for them (geometric, where all values
    are above zero); repeats are kept as repeats.

    Args:
        measured: The values of one metric.
        arms: The arms.
    """
    geometric = measured.positive(arms)
    found: dict[BlockId, list[Block]] = {}
    for arm in arms:
        for block, values in measured.arms.get(arm, {}).items():
            found.setdefault(block, []).append(values)
    return {block: _joined(several, geometric) for block, several in sorted(found.items())}


def _joined(several: list[Block], geometric: bool) -> Block:
    if len(several) == 1:
        return several[0]
    if any(len(block) != 1 or len(block[0]) != 1 for block in several):
        return [repeat for block in several for repeat in block]
    values = [block[0][0] for block in several]
    if geometric:
        return [[math.exp(math.fsum(map(math.log, values)) / len(values))]]
    return [[math.fsum(values) / len(values)]]
