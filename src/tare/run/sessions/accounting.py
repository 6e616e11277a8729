"""What became of the cells of the sessions that were begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.run.lifecycle.account import Account, tallied
from tare.study.model.sessions import boot_of

if TYPE_CHECKING:
    from tare.events import Fold
    from tare.study.model.study import Study


def account_of_sessions(fold: Fold, study: Study) -> Account:
    """Return what became of the cells of all sessions that were begun.

    Args:
        fold: The run's events so far.
        study: Its study.
    """
    ended = {each.arm: each.block for each in fold.arms_ended}
    planned = skipped = 0
    for session in fold.sessions.begun.values():
        for arm, cells in session.cells.items():
            planned += cells * len(session.blocks)
            after = [block for block in session.blocks if block > ended.get(arm, block)]
            skipped += cells * len(after)
    done = [each.result for each in fold.finished.values()]
    return tallied(done, planned, study.baseline, skipped)


def cells_in_a_block(fold: Fold, study: Study) -> int:
    """Return how many cells a block has of all boots, as far as that is known.

    Of a boot that was not up yet each arm is taken to have as many as the others.
    """
    known = {arm: n for each in fold.sessions.begun.values() for arm, n in each.cells.items()}
    share = sum(known.values()) / len(known) if known else 0.0
    boots = {each.boot for each in fold.sessions.begun.values()}
    unknown = sum(boot_of(study, arm) not in boots for arm in study.arms)
    return sum(known.values()) + round(share * unknown)
