"""Find headline metrics that have no value in some blocks, and the reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tare.analysis.model import Comparison, Key
from tare.report.page.words import counted, first_names, metric_of

Why = Literal["left out", "failed", "withheld", "not measured"]
IN_WORDS: Mapping[Why, str] = {
    "left out": "left out by the workload",
    "failed": "because cells failed",
    "withheld": "because cells were withheld",
    "not measured": "not measured there",
}
MOST_NAMED = 2
"""The number of metrics that are named. Any others are counted."""

Block = tuple[str, int]
"""The identity of a run, and the number of a block in it."""


@dataclass(frozen=True)
class Gap:
    """One metric of one arm that has no value in some blocks in which other metrics have one.

    Args:
        workload: The workload.
        metric: The workload and the metric, as sentences name them.
        arm: The arm without a value: that of the effect, or its baseline.
        blocks: The blocks.
        why: Why they have none.
    """

    workload: str
    metric: str
    arm: str
    blocks: frozenset[Block]
    why: Why


Gaps = Mapping[tuple[str, Key], tuple[Gap, ...]]
"""The gaps of effects, by arm and key."""


def gaps_of(comparison: Comparison) -> Gaps:
    """Return the gaps of each headline effect that has any, by its arm and key.

    Effects whose unit is a round of sessions are left out: a round needs no particular block.
    """
    short_of = [
        effect
        for effect in comparison.headlines
        if effect.each == "block" and effect.blocks < comparison.blocks
    ]
    if not short_of:
        return {}
    ran = {(each.run, each.block) for summary in comparison.summaries for each in summary.blocks}
    statuses: dict[tuple[str, int, str, str, str, str], set[str]] = {}
    for run in comparison.runs:
        for cell in run.cells:
            name = (run.run, cell.block, cell.arm, cell.scenario, cell.workload, cell.parameters)
            statuses.setdefault(name, set()).add(cell.status)
    found: dict[tuple[str, Key], tuple[Gap, ...]] = {}
    for effect in short_of:
        key = effect.key
        missing = ran - {(each.run, each.block) for each in effect.block_effects}
        gaps: dict[tuple[str, Why], set[Block]] = {}
        for summary in (effect.arm_summary, effect.baseline_summary):
            for block in missing - {(each.run, each.block) for each in summary.blocks}:
                name = (*block, summary.arm, key.scenario, key.workload, key.parameters)
                gaps.setdefault((summary.arm, _why(statuses.get(name, ()))), set()).add(block)
        found[effect.arm, key] = tuple(
            Gap(key.workload, metric_of(effect), arm, frozenset(blocks), why)
            for (arm, why), blocks in gaps.items()
        )
    return found


def _why(statuses: Collection[str]) -> Why:
    """Return why a block has no value of a metric, given the statuses of its cells."""
    # A cell with status "ok" has every metric that its workload could calculate.
    if "ok" in statuses:
        return "left out"
    if "failed" in statuses:
        return "failed"
    return "withheld" if "withheld" in statuses else "not measured"


def gaps_in_words(gaps: Sequence[Gap], ran: int, where: str = "", *, brief: bool = False) -> str:
    """Return how many blocks lack which metrics, and why; empty without gaps.

    For example ``3 of 8 lack tick/slowdown, left out by the workload``.

    Args:
        gaps: The gaps.
        ran: The number of blocks that have any value.
        where: The name of the run, if there are several.
        brief: Whether the reason is shortened to one or two words.
    """
    if not gaps:
        return ""
    missing = frozenset[Block]().union(*(gap.blocks for gap in gaps))
    metrics = list(dict.fromkeys(gap.metric for gap in gaps))
    why = " or ".join(dict.fromkeys(gap.why if brief else IN_WORDS[gap.why] for gap in gaps))
    return f"{len(missing)} of {ran}{where} lack {first_names(metrics, MOST_NAMED)}, {why}"


def left_out_in_words(gaps: Sequence[Gap], ran: int) -> str:
    """Return for each arm and metric in how many blocks the workload left it out.

    Args:
        gaps: The gaps. Those with another reason are ignored.
        ran: The number of blocks that have any value.
    """
    blocks: dict[tuple[str, str], set[Block]] = {}
    for gap in gaps:
        if gap.why == "left out":
            blocks.setdefault((gap.arm, gap.metric), set()).update(gap.blocks)
    found = [
        f"{arm} has no {metric} in {len(missing)} of {counted(ran, 'block')}"
        for (arm, metric), missing in blocks.items()
    ]
    return f"{'; '.join(found)}." if found else ""
