"""Tables: the comparison's numbers, unchanged in CSV, letter by letter in LaTeX."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.report_synthetic import comparison_of, hostile, write_run
from tare.analysis.model import Comparison
from tare.report.page.arrange import arrange
from tare.report.page.tables import Column, Table, latex_text
from tare.report.sections.results import effects_table, summaries_table
from tare.report.sections.uncounted import lost_cells_table


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("tables")
    write_run(folder, blocks=4, series=False, statuses={2: {("oci", "tick"): "failed"}})
    return arrange(comparison_of(folder))


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def number(text: str) -> float | None:
    return None if text == "" else float(text)


def test_effects_in_csv_are_those_of_the_comparison(comparison: Comparison) -> None:
    rows = rows_of(effects_table(comparison, "effects", comparison.effects).csv())
    assert len(rows) == len(comparison.effects)
    for row, effect in zip(rows, comparison.effects, strict=True):
        assert (row["workload"], row["metric"], row["arm"]) == (
            effect.key.workload,
            effect.key.metric,
            effect.arm,
        )
        assert float(row["estimate"]) == effect.estimate
        assert float(row["value"]) == effect.arm_summary.centre
        assert float(row["baseline_value"]) == effect.baseline_summary.centre
        assert number(row["p"]) == effect.p
        assert number(row["adjusted_p"]) == effect.adjusted_p
        if effect.interval is not None:
            assert float(row["low"]) == effect.interval.low
            assert float(row["high"]) == effect.interval.high
        if effect.bootstrap is not None:
            assert float(row["bootstrap_low"]) == effect.bootstrap.low
        assert row["verdict"] == effect.verdict
        assert row["emulated"] == str(effect.emulated).lower()
        assert int(row["blocks"]) == effect.blocks


def test_values_in_csv_are_those_of_the_comparison(comparison: Comparison) -> None:
    rows = rows_of(summaries_table(comparison).csv())
    assert len(rows) == len(comparison.summaries)
    for row, summary in zip(rows, comparison.summaries, strict=True):
        assert row["arm"] == summary.arm
        assert float(row["mean"]) == summary.mean
        assert number(row["error"]) == summary.error
        assert float(row["greatest"]) == summary.greatest


def test_lost_cells_are_listed_with_their_reason(comparison: Comparison) -> None:
    rows = rows_of(lost_cells_table(comparison.runs).csv())
    assert [(row["arm"], row["status"]) for row in rows] == [("oci", "failed")]
    assert rows[0]["reason"] == "the guest panicked"


def test_shown_tables_mark_emulated_arms_and_hide_columns(comparison: Comparison) -> None:
    shown = effects_table(comparison, "x", comparison.effects).shown(hide=["what"])
    headings = [cell.text for cell in shown.headings]
    assert "What" not in headings
    place = headings.index("Arm")
    marked = {row[place].text for row in shown.rows}
    assert "qemu-pv (emulated)" in marked
    assert "qemu-pv" not in marked


def table(text: str) -> Table[str]:
    columns: tuple[Column[str], ...] = (
        Column("name", lambda row: row, "Na_me"),
        Column("n", lambda _: 1.5, "n%"),
    )
    return Table("t", "A & B", columns, (text,))


def test_latex_is_a_booktabs_table() -> None:
    text = table("50 % of a_b").latex()
    for rule in ("\\toprule", "\\midrule", "\\bottomrule"):
        assert text.count(rule) == 1
    assert "\\caption{A \\& B}" in text
    assert "{}Na\\_me & n\\% \\\\" in text
    assert "{}50 \\% of a\\_b & 1.5 \\\\" in text


def test_hostile_text_cannot_leave_its_latex_cell() -> None:
    assert "\\input" not in table(hostile()).latex()
    assert latex_text("\\x{y}") == "\\textbackslash{}x\\{y\\}"
    assert latex_text("a\nb\x00") == "a b\ufffd"


@given(st.text())
def test_no_latex_special_is_left(text: str) -> None:
    escaped = latex_text(text)
    known = r"\\(?:textbackslash|textasciicircum|textasciitilde|textless|textgreater|textbar"
    known += r"|textquotedbl|dots)\{\}|\\ensuremath\{\\[a-z]+\}|\\[&%$#_{}]"
    rest = re.sub(known, "", escaped)
    assert not set(rest) & set("\\{}$&#%_^~\n\r")


@given(st.text(min_size=1))
def test_csv_holds_text_as_it_was_but_never_as_a_formula(text: str) -> None:
    row = rows_of(table(text).csv())[0]
    value = row["name"]
    assert value[:1] not in {"=", "+", "-", "@"}
