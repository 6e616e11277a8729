"""What became of every cell of a run that several hosts share."""

from __future__ import annotations

from collections import Counter

from tare.events import Fold
from tare.fleet.failing import ended_on
from tare.run.lifecycle.account import Account, tallied
from tare.study.model.study import Study


def shared_account(fold: Fold, study: Study) -> Account:
    """Return what became of the cells of all blocks that were begun.

    Args:
        fold: The run's events so far.
        study: What is measured.
    """
    measured: Counter[tuple[int, str]] = Counter()
    for done in fold.finished.values():
        measured[done.result.block, _host_of(fold, study, done.result.block, done.result.arm)] += 1
    planned, skipped = 0, 0
    for block, host in _parts(fold):
        cells = fold.joined[host].cells_per_block
        planned += cells
        # All else of a block that ended was tried.
        ended = ended_on(fold, host)
        if study.hosts:
            ended = frozenset(arm for arm in ended if study.host_of(arm) == host)
        if block in fold.block.finished and ended:
            skipped += cells - measured[block, host]
    results = (done.result for done in fold.finished.values())
    return tallied(results, planned, study.baseline, skipped)


def _parts(fold: Fold) -> list[tuple[int, str]]:
    """Return the blocks that were begun, each with every host that measures in it."""
    if fold.block.hosts:
        return [each for each in fold.block.hosts.items() if each[1] in fold.joined]
    return [(block, host) for block in range(1, fold.block.number + 1) for host in fold.joined]


def _host_of(fold: Fold, study: Study, block: int, arm: str) -> str:
    return fold.block.hosts.get(block) or study.host_of(arm)
