"""Published values next to the run's own, in the layout of the source's tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tare.analysis.model import Interval
from tare.references.pairing import (
    ArmRow,
    ArmValue,
    PairedTable,
    SideBySide,
    describe_column,
)
from tare.references.scenarios import describe_scenario
from tare.report.page.tables import Column, Table, interval_columns
from tare.report.page.words import (
    NONE,
    marked,
    metric_name,
    ratio,
    ratio_interval,
    slug,
)
from tare.units import format_quantity

HOUR_S = 3600.0


def published_table(side: SideBySide, one: PairedTable) -> Table[ArmRow]:
    """Return one table in the layout of its source: an arm per row, a column per parameter."""
    columns: list[Column[ArmRow]] = [
        Column("source", _whose, "Source"),
        Column("arm", lambda row: row.label, "Arm", lambda row: marked(row.label, row.emulated)),
    ]
    for index, parameters in enumerate(one.table.columns):
        heading = describe_column(parameters) or "Maximum"
        columns += _columns(one, index, heading)
    table, scenario = one.table, one.scenario
    where = ""
    if scenario is not None:
        where = f", scenario {scenario.number} {table.scenario}: {describe_scenario(scenario)}"
    section = f" (section {table.section})" if table.section else ""
    measured = f"{table.workload} {metric_name(table.metric)}"
    shows = f"{table.shows} ({measured})" if table.shows else measured
    caption = f"{table.name}{section}: {shows}{where}"
    number = f"table-{table.table:02d}" if table.table else slug(table.place)
    name = f"reference-{side.reference.reference}-{number}"
    return Table(name, caption, tuple(columns), one.rows, tone=_tone)


def _columns(one: PairedTable, index: int, heading: str) -> list[Column[ArmRow]]:
    unit = one.table.unit
    # A page with several columns has no room for this one; the CSV file has it.
    same_load = "÷ bare, same load, over blocks" if len(one.table.columns) == 1 else ""

    def found(row: ArmRow) -> ArmValue | None:
        return row.values[index]

    def value(row: ArmRow) -> float | None:
        got = found(row)
        return got.value if got is not None else None

    def measured(got: float) -> str:
        return format_quantity(got, unit, digits=4)

    def shown(row: ArmRow) -> str:
        got = found(row)
        if got is None:
            return NONE
        return got.printed if row.published else measured(got.value)

    def own_ratio(row: ArmRow) -> float | None:
        got = found(row)
        return got.ratio if got is not None else None

    def estimate(row: ArmRow) -> str:
        got = found(row)
        effect = got.effect if got is not None else None
        if effect is None or effect.scale != "ratio":
            return NONE
        ends = effect.interval
        text = ratio(effect.estimate)
        return text if ends is None else f"{text} ({ratio_interval((ends.low, ends.high))})"

    return [
        Column(
            f"value_{index + 1}",
            value,
            heading,
            shown,
            numeric=True,
        ),
        Column(
            f"ratio_{index + 1}",
            own_ratio,
            "÷ own bare",
            lambda row: _text_or_none(own_ratio(row), ratio),
            numeric=True,
        ),
        Column(f"estimate_{index + 1}", estimate, same_load, estimate, numeric=True),
    ]


def as_printed(value: float, unit: str) -> str:
    """Return a published value with at most five digits and no trailing zeros, as in sources."""
    if unit == "1":
        return f"{value:,.10g}"
    if unit == "s" and value >= HOUR_S:
        return f"{value / HOUR_S:g} h"
    return format_quantity(value, unit, digits=5, trim=True)


def _text_or_none(value: float | None, text: Callable[[float], str]) -> str:
    return NONE if value is None else text(value)


def _whose(row: ArmRow) -> str:
    return "published" if row.published else "this run"


def _tone(row: ArmRow) -> str:
    return " ".join(
        word for word, on in (("published", row.published), ("emulated", row.emulated)) if on
    )


@dataclass(frozen=True)
class TidyRow:
    """One value of one source for the CSV file; ``why`` is the reason if there is none."""

    one: PairedTable
    column: int
    row: ArmRow | None
    arm: str
    label: str
    why: str = ""

    @property
    def value(self) -> ArmValue | None:
        """The value; None if there is none."""
        return self.row.values[self.column] if self.row is not None else None

    @property
    def interval(self) -> Interval | None:
        """The run's own interval of the ratio; None without one."""
        effect = self.value.effect if self.value is not None else None
        return effect.interval if effect is not None else None


def _tidy_columns(side: SideBySide) -> tuple[Column[TidyRow], ...]:
    return (
        Column("reference", lambda _: side.reference.reference),
        Column("table", lambda r: r.one.table.table),
        Column("place", lambda r: r.one.table.place),
        Column("section", lambda r: r.one.table.section),
        Column("scenario", lambda r: r.one.table.scenario),
        Column("run_scenario", lambda r: r.row.scenario or None if r.row else None),
        Column("workload", lambda r: r.one.table.workload),
        Column("parameters", lambda r: json.dumps(r.one.table.columns[r.column])),
        Column("metric", lambda r: r.one.table.metric),
        Column("unit", lambda r: r.one.table.unit),
        Column("source", lambda r: "run" if r.row and not r.row.published else "published"),
        Column("arm", lambda r: r.arm),
        Column("label", lambda r: r.label),
        Column("emulated", lambda r: bool(r.row and r.row.emulated)),
        Column("value", lambda r: r.value.value if r.value else None),
        Column("ratio_to_own_bare", lambda r: r.value.ratio if r.value else None),
        Column(
            "estimate", lambda r: r.value.effect.estimate if r.value and r.value.effect else None
        ),
        *interval_columns(lambda r: r.interval, _blocks),
        Column("blocks", _blocks),
        Column("remark", lambda r: r.why or r.one.table.remark),
    )


def _blocks(row: TidyRow) -> int | None:
    summary = row.value.summary if row.value is not None else None
    return len(summary.blocks) if summary is not None else None


def _tidy_rows(side: SideBySide) -> Iterator[TidyRow]:
    for one in side.tables:
        for row in one.rows:
            for column, value in enumerate(row.values):
                if value is not None:
                    yield TidyRow(one, column, row, row.arm, row.label)
        for arm, why in one.table.lost.items():
            for column in range(len(one.table.columns)):
                yield TidyRow(one, column, None, arm, side.reference.arms[arm].label, why)


@dataclass(frozen=True)
class PublishedValues(Table[TidyRow]):
    """All values of a source; in LaTeX, the source's own tables instead.

    Args:
        pages: The tables for which both the source and the run have values.
    """

    pages: tuple[Table[ArmRow], ...] = ()

    def latex(self) -> str:
        """Return the source's tables as LaTeX."""
        return "\n".join(table.latex() for table in self.pages)


def published_values(side: SideBySide) -> PublishedValues:
    """Return all values, published and own, one per row, including those without a counterpart."""
    pages = tuple(published_table(side, one) for one in side.matched)
    name = f"reference-{side.reference.reference}"
    caption = f"Published values of {side.reference.reference} and this run's own"
    rows = tuple(_tidy_rows(side))
    return PublishedValues(name, caption, _tidy_columns(side), rows, pages=pages)
