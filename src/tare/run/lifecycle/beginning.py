"""What is told of a run before its first block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tare.events import Planned, Skipped
from tare.run.preflight.checking import image_events

if TYPE_CHECKING:
    from tare.events import EventLog, Fold, PlatformChecked
    from tare.platforms.contract import Prepared
    from tare.study.planning.plan import Plan, Skip


def tell_plan(
    log: EventLog,
    fold: Fold,
    checked: Sequence[PlatformChecked],
    plan: Plan,
    prepared: Mapping[str, Prepared],
    *,
    anew: bool = False,
) -> None:
    """Append what goes before the first block, but for what a former process has told.

    Args:
        log: Where it is appended.
        fold: The run's events so far.
        checked: What was found out about each arm.
        plan: What will run.
        prepared: What each arm boots.
        anew: Whether what the arms can do is told again, for it has changed.
    """
    for event in checked:
        if anew or event.arm not in fold.platforms:
            log.append(event)
    if fold.planned is not None:
        return
    tell_skips(log, plan.skipped)
    for image in image_events(prepared):
        log.append(image)
    log.append(
        Planned(
            blocks_most=plan.study.blocks.most,
            cells_per_block=sum(len(batch.cells) for batch in plan.block(1)),
            expected_block_s=plan.block_s,
            notes=plan.notes,
        )
    )


def tell_skips(log: EventLog, skipped: Iterable[Skip]) -> None:
    """Append what is left out, each with its reason."""
    for skip in skipped:
        log.append(
            Skipped(
                arm=skip.arm, scenario=skip.scenario, workload=skip.workload, reason=skip.reason
            )
        )
