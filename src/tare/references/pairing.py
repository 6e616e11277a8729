"""Pair published values with a run's own, and give each its own ratios.

Every ratio divides values of one source: a published value by the published bare machine's, a
run's value by the run's baseline. Nothing here divides values of different sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import ArmSummary, Effect, Key
from tare.references.arms import bare_of, counterparts_of
from tare.references.measured import measured_key, parameters_in
from tare.references.published import PublishedScenario, PublishedTable, Reference
from tare.references.scenarios import (
    cpus_of,
    mapping,
    matching,
    neighbours_in,
    subject_of,
)
from tare.units import parameter_words

PLACES = {
    "any": "Here the subject is pinned to CPUs of its own; in the source it was not.",
    "pinned": "Here the subject is not pinned; in the source it was.",
}


@dataclass(frozen=True)
class ArmValue:
    """One value of a row.

    Args:
        value: The value in the table's SI unit. A run's maximum is the worst over all its blocks.
        ratio: The value divided by that of its own source's bare machine in the same column. The
            bare machine is in the same scenario. If the source measured it without neighbours, it
            is the run's own without neighbours. None without such a value.
        effect: The run's estimate, over blocks, of the ratio to the baseline in the same
            scenario; None for published values, and for the baseline.
        summary: The run's values over blocks; None for published values.
        printed: The value as the source prints it; empty for the run's own.
    """

    value: float
    ratio: float | None
    effect: Effect | None = None
    summary: ArmSummary | None = None
    printed: str = ""


@dataclass(frozen=True)
class ArmRow:
    """One arm's values, column by column.

    Args:
        published: Whether they are the source's values or the run's.
        arm: The arm.
        label: The arm's name for reading.
        emulated: Whether the arm is emulated.
        values: One value per column of the table.
        scenario: The run's scenario that the values are from.
    """

    published: bool
    arm: str
    label: str
    emulated: bool
    values: tuple[ArmValue | None, ...]
    scenario: str = ""


@dataclass(frozen=True)
class PairedTable:
    """One published table followed by the run's rows, if the run has any.

    Args:
        table: The published table.
        scenario: The table's scenario, if it has one.
        matched: The name of the run's scenario that is like it; empty without one.
        keys: The run's key for each column; None for a column that it did not measure.
        rows: Published rows first, then the run's.
        notes: Remarks for the reader, one sentence each.
    """

    table: PublishedTable
    scenario: PublishedScenario | None
    matched: str
    keys: tuple[Key | None, ...]
    rows: tuple[ArmRow, ...]
    notes: tuple[str, ...]

    @property
    def has_own(self) -> bool:
        """Whether the run has any value to compare with the published ones."""
        return any(not row.published for row in self.rows)


@dataclass(frozen=True)
class SideBySide:
    """All tables of one reference next to those of one comparison.

    Args:
        reference: The source.
        tables: The source's tables, each with the run's values.
        baseline: The run's arm that its values are divided by; empty if it has none like the
            source's.
    """

    reference: Reference
    tables: tuple[PairedTable, ...]
    baseline: str = ""

    @property
    def matched(self) -> tuple[PairedTable, ...]:
        """The tables for which the run has values."""
        return tuple(table for table in self.tables if table.has_own)


def pair_with_published(comparison: Comparison, reference: Reference) -> SideBySide:
    """Return the tables of ``reference``, each with the values of the compared runs."""
    tables = tuple(_paired(comparison, reference, table) for table in reference.tables)
    return SideBySide(reference, tables, bare_of(comparison, reference) or "")


def _paired(comparison: Comparison, reference: Reference, table: PublishedTable) -> PairedTable:
    scenario = reference.scenarios.get(table.scenario) if table.scenario else None
    matched = matching(comparison.runs, table.scenario or "", scenario) if scenario else ""
    keys = tuple(
        measured_key(comparison, table.workload, table.metric, matched, column) if matched else None
        for column in table.columns
    )
    published = _published_rows(reference, table)
    bare = bare_of(comparison, reference)
    alone = _scenario_without_neighbours(comparison, reference, scenario)
    arms, _ = arms_of(comparison, reference, table)
    own, words = _own_rows(comparison, table, keys, bare, alone, arms)
    notes = [table.remark] if table.remark else []
    notes += [f"No value of {reference.arms[arm].label}: {why}." for arm, why in table.lost.items()]
    if own and scenario is not None:
        notes += [*words, *_notes(comparison, scenario, matched, keys)]
    return PairedTable(table, scenario, matched, keys, (*published, *own), tuple(notes))


def _published_rows(reference: Reference, table: PublishedTable) -> tuple[ArmRow, ...]:
    nothing: tuple[float | None, ...] = (None,) * len(table.columns)
    bare = table.rows[reference.baseline] if reference.baseline is not None else nothing
    return tuple(
        ArmRow(
            published=True,
            arm=arm,
            label=published.label,
            emulated=False,
            values=tuple(
                ArmValue(value, value / base if base is not None else None, printed=printed)
                for value, base, printed in zip(
                    table.rows[arm], bare, table.printed[arm], strict=True
                )
            ),
        )
        for arm, published in reference.arms.items()
        if arm in table.rows
    )


def _scenario_without_neighbours(
    comparison: Comparison, reference: Reference, scenario: PublishedScenario | None
) -> str | None:
    """Return the run's scenario for a bare machine that the source measured without neighbours.

    None if the source measured its bare machine in the table's own scenario; empty if the run has
    no
    such scenario.
    """
    if scenario is None or scenario.neighbours is None or not reference.baseline_alone:
        return None
    return matching(comparison.runs, "", PublishedScenario(number=1, subject=scenario.subject))


def arms_of(
    comparison: Comparison, reference: Reference, table: PublishedTable
) -> tuple[tuple[str, ...], str]:
    """Return the run's arms that a table shows, or the reason why there are none.

    Only a table of the bare machine alone is restricted to that machine's counterparts.
    """
    if reference.baseline is None or set(table.rows) != {reference.baseline}:
        return tuple(comparison.arms), ""
    return counterparts_of(comparison, reference, (reference.baseline,))


def _own_rows(
    comparison: Comparison,
    table: PublishedTable,
    keys: Sequence[Key | None],
    bare: str | None,
    alone: str | None,
    arms: Sequence[str],
) -> tuple[list[ArmRow], list[str]]:
    """Return the run's rows, and notes on the bare machine in their ratios."""
    bare_keys, rows, words = keys, [], []
    if bare is None:
        words.append(
            "This run has no bare machine like the source's, so its values stand without ratios."
        )
    elif alone is not None:
        quiet = tuple(
            measured_key(comparison, table.workload, table.metric, alone, column)
            for column in table.columns
        )
        own = _own_row(comparison, bare, quiet, bare, quiet)
        if own is not None:
            rows.append(replace(own, label=f"{bare}, without neighbours"))
            bare_keys = quiet
            words.append(
                f"Ratios divide by {bare} without neighbours, here of scenario {alone}, as the "
                "source does."
            )
        else:
            words.append(
                f"This run has no {bare} without neighbours, by which the source divides: its "
                f"ratios divide by {bare} with them, and are smaller for it."
            )
    found = (_own_row(comparison, arm, keys, bare, bare_keys) for arm in arms)
    rows += [row for row in found if row is not None]
    return (rows, words) if any(row.scenario != alone for row in rows) else ([], [])


def _own_row(
    comparison: Comparison,
    arm: str,
    keys: Sequence[Key | None],
    bare: str | None,
    bare_keys: Sequence[Key | None],
) -> ArmRow | None:
    summaries = {(summary.key, summary.arm): summary for summary in comparison.summaries}
    effects = {(e.key, e.arm): e for e in (*comparison.aa, *comparison.effects)}
    values: list[ArmValue | None] = []
    for key, bare_key in zip(keys, bare_keys, strict=True):
        own = summaries.get((key, arm)) if key is not None else None
        if key is None or own is None:
            values.append(None)
            continue
        base = summaries.get((bare_key, bare)) if bare_key is not None and bare else None
        effect = effects.get((key, arm))
        if effect is not None and effect.baseline != bare:
            effect = None
        values.append(_own_value(own, base, effect))
    scenario = next((key.scenario for key in keys if key is not None), "")
    emulated = any(value.summary.emulated for value in values if value and value.summary)
    return ArmRow(False, arm, arm, emulated, tuple(values), scenario) if any(values) else None


def _own_value(own: ArmSummary, base: ArmSummary | None, effect: Effect | None) -> ArmValue:
    value = shown_value(own)
    under = shown_value(base) if base is not None else 0.0
    return ArmValue(value, value / under if under > 0 else None, effect, own)


def shown_value(summary: ArmSummary) -> float:
    """Return the value to compare with a printed value: the largest for maxima, else the centre."""
    return summary.greatest if summary.kind == "maximum" else summary.centre


def _notes(
    comparison: Comparison,
    scenario: PublishedScenario,
    matched: str,
    keys: Sequence[Key | None],
) -> list[str]:
    taken = ", ".join(
        dict.fromkeys(
            f"{key.workload} [{parameter_words(parameters_in(key))}]"
            for key in keys
            if key is not None
        )
    )
    blocks = comparison.blocks
    notes = [f"This run: scenario {matched}, {taken}, {blocks} block{'s' * (blocks != 1)}."]
    if any(subject_of(placed) != scenario.subject for placed in _placed(comparison, matched)):
        notes.append(PLACES[scenario.subject])
    published = scenario.neighbours.count if scenario.neighbours else 0
    own = neighbours_in(comparison.runs, matched)
    if own and own != {published}:
        counted = " or ".join(str(count) for count in sorted(own))
        cpus = {str(cpus_of(run)) for run in comparison.runs} - {"None"}
        where = f" on a host of {' or '.join(sorted(cpus))} CPUs" if cpus else ""
        notes.append(f"Neighbours: {published} as published, {counted} here{where}.")
    if any(key is None for key in keys):
        notes.append("What this run did not measure is left empty.")
    return notes


def _placed(comparison: Comparison, scenario: str) -> list[Mapping[str, Any]]:
    return [mapping(mapping(run.study.get("scenarios")).get(scenario)) for run in comparison.runs]


def describe_column(column: Mapping[str, int | float | str]) -> str:
    """Return a column's heading, such as ``2 threads``; empty for a column without parameters."""
    return ", ".join(
        f"{value} {name.removesuffix('s') if value == 1 else name}"
        for name, value in column.items()
    )
