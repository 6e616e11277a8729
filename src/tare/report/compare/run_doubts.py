"""Doubts about comparing two runs, or about one of them, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tare.analysis.model import Comparison, RunData
from tare.analysis.runs.proofs import change_sentences
from tare.analysis.runs.run_differences import (
    RunDifference,
    environment_differences,
    study_differences,
)
from tare.analysis.topics.kernels import different_kernels
from tare.analysis.words import itself_notes, shape_notes, unfit_words
from tare.report.figures.svg import legible
from tare.report.page.words import counted, joined, short

FACTS = ("name", "hostname", "machine", "cpu_model", "cpus")
"""The facts that distinguish hosts."""
MOST = 6
"""The most differences of a kind that a sentence lists. Others are counted."""
LONGEST = 60
"""The most characters of a value in such a sentence."""

ANOTHER_HOST = "Repeat both runs on one host, or put both hosts into one study (`tare help hosts`)."
UNFIT_HOST = "Run `tare doctor`, fix what it lists, and repeat the run."
SAME_KERNEL = "Boot the same kernel in all arms to compare platforms alone."


class Doubt(NamedTuple):
    """A doubt about a comparison, and what to do about it; empty if nothing can be done."""

    text: str
    action: str = ""


def doubts_of(before: Comparison, after: Comparison) -> tuple[str, ...]:
    """Return all doubts about a comparison, differences of the studies first."""
    return (
        *study_doubts(before.runs[0], after.runs[0]),
        *(doubt.text for doubt in run_doubts(before, after)),
    )


def run_doubts(before: Comparison, after: Comparison) -> tuple[Doubt, ...]:
    """Return doubts about either run and about comparing them, except differing studies."""
    first, second = before.runs[0], after.runs[0]
    found = [
        *(Doubt(text, ANOTHER_HOST) for text in _hosts(first, second)),
        *(Doubt(text, "See “What else differs”.") for text in _environment(first, second)),
    ]
    for when, one, other in (("first", before, after), ("second", after, before)):
        run = one.runs[0]
        if words := unfit_words(run):
            text = f"The host of the {when} run was not fit for measuring: {legible(words)}."
            found.append(Doubt(text, UNFIT_HOST))
        if not run.complete:
            found.append(
                Doubt(f"The {when} run is not complete.", f"`tare resume {run.folder}` ends it.")
            )
        verify = f"`tare verify {run.folder}` shows what changed."
        found += [Doubt(f"The {when} run: {legible(doubt)}", verify) for doubt in run.doubts]
        baselines = {arm: one.own_baselines.get(arm, one.baseline) for arm in one.arms}
        notes = (
            *itself_notes(one.runs),
            *shape_notes(one.runs, baselines),
            *(text[:1].lower() + text[1:] for text in change_sentences(one.environment_changes)),
        )
        found += [Doubt(f"The {when} run: {legible(note)}") for note in notes]
        found += [
            Doubt(f"In the {when} run {legible(each)}", SAME_KERNEL)
            for each in different_kernels(run)
        ]
        found += [Doubt(text) for text in _arms_of_one_run(when, one, other)]
    return tuple(found)


def studies_of(runs: Sequence[RunData]) -> tuple[str, ...]:
    """Return the differences of the studies from that of the first run, a line for each run."""
    first, *others = runs
    return tuple(
        f"{legible(run.run)} against {legible(first.run)}: {difference}"
        for run in others
        for difference in study_doubts(first, run)
    )


def study_doubts(first: RunData, second: RunData) -> tuple[str, ...]:
    """Return the differences between two runs' studies, settings and options."""
    names = [legible(str(run.study.get("study") or run.study_path)) for run in (first, second)]
    found = []
    if names[0] != names[1]:
        found.append(f"The runs are of different studies: {names[0]} and {names[1]}.")
    options: list[RunDifference] = []
    settings: list[RunDifference] = []
    for each in study_differences(first, second):
        (options if each.where == "command line" else settings).append(each)
    if settings:
        found.append(f"What was measured differs: {_first_few(settings)}.")
    found += [
        f"The runs were started with different options: {legible(each.before)} → "
        f"{legible(each.after)}."
        for each in options
    ]
    return tuple(found)


def _environment(first: RunData, second: RunData) -> list[str]:
    """Return differences of hosts, versions, platforms and machines, the possible causes first."""
    different = environment_differences(first, second)
    if not different:
        return []
    ordered = sorted(different, key=lambda each: not each.why)
    return [f"Hosts, versions, platforms or machines differ: {_first_few(ordered)}."]


def _first_few(different: Sequence[RunDifference]) -> str:
    shown = [
        f"{'' if each.where == 'study' else f'{legible(each.where)} '}{legible(each.what)}: "
        f"{short(legible(each.before), LONGEST)} → {short(legible(each.after), LONGEST)}"
        for each in different[:MOST]
    ]
    rest = len(different) - len(shown)
    more = [f"and {rest} more (`tare compare --html` lists all)"] if rest else []
    return "; ".join([*shown, *more])


def _hosts(first: RunData, second: RunData) -> list[str]:
    """Return a doubt if the runs were on different hosts, which no interval of two runs covers."""
    if not first.host or not second.host or _is_same_host(first.host, second.host):
        return []
    return [
        "The runs were made on different hosts. What a host does to all arms alike cancels. But an "
        "arm’s cost may differ between hosts. Two runs cannot distinguish that from a change, and "
        "their intervals do not cover it."
    ]


def _is_same_host(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the facts about two hosts agree, apart from those that a reboot changes."""
    if any(one.get(name) != other.get(name) for name in FACTS):
        return False
    sizes = [float(host.get("memory_bytes") or 0) for host in (one, other)]
    # The available memory varies slightly between kernels.
    return not all(sizes) or max(sizes) <= 1.02 * min(sizes)


def _arms_of_one_run(when: str, one: Comparison, other: Comparison) -> list[str]:
    """Return a doubt if one run has headline results that the other lacks, counted by arm."""
    there = {(effect.arm, effect.key) for effect in other.effects}
    lost: dict[str, int] = {}
    for effect in one.headlines:
        if (effect.arm, effect.key) not in there:
            lost[effect.arm] = lost.get(effect.arm, 0) + 1
    if not lost:
        return []
    results = [
        f"{counted(number, 'headline result')} of {legible(arm)}" for arm, number in lost.items()
    ]
    return [f"The {when} run alone has {joined(results)}: how these changed is not known."]


def why_not_comparable(before: Comparison, after: Comparison) -> tuple[str, str]:
    """Return why two runs have no headline effect in common, and what to do about it.

    Args:
        before: The first run.
        after: The second run, with the same baseline.
    """
    base = legible(before.baseline)
    arms = [sorted({effect.arm for effect in each.effects}) for each in (before, after)]
    for comparison, own in zip((before, after), arms, strict=True):
        if not own:
            run = legible(comparison.runs[0].run)
            return (
                f"the run {run} has no arm to compare with {base}; runs are compared by what their "
                f"arms cost against {base}, never by values of different days",
                "name a run that has another arm too; two hosts are compared within one run, "
                "whose study lists them under `hosts:` (`tare help hosts`)",
            )
    if not set(arms[0]) & set(arms[1]):
        first, second = (joined([legible(arm) for arm in own]) for own in arms)
        return (
            f"the runs have no arm in common except {base}: the first has {first}, the second "
            f"{second}",
            "arms are matched by name: use the same name in both studies",
        )
    return (
        "the runs have no headline effect in common: no arm of both did the same work in the same "
        "scenario",
        "name two runs of one study, or of studies with the same workloads and parameters",
    )
