"""Names and summaries for the sentences of the analysis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import get_args

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.comparison import ArmVerdict, Comparison
from tare.analysis.effects.families import simultaneous
from tare.analysis.effects.results import DECLARED, Effect, Key, VerdictWord, as_cost, cost_ends
from tare.analysis.effects.verdict import percent, significant
from tare.analysis.runs.sessions import session_notes
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.shares import exact_share
from tare.events import LabFroze
from tare.events.results import Break, PlatformResult
from tare.study.model.notes import BEYOND_MEMORY, BY_RELEASE, ITSELF, ONE_KERNEL, other_shape_note
from tare.study.planning.blocks import SMOKE_RUN
from tare.units import format_quantity, parameter_words

MOST_NAMED = 3
"""The most metrics that are named if an arm has the same verdict in several."""


def described(key: Key) -> str:
    """Return the name of a key for readers: ``switch latency [threads=100] (pinned)``."""
    role = "" if key.role == "subject" else f" of {key.role}"
    return f"{key.workload} {key.metric}{_brackets(key.parameters)}{role} ({key.scenario})"


@lru_cache(maxsize=256)
def _brackets(parameters: str) -> str:
    """Return parameters in brackets, empty if there are none; many keys share the same ones."""
    inside = parameter_words(json.loads(parameters)) if parameters else ""
    return f" [{inside}]" if inside else ""


def marked(arm: str, *, emulated: bool) -> str:
    """Return an arm's name with its mark if it is emulated."""
    return f"{arm} (emulated)" if emulated else arm


def arm_verdict(
    arm: str, baseline: str, effects: Sequence[Effect], *, emulated: bool
) -> ArmVerdict:
    """Sum up the headline effects of one arm.

    Args:
        arm: The arm.
        baseline: The arm that it was compared with.
        effects: Its headline effects.
        emulated: Whether the arm is emulated.
    """
    of = {word: [e for e in effects if e.verdict == word] for word in get_args(VerdictWord)}
    open_ones = [*of["inconclusive"], *of["differs"]]
    parts = []
    for word in ("worse", "better"):
        if of[word]:
            which = _bracketed_metrics(of[word], effects) if len(of[word]) > 1 else ""
            parts.append(
                f"{word} in {_count(of[word], effects)}{which}{_extreme(of[word], len(effects))}"
            )
    for word, found, rest in (
        ("equivalent", of["equivalent"], ""),
        ("inconclusive", open_ones, _left_open(open_ones)),
        ("preliminary", of["preliminary"], ""),
    ):
        if found:
            parts.append(
                f"{word} in {_count(found, effects)}{_bracketed_metrics(found, effects)}{rest}"
            )
    name = marked(arm, emulated=emulated)
    results = ", ".join(parts) if parts else "no headline metric was measured in shared blocks"
    return ArmVerdict(
        arm=arm,
        emulated=emulated,
        sentence=f"{name} against {baseline}: {results}.",
        worse=len(of["worse"]),
        better=len(of["better"]),
        equivalent=len(of["equivalent"]),
        inconclusive=len(open_ones),
        preliminary=len(of["preliminary"]),
    )


def _left_open(effects: Sequence[Effect]) -> str:
    """Describe the greatest cost that is not excluded."""
    known = [(e.not_excluded, e) for e in effects if e.scale == "ratio" and e.not_excluded]
    if not known:
        return ""
    size, most = max(known, key=lambda pair: pair[0])
    return f" (a cost up to {percent(size)} is not excluded: {described(most.key)})"


def aa_notes(
    failed: Sequence[Effect], effects: Sequence[Effect], alone: Sequence[Effect], level: float
) -> list[str]:
    """Describe how identical arms differ, and which verdicts depend on their difference.

    Args:
        failed: The A/A pair's effects that were declared.
        effects: All effects, with the twin's boots counted as the baseline's.
        alone: The same against the baseline without its twin; empty if the twin does not count.
        level: Familywise error of the A/A pair.
    """
    differences = "; ".join(f"{described(e.key)}, {_difference_text(e)}" for e in failed[:3])
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    text = (
        f"The A/A pair failed: {failed[0].arm} and {failed[0].baseline} are identical but differ "
        f"in {differences}{more}. Chance does that in at most {percent(level)} of studies; "
        "otherwise something other than the arms makes a difference here."
    )
    if not alone:
        return [text]
    before = {(e.key, e.arm): e.verdict for e in effects if e.headline}
    changed = [
        f"{marked(e.arm, emulated=e.emulated)}, {described(e.key)}: {before[e.key, e.arm]} with "
        f"the twin, {e.verdict} without"
        for e in alone
        if (e.key, e.arm) in before and e.verdict != before[e.key, e.arm]
    ]
    if not changed:
        return [f"{text} No headline verdict depends on whether the twin's boots count."]
    rest = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
    return [text, f"Verdicts with and without the twin's boots: {'; '.join(changed[:5])}{rest}."]


def _difference_text(effect: Effect) -> str:
    """Describe how far two arms are apart: as a cost, or as a difference if there is no ratio."""
    if effect.scale == "difference":
        return f"difference {format_quantity(effect.estimate, effect.unit)}"
    called = "ratio" if effect.better == "neither" else "cost"
    return f"{called} {significant(as_cost(effect.estimate, effect.better))}"


def _count(some: Sequence[Effect], every: Sequence[Effect]) -> str:
    return f"all {len(every)}" if len(some) == len(every) > 1 else f"{len(some)} of {len(every)}"


def _bracketed_metrics(some: Sequence[Effect], every: Sequence[Effect]) -> str:
    """Return the metrics of some effects, in brackets; empty if these are all effects."""
    if len(some) == len(every):
        return ""
    more = len(some) - MOST_NAMED
    named = [described(e.key) for e in some[:MOST_NAMED]]
    return f" ({'; '.join([*named, *([f'{more} more'] if more > 0 else [])])})"


def _extreme(effects: Sequence[Effect], tests: int) -> str:
    """Describe the largest of several effects, with an interval that holds for all tests together.

    The estimate alone is not a bound: the greatest of many estimates exceeds its true value.
    """
    with_cost = [(abs(e.overhead), e) for e in effects if e.overhead is not None]
    if not with_cost:
        return ""
    _, most = max(with_cost, key=lambda pair: pair[0])
    if len(effects) > 1:
        ends = simultaneous(most, tests)
        if ends is None:
            return f" (most in {described(most.key)})"
        low, high = cost_ends(*ends, most.better)
        between = f"{significant(low)} to {significant(high)}"
        return f" (most in {described(most.key)}: {between} times the cost)"
    cost = most.overhead or 0.0
    size = f"{percent(abs(cost))} {'more' if cost > 0 else 'less'} cost"
    if cost >= 9:
        size = f"{significant(1 + cost)} times the cost"
    return f" ({size}: {described(most.key)})"


def family_note(comparison: Comparison) -> list[str]:
    """Return a note on the error rate over several arms together; none for a single arm."""
    declared = {effect.arm for effect in comparison.headlines if effect.verdict in DECLARED}
    compared = {effect.arm for effect in comparison.headlines}
    if not declared or len(compared) < 2:
        return []
    any_arm = min(1.0, len(compared) * comparison.level)
    return [
        f"The error level of {percent(comparison.level)} is for each arm: if {len(compared)} arms "
        f"all equal the baseline, up to {percent(any_arm)} of studies call at least one of them "
        "worse or better."
    ]


def notes_on(runs: Sequence[RunData], blocks: int, level: float) -> tuple[str, ...]:
    """Return the notes that a reader must know about the whole comparison.

    Args:
        runs: The runs.
        blocks: Number of blocks in which anything counted.
        level: Familywise error of verdicts.
    """
    notes = []
    least = least_blocks(level)
    if all((run.study.get("blocks") or {}).get("most") == 1 for run in runs):
        notes.append(f"{SMOKE_RUN[0].upper()}{SMOKE_RUN[1:]}.")
    elif blocks < least:
        notes.append(
            f"Only {_blocks(blocks)}: {least} are the least for a verdict, so all is preliminary."
        )
    for run in runs:
        name = f"Run {run.run}" if len(runs) > 1 else "The run"
        if run.ended is None:
            notes.append(f"{name} has not ended; `tare resume {run.folder}` continues it.")
        elif run.ended != "complete":
            because = f": {run.end_reason}" if run.end_reason else ""
            notes.append(f"{name} {run.ended} before it was complete{because}.")
        if run.resumed and not run.sessions:
            notes.append(
                f"{name} was resumed {run.resumed} time{'s' if run.resumed > 1 else ''}: its "
                "blocks were not measured in one go."
            )
        notes += session_notes(run)
        notes += [_broken(name, each) for each in run.breaks]
        notes += _frozen(name, run.freezes)
        for status in ("failed", "withheld"):
            lost = sum(cell.status == status for cell in run.cells)
            if lost:
                notes.append(
                    f"{name} has {lost} {status} cell{'s' if lost > 1 else ''} of "
                    f"{len(run.cells)}; what {'they' if lost > 1 else 'it'} observed does not "
                    "count."
                )
        notes += [
            _platform_sentence(platform, run.baseline)
            for platform in run.platforms
            if platform.usable and platform.mark and not platform.mark.startswith(ITSELF)
        ]
        notes += [
            f"{platform.arm} is a machine that exists, measured unchanged: what Tare did not "
            f"control is listed under what ran."
            for platform in run.platforms
            if platform.usable and platform.uncontrolled
        ]
        notes += [
            f"{arm} ran on {host}, where the baseline {run.baseline} could not run: the arm's "
            "cost and the host's influence cannot be separated."
            for arm, host in run.apart_from_baseline.items()
        ]
    notes += cpus_changed(runs)
    if any(run.emulated_arms for run in runs):
        notes.append(
            "Emulated arms show behaviour and relative instruction cost, not hardware speed."
        )
    return tuple(notes)


def cpus_changed(runs: Sequence[RunData]) -> tuple[str, ...]:
    """Return a sentence for each change of a host's CPUs during a run."""
    return tuple(
        f"The CPUs of {each.host or 'the host'} changed in block {each.block}: {each.words}."
        + (f" {each.cell} was measured meanwhile and does not count." if each.cell else "")
        for run in runs
        for each in run.cpu_changes
    )


def _frozen(name: str, freezes: Sequence[LabFroze]) -> list[str]:
    """Describe how often the emulated host froze, and the outcome of the affected batches."""
    if not freezes:
        return []
    times = "once" if len(freezes) == 1 else f"{len(freezes)} times"
    where = ", ".join(
        dict.fromkeys(f"{each.arm} / {each.scenario} in block {each.block}" for each in freezes)
    )
    failed = sum(not each.repeated for each in freezes)
    batches = "1 batch" if failed == 1 else f"{failed} batches"
    then = (
        f"{batches} failed, as it froze again when repeated"
        if failed
        else "it was booted again, and what was unfinished was repeated"
    )
    return [f"{name}: the emulated host froze {times} ({where}), a fault of the emulation; {then}."]


def arms_ended(runs: Sequence[RunData]) -> tuple[str, ...]:
    """Return a sentence for each arm that got no further block, with its failure rate."""
    return tuple(
        f"{ended.arm} ended{on} after block {ended.block}, as {ended.failed} of its {ended.tried} "
        f"cells had failed (exact 95 % interval {share.low:.0%} to {share.high:.0%}): "
        f"{ended.reason.rstrip('.')}."
        for run in runs
        for ended in run.arms_ended
        for share in [exact_share(ended.failed, ended.tried, 0.95)]
        for on in [f" on {ended.host}" if ended.host else ""]
    )


def _broken(run: str, each: Break) -> str:
    where = f"After block {each.block}" if each.block else "Before its first block ended"
    return (
        f"{where} {run[0].lower() + run[1:]} was continued (`--accept`) although something had "
        f"changed: {'; '.join(each.changed)}. Blocks are compared within themselves only."
    )


def _platform_sentence(platform: PlatformResult, baseline: str) -> str:
    if platform.arm != baseline:
        return f"{platform.arm} ran {platform.mark}."
    return f"The baseline {baseline} ran {platform.mark}; all ratios are to that."


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


def unlike_machines(runs: Sequence[RunData]) -> list[str]:
    """Describe machines that differ from the study's: by kernel, release or page cache."""
    notes = dict.fromkeys(note for run in runs for note in run.adapted)
    return [
        f"{note[:1].upper()}{note[1:]}."
        for note in notes
        if note.startswith((ONE_KERNEL, BY_RELEASE, BEYOND_MEMORY))
    ]


def shape_notes(runs: Sequence[RunData], baselines: Mapping[str, str]) -> list[str]:
    """Return a sentence for each arm that is compared with a baseline of another shape.

    Args:
        runs: The runs.
        baselines: The arm that each arm is compared with.
    """
    notes = dict.fromkeys(
        f"{other_shape_note(arm, shape, base, theirs)}."
        for run in runs
        for arm, base in baselines.items()
        if (shape := run.shape_of(arm)) != (theirs := run.shape_of(base)) and shape and theirs
    )
    return list(notes)


def itself_notes(runs: Sequence[RunData]) -> list[str]:
    """Return a note for each arm that is the same machine as its baseline."""
    return [
        f"{platform.arm} ran {platform.mark}: it was compared with itself, so its results show "
        "nothing about virtualization."
        for run in runs
        for platform in run.platforms
        if platform.usable and platform.mark.startswith(ITSELF)
    ]


def unfit_words(run: RunData) -> str:
    """Describe why a run's host was not fit for measuring; empty if it was."""
    return "; ".join(f"{each.name} ({each.found})" for each in run.unfit)
