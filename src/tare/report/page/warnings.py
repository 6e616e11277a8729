"""The warnings of a page: a line each, what to do, ordered by how much they change the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tare.analysis.model import DECLARED, Comparison, RunData
from tare.analysis.topics.kernels import different_kernels
from tare.analysis.words import arms_ended, family_note, itself_notes, not_alike, shape_notes
from tare.report.figures.svg import legible
from tare.report.page.verdicts import finding_notes, metric_of
from tare.report.page.words import EMULATED, joined, short

LINE = 120
"""Characters of a warning's line."""

MOST_NAMED = 3


class Warned(NamedTuple):
    """One warning: its line, all of it, what to do, and whether it makes the answer worthless."""

    line: str
    text: str
    action: str = ""
    worthless: bool = False


def warnings_of(comparison: Comparison, problems: Sequence[str] = ()) -> tuple[Warned, ...]:
    """Return the warnings of a comparison, the one that changes the answer most first.

    Args:
        comparison: The comparison.
        problems: What else is wrong with the page, such as sections that were left out.
    """
    found = [*_certain(comparison), *_other_warnings(comparison, problems)]
    unique = {warned.text: warned for warned in reversed(found)}
    return tuple(
        Warned(short(each.line, LINE), legible(each.text), legible(each.action), each.worthless)
        for each in reversed(unique.values())
    )


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
            )
    for text in shape_notes(runs, baselines):
        action = (
            "Give both arms the same shape; otherwise the cost includes the difference of shapes."
        )
        yield Warned(text, text, action)
    for text in dict.fromkeys(each for run in runs for each in different_kernels(run)):
        yield Warned(text, text, "Boot the same kernel in all arms to compare platforms alone.")
    for text in not_alike(runs):
        yield Warned(text, text)
    for text in arms_ended(runs):
        yield Warned(text, text, "See the logs under “What was lost”.")
    for run in runs:
        if not run.complete:
            text = _partial(run)
            yield Warned(text, text, f"`tare resume {run.folder}` measures the rest.")
    if notes := finding_notes(comparison):
        yield Warned(
            f"Averages hide something in {len(notes)} of the arms, such as slow boots.",
            " ".join(notes),
            "Open the metric under “Look closer” and compare its blocks.",
        )
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    if arms := [arm for arm in comparison.arms if arm in emulated]:
        yield Warned(
            f"{EMULATED.capitalize()}: {joined(arms)}. Their costs are not hardware speed.",
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
    named = [metric_of(effect) for effect in failed[:MOST_NAMED]]
    more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
    text = " ".join(note for note in comparison.notes if note.startswith(AA))
    yield Warned(
        f"The A/A pair failed: two identical arms differ in {', '.join(named)}{more}.",
        text or "Something other than the arms makes a difference here.",
        "Find what disturbs the host (`tare doctor`) and repeat the run; until then distrust small "
        "costs in these metrics.",
        worthless=2 * len(failed) > len(controls),
    )


AA = ("The A/A pair failed", "Verdicts with and without the twin’s", "Verdicts with and without")
"""How notes about the A/A pair begin."""


def _other_warnings(comparison: Comparison, problems: Iterable[str]) -> Iterator[Warned]:
    for text in comparison.notes:
        if not text.startswith(AA) and not text.lower().startswith(EMULATED):
            yield Warned(text, text)
    for text in (*problems, *family_note(comparison)):
        yield Warned(text, text)


def _partial(run: RunData) -> str:
    done = len(run.blocks_finished)
    blocks = run.study.get("blocks")
    most = blocks.get("most") if isinstance(blocks, Mapping) else None
    of = f" of at most {most}" if most else ""
    return f"Partial: {done}{of} blocks of run {run.run} are finished; what follows is from these."
