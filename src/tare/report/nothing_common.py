"""Why two runs cannot be compared: they have no headline effect in common."""

from __future__ import annotations

from tare.analysis.model import Comparison
from tare.report.svg import legible
from tare.report.words import joined


def why_nothing(before: Comparison, after: Comparison) -> tuple[str, str]:
    """Return why two runs have no headline effect in common, and what to do about it.

    Args:
        before: The first run.
        after: The second, with the same baseline.
    """
    base = legible(before.baseline)
    arms = [sorted({effect.arm for effect in each.effects}) for each in (before, after)]
    for comparison, own in zip((before, after), arms, strict=True):
        if not own:
            run = legible(comparison.runs[0].run)
            return (
                f"the run {run} has no arm that is compared with {base}, and runs are compared by "
                f"what their arms cost against {base}, never by values of different days",
                "name a run with another arm beside it; two hosts are compared within one run, "
                "whose study lists them under `hosts:` (docs/hosts.md)",
            )
    if not set(arms[0]) & set(arms[1]):
        first, second = (joined([legible(arm) for arm in own]) for own in arms)
        return (
            f"the runs have no arm in common but {base}: the first has {first}, the second "
            f"{second}",
            "an arm is known by its name: call it the same in both studies",
        )
    return (
        "the runs have no headline effect in common: no arm of both did the same work in the same "
        "scenario",
        "name two runs of one study, or of studies with the same workloads and parameters",
    )
