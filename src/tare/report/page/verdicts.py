"""The answer of a report: what each arm costs by resource, in one sentence and a row of bars.

A sentence claims only what the simultaneous intervals of `ResourceCost` show, so that all claims of
a page are true together with the study's confidence. Maxima come last, in a sentence of their own.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.families import simultaneous
from tare.analysis.effects.results import cost_ends
from tare.analysis.effects.verdict import LEVEL, slow_unseen
from tare.analysis.model import (
    Comparison,
    Effect,
    FailureRate,
    FlagKind,
    PlatformResult,
    ResourceCost,
    ResourceName,
)
from tare.analysis.statistics.maxt import least_blocks
from tare.references.missing_values import why_it_did_not_run
from tare.report.figures.palette import ArmStyle
from tare.report.figures.svg import legible
from tare.report.page.missing_values import Gap, Gaps, gaps_in_words, gaps_of
from tare.report.page.words import (
    QUANTITY,
    Names,
    Part,
    counted,
    difference_text,
    joined,
    marked,
    metric_of,
    percent,
    ratio_interval,
    short,
)
from tare.units import format_number

HIDDEN: Mapping[FlagKind, str] = {
    "slow-boots": "slow boots",
    "two-humped": "two groups of boots",
    "serial": "dependence between blocks",
    "together": "dependence between blocks",
    "seldom": "events that few boots have",
}
"""Flags that reveal facts the means hide, each with the fact it reveals."""

OF_ARM = ("together",)
"""Flags that concern all metrics of an arm at once."""

MOST_HIDDEN = 2

NAME = 40
"""The most characters of an arm's name in sentences."""

MOST_WORDS = 80
"""The most words of an answer with its heading. If it is longer, sentences are shortened."""

LABELS: Mapping[ResourceName, str] = {
    "cpu": "CPU",
    "memory": "memory",
    "disk": "disk",
    "network": "network",
    "latency": "typical latency",
    "latency-worst": "worst latency",
    "application": "applications",
    "work": "work",
}
"""What a resource is called in sentences, tables, and above its bar."""

NO_BREAK = "\u00a0"
"""A space at which lines do not break."""

WIDEST = 64.0
"""The largest cost factor on the axis of the bars."""


@dataclass(frozen=True)
class CostBar:
    """One arm's cost in one resource: a number, its interval, and where they are on an axis.

    Args:
        resource: The resource, as the page's filters name it.
        label: Its name.
        value: The cost in words.
        range: Its interval in words; empty without one.
        finding: What the interval shows.
        low: The lower end of the interval on the axis, from 0 to 100.
        high: Its upper end.
        at: The estimate on the axis; None without one.
        even: The place of "no difference" on the axis.
        about: All of it in words.
    """

    resource: str
    label: str
    value: str
    range: str
    finding: str
    low: float
    high: float
    at: float | None
    even: float
    about: str


@dataclass(frozen=True)
class ArmLine:
    """One arm's answer on the first screen; ``role`` is its colour, ``absent``: no values."""

    arm: str
    sentence: str
    emulated: bool
    role: str
    absent: bool = False
    bars: tuple[CostBar, ...] = ()
    name: str = ""


def lead(comparison: Comparison) -> str:
    """Return a heading that names the baseline and the blocks; empty if nothing was compared.

    A mean over few boots does not show boots that are rarely slow. The heading therefore speaks of
    typical boots.
    """
    if not any(verdict.arm != comparison.baseline for verdict in comparison.arm_verdicts):
        return ""
    rounds = [effect.blocks for effect in comparison.headlines if effect.each == "round"]
    so_many = counted(comparison.blocks, "block")
    if rounds:
        so_many = f"{counted(max(rounds), 'round')} of sessions"
    against = short(comparison.against, NAME)
    average = ", trimmed means" if comparison.trimmed else ""
    text = f"Cost compared with {against} in typical boots ({so_many}{average})"
    boots = comparison.blocks
    if boots < least_blocks(LEVEL):
        return text
    return f"{text}; {slow_unseen(boots)}"


def answer_lines(
    comparison: Comparison, most: int | None = None, width: int | None = None
) -> list[str]:
    """Return the cost of each arm after a heading.

    Args:
        comparison: The comparison.
        most: The most lines, at least 4; None: as many as needed.
        width: The width of a line in characters, at least 20; None: each arm is one line.
    """
    heading = lead(comparison)
    if not heading:
        return ["No comparison: only the baseline has values."]
    emulated = {verdict.arm: verdict.emulated for verdict in comparison.arm_verdicts}
    sentences = [
        f"{marked(arm, emulated[arm])}: {sentence}"
        for arm, sentence in arm_sentences(comparison).items()
    ]
    lines = wrapped(f"{heading}:", width)
    for number, sentence in enumerate(sentences):
        own, rest = wrapped(sentence, width), len(sentences) - number
        # The last line is kept for the arms that do not fit.
        if most is not None and len(lines) + len(own) > most - (rest > 1):
            return [*lines, f"{counted(rest, 'more arm' if number else 'arm')}: see the report."]
        lines += own
    return lines


def wrapped(text: str, width: int | None) -> list[str]:
    """Return a text as lines of at most ``width`` characters; one line without a width."""
    if width is None:
        return [text]
    kept = QUANTITY.sub(lambda quantity: quantity[0].replace(" ", NO_BREAK), text)
    lines = textwrap.wrap(kept, width, subsequent_indent="  ", break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def arm_lines(comparison: Comparison, looks: Mapping[str, ArmStyle]) -> tuple[ArmLine, ...]:
    """Return the answer for each arm except the baseline and its twin.

    Absent arms come last; those that are absent for the same reason share one line.
    """
    sentences = arm_sentences(comparison)
    axis = CostAxis(comparison.resources)
    emulated = {verdict.arm: verdict.emulated for verdict in comparison.arm_verdicts}
    lines = [
        ArmLine(
            marked(arm, emulated[arm]),
            sentence,
            emulated[arm],
            looks[arm].ink.role,
            bars=tuple(axis.bar(cost) for cost in comparison.resources if cost.arm == arm),
            name=arm,
        )
        for arm, sentence in sentences.items()
    ]
    return (*lines, *absent_lines(comparison))


def absent_lines(comparison: Comparison) -> tuple[ArmLine, ...]:
    """Return a line for the arms without values, one for each reason."""
    absent = {
        platform.arm: _why_no_values(run, platform)
        for run in comparison.runs
        for platform in run.platforms
        if platform.arm not in comparison.arms
    }
    shared: dict[str, list[str]] = {}
    for arm, reason in absent.items():
        shared.setdefault(reason, []).append(arm)
    lines = []
    for reason, arms in shared.items():
        why = f": {reason.rstrip('.')}" if reason else "; the reasons are below"
        sentence = f"{'has' if len(arms) == 1 else 'have'} no values{why}."
        lines.append(
            ArmLine(legible(", ".join(arms)), legible(sentence), False, "axis", absent=True)
        )
    return tuple(lines)


def arm_sentences(comparison: Comparison) -> dict[str, str]:
    """Return by arm the sentence on its costs; brief if all exceed `MOST_WORDS` together."""
    verdicts = [v for v in comparison.arm_verdicts if v.arm != comparison.baseline]
    costs: dict[str, list[ResourceCost]] = {}
    for cost in comparison.resources:
        costs.setdefault(cost.arm, []).append(cost)
    heading = count_words([lead(comparison)])
    gaps = gaps_of(comparison)
    for brief in (False, True):
        found = {
            verdict.arm: _sentence(comparison, verdict.arm, costs.get(verdict.arm, []), gaps, brief)
            for verdict in verdicts
        }
        if heading + count_words(found.values()) <= MOST_WORDS:
            break
    return found


def _sentence(
    comparison: Comparison,
    arm: str,
    costs: Sequence[ResourceCost],
    gaps: Gaps,
    brief: bool,
) -> str:
    if not costs:
        return "No headline metric was measured in blocks that it shares with the baseline."
    lacking = {
        cost.resource: gaps_in_words(_own_gaps(cost, gaps), comparison.blocks, brief=brief)
        for cost in costs
        if cost.finding == "preliminary"
    }
    sentences = resource_sentences(costs, lacking, brief=brief)
    slow = [cost for cost in costs if cost.interval is not None and _has_slow_boots(cost)]
    if slow and (brief or comparison.trimmed):
        # Trimmed means leave slow boots out.
        sentences.append(f"Slow boots: {names_in_words(slow)}.")
    elif slow:
        figures, include = ("figure", "includes") if len(slow) == 1 else ("figures", "include")
        sentences.append(
            f"The {figures} for {names_in_words(slow)} {include} boots that seem slow."
        )
    lost = next((r for r in comparison.failures if r.arm == arm and r.failed.count), None)
    if lost is not None:
        sentences.append(f"{lost.failed.count} of its {lost.failed.total} cells failed.")
    return " ".join(sentences)


def _has_slow_boots(cost: ResourceCost) -> bool:
    return any(f.kind == "slow-boots" for e in cost.effects if e.scale == "ratio" for f in e.flags)


def _own_gaps(cost: ResourceCost, gaps: Gaps) -> list[Gap]:
    """Return the gaps of the metrics that a cost is the mean of."""
    ratios = [effect for effect in cost.effects if effect.scale == "ratio"]
    return [gap for effect in ratios for gap in gaps.get((effect.arm, effect.key), ())]


def resource_sentences(
    costs: Sequence[ResourceCost],
    lacking: Mapping[ResourceName, str] | None = None,
    *,
    brief: bool = False,
) -> list[str]:
    """Return sentences on the costs of one arm.

    Args:
        costs: The arm's costs by resource.
        lacking: Why a resource has fewer blocks than ran.
        brief: Whether to leave out numbers that the bars show.
    """
    few = [cost for cost in costs if cost.finding == "preliminary"]
    enough = [cost for cost in costs if cost.finding != "preliminary"]
    typical = [cost for cost in enough if cost.resource != "latency-worst"]
    worst = [cost for cost in enough if cost.resource == "latency-worst"]
    if brief:
        typical, worst = [*typical, *worst], []
    found = [_clauses(typical, brief), *([] if brief else _advice(typical)), _clauses(worst, brief)]
    alike: dict[tuple[int, str], list[ResourceCost]] = {}
    for cost in few:
        why = (lacking or {}).get(cost.resource, "")
        alike.setdefault((cost.blocks, why), []).append(cost)
    for (so_many, why), own in alike.items():
        if brief and why:
            found.append(f"no verdict: {names_in_words(own)} ({why})")
            continue
        what = "" if len(own) == len(costs) else f" on {names_in_words(own)}"
        counts = f"{so_many} of the {least_blocks(LEVEL)} needed"
        text = f"too few {own[0].each}s for a verdict{what} ({counts})"
        found.append(f"{text}: {why}" if why else text)
    if so_far := [cost for cost in few if cost.averaged and not brief]:
        sizes = [f"{label_of(cost)} {size_in_words(cost.cost)}" for cost in so_far]
        found.append(f"so far: {', '.join(sizes)}")
    return [f"{capital(text)}." for text in found if text]


def _clauses(costs: Sequence[ResourceCost], brief: bool) -> str:
    """Return clauses on these costs, one for each kind of finding."""
    of: dict[str, list[ResourceCost]] = {}
    for cost in costs:
        of.setdefault(cost.finding, []).append(cost)
    parts = []
    if slower := of.get("slower"):
        parts.append(_slower(slower, brief))
    if faster := of.get("faster"):
        sizes = ", ".join(f"{label_of(cost)} {_decrease_text(cost.cost)}" for cost in faster)
        parts.append(f"faster in {names_in_words(faster)}" if brief else f"faster: {sizes}")
    if same := of.get("same"):
        within = f"{'' if brief else 'within '}±{bound(max(cost.margin for cost in same))}"
        parts.append(f"{names_in_words(same)} the same ({within})")
    if bounded := of.get("bounded"):
        most = bound(max(cost.largest for cost in bounded) - 1)
        size = f" within ±{most}" if brief else f": no difference larger than {most}"
        parts.append(f"{names_in_words(bounded)}{size}")
    if undecided := of.get("undecided"):
        shown = ", ".join(f"{label_of(cost)} ({range_in_words(cost)})" for cost in undecided)
        parts.append(f"undecided: {names_in_words(undecided) if brief else shown}")
    if without := of.get("no-ratio"):
        parts += [_without_ratio(cost) for cost in without]
    return "; ".join(parts)


def _slower(costs: Sequence[ResourceCost], brief: bool) -> str:
    if brief:
        low, high = min(cost.cost for cost in costs), max(cost.cost for cost in costs)
        ends = _factor(low), _factor(high)
        sizes = _increase_text(high) if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
        return f"slower in {names_in_words(costs)} ({sizes})"
    first, *rest = costs
    lead_ = f"{label_of(first)} takes {_increase_text(first.cost)}"
    return ", ".join([lead_, *(f"{label_of(c)} {_increase_text(c.cost)}" for c in rest)])


def _advice(costs: Sequence[ResourceCost]) -> list[str]:
    """Return a clause with the number of further blocks likely to decide; empty if none would."""
    known = [(cost, more) for cost in costs if (more := cost.blocks_to_decide) is not None]
    if not known:
        return []
    undecided = [cost for cost in costs if cost.finding == "undecided"]
    what = "it" if len(undecided) == 1 else names_in_words([cost for cost, _ in known])
    if len(known) == len(undecided) > 1:
        what = "them"
    most, each = max(more for _, more in known), known[0][0].each
    verb = "is" if most == 1 else "are"
    return [f"about {counted(most, f'more {each}')} {verb} likely to decide {what}"]


def _without_ratio(cost: ResourceCost) -> str:
    """Return a clause on metrics that can be 0, which have differences and no ratio."""
    name = label_of(cost)
    for word in ("worse", "better"):
        found = [effect for effect in cost.effects if effect.verdict == word]
        if found:
            by = difference_text(found[0].estimate, found[0].unit)
            return f"{name} {word} by {by} ({metric_of(found[0])})"
    if all(effect.verdict == "equivalent" for effect in cost.effects):
        return f"{name} the same"
    return f"{name} undecided"


def label_of(cost: ResourceCost) -> str:
    """Return the name of a cost's resource; "cache" if its arrays reach no other memory."""
    return "cache" if cost.cache else LABELS[cost.resource]


def names_in_words(costs: Iterable[ResourceCost]) -> str:
    """Return the names of the costs' resources, such as ``CPU, memory and disk``."""
    return joined([label_of(cost) for cost in costs])


def count_words(texts: Iterable[str]) -> int:
    """Return the words of some texts; a number with its per cent sign is one."""
    return sum(len(text.replace(" %", "%").split()) for text in texts)


def capital(text: str) -> str:
    """Return a text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def _factor(cost: float) -> str:
    """Return a factor with two digits that count: ``1.1×``, ``14×``."""
    return "∞" if math.isinf(cost) else f"{format_number(cost, 2)}×"


def _increase_text(cost: float) -> str:
    """Return a cost above 1 in words: ``9 % longer``, ``6.6× as long``."""
    return f"{_factor(cost)} as long" if cost >= 2 else f"{percent(cost - 1)} longer"


def _decrease_text(cost: float) -> str:
    """Return a cost below 1 in words: ``9 % less time``, ``0.32× as long``."""
    return f"{_factor(cost)} as long" if cost <= 0.5 else f"{percent(1 - cost)} less time"


def bound(share: float) -> str:
    """Return a share in per cent with two digits, never less than it is."""
    if not 0 < share < math.inf:
        return percent(share)
    scale = 10.0 ** (1 - math.floor(math.log10(100 * share)))
    # A share that already has at most two digits, such as a margin of 2 %, stays unchanged.
    return percent(math.ceil(100 * share * scale - 1e-9) / scale / 100)


def size_in_words(cost: float) -> str:
    """Return a cost as a difference in per cent up to twice, and as a factor above that."""
    if not 0.5 < cost < 2:
        return _factor(cost)
    sign = "+" if cost >= 1 else "−"
    return f"{sign}{percent(abs(cost - 1))}"


def range_in_words(cost: ResourceCost) -> str:
    """Return a cost's interval, such as ``+3 % to +12 %``; empty without one.

    Both ends are factors if one is: ``1.45× to 5.7×``.
    """
    if cost.interval is None:
        return ""
    ends = cost.interval.low, cost.interval.high
    if all(0.5 < end < 2 for end in ends):
        return " to ".join(size_in_words(end) for end in ends)
    # Near 1 a third digit keeps what the percentage would show.
    return " to ".join(
        f"{format_number(end, 3)}×" if 1 <= end < 2 else _factor(end) for end in ends
    )


class CostAxis:
    """The logarithmic axis of all bars of a page."""

    def __init__(self, costs: Sequence[ResourceCost]) -> None:
        known = [cost for cost in costs if cost.averaged]
        ends = [cost.cost for cost in known]
        ends += [end for cost in known if (ci := cost.interval) for end in (ci.low, ci.high)]
        usable = [end for end in ends if 0 < end < math.inf]
        self.low = math.log(max(1 / WIDEST, min([0.8, *usable])))
        self.high = math.log(min(WIDEST, max([1.25, *usable])))

    def at(self, cost: float) -> float:
        """Return the place of a cost on the axis, from 0 to 100."""
        log = math.log(cost) if 0 < cost < math.inf else (self.low if cost <= 0 else self.high)
        return round(100 * min(1.0, max(0.0, (log - self.low) / (self.high - self.low))), 1)

    def bar(self, cost: ResourceCost) -> CostBar:
        """Return a cost as a bar."""
        value = size_in_words(cost.cost) if cost.averaged else "no ratio"
        if cost.finding in ("bounded", "undecided"):
            value = f"≤ {bound(cost.largest - 1)}" if cost.finding == "bounded" else "undecided"
        elif cost.finding == "same":
            value = f"same ±{bound(cost.margin)}"
        low, high = (cost.interval.low, cost.interval.high) if cost.interval else (1.0, 1.0)
        label = capital(label_of(cost))
        about = f"{label}: {size_in_words(cost.cost) if cost.averaged else value}"
        if cost.interval:
            about += f", interval {range_in_words(cost)}"
        if (worst := cost.worst) is not None:
            # The largest of several estimates needs an interval that holds for all of them.
            ends = simultaneous(worst, len(cost.effects))
            size = f", {ratio_interval(cost_ends(*ends, worst.better))}×" if ends else ""
            about += f"; worst metric {metric_of(worst)}{size}"
        return CostBar(
            resource=cost.resource,
            label=label,
            value=value,
            range=range_in_words(cost),
            finding=cost.finding,
            low=self.at(low),
            high=self.at(high),
            at=self.at(cost.cost) if cost.averaged else None,
            even=self.at(1.0),
            about=f"{about}.",
        )


def _why_no_values(run: RunData, platform: PlatformResult) -> str:
    """Return why an arm has no values. That its platform is usable here is not a reason."""
    if not platform.usable:
        return why_it_did_not_run((run,), platform.arm, to_do=True)
    lost, why = _lost(run, platform.arm)
    if lost:
        return f"no cell of {lost} counts ({why})"
    skipped = dict.fromkeys(each.reason for each in run.skipped if each.arm == platform.arm)
    return "; ".join(skipped) or "none of its cells has been measured"


def failure_notes(comparison: Comparison) -> tuple[str, ...]:
    """Return a sentence on each arm whose cells failed, including arms without values."""
    found = {
        rate.arm: f"{legible(marked(rate.arm, rate.emulated))}: {_failures(rate)}."
        for rate in comparison.failures
        if rate.failed.count
    }
    for run in comparison.runs:
        for arm in run.arms:
            lost, why = _lost(run, arm)
            if lost and arm not in comparison.arms and arm not in found:
                who = legible(marked(arm, arm in run.emulated_arms))
                found[arm] = f"{who} has no values: {counted(lost, 'cell')} failed ({why})."
    return tuple(found.values())


def _lost(run: RunData, arm: str) -> tuple[int, str]:
    """Return how many cells of an arm do not count, and the reason of the first of them."""
    reasons = [cell.reason for cell in run.cells if cell.arm == arm and cell.status != "ok"]
    return len(reasons), short(legible(reasons[0]), 100).rstrip(".") if reasons else ""


def finding_notes(comparison: Comparison) -> tuple[str, ...]:
    """Return a sentence for each arm on facts its means hide: slow boots, and order in time."""
    emulated = {effect.arm: effect.emulated for effect in comparison.headlines}
    of_arms: dict[str, list[Effect]] = {}
    for effect in comparison.headlines:
        of_arms.setdefault(effect.arm, []).append(effect)
    hidden = {arm: _hidden(comparison, effects) for arm, effects in of_arms.items()}
    return tuple(
        f"{legible(marked(arm, emulated[arm]))}: {'; '.join(found)}."
        for arm, found in hidden.items()
        if found
    )


def hidden_kinds(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    """Return, by arm, the findings that its means hide, in words."""
    found: dict[str, dict[str, None]] = {}
    for effect in comparison.headlines:
        for flag in effect.flags:
            if flag.kind in HIDDEN:
                found.setdefault(legible(effect.arm), {})[HIDDEN[flag.kind]] = None
    return {arm: tuple(kinds) for arm, kinds in found.items()}


def _hidden(comparison: Comparison, effects: Sequence[Effect]) -> list[str]:
    """Return the first facts that the means of an arm's headline metrics hide.

    Args:
        comparison: The comparison.
        effects: The arm's effects on headline metrics.
    """
    found = dict.fromkeys(
        legible(flag.text)
        if flag.kind in OF_ARM
        else f"{legible(flag.text)} ({_metric_and_work(comparison, effect)})"
        for effect in effects
        for flag in effect.flags
        if flag.kind in HIDDEN
    )
    more = len(found) - MOST_HIDDEN
    return [*list(found)[:MOST_HIDDEN], *([f"{more} more such findings"] if more > 0 else [])]


def _metric_and_work(comparison: Comparison, effect: Effect) -> str:
    """Return the name of an effect's metric together with its workload."""
    parts = (Part.of(summary.key) for summary in comparison.summaries)
    names = Names(parts, comparison.shown_as, short=True)
    return names.metric(Part.of(effect.key), effect.key.metric)


def _failures(rate: FailureRate) -> str:
    """Return how many of an arm's cells failed, with the interval of the share of its boots.

    Cells of one boot may fail together, so an interval of the share of cells would be too narrow.
    """
    ours, theirs = rate.failed, rate.baseline_failed
    if not ours.count:
        return f"none of its {ours.total} cells failed, of {legible(rate.baseline)} {theirs.count}"
    boots = rate.boots
    ends = f"{percent(boots.low)} to {percent(boots.high)} of all boots"
    failed = f"{ours.count} of its {ours.total} cells failed"
    where = f"in {boots.count} of {counted(boots.total, 'boot')} ({ends})"
    return f"{failed}, {where}; of {legible(rate.baseline)} {theirs.count} of {theirs.total}"
