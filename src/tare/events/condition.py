"""What the hosts of a run look like before they measure, as far as they were looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.events.results import CheckResult

if TYPE_CHECKING:
    from tare.events.model import Preflight


def checks_since(before: tuple[CheckResult, ...], event: Preflight) -> tuple[CheckResult, ...]:
    """Return what was found of all hosts, once one is looked at anew.

    Args:
        before: What was found until then.
        event: What is found now; where it names no host, of the run's only one.
    """
    others = (each for each in before if event.host and each.host != event.host)
    now = (
        CheckResult(check.name, check.level, check.found, check.hint, event.host)
        for check in event.checks
    )
    return (*others, *now)
