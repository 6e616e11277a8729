"""Arms that always fail, on one host of several or on all: they end as they do on one host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tare.run.account import BLOCKS, always_failed, arm_ended

if TYPE_CHECKING:
    from tare.events import ArmEnded, Fold


def ended_on(fold: Fold, host: str) -> frozenset[str]:
    """Return the arms that a host measures no more.

    Args:
        fold: The run's events so far.
        host: The host.
    """
    return frozenset(each.arm for each in fold.arms_ended if each.host in ("", host))


def newly_failed(fold: Fold, arms: Sequence[str], line: Sequence[int], host: str) -> list[ArmEnded]:
    """Return the arms that end now, because all that they tried failed in the newest blocks.

    Args:
        fold: The run's events so far.
        arms: All arms of the study, in its order.
        line: The blocks that are looked at together, in the order in which they ended: those of
            one host where each measures all arms, otherwise all.
        host: That host; empty where they are all hosts' together.
    """
    over = {each.arm for each in fold.arms_ended if each.host in ("", host)}
    newest = tuple(line[-BLOCKS:])
    if len(newest) < BLOCKS:
        return []
    cells = [done.result for done in fold.finished.values() if done.result.block in line]
    return [
        arm_ended(arm, newest[-1], [cell for cell in cells if cell.arm == arm], host)
        for arm in arms
        if arm not in over and always_failed(arm, cells, newest)
    ]
