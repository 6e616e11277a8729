"""Counts of planned cells by their result, arms that end early, and the last event of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tare.errors import TareError
from tare.events import ArmEnded, RunFinished
from tare.study.model.sessions import boot_of

if TYPE_CHECKING:
    from tare.events import Fold
    from tare.events.results import CellResult
    from tare.study.model.study import Study
    from tare.study.planning.cells import Batch, Cell
    from tare.study.planning.plan import Plan

Status = Literal["complete", "stopped", "failed"]
BLOCKS = 2
"""An arm ends once every attempted cell of it failed in this many blocks."""
NOTHING_COMPARED = (
    "nothing is compared: every arm but the baseline is skipped, for the reasons listed above"
)
_MACHINE = re.compile(r"tare-[0-9a-f]+(?:-[0-9a-f]+)?-\d+-([a-z][a-z0-9-]*)")
"""A machine's name: the run's identity, a number, its role."""
_PASSING = re.compile(r"(?<=\()\d+(?=\))|(?<=\[)\d+(?=\])|(?<=\bpid )\d+|(?<=\[) *\d+\.\d+(?=\])")
"""The parts of a message that differ at each try: a process's number (``haproxy (1924)``,
``sshd[1924]``, ``pid 1924``), and the time in front of a kernel message (``[   16.123591]``)."""

MOST_SHOWN_REASONS = 10
STATUS_WORDS = {
    "ok": "ok",
    "failed": "failed",
    "withheld": "withheld",
    "skipped": "skipped with their arm",
    "left": "not begun",
}


@dataclass(frozen=True)
class CellCounts:
    """The results of the cells of all blocks that were begun.

    Args:
        planned: The number of these cells.
        counts: The numbers of cells that ended as ``ok``, ``failed`` and ``withheld``; that were
            ``skipped`` because their arm had ended; and that are ``left`` because the run ended
            before.
        reasons: The reasons why cells do not count, each with the number of its cells, the
            commonest first.
        baseline_counts: Whether any cell of the baseline counts.
    """

    planned: int
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    baseline_counts: bool

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers for the last event."""
        return {"planned": self.planned, **self.counts}


def account(plan: Plan, fold: Fold) -> CellCounts:
    """Count the results of the cells that were planned.

    Args:
        plan: The run's plan.
        fold: The run's events so far.
    """
    done: list[CellResult] = []
    planned, skipped = 0, 0
    ended = {each.arm: each.block for each in fold.arms_ended}
    for block in range(1, fold.block.number + 1):
        for batch in plan.block(block):
            for cell in batch.cells:
                planned += 1
                if cell.id in fold.finished:
                    done.append(fold.finished[cell.id].result)
                elif block > ended.get(cell.arm, block):
                    skipped += 1
    return tallied(done, planned, plan.study.baseline, skipped)


def tallied(
    cells: Iterable[CellResult], planned: int, baseline: str, skipped: int = 0
) -> CellCounts:
    """Count the results of cells if only their number was planned.

    Args:
        cells: The cells that ended.
        planned: The number of planned cells.
        baseline: The arm that the others are compared with.
        skipped: The number of cells that were not tried because their arm had ended.
    """
    counts = dict.fromkeys(("ok", "failed", "withheld", "skipped", "left"), 0)
    counts["skipped"] = skipped
    reasons: Counter[str] = Counter()
    first: dict[str, str] = {}
    compared = False
    for cell in cells:
        counts[cell.status] += 1
        compared |= cell.arm == baseline and cell.status == "ok"
        if cell.status != "ok":
            reason = _without_names(cell.reason)
            reasons[first.setdefault(_PASSING.sub("", reason), reason)] += 1
    counts["left"] = max(planned - sum(counts.values()), 0)
    return CellCounts(planned, counts, dict(reasons.most_common()), compared)


def run_finished(
    cells: CellCounts, fold: Fold, baseline: str, status: Status, reason: str, wall_s: float
) -> RunFinished:
    """Return a run's last event; a run that lacks cells, or its baseline, is not complete.

    Args:
        cells: The results of its cells.
        fold: Its events so far.
        baseline: The arm that the others are compared with.
        status: Its status according to its blocks alone.
        reason: The reason for this status.
        wall_s: Seconds that it took.
    """
    if status == "complete" and cells.counts["left"]:
        status, reason = "failed", f"{cells.counts['left']} planned cells were never measured"
    elif status == "complete" and not cells.baseline_counts:
        status, reason = "failed", f"no cell of the baseline {baseline} counts: nothing is compared"
    return RunFinished(
        status=status,
        reason=reason,
        cells=cells.numbers,
        reasons=dict(cells.reasons),
        wall_s=wall_s,
        booting_s=fold.booting_s,
        measuring_s=fold.measuring_s,
    )


def _without_names(reason: str) -> str:
    """Return a reason without the names of machines, so that equal reasons are counted together."""
    return _MACHINE.sub(r"the \1", reason) or "no reason was reported"


def failing_arms(plan: Plan, fold: Fold, block: int) -> list[ArmEnded]:
    """Return the arms that end after a block, because all their cells failed in two blocks.

    Args:
        plan: The run's plan.
        fold: The run's events so far.
        block: The block that has just ended.
    """
    over = {each.arm for each in fold.arms_ended}
    cells = [done.result for done in fold.finished.values()]
    return [
        arm_ended(arm, block, [cell for cell in cells if cell.arm == arm])
        for arm in plan.arms
        if arm not in over and always_failed(arm, cells, range(block - BLOCKS + 1, block + 1))
    ]


def always_failed(arm: str, cells: Iterable[CellResult], blocks: Collection[int]) -> bool:
    """Return whether an arm was tried in each of these blocks and every attempted cell failed."""
    tried = [cell for cell in cells if cell.arm == arm and cell.block in blocks]
    everywhere = {cell.block for cell in tried} == set(blocks)
    return everywhere and all(cell.status == "failed" for cell in tried)


def arm_ended(arm: str, block: int, cells: Collection[CellResult], host: str = "") -> ArmEnded:
    """Return the end of an arm after a block, with the commonest reason why its cells failed.

    Args:
        arm: The arm.
        block: The block after which it ends.
        cells: All its cells that ended.
        host: The host on which it ends, if several hosts each measure all arms.
    """
    failed = [cell.reason for cell in cells if cell.status == "failed"]
    ((reason, _),) = Counter(map(_without_names, failed)).most_common(1)
    return ArmEnded(
        arm=arm, block=block, tried=len(cells), failed=len(failed), reason=reason, host=host
    )


def require_worth(ended: Iterable[ArmEnded], baseline: str, *, strict: bool) -> None:
    """Check that a run is worth continuing after arms ended.

    Raises:
        TareError: The baseline has ended, so nothing can be compared; or, if ``strict``, any arm.
    """
    for each in ended:
        on = f" on {each.host}" if each.host else ""
        failed = f"every cell of {each.arm}{on} failed for {BLOCKS} blocks ({each.reason})"
        if each.arm == baseline:
            raise TareError(f"{failed}, and it is the baseline: there is nothing to compare with")
        if strict:
            raise TareError(f"{failed}, and --strict ends the run then")


def nothing_compared(
    arms: Mapping[str, str | None], baseline: str, running: Collection[str]
) -> bool:
    """Return whether only the baseline and its twins run.

    Args:
        arms: The study's arms, each with the arm that it repeats.
        baseline: The arm that others are compared with.
        running: The arms that run.
    """
    return all(baseline in (name, arms[name]) for name in running)


def unfinished(plan: Plan, block: int, finished: Container[str]) -> list[tuple[Batch, list[Cell]]]:
    """Return the batches of a block in their order, each with its unfinished cells.

    Args:
        plan: The run's plan.
        block: Number of the block, from 1.
        finished: Identities of the finished cells.
    """
    return [
        (batch, [cell for cell in batch.cells if cell.id not in finished])
        for batch in plan.block(block)
    ]


def summary_lines(finished: RunFinished) -> list[tuple[str, str]]:
    """Return the last lines of a run in the terminal, each with its style; the sum is last."""
    lines = [
        (f"  {count} × {reason}", "red")
        for reason, count in list(finished.reasons.items())[:MOST_SHOWN_REASONS]
    ]
    if (more := len(finished.reasons) - MOST_SHOWN_REASONS) > 0:
        lines.append((f"  and {more} more reasons: they are in the report", "red"))
    counts = finished.cells
    parts = [f"{counts[name]} {words}" for name, words in STATUS_WORDS.items() if counts.get(name)]
    total = f"{finished.status}: {counts.get('planned', 0)} cells planned, {', '.join(parts)}"
    if finished.status != "complete" and finished.reason:
        total += f" ({finished.reason})"
    whole = finished.status == "complete" and counts.get("ok") == counts.get("planned")
    return [*lines, (total, "green" if whole else "bold red")]


def account_of_sessions(fold: Fold, study: Study) -> CellCounts:
    """Count the results of the cells of all sessions that were begun.

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
    """Return the number of cells in a block over all boots.

    The arms of a boot that was not up yet are assumed to have as many cells as the other arms.
    """
    known = {arm: n for each in fold.sessions.begun.values() for arm, n in each.cells.items()}
    share = sum(known.values()) / len(known) if known else 0.0
    boots = {each.boot for each in fold.sessions.begun.values()}
    unknown = sum(boot_of(study, arm) not in boots for arm in study.arms)
    return sum(known.values()) + round(share * unknown)
