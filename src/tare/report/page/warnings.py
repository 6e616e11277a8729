"""The warnings of a page, one line each with an action, the most important first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tare.analysis.model import DECLARED, Comparison, RunData
from tare.analysis.topics.kernels import different_kernels
from tare.analysis.words import arms_ended, family_note, itself_notes, shape_notes, unlike_machines
from tare.report.figures.svg import legible
from tare.report.page.missing_values import gaps_of, left_out_in_words
from tare.report.page.verdicts import answer_lines, finding_notes, hidden_kinds, wrapped
from tare.report.page.words import EMULATED, joined, metric_of, short

LINE = 120
"""The most characters of a warning's line."""

MOST_NAMED = 3

LEAST_ANSWER = 4
"""The least number of lines that warnings leave to an answer."""

_CLAUSE_END = re.compile(r"[:;.] ")

ACTIONS = (
    (r"Only \d+ block", "Run at least 6 blocks (`tare run STUDY --blocks 6`)."),
    (r"A smoke run", "For verdicts, run at least 6 blocks (`tare run STUDY --blocks 6`)."),
    (r"No arm shares a block", "See “What failed, was withheld or skipped” for the reasons."),
    (
        r"The study has no A/A pair",
        "Add a second arm of the baseline: `again: {twin-of: BASELINE}`.",
    ),
    (r".* (failed|withheld) cells? of \d+", "See “What failed, was withheld or skipped”."),
    (
        r".* measured cache (and memory )?bandwidth",
        "To measure memory, give the machines more (`shape: {memory: …}`): three arrays of 4 times "
        "the cache may take 30 % of it.",
    ),
    (r"The environment changed", "Compare the blocks before and after it under “Look closer”."),
    (
        r"The error level of",
        "To compare several arms at once, use “Ranking: which one should I take?”.",
    ),
)
"""The action for a note, by the pattern with which the note begins."""


class Warned(NamedTuple):
    """One warning: its line, full text and action, and whether it makes the answer worthless.

    If ``at_end`` is true, the end of a run shows it although the answer still has some worth.
    """

    line: str
    text: str
    action: str = ""
    worthless: bool = False
    at_end: bool = False


def warnings_of(comparison: Comparison, problems: Sequence[str] = ()) -> tuple[Warned, ...]:
    """Return the warnings of a comparison, the one that changes the answer most first.

    Args:
        comparison: The comparison.
        problems: Other problems of the page, such as sections that were left out.
    """
    found = [*_certain(comparison), *_other_warnings(comparison, problems)]
    unique = {warned.text: warned for warned in reversed(found)}
    return tuple(
        each._replace(
            line=_one_line(each.line), text=legible(each.text), action=legible(each.action)
        )
        for each in reversed(unique.values())
    )


def _one_line(text: str) -> str:
    """Return the whole clauses of a text that fit on a line; if none fits, cut the first."""
    if len(text) <= LINE:
        return legible(text)
    ends = [match.start() for match in _CLAUSE_END.finditer(text) if match.start() < LINE]
    return f"{legible(text[: ends[-1]])}." if ends else short(text, LINE)


def ending_lines(comparison: Comparison, most: int, width: int | None = None) -> list[str]:
    """Return the answer at the end of a run, after warnings that make it doubtful.

    Args:
        comparison: The comparison.
        most: The most lines.
        width: The width of a line in characters; None: each sentence is one line.
    """
    first = [each.line for each in warnings_of(comparison) if each.worthless or each.at_end]
    lines = [line for text in first for line in wrapped(f"Warning: {text}", width)]
    lines = lines[: most - LEAST_ANSWER]
    return [*lines, *answer_lines(comparison, most - len(lines), width)]


def _certain(comparison: Comparison) -> Iterator[Warned]:
    """Yield the warnings whose effect on the answer is known, the largest effect first."""
    runs = comparison.runs
    baselines = {effect.arm: effect.baseline for effect in comparison.effects}
    for text in itself_notes(runs):
        action = "Run on a host without a hypervisor, or choose another arm as the baseline."
        yield Warned(text, text, action, worthless=True)
    for run in runs:
        if run.doubts:
            line = f"Run {run.run} was changed after it was written: {run.doubts[0]}."
            action = f"Run `tare verify {run.folder}` to see what changed."
            yield Warned(line, f"{line} {'; '.join(run.doubts[1:])}".strip(), action)
    yield from _aa(comparison)
    for run in runs:
        if run.unfit:
            names = joined([check.name for check in run.unfit])
            found = "; ".join(f"{check.name}: {check.found}" for check in run.unfit)
            hints = " ".join(f"{check.hint.rstrip('.')}." for check in run.unfit if check.hint)
            yield Warned(
                f"The host was not fit for measuring ({names}).",
                f"{found}.",
                hints or "Run `tare doctor`, fix what it lists, and repeat the run.",
                worthless="priority" in {check.name for check in run.unfit},
                at_end=True,
            )
    for text in shape_notes(runs, baselines):
        action = (
            "Give both arms the same shape; otherwise the cost includes the difference of shapes."
        )
        yield Warned(text, text, action)
    for text in dict.fromkeys(each for run in runs for each in different_kernels(run)):
        yield Warned(text, text, "Boot the same kernel in all arms to compare platforms alone.")
    for text in unlike_machines(runs):
        yield Warned(text, text)
    for text in arms_ended(runs):
        yield Warned(text, text, "See the logs under “What failed, was withheld or skipped”.")
    for run in runs:
        if not run.complete:
            text = _partial(run)
            yield Warned(text, text, f"`tare resume {run.folder}` measures the rest.")
    yield from _left_out(comparison)
    if hidden := hidden_kinds(comparison):
        kinds = dict.fromkeys(kind for kinds in hidden.values() for kind in kinds)
        yield Warned(
            f"Averages of {joined(list(hidden))} hide {joined(list(kinds))}.",
            " ".join(finding_notes(comparison)),
            "Open the metric under “Look closer” and compare its blocks.",
        )
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    if arms := [arm for arm in comparison.arms if arm in emulated]:
        whose = "Its" if len(arms) == 1 else "Their"
        yield Warned(
            f"{EMULATED.capitalize()}: {joined(arms)}. {whose} costs are not hardware speed.",
            f"{joined(arms)} {'executes' if len(arms) == 1 else 'execute'} the guest’s "
            "instructions in software. The figures show behaviour and relative instruction cost, "
            "not the speed of the hardware under a hypervisor.",
            "Use a host with a working /dev/kvm (`tare doctor` checks it) to measure hardware.",
        )


def _aa(comparison: Comparison) -> Iterator[Warned]:
    """Yield a warning if identical arms differ; worthless if they do in most headline metrics."""
    controls = [effect for effect in comparison.aa if effect.headline]
    failed = [effect for effect in controls if effect.verdict in DECLARED]
    if not failed:
        return
    named = _first([metric_of(effect) for effect in failed])
    text = " ".join(note for note in comparison.notes if note.startswith(AA))
    yield Warned(
        f"The A/A pair failed: two identical arms differ in {named}.",
        text or "Something other than the arms makes a difference here.",
        "Find what disturbs the host (`tare doctor`) and repeat the run; until then distrust small "
        "costs in these metrics.",
        worthless=2 * len(failed) > len(controls),
    )


def _first(metrics: Sequence[str]) -> str:
    more = len(metrics) - MOST_NAMED
    return ", ".join(metrics[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _left_out(comparison: Comparison) -> Iterator[Warned]:
    """Yield a warning if workloads left out headline metrics in some blocks."""
    gaps = [gap for found in gaps_of(comparison).values() for gap in found]
    left_out = [gap for gap in gaps if gap.why == "left out"]
    if not left_out:
        return
    metrics = list(dict.fromkeys(gap.metric for gap in left_out))
    kinds = dict.fromkeys(_kind(comparison.runs, gap.workload) for gap in left_out)
    commands = joined([f"`tare study {kind}`" for kind in kinds])
    yield Warned(
        f"Some blocks lack {_first(metrics)}, left out by the workload.",
        left_out_in_words(left_out, comparison.blocks),
        f"See {commands} for when a metric is left out, and run more blocks.",
    )


def _kind(runs: Sequence[RunData], name: str) -> str:
    """Return the name of the workload that a study's entry runs."""
    entries = [(run.study.get("workloads") or {}).get(name) or {} for run in runs]
    return next((str(entry["workload"]) for entry in entries if "workload" in entry), name)


AA = ("The A/A pair failed", "Verdicts with and without the twin’s", "Verdicts with and without")
"""How notes about the A/A pair begin."""


def _other_warnings(comparison: Comparison, problems: Iterable[str]) -> Iterator[Warned]:
    for text in comparison.notes:
        if not text.startswith(AA) and not text.lower().startswith(EMULATED):
            yield Warned(text, text, _action(text))
    for text in (*problems, *family_note(comparison)):
        yield Warned(text, text, _action(text))


def _action(text: str) -> str:
    """Return the action for a note; empty if the note only states a fact."""
    return next((action for begin, action in ACTIONS if re.match(begin, text)), "")


def _partial(run: RunData) -> str:
    done = len(run.blocks_finished)
    blocks = run.study.get("blocks")
    most = blocks.get("most") if isinstance(blocks, Mapping) else None
    of = f" of at most {most}" if most else ""
    return f"Partial: {done}{of} blocks of run {run.run} are finished; what follows is from these."
