"""What became of every cell of a run that several hosts share."""

from __future__ import annotations

from tare.events import Fold
from tare.run.account import Account, tallied


def shared_account(fold: Fold, baseline: str) -> Account:
    """Return what became of the cells of all blocks that were begun.

    Args:
        fold: The run's events so far.
        baseline: The arm that the others are compared with.
    """
    planned = sum(
        fold.joined[host].cells_per_block
        for host in fold.block.hosts.values()
        if host in fold.joined
    )
    return tallied((done.result for done in fold.finished.values()), planned, baseline)
