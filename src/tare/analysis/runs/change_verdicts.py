"""Verdicts on changes of effects from one run to another, valid for all of a page together.

Every change of one arm's headline effects is in one family: an unchanged arm is declared worse or
better anywhere in at most 5 % of comparisons (Bonferroni over intervals). Choosing another baseline
after seeing the results amounts to looking at all baselines, so their changes are then one family.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tare.analysis.data.settings import Settings
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.estimates import rare_events
from tare.analysis.effects.results import Scale, VerdictWord
from tare.analysis.effects.verdict import LEVEL, MOST_BEYOND, percent
from tare.analysis.runs.run_changes import SPOILS, Change, changes
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.shares import exact_share


@dataclass(frozen=True)
class JudgedChange:
    """One change with its verdict.

    Args:
        change: The change, with an interval that is not corrected for other changes.
        baseline: The arm that both effects are against.
        verdict: The verdict on the second run against the first, as for effects.
        reason: Why its interval alone does not decide the verdict; empty if it does.
        family: Changes in its family.
    """

    change: Change
    baseline: str
    verdict: VerdictWord
    reason: str
    family: int

    @property
    def not_excluded(self) -> float | None:
        """The greatest cost that the interval does not exclude; 0 if it excludes every cost."""
        return None if self.cost is None else max(0.0, self.cost[2] - 1)

    @property
    def difference_not_excluded(self) -> float | None:
        """The greatest worsening that is not excluded, in the metric's unit; None for ratios.

        Infinite if the value was 0 in every boot of both runs, because that bounds nothing.
        """
        one = self.change
        if one.ratio:
            return None
        if one.low == one.high == 0:
            return math.inf
        ends = {"lower": (one.high,), "higher": (-one.low,), "neither": (one.high, -one.low)}
        return max(0.0, *ends[one.before.better])

    @property
    def cost(self) -> tuple[float, float, float] | None:
        """The change as a factor of cost (above 1 is worse), and its ends; None for differences."""
        one = self.change
        if not one.ratio or one.change <= 0:
            return None
        if one.before.better == "higher":
            far = 1 / one.low if one.low > 0 else math.inf
            return 1 / one.change, 1 / one.high if one.high else 0.0, far
        return one.change, one.low, one.high


def changed(
    before: Mapping[str, Comparison], after: Mapping[str, Comparison], chosen: str
) -> tuple[JudgedChange, ...]:
    """Judge all changes that two runs share, against each baseline.

    Args:
        before: The first run's comparisons by baseline.
        after: The second run's comparisons by baseline.
        chosen: The baseline that was chosen beforehand.

    Returns:
        Those against ``chosen`` first.
    """
    order = [chosen, *(name for name in before if name != chosen)]
    confidence = before[chosen].confidence
    plain = {name: changes(before[name], after[name], confidence) for name in order}
    others = sum(c.before.headline for name in order[1:] for c in plain[name])
    found: list[JudgedChange] = []
    for name in order:
        sizes = Counter((c.arm, c.before.headline) for c in plain[name])
        families = [
            max(sizes[c.arm, c.before.headline], 0 if name == chosen else others)
            for c in plain[name]
        ]
        wider = {
            family: changes(before[name], after[name], 1 - LEVEL / family)
            for family in set(families)
        }
        for number, (change, family) in enumerate(zip(plain[name], families, strict=True)):
            wide = wider[family][number]
            verdict, reason = _judged(change, wide, _margin(before[name], change))
            found.append(JudgedChange(change, name, verdict, reason, family))
    return tuple(found)


def _margin(before: Comparison, change: Change) -> float:
    """Return a change's practical margin: relative, or for differences in the metric's unit."""
    settings = replace(Settings.of(before.runs), margin=before.margin)
    scale: Scale = "ratio" if change.ratio else "difference"
    return settings.margin_of(change.key, scale, change.value)


def _judged(change: Change, wide: Change, margin: float) -> tuple[VerdictWord, str]:
    """Return the verdict, and why the interval alone does not decide it; empty if it does."""
    even = 1.0 if change.ratio else 0.0
    low_even, high_even = (1 / (1 + margin), 1 + margin) if change.ratio else (-margin, margin)
    if min(change.before.blocks, change.after.blocks) < least_blocks(LEVEL):
        return "preliminary", ""
    beyond = not low_even <= change.change <= high_even
    if beyond and not wide.low <= even <= wide.high:
        if change.before.better == "neither":
            return "differs", ""
        if change.flattered:
            return "inconclusive", change.flattered
        return ("worse" if change.looks_worse else "better"), ""
    # A value of 0 in every boot of both runs has no margin, and nothing bounds it.
    if margin > 0 and low_even <= change.low and change.high <= high_even:
        reason = next(
            (
                flag.text
                for effect in (change.before, change.after)
                for flag in effect.flags
                if flag.kind in SPOILS
            ),
            _rare_events(change, margin),
        )
        return ("inconclusive" if reason else "equivalent"), reason
    return "inconclusive", ""


def _rare_events(change: Change, margin: float) -> str:
    """Describe a run with too many blocks that may be beyond the margin; empty if there is none.

    The interval of a mean does not reflect rare events; verdicts within a run check for them too.
    """
    if change.ratio:
        return ""
    for when, effect in (("first", change.before), ("second", change.after)):
        values = [block.value for block in effect.block_effects]
        if rare_events(values, margin, LEVEL) is None:
            continue
        found = rare_events([value - change.before.estimate for value in values], margin, LEVEL)
        share = found or exact_share(0, len(values), 1 - 2 * LEVEL)
        if share.high > MOST_BEYOND:
            return (
                f"in the {when} run, {share.count} of {share.total} blocks are beyond the margin, "
                f"and up to {percent(share.high)} of all may be"
            )
    return ""
