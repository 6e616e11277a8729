"""The comparison in words: one or two sentences for all arms, and a line for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.families import simultaneous
from tare.analysis.effects.results import cost_ends
from tare.analysis.model import (
    DECLARED,
    ArmVerdict,
    Comparison,
    Effect,
    FailureRate,
    PlatformResult,
)
from tare.analysis.topics.kernels import different_kernels
from tare.analysis.words import arms_ended, family_note, margins, not_alike
from tare.references.lacking import why_it_did_not_run
from tare.report.figures.palette import Look
from tare.report.figures.svg import legible
from tare.report.page.words import (
    Names,
    Part,
    apart,
    cost,
    counted,
    joined,
    marked,
    percent,
    ratio,
    ratio_interval,
    short,
)
from tare.units import format_quantity

MANY = 4
"""More arms than this are counted in the lead, not named."""

HIDDEN = ("slow-boots", "two-humped", "serial", "together", "seldom")
"""Flags that an arm's line names: boots in another mode, autocorrelated blocks, rare losses."""

OF_ARM = ("together",)
"""Flags of all metrics of an arm at once."""

OPEN = ("inconclusive", "differs")
"""The verdicts that leave a question open."""

MOST_HIDDEN = 2

MOST_NAMED = 3
"""So many metrics are named where an arm has one verdict in several."""

NAME = 40
"""Characters of an arm's name in sentences."""


@dataclass(frozen=True)
class ArmLine:
    """One arm's verdict on the first screen; ``role`` is its colour, ``absent``: no values."""

    arm: str
    sentence: str
    emulated: bool
    role: str
    absent: bool = False


def lead(comparison: Comparison) -> str:
    """Return the whole comparison in one to four sentences; empty when nothing was compared."""
    kinds = ("equivalent", "worse", "better", "gains", "mixed", "open", "preliminary")
    groups: dict[str, list[ArmVerdict]] = {kind: [] for kind in kinds}
    for verdict in comparison.arm_verdicts:
        if verdict.arm != comparison.baseline:
            groups[_class(verdict)].append(verdict)
    base = short(comparison.against, NAME)
    within = _within(comparison, groups["equivalent"])
    open_cost = _left_open(comparison, groups["open"])
    each, so_many = _so_many(comparison)
    parts = {
        "equivalent": (("costs", "cost"), f"the same as {base}, {within} in all that was asked"),
        "worse": (("costs", "cost"), f"more than {base}{_range(comparison, groups['worse'])}"),
        "better": (("does", "do"), f"better than {base}"),
        "gains": (
            ("does", "do"),
            f"better than {base} on some work{_elsewhere(comparison, groups)}",
        ),
        "mixed": (("does", "do"), f"better than {base} on some work and worse on other"),
        "open": (("is", "are"), f"not told from {base} by {so_many}{open_cost}"),
        "preliminary": (
            ("has", "have"),
            f"too few {each} for a verdict against {base}: {so_many} so far",
        ),
    }
    compared = [
        f"{_subject(found, *parts[name][0])} {parts[name][1]}."
        for name, found in groups.items()
        if found
    ]
    controlled = family_note(comparison)
    endings = [
        *controlled,
        *(not_alike(comparison.runs) if compared else ()),
        *arms_ended(comparison.runs),
    ]
    kernels = dict.fromkeys(each for run in comparison.runs for each in different_kernels(run))
    first = [*_aa_warning(comparison), *(map(legible, kernels) if compared else ())]
    return " ".join([*first, *compared, *map(legible, endings)])


def _aa_warning(comparison: Comparison) -> list[str]:
    """Return a warning, which comes first, if identical arms differ."""
    failed = [e for e in comparison.aa if e.headline and e.verdict in DECLARED]
    where = list(dict.fromkeys(_where(comparison, effect) for effect in failed))
    if len(where) > MOST_HIDDEN:
        where = [*where[:MOST_HIDDEN], f"{len(where) - MOST_HIDDEN} more"]
    return [f"Identical arms were told apart here ({joined(where)})."] if failed else []


def _elsewhere(comparison: Comparison, groups: Mapping[str, Sequence[ArmVerdict]]) -> str:
    """Return what of the work is not better where some is."""
    found = groups["gains"]
    if any(verdict.inconclusive for verdict in found):
        blocks = counted(comparison.blocks, "block")
        return f"; not all other work is decided by {blocks}{_left_open(comparison, found)}"
    return f"; other work costs the same, {_within(comparison, found)}"


def _within(comparison: Comparison, verdicts: Sequence[ArmVerdict]) -> str:
    """Return the margins that the equivalent headline effects of some arms lie within."""
    arms = {verdict.arm for verdict in verdicts}
    effects = [e for e in comparison.headlines if e.arm in arms and e.verdict == "equivalent"]
    return margins(effects, comparison.margin, lambda effect: _where(comparison, effect))


def _class(verdict: ArmVerdict) -> str:
    if verdict.worse and not verdict.better:
        return "worse"
    if verdict.better and not verdict.worse:
        return "better" if verdict.better == verdict.total else "gains"
    if verdict.worse and verdict.better:
        return "mixed"
    if verdict.preliminary and verdict.preliminary == verdict.total:
        return "preliminary"
    return "equivalent" if verdict.equivalent == verdict.total > 0 else "open"


def _so_many(comparison: Comparison) -> tuple[str, str]:
    """Return what verdicts rest on, and how many of them there are: blocks, or rounds."""
    rounds = [effect.blocks for effect in comparison.headlines if effect.each == "round"]
    if not rounds:
        return "blocks", counted(comparison.blocks, "block")
    return "rounds of sessions", f"{counted(max(rounds), 'round')} of sessions"


def _left_open(comparison: Comparison, verdicts: Sequence[ArmVerdict]) -> str:
    """Return the greatest cost that is not excluded for some arms, and where.

    Ratios before differences, whose units do not compare: of these the first is named. What cells
    that failed would have cost is unknown.
    """
    arms = {verdict.arm for verdict in verdicts}
    known = [
        (e.not_excluded, e)
        for e in comparison.headlines
        if e.arm in arms and e.verdict == "inconclusive" and e.not_excluded
    ]
    if not known:
        return ""
    ratios = [(size, e) for size, e in known if e.scale == "ratio"]
    size, most = max(ratios, key=lambda pair: pair[0]) if ratios else known[0]
    lost = any(flag.kind == "failures" for flag in most.flags)
    where = f"({_where(comparison, most)}{', where it did not fail' if lost else ''})"
    if math.isinf(size):
        return f": no cost is excluded {where}"
    size_text = percent(size) if ratios else format_quantity(size, most.unit)
    return f": a cost up to {size_text} is not excluded {where}"


def _subject(verdicts: Sequence[ArmVerdict], one: str, many: str) -> str:
    if len(verdicts) > MANY:
        emulated = sum(verdict.emulated for verdict in verdicts)
        counted = f" ({emulated} of them emulated)" if emulated else ""
        return f"{len(verdicts)} arms{counted} {many}"
    names = [marked(short(verdict.arm, NAME), verdict.emulated) for verdict in verdicts]
    return f"{joined(names)} {one if len(names) == 1 else many}"


def _range(comparison: Comparison, verdicts: Sequence[ArmVerdict]) -> str:
    arms = {verdict.arm for verdict in verdicts}
    worse = [e for e in comparison.headlines if e.arm in arms and e.verdict == "worse"]
    worst = _farthest(worse)
    if worst is None:
        return f", by {_apart(comparison, worse[0])}" if worse else ""
    who = f"{short(worst.arm, NAME)}, " if len(arms) > 1 else ""
    where = f"{who}{_where(comparison, worst)}"
    if len(worse) == 1:
        return f", by {ratio(cost(worst) or math.nan)} ({where})"
    # The greatest of many estimates is no bound: its interval has to hold for all of them at once.
    ends = simultaneous(worst, sum(e.arm in arms for e in comparison.headlines))
    if ends is None:
        return f", most in {where}"
    return f", most in {where}: {ratio_interval(cost_ends(*ends, worst.better))}×"


def _apart(comparison: Comparison, effect: Effect) -> str:
    """Return a difference with the baseline's mean, which gives it a scale, and where it is."""
    beside = format_quantity(effect.baseline_summary.mean, effect.unit)
    size = apart(effect.estimate, effect.unit)
    return f"{size} beside the baseline’s {beside} ({_where(comparison, effect)})"


def _farthest(effects: Sequence[Effect]) -> Effect | None:
    known = [(factor, e) for e in effects if (factor := cost(e)) is not None and factor > 0]
    return max(known, key=lambda pair: abs(math.log(pair[0])))[1] if known else None


def _where(comparison: Comparison, effect: Effect) -> str:
    """Return the metric and the work of an effect."""
    parts = (Part.of(summary.key) for summary in comparison.summaries)
    names = Names(parts, comparison.shown_as, short=True)
    return names.metric(Part.of(effect.key), effect.key.metric)


def _which(comparison: Comparison, effects: Sequence[Effect], every: int) -> str:
    """Return the metrics of some of an arm's effects, in brackets; nothing where it is all."""
    if len(effects) == every:
        return ""
    found = [_where(comparison, effect) for effect in effects[:MOST_NAMED]]
    more = len(effects) - MOST_NAMED
    return f" ({', '.join([*found, *([f'{more} more'] if more > 0 else [])])})"


def arm_lines(comparison: Comparison, looks: Mapping[str, Look]) -> tuple[ArmLine, ...]:
    """Return a line for each arm but the baseline and its twin.

    Absent ones come last; those that are absent for the same reason share one.
    """
    lines = [
        _line(comparison, verdict, looks[verdict.arm])
        for verdict in comparison.arm_verdicts
        if verdict.arm != comparison.baseline
    ]
    absent = {
        platform.arm: _why_no_values(run, platform)
        for run in comparison.runs
        for platform in run.platforms
        if platform.arm not in comparison.arms
    }
    shared: dict[str, list[str]] = {}
    for arm, reason in absent.items():
        shared.setdefault(reason, []).append(arm)
    for reason, arms in shared.items():
        why = f": {reason.rstrip('.')}" if reason else "; the reasons are below"
        sentence = f"{'has' if len(arms) == 1 else 'have'} no values{why}."
        lines.append(
            ArmLine(legible(", ".join(arms)), legible(sentence), False, "axis", absent=True)
        )
    return tuple(lines)


def _why_no_values(run: RunData, platform: PlatformResult) -> str:
    """Return why an arm has no values; that it can be used here is not a reason."""
    if not platform.usable:
        return why_it_did_not_run((run,), platform.arm, to_do=True)
    lost, why = _lost(run, platform.arm)
    if lost:
        return f"no cell of {lost} counts ({why})"
    skipped = dict.fromkeys(each.reason for each in run.skipped if each.arm == platform.arm)
    return "; ".join(skipped) or "none of its cells has been measured"


def _line(comparison: Comparison, verdict: ArmVerdict, look: Look) -> ArmLine:
    effects = [e for e in comparison.headlines if e.arm == verdict.arm]
    total = len(effects)
    parts = []
    for word in ("worse", "better"):
        found = [e for e in effects if e.verdict == word]
        if found:
            ends = _extremes(comparison, found)
            # Where there are two at most, their costs name them.
            which = _which(comparison, found, total) if len(found) > 2 else ""
            parts.append(f"{word} in {_count(len(found), total)}{which}{ends}")
    if verdict.equivalent:
        within = _within(comparison, [verdict])
        which = _which(comparison, [e for e in effects if e.verdict == "equivalent"], total)
        parts.append(f"equivalent ({within}) in {_count(verdict.equivalent, total)}{which}")
    if verdict.inconclusive:
        which = _which(comparison, [e for e in effects if e.verdict in OPEN], total)
        left = _left_open(comparison, [verdict])
        parts.append(f"inconclusive in {_count(verdict.inconclusive, total)}{which}{left}")
    if verdict.preliminary:
        found = [e for e in effects if e.verdict == "preliminary"]
        which = _which(comparison, found, total)
        ends = _extremes(comparison, found)
        parts.append(f"preliminary in {_count(verdict.preliminary, total)}{which}{ends}")
    parts += [_failures(rate) for rate in comparison.failures if rate.arm == verdict.arm]
    parts += _hidden(comparison, verdict.arm)
    sentence = "; ".join(parts) or "no headline metric was measured in blocks it shares"
    return ArmLine(
        marked(verdict.arm, verdict.emulated), f"{sentence}.", verdict.emulated, look.ink.role
    )


def failure_notes(comparison: Comparison) -> tuple[str, ...]:
    """Return a sentence on each arm whose cells failed; of those without values, too."""
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
    """Return how many cells of an arm do not count, and why the first of them does not."""
    reasons = [cell.reason for cell in run.cells if cell.arm == arm and cell.status != "ok"]
    return len(reasons), short(legible(reasons[0]), 100).rstrip(".") if reasons else ""


def finding_notes(comparison: Comparison) -> tuple[str, ...]:
    """Return a sentence for each arm on what its means hide: slow boots, and order in time."""
    emulated = {effect.arm: effect.emulated for effect in comparison.headlines}
    hidden = {arm: _hidden(comparison, arm) for arm in emulated}
    return tuple(
        f"{legible(marked(arm, emulated[arm]))}: {'; '.join(found)}."
        for arm, found in hidden.items()
        if found
    )


def _hidden(comparison: Comparison, arm: str) -> list[str]:
    """Return what the means of an arm's headline metrics hide, the first few findings."""
    found = dict.fromkeys(
        legible(flag.text)
        if flag.kind in OF_ARM
        else f"{legible(flag.text)} ({_where(comparison, effect)})"
        for effect in comparison.headlines
        if effect.arm == arm
        for flag in effect.flags
        if flag.kind in HIDDEN
    )
    more = len(found) - MOST_HIDDEN
    return [*list(found)[:MOST_HIDDEN], *([f"{more} more such findings"] if more > 0 else [])]


def _failures(rate: FailureRate) -> str:
    """Return how often an arm's cells failed, with the interval of the share."""
    ours, theirs = rate.failed, rate.baseline_failed
    if not ours.count:
        return f"none of its {ours.total} cells failed, of {legible(rate.baseline)} {theirs.count}"
    ends = f"{percent(ours.low)} to {percent(ours.high)}"
    failed = f"{ours.count} of its {ours.total} cells failed ({ends})"
    return f"{failed}, of {legible(rate.baseline)} {theirs.count} of {theirs.total}"


def _count(some: int, every: int) -> str:
    if every == 1:
        return "the one headline result"
    return f"all {every} headline results" if some == every else f"{some} of {every}"


def _extremes(comparison: Comparison, effects: Sequence[Effect]) -> str:
    """Name the nearest and the farthest of several costs."""
    known = [(factor, e) for e in effects if (factor := cost(e)) is not None]
    known.sort(key=lambda pair: pair[0])
    if not known:
        return f", by {_apart(comparison, effects[0])}" if effects else ""
    ends = known if len(known) == 1 else [known[0], known[-1]]
    texts = [f"{ratio(factor)} ({_where(comparison, effect)})" for factor, effect in ends]
    return f", costing {' to '.join(texts)}"
