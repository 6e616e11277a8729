"""The answer of a comparison of two runs: the change of each arm's cost, by resource."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tare.analysis.effects.verdict import LEVEL
from tare.analysis.model import Comparison, ResourceCost
from tare.analysis.runs.change_verdicts import JudgedChange
from tare.analysis.runs.resource_changes import ResourceChange, resource_changes
from tare.analysis.statistics.maxt import least_blocks
from tare.report.figures.palette import ArmStyle, looks
from tare.report.figures.svg import legible
from tare.report.page.missing_values import Gaps, gaps_in_words, gaps_of
from tare.report.page.verdicts import (
    MOST_WORDS,
    NAME,
    ArmLine,
    CostAxis,
    bound,
    capital,
    count_words,
    label_of,
    names_in_words,
    range_in_words,
    size_in_words,
)
from tare.report.page.words import (
    NONE,
    counted,
    difference_text,
    marked,
    metric_name,
    percent,
    short,
)
from tare.units import format_quantity

ANY = "any"
"""The word for an unbounded cost."""
HEADING = 20
"""The approximate number of words in the heading above the sentences."""


def change_heading(before: Comparison, after: Comparison) -> str:
    """Return the heading of the answers, without a full stop."""
    runs = [legible(comparison.runs[0].run) for comparison in (before, after)]
    blocks = [counted(comparison.blocks, "block") for comparison in (before, after)]
    return (
        f"How each arm’s cost compared with {short(before.against, NAME)} changed from run "
        f"{runs[0]} ({blocks[0]}) to run {runs[1]} ({blocks[1]})"
    )


def change_sentences(
    found: Sequence[JudgedChange], before: Comparison, after: Comparison
) -> dict[str, str]:
    """Return sentences on the change of each arm's costs, by arm; brief if they are too long.

    Args:
        found: Judged changes against the comparison's baseline.
        before: The first run's comparison.
        after: The second run's comparison.
    """
    return _sentences_by_arm(_changes_by_arm(found, before), (before, after))


def _sentences_by_arm(
    by_arm: Mapping[str, Sequence[ResourceChange]], runs: tuple[Comparison, Comparison]
) -> dict[str, str]:
    sentences: dict[str, str] = {}
    gaps = [(run.blocks, gaps_of(run)) for run in runs]
    for brief in (False, True):
        sentences = {arm: _sentences(changes, gaps, brief) for arm, changes in by_arm.items()}
        if HEADING + count_words(sentences.values()) <= MOST_WORDS:
            break
    return sentences


def change_lines(
    found: Sequence[JudgedChange], before: Comparison, after: Comparison
) -> tuple[ArmLine, ...]:
    """Return the answer for each arm, with a bar for each resource.

    Args:
        found: Judged changes against the comparison's baseline.
        before: The first run's comparison.
        after: The second run's comparison.
    """
    by_arm = _changes_by_arm(found, before)
    costs = [change.cost for changes in by_arm.values() for change in changes]
    axis = CostAxis(costs)
    style: Mapping[str, ArmStyle] = looks(before.arms, before.baseline)
    lines = []
    for arm, sentence in _sentences_by_arm(by_arm, (before, after)).items():
        costs = [change.cost for change in by_arm[arm]]
        emulated = any(cost.emulated for cost in costs)
        bars = tuple(axis.bar(cost) for cost in costs)
        lines.append(
            ArmLine(
                marked(arm, emulated), sentence, emulated, style[arm].ink.role, False, bars, arm
            )
        )
    return tuple(lines)


def _changes_by_arm(
    found: Sequence[JudgedChange], comparison: Comparison
) -> dict[str, list[ResourceChange]]:
    by_arm: dict[str, list[ResourceChange]] = {}
    for change in resource_changes(
        found, comparison.confidence, comparison.margin, comparison.shown_as
    ):
        by_arm.setdefault(change.cost.arm, []).append(change)
    return by_arm


def _sentences(
    changes: Sequence[ResourceChange], gaps: Sequence[tuple[int, Gaps]], brief: bool
) -> str:
    enough = [change for change in changes if change.cost.finding != "preliminary"]
    few = [change for change in changes if change.cost.finding == "preliminary"]
    typical = [change for change in enough if change.cost.resource != "latency-worst"]
    worst = [change for change in enough if change.cost.resource == "latency-worst"]
    texts = [_clauses(typical, brief), _clauses(worst, brief)]
    alike: dict[tuple[int, str], list[ResourceCost]] = {}
    for change in few:
        alike.setdefault((change.cost.blocks, _lacking(change, gaps)), []).append(change.cost)
    for (so_many, why), own in alike.items():
        what = "" if len(own) == len(changes) else f" on {names_in_words(own)}"
        counts = f"{so_many} of the {least_blocks(LEVEL)} needed in each run"
        text = f"too few {own[0].each}s for a verdict{what} ({counts})"
        texts.append(f"{text}: {why}" if why else text)
    return " ".join(f"{capital(text)}." for text in texts if text)


def _lacking(change: ResourceChange, gaps: Sequence[tuple[int, Gaps]]) -> str:
    """Return the reasons for missing values in either run; empty if none are missing."""
    arm, keys = change.cost.arm, [one.change.key for one in change.changes if one.change.ratio]
    texts = [
        gaps_in_words([gap for key in keys for gap in own.get((arm, key), ())], ran, where)
        for (ran, own), where in zip(gaps, (" in the first run", " in the second"), strict=True)
    ]
    return ", and ".join(filter(None, texts))


def _clauses(changes: Sequence[ResourceChange], brief: bool) -> str:
    """Return clauses on these changes, one for each kind of finding."""
    of: dict[str, list[ResourceCost]] = {}
    for change in changes:
        of.setdefault(change.cost.finding, []).append(change.cost)
    parts = []
    for finding, words in (("slower", "costs more"), ("faster", "costs less")):
        if costs := of.get(finding):
            parts.append(f"{words}: {_sizes(costs, brief)}")
    if same := of.get("same"):
        parts.append(
            f"{names_in_words(same)} unchanged (within ±{bound(max(c.margin for c in same))})"
        )
    if bounded := of.get("bounded"):
        most = bound(max(cost.largest for cost in bounded) - 1)
        parts.append(f"{names_in_words(bounded)}: no change larger than {most}")
    if undecided := of.get("undecided"):
        parts.append(f"undecided: {names_in_words(undecided) if brief else _ranges(undecided)}")
    parts += [_without_ratio(change) for change in changes if change.cost.finding == "no-ratio"]
    return "; ".join(parts)


def _sizes(costs: Sequence[ResourceCost], brief: bool) -> str:
    return ", ".join(
        f"{label_of(cost)} {size_in_words(cost.cost)}"
        + ("" if brief else f" ({range_in_words(cost)})")
        for cost in costs
    )


def _ranges(costs: Sequence[ResourceCost]) -> str:
    return ", ".join(f"{label_of(cost)} ({range_in_words(cost)})" for cost in costs)


def _without_ratio(change: ResourceChange) -> str:
    """Return a clause on metrics that can be 0, which have differences and no ratio."""
    name = label_of(change.cost)
    for word in ("worse", "better"):
        for one in change.changes:
            if one.verdict == word:
                size = difference_text(one.change.change, one.change.before.unit)
                return f"{name} {word} by {size} ({metric_name(one.change.key.metric)})"
    if all(one.verdict == "equivalent" for one in change.changes):
        return f"{name} unchanged"
    open_sizes = [size for one in change.changes if (size := open_cost(one)) != NONE]
    if not open_sizes:
        return f"{name} undecided"
    # Differences of several metrics cannot be ordered, so the first represents them.
    if open_sizes[0] == ANY:
        return f"{name} undecided (no cost is excluded)"
    return f"{name} undecided (a cost up to {open_sizes[0]} more is not excluded)"


def open_cost(one: JudgedChange) -> str:
    """Return the largest cost that an inconclusive change does not exclude; a dash otherwise."""
    if one.verdict != "inconclusive":
        return NONE
    if apart := one.difference_not_excluded:
        return format_quantity(apart, one.change.before.unit) if math.isfinite(apart) else ANY
    if not one.not_excluded:
        return NONE
    return percent(one.not_excluded) if one.not_excluded < 1e6 else ANY
