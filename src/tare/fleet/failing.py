"""Arms that always fail, on one host of several or on all: they end as they do on one host."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tare.run.lifecycle.account import BLOCKS, always_failed, arm_ended

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tare.events import ArmEnded, Fold
    from tare.fleet.measured import Measured


def ended_on(fold: Fold, host: str) -> frozenset[str]:
    """Return the arms that a host measures no more.

    Args:
        fold: The run's events so far.
        host: The host.
    """
    return frozenset(each.arm for each in fold.arms_ended if each.host in ("", host))


def newly_failed(
    measured: Measured, fold: Fold, arms: Sequence[str], line: Iterator[int], host: str
) -> list[ArmEnded]:
    """Return the arms that end now, because all that they tried failed in the newest blocks.

    Args:
        measured: The cells of each block.
        fold: The run's events so far.
        arms: All arms of the study, in its order.
        line: The blocks that are looked at together, the newest first: those of one host where
            each measures all arms, otherwise all.
        host: That host; empty where they are all hosts' together.
    """
    newest = tuple(islice(line, BLOCKS))
    if len(newest) < BLOCKS:
        return []
    over = {each.arm for each in fold.arms_ended if each.host in ("", host)}
    cells = [done.result for block in newest for done in measured.of(block)]
    failed = [arm for arm in arms if arm not in over and always_failed(arm, cells, newest)]
    if not failed:
        return []
    blocks = {*newest, *line}
    tried = [done.result for done in fold.finished.values() if done.result.block in blocks]
    return [
        arm_ended(arm, newest[0], [cell for cell in tried if cell.arm == arm], host)
        for arm in failed
    ]
