"""Numbers that a source's text states in addition to its tables, and a run's counterparts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tare.references.printed import Fact
from tare.references.published import Reference
from tare.references.shares import Compared
from tare.references.stated import Stated
from tare.report.page.tables import Column, Table
from tare.report.page.words import counted, joined, marked, ratio
from tare.report.sources.published import as_printed
from tare.units import format_percent, format_quantity

THIS = re.compile(r"this (figure|table)\b")
"""The words by which a reference names the table or figure that a number is about."""


@dataclass(frozen=True)
class PageParts:
    """The parts of a page that a number of the text can refer to.

    Args:
        empty: By the name of a table or figure of the source, why it is empty; empty if it is
            filled.
        missing: By the beginning of a part's title, why the page lacks that part.
    """

    empty: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def why_absent(self, fact: Fact) -> str:
        """Return why the page lacks the part that a number refers to; empty if the page has it."""
        for title, why in self.missing.items():
            if fact.here.startswith(title):
                return why
        named = [name for name in self.empty if fact.here.startswith(f"{name}:")]
        about = fact.of if THIS.match(fact.here) else named
        if about and all(self.empty.get(name) for name in about):
            return f"{joined(about)} {'is' if len(about) == 1 else 'are'} empty here"
        return ""


def stated_table(
    reference: Reference, rows: Sequence[Stated], page: PageParts | None = None
) -> Table[Stated]:
    """Return the numbers stated in the source's text, each with the run's number or the reason."""
    columns: tuple[Column[Stated], ...] = (
        Column("name", lambda row: row.name),
        Column("says", lambda row: row.fact.says, "Stated in the text"),
        Column("value", lambda row: row.fact.value, "Value", _value, numeric=True),
        Column("to", lambda row: row.fact.to),
        Column("unit", lambda row: row.fact.unit),
        Column("conditions", lambda row: row.conditions, "Conditions"),
        Column("section", lambda row: row.fact.section, "Section"),
        Column("of", lambda row: joined(row.fact.of) if row.fact.of else ""),
        Column("own", lambda row: run_value_text(row, page), "This run"),
    )
    caption = (
        f"Numbers that the text of {reference.reference} states, and what this run has for them"
    )
    return Table(f"reference-{reference.reference}-facts", caption, columns, tuple(rows))


def statement(row: Stated, *, is_empty: bool, page: PageParts | None = None) -> str:
    """Return one number of the text in a sentence, with the run's counterpart.

    Args:
        row: The number.
        is_empty: Whether the run lacks the figure or table under which the sentence is shown.
        page: The parts that the number can refer to.
    """
    conditions = f" ({row.conditions})" if row.conditions else ""
    fact = f"Stated in section {row.fact.section}: {row.fact.says}: {_value(row)}{conditions}."
    if row.fact.setup and not row.fact.here:
        return fact
    if is_empty and not row.unlike and THIS.match(row.fact.here):
        return f"{fact} This run: nothing, for the reason above."
    return f"{fact} This run: {run_value_text(row, page, is_under=True)}."


def run_value_text(row: Stated, page: PageParts | None = None, *, is_under: bool = False) -> str:
    """Return the run's values for a number, arm by arm, or the reason why there are none.

    Args:
        row: The number.
        page: The parts that the number can refer to.
        is_under: Whether this is shown under the figure or table that the number is about.
    """
    fact = row.fact
    if fact.here:
        if why := row.unlike or (page.why_absent(fact) if page else ""):
            return f"nothing: {why}"
        return (
            f"see {fact.here if is_under or not fact.of else THIS.sub(joined(fact.of), fact.here)}"
        )
    if row.why:
        return f"nothing: {row.why}"
    what = f"{fact.workload} {fact.metric}"
    if fact.against:
        sign = "÷" if fact.unit == "1" else "−"
        what += f", {fact.scenario} {sign} {fact.against}"
    elif row.scenario:
        what += f" in {row.scenario}"
    if row.between:
        return f"{what}: {'; '.join(_comparison_text(fact, each) for each in row.between)}"
    values = (f"{arm} {_value_text(row, value)}" for arm, value in row.own.items())
    return f"{what}: {', '.join(values)}"


def _comparison_text(fact: Fact, one: Compared) -> str:
    """Return a run's value for two arms, with its interval or the reason why it has none."""
    two = f"{one.first} {'against' if fact.share else '÷'} {one.second}"
    form = _signed if fact.share else ratio
    if one.ends is None:
        many = counted(one.blocks, "block")
        why = "of the longest of all" if one.longest else f"of {many}, too few for an interval"
        words = f"{form(one.value)} ({why})"
    else:
        words = f"{form(one.value)} ({form(one.ends[0])} to {form(one.ends[1])})"
    return marked(f"{two} {words}", one.emulated)


def _signed(share: float) -> str:
    return format_percent(share, 3).replace("-", "−")


def _value_text(row: Stated, value: float) -> str:
    if row.fact.against and row.unit == "1":
        return ratio(value)
    if value < 0:
        return f"−{format_quantity(-value, row.unit)}"
    return format_quantity(value, row.unit)


def _value(row: Stated) -> str:
    """Return the number with the digits that the source printed."""
    fact = row.fact
    if fact.printed:
        return fact.printed
    ends = [fact.value] if fact.to is None else [fact.value, fact.to]
    if fact.share:
        return f"{' to '.join(f'{100 * end:.10g}' for end in ends)} %"
    return " to ".join(as_printed(end, fact.unit) for end in ends)
