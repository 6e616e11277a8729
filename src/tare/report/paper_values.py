"""Values of a paper's figure: means over blocks with the source's own intervals, arm by arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.comparison import Comparison
from tare.analysis.results import ArmSummary, Key
from tare.analysis.statistics.logratio import error_of_mean
from tare.references.exhibits import Exhibit
from tare.references.pairing import SideBySide, shown_value
from tare.report.long_series import emulated_arms
from tare.report.tables import Column, Table
from tare.report.words import NONE, Names, Part, counted, marked, metric_name, slug
from tare.units import format_quantity


@dataclass(frozen=True)
class ValueRow:
    """One metric of a run: every arm's value with its interval."""

    key: Key
    summaries: Mapping[str, ArmSummary]


def values_table(
    side: SideBySide, comparison: Comparison, exhibit: Exhibit, keys: Sequence[Key]
) -> Table[ValueRow]:
    """Return each metric's mean over blocks with the source's E = t(α/2)·s/√n, arm by arm."""
    by_key: dict[Key, dict[str, ArmSummary]] = {key: {} for key in keys}
    for summary in comparison.summaries:
        if summary.key in by_key:
            by_key[summary.key][summary.arm] = summary
    names = Names(map(Part.of, keys))

    def what(row: ValueRow) -> str:
        return f"{names.name(Part.of(row.key))}: {metric_name(row.key.metric)}"

    columns: list[Column[ValueRow]] = [Column("what", what, "Test")]
    emulated = emulated_arms(comparison)
    for arm in comparison.arms:
        if any(arm in found for found in by_key.values()):
            columns.append(_arm_column(arm, marked(arm, arm in emulated), exhibit.confidence))
    level = f"{100 * exhibit.confidence:g} %"
    caption = (
        f"{exhibit.shows}: mean over {counted(comparison.blocks, 'block')} ± the half-width of its "
        f"{level} interval by Student’s t; of maxima the longest of all"
    )
    rows = tuple(ValueRow(key, found) for key, found in by_key.items())
    name = exhibit.stem(side.reference.reference)
    return Table(name, caption, tuple(columns), rows)


def _arm_column(arm: str, title: str, confidence: float) -> Column[ValueRow]:
    def value(row: ValueRow) -> float | None:
        summary = row.summaries.get(arm)
        if summary is None:
            return None
        return shown_value(summary) if summary.kind == "maximum" else summary.mean

    def text(row: ValueRow) -> str:
        found, summary = value(row), row.summaries.get(arm)
        if found is None or summary is None:
            return NONE
        shown = format_quantity(found, summary.unit)
        if summary.kind == "maximum" or len(summary.blocks) < 2:
            return shown
        error = error_of_mean([block.value for block in summary.blocks], confidence)
        return f"{shown} ± {format_quantity(error, summary.unit)}"

    return Column(slug(arm), value, title, text, numeric=True)
