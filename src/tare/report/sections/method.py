"""The method of the comparison in words, as the run's study chose it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tare.analysis.effects.duets import is_duet, works_by_turns
from tare.analysis.model import Calibration, Comparison, RunData
from tare.analysis.statistics.serial import LEAST_BLOCKS
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, joined, probability
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.results import effects_table
from tare.units import format_quantity

SHOWN_BY = 20
"""With this many blocks a correlation of 0.8 is nearly always detected (`tare help statistics`)."""


@dataclass(frozen=True)
class MethodData(SectionData):
    """The content of the section on the method."""

    lines: tuple[str, ...]
    calibration: ShownTable | None
    aa: ShownTable | None
    aa_words: str


class Method(Section):
    """The method of the comparison, and the results of the calibration and the A/A pair."""

    name, title, template = "method", "How to read this", "method.html.j2"

    def data(self, report: ReportData) -> MethodData:
        """Return the method, the calibration and the effects of the A/A pair."""
        comparison, calibration = report.comparison, calibration_table(report.runs)
        pair = effects_table(comparison, "aa", comparison.aa) if comparison.aa else None
        return MethodData(
            method_of(comparison),
            calibration.shown() if calibration.rows else None,
            pair.shown(hide=["noise_floor"]) if pair else None,
            _aa_words(comparison),
            tables=(pair,) if pair else (),
        )


def method_of(comparison: Comparison) -> tuple[str, ...]:
    """Return the method of a comparison, one paragraph each."""
    blocks = comparison.runs[0].study.get("blocks") or {}
    chosen = str(blocks.get("method", ""))
    lines = [
        "A block is one fresh boot of every arm, in random order; all statistics are over blocks, "
        "never over samples.",
        _intervals(chosen, f"{100 * comparison.confidence:.4g} %"),
        "A cost factor is a ratio turned so that more is always worse: 2× is half the throughput "
        "or twice the duration. Where neither direction is better it is arm ÷ baseline. A "
        "difference, where a value is 0, is arm − baseline in the metric’s unit. All tables and "
        "figures use this direction; CSV files have arm ÷ baseline as estimate, low and high too.",
        "The values next to a cost factor are geometric means over the blocks that both arms have, "
        "so that it is their quotient. For tails and maxima they are medians, and the factor is "
        "the median of the blocks’ own ratios. † marks a factor that differs from the quotient.",
        *_trimmed_sentences(comparison),
        *_session_sentences(comparison),
        _tests(chosen, comparison),
        f"Worse or better: p below {comparison.level:g}, 1 outside the interval, and the estimate "
        f"beyond the practical margin of ±{100 * comparison.margin:g} %. Equivalent: the whole "
        "interval is within the margin, and no check contradicts it. Everything else is "
        "inconclusive; the page then states the greatest cost that the interval does not exclude.",
        *_order_sentences(comparison.blocks),
        *_baseline_sentences(comparison),
        "What a unit of work costs the host is the CPU time of the machine’s own processes there "
        "(of QEMU, of the container, of the agent on the bare host) per unit of work, averaged "
        "over the cell; what the host’s kernel does for it elsewhere is only in the host’s "
        "counters. Memory is the most that was seen resident.",
    ]
    lines += [
        f"{legible(family.arm)}, {family.family} metrics: {family.tests} tests, {family.declared} "
        "declared; the least p within reach is "
        + ("–." if family.p_least is None else f"{probability(family.p_least)}.")
        for family in comparison.families
    ]
    return tuple(lines)


def _trimmed_sentences(comparison: Comparison) -> list[str]:
    if not comparison.trimmed:
        return []
    return [
        "The study compares trimmed means: where the above says geometric mean and interval, a "
        "fifth of the blocks’ ratios, at least one, is left out at either end, and the interval "
        "is Student’s t with winsorised squares (Yuen 1974). A few slow boots do not move them, "
        "and verdicts are about typical boots only. The CSV file also has the interval of the "
        "mean of all blocks (student_t); where the two disagree, the effect is flagged. Counts of "
        "rare events are compared by the mean of all blocks. † marks trimmed means too, which are "
        "not the quotient of the two values."
    ]


def _session_sentences(comparison: Comparison) -> list[str]:
    if not comparison.runs[0].sessions:
        return []
    return [
        "Arms of different boots of the computer are never up at once: their ratio is that of "
        "their means in one round of sessions, and a round is one observation, whatever number of "
        "blocks it has. In half of the rounds either boot comes first, so that what drifts evenly "
        "cancels out. Intervals of single arms are over sessions."
    ]


def _intervals(chosen: str, level: str) -> str:
    if chosen == "sequential":
        return (
            f"Ratios are the geometric mean of each block’s arm ÷ baseline, with a {level} "
            "group-sequential interval: the intervals of all looks together cover, so the run "
            "could stop as soon as all was decided. Those of tails and maxima are of their median "
            "ratio."
        )
    first = (
        "Stein interval: the spread of the first blocks, which set the number of blocks, and the "
        "mean of all"
        if chosen == "stein"
        else "Student-t interval over the blocks’ log-ratios"
    )
    return (
        f"Ratios are the geometric mean of each block’s arm ÷ baseline, with a {level} {first}; "
        "the CSV file also has the hierarchical bootstrap’s interval. Tails and maxima have "
        "order-statistic intervals of the median ratio instead, since a maximum has no t-interval."
    )


def _tests(chosen: str, comparison: Comparison) -> str:
    how = (
        "exchanging the labels of a block’s three boots, the arm’s one and the baseline’s two"
        if comparison.pooled
        else "flipping the signs of whole blocks"
    )
    looks = (
        " The test is group-sequential: each look spends a part of the error level (Lan & DeMets "
        "1983), and p is the level at which the difference would have been declared by now."
        if chosen == "sequential"
        else ""
    )
    statistic = " of trimmed means" if comparison.trimmed else ""
    return (
        f"p comes from a permutation test{statistic} by {how}.{looks} It is corrected by max-T "
        "over one arm’s headline metrics, or over its others, which are exploratory. An arm "
        "without any difference is called worse or better in any headline metric in at most "
        f"{100 * comparison.level:g} % of studies, whatever other arms there are."
    )


def _order_sentences(blocks: int) -> list[str]:
    """Return sentences on dependence between blocks that this few blocks cannot show."""
    if not LEAST_BLOCKS <= blocks < SHOWN_BY:
        return []
    return [
        "Blocks count as independent of each other unless their order shows that they are not. "
        f"Then intervals are widened. {blocks} blocks show a dependence only if it is strong or "
        "many metrics agree. If the computer changes slowly, run more blocks, further apart "
        "(`every`)."
    ]


def _baseline_sentences(comparison: Comparison) -> list[str]:
    """Return sentences on the baseline, and on an adjustment for the boot order within a block."""
    lines = []
    for baseline, twin in comparison.pooled.items():
        there = "" if baseline == comparison.baseline else f", {legible(baseline)},"
        lines.append(
            f"{legible(twin)} is the baseline{there} booted a second time: its boots count "
            "as the baseline’s. The difference between the two is a diagnostic, not a gate. Where "
            "they differ significantly, no arm is called equivalent."
        )
    if any(map(works_by_turns, comparison.runs)):
        lines.append(
            "Both arms of a block were up at once, on the same CPUs, and worked by turns: what "
            "disturbed the host for longer than a turn is in both, and cancels out. The host’s "
            "counters over time show the work of both."
        )
    if any(map(is_duet, comparison.runs)):
        lines.append(
            "Both arms of a block ran at once, on equal CPUs that they exchanged from block to "
            "block (a duet): what disturbed the host for a while is in both, and cancels out. What "
            "each takes from the other (memory bandwidth, shared caches, clock speed) is in both "
            "too: these are costs with a neighbour."
        )
        if comparison.position:
            lines.append("Which half of the CPUs an arm had is a covariate.")
    elif comparison.position:
        lines.append(
            "By how much later in its block an arm was booted than the baseline is a covariate, "
            "where that is shown to matter; the metrics of an arm share its slope."
        )
    return lines


def _aa_words(comparison: Comparison) -> str:
    """Return the pairs of identical arms, one pair for each host."""
    pairs = dict.fromkeys((effect.baseline, effect.arm) for effect in comparison.aa)
    return legible("; ".join(map(joined, pairs)))


@dataclass(frozen=True)
class CalibratedAt:
    """A quantity that the agent and another program measured, with the run and the host."""

    place: str
    figure: Calibration


def calibration_table(runs: Iterable[RunData]) -> Table[CalibratedAt]:
    """Return what the agent and other programs measured on each host before the first block."""
    rows = tuple(
        CalibratedAt(f"{run.run} on {each.host}" if each.host else run.run, figure)
        for run in runs
        for each in run.calibrated
        for figure in each.found
    )
    columns: tuple[Column[CalibratedAt], ...] = (
        Column("place", lambda c: c.place, "Run"),
        Column("what", lambda c: c.figure.what, "Measured"),
        Column("unit", lambda c: c.figure.unit),
        Column("own", lambda c: c.figure.own, "By Tare", _figure("own"), numeric=True),
        Column(
            "reference",
            lambda c: c.figure.reference,
            "By another program",
            _figure("reference"),
            numeric=True,
        ),
        Column("by", lambda c: c.figure.by, "Program"),
        Column("level", lambda c: c.figure.level, "State"),
        Column("found", lambda c: c.figure.found, "Found"),
    )
    caption = "Checks of Tare’s own measurements before the first block, by other programs"
    return Table("calibration", caption, columns, rows, tone=lambda c: c.figure.level)


def _figure(which: str) -> Callable[[CalibratedAt], str]:
    def text(row: CalibratedAt) -> str:
        value = row.figure.own if which == "own" else row.figure.reference
        return NONE if value is None else format_quantity(value, row.figure.unit, digits=4)

    return text
