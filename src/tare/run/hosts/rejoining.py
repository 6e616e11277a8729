"""Whether a host that comes back to a run that several share is what it was, as a resumed run's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tare.errors import InputError
from tare.run.lifecycle.resuming import changed_arms, changed_hosts, changed_versions, hosts_now
from tare.run.lifecycle.versions import run_versions
from tare.run.preflight.arm_facts import require_still_usable

if TYPE_CHECKING:
    from tare.events import HostJoined
    from tare.platforms.contract import Prepared, Verdict
    from tare.run.lifecycle.setup import RunSetup
    from tare.study.model.study import Study
    from tare.study.planning.plan import Plan

HINT = "make it as it was and go on with `tare resume DIR --cluster …`, or start a new run"


class HostChanged(InputError):
    """A host is not what it was when it joined: trying again is of no use."""


def require_same_host(
    before: HostJoined, study: Study, setup: RunSetup, verdicts: Mapping[str, Verdict]
) -> None:
    """See that a host, its versions and what its arms can do are as they were.

    Args:
        before: What it said when it joined the last time.
        study: Its part of the study.
        setup: The host as it is now.
        verdicts: What is found out now about each arm.

    Raises:
        HostChanged: Something is not, all of which is told.
    """
    then = {event.arm: event for event in before.checked}
    menus = {name for name, spec in study.computers.items() if spec.boot is not None}
    try:
        require_still_usable(then, verdicts)
    except InputError as error:
        raise HostChanged(error.message, error.hint) from error
    found = [
        *changed_hosts(before.facts, hosts_now(setup), menus),
        *changed_versions(before.versions, run_versions()),
        *changed_arms(then, verdicts),
    ]
    if found:
        raise HostChanged(f"it is not as it was when it joined the run: {'; '.join(found)}", HINT)


def require_same_work(before: HostJoined, plan: Plan, prepared: Mapping[str, Prepared]) -> None:
    """See that a host would measure as many cells as before, of arms that boot the same.

    Args:
        before: What it said when it joined the last time.
        plan: What it would measure now.
        prepared: What its arms would boot.

    Raises:
        HostChanged: It would not.
    """
    cells = sum(len(batch.cells) for batch in plan.block(1))
    if cells != before.cells_per_block:
        raise HostChanged(
            f"a block would have {cells} cells there, and had {before.cells_per_block}", HINT
        )
    for arm, now in prepared.items():
        then = before.images.get(arm, now.digest)
        if then != now.digest:
            raise HostChanged(
                f"what arm {arm} boots has changed there ({then[:12]} then, {now.digest[:12]} "
                "now), so its cells would not compare",
                HINT,
            )
