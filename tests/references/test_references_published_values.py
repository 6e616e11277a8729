"""Published values next to a run's own: paired by what was measured, never mixed."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from references.references_run import (
    BLOCKS,
    SCENARIOS,
    comparison_of_run,
    value_of,
    write_realtime_run,
)
from report.report_page_reader import read
from tare.analysis.model import Comparison
from tare.cli.ending import EXIT_INPUT
from tare.cli.main import main
from tare.references.pairing import ArmRow, PairedTable, SideBySide, pair_with_published
from tare.references.published import load_reference
from tare.report import build_report
from tare.report.sources.published import published_table, published_values


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_realtime_run(tmp_path_factory.mktemp("realtime"))


@pytest.fixture(scope="module")
def comparison(folder: Path) -> Comparison:
    return comparison_of_run(folder)


@pytest.fixture(scope="module")
def side(comparison: Comparison) -> SideBySide:
    return pair_with_published(comparison, load_reference("fayyad2013"))


def table(side: SideBySide, number: int) -> PairedTable:
    return next(one for one in side.tables if one.table.table == number)


def row(one: PairedTable, arm: str, *, published: bool = False) -> ArmRow:
    return next(r for r in one.rows if (r.arm, r.published) == (arm, published))


def test_tables_meet_scenarios_by_name_or_by_what_they_place(side: SideBySide) -> None:
    matched = {one.table.table: one.matched for one in side.matched}
    assert matched == {
        1: "one-to-all",
        2: "one-to-all",
        3: "one-to-all",
        6: "tight",
        7: "tight",
        12: "crowd",
        13: "crowd",
    }


def test_a_scenario_of_that_name_that_places_otherwise_is_another(tmp_path: Path) -> None:
    scenarios = {"one-to-all": SCENARIOS["tight"]}
    run = comparison_of_run(write_realtime_run(tmp_path, scenarios))
    found = pair_with_published(run, load_reference("fayyad2013"))
    assert {one.table.table for one in found.matched} == {6, 7}


def test_published_rows_come_first_as_printed(side: SideBySide) -> None:
    one = table(side, 3)
    assert [r.published for r in one.rows] == [True] * 6 + [False] * 3
    xen = row(one, "xen-pv", published=True)
    assert xen.label == "Xen Para-virtualized VM"
    assert [v.value for v in xen.values if v] == [15.27e-6, 17.2e-6]
    assert [v.ratio for v in xen.values if v] == [15.27e-6 / 11.2e-6, 17.2e-6 / 11.45e-6]
    assert all(v is not None and v.effect is None and v.summary is None for v in xen.values)


def test_values_without_a_bare_machine_have_no_ratios(comparison: Comparison) -> None:
    side = pair_with_published(comparison, load_reference("hwang2013"))
    rows = [each for one in side.tables for each in one.rows]
    assert rows and all(v is not None and v.ratio is None for each in rows for v in each.values)


def test_the_runs_maximum_is_the_worst_of_all_blocks(side: SideBySide) -> None:
    vm = row(table(side, 3), "vm")
    assert [v.value for v in vm.values if v] == [
        pytest.approx(value_of(4e-6, "vm", BLOCKS)),
        pytest.approx(value_of(6e-6, "vm", BLOCKS)),
    ]
    assert [v.ratio for v in vm.values if v] == [pytest.approx(3.0)] * 2
    assert vm.emulated


def test_the_longest_view_of_several_ticks_is_chosen(side: SideBySide) -> None:
    one = table(side, 2)
    assert [key.workload for key in one.keys if key] == ["tick-long"]
    first = row(one, "bare").values[0]
    assert first is not None and first.value == pytest.approx(value_of(20e-6, "bare", BLOCKS))


def test_the_ratio_over_blocks_is_the_runs_own_estimate(
    side: SideBySide, comparison: Comparison
) -> None:
    value = row(table(side, 7), "vm").values[1]
    assert value is not None and value.effect in comparison.effects
    assert value.effect is not None and value.effect.baseline == "bare"


def test_published_values_change_no_estimate(folder: Path, comparison: Comparison) -> None:
    before = comparison_of_run(folder)
    pair_with_published(comparison, load_reference("fayyad2013"))
    assert comparison.effects == before.effects
    assert comparison.summaries == before.summaries


def test_no_ratio_divides_one_source_by_the_other(side: SideBySide) -> None:
    for one in side.tables:
        for published in (True, False):
            rows = [r for r in one.rows if r.published is published]
            # The first of either source is its bare machine: without neighbours if it has that.
            for r in rows:
                for value, base in zip(r.values, rows[0].values, strict=True):
                    if value is not None and base is not None:
                        assert rows[0].arm == "bare"
                        assert value.ratio == value.value / base.value


def test_ratios_under_load_divide_by_the_bare_machine_without_it(side: SideBySide) -> None:
    own = [r for r in table(side, 12).rows if not r.published]
    assert [(r.label, r.scenario) for r in own] == [
        ("bare, without neighbours", "one-to-all"),
        ("bare", "crowd"),
        ("bare-again", "crowd"),
        ("vm", "crowd"),
    ]
    loaded = own[3].values[0]
    assert loaded is not None and loaded.ratio == pytest.approx(6.0)
    assert loaded.effect is not None and loaded.effect.key.scenario == "crowd"
    assert loaded.effect.estimate == pytest.approx(3.0)


def test_without_such_a_bare_machine_the_ratios_say_so(side: SideBySide) -> None:
    one = table(side, 7)
    assert [r.label for r in one.rows if not r.published] == ["bare", "bare-again", "vm"]
    assert any("has no bare without neighbours" in note for note in one.notes)


def test_a_different_number_of_neighbours_is_reported(side: SideBySide) -> None:
    assert any(
        "Neighbours: 3 as published, 1 here on a host of 2 CPUs." in note
        for note in table(side, 12).notes
    )
    assert not any("Neighbours:" in note for note in table(side, 7).notes)


def test_values_that_the_source_lost_are_reported(side: SideBySide) -> None:
    assert any("No value of Xen Para-virtualized VM" in note for note in table(side, 6).notes)


def test_a_table_looks_as_its_source_does(side: SideBySide) -> None:
    shown = published_table(side, table(side, 3)).shown()
    assert [cell.text for cell in shown.headings] == [
        "Source",
        "Arm",
        "2 threads",
        "÷ own bare",
        "1000 threads",
        "÷ own bare",
    ]
    assert [cell.text for cell in shown.rows[1]][:5] == [
        "published",
        "Hyper-V HW-Assisted VM",
        "63 µs",
        "5.62×",
        "135 µs",
    ]
    assert shown.rows[-1][1].text == "vm (emulated)"
    assert published_table(side, table(side, 6)).shown().rows[5][2].text == "281.71 ms"
    assert shown.caption.startswith(
        "Table 3 (section 6.3.1): maximum thread switch latency (switch latency max), scenario 1"
    )


def test_all_values_are_in_the_csv_file_and_no_lost_one(side: SideBySide) -> None:
    rows = list(csv.DictReader(io.StringIO(published_values(side).csv())))
    published = [r for r in rows if r["source"] == "published" and r["value"]]
    assert len(published) == 138
    assert {(r["table"], r["arm"]) for r in rows if not r["value"]} == {
        ("6", "xen-pv"),
        ("6", "xen-pv-1ms"),
    }
    own = [r for r in rows if r["source"] == "run"]
    # Three scenarios, three arms, one tick and two ring sizes; table 1 has the ring sizes again.
    quiet = [r for r in own if r["label"] == "bare, without neighbours"]
    assert len(own) - len(quiet) == 3 * 3 * 3 + 3 * 2
    assert {(r["table"], r["run_scenario"]) for r in quiet} == {
        ("12", "one-to-all"),
        ("13", "one-to-all"),
    }
    assert {r["blocks"] for r in own} == {str(BLOCKS)}
    assert all(r["low"] == "" for r in published)
    assert {r["emulated"] for r in own if r["arm"] == "vm"} == {"true"}


def test_the_report_shows_the_section_only_when_asked(
    folder: Path, comparison: Comparison, tmp_path: Path
) -> None:
    reference = load_reference("fayyad2013")
    plain = build_report(comparison.runs, comparison, tmp_path / "plain").read_text()
    assert "Published values and this run" not in plain
    path = build_report(comparison.runs, comparison, tmp_path / "with", [reference])
    page = read(path.read_text(encoding="utf-8"))
    assert page.faults == []
    words = page.words
    assert "Published values and this run: fayyad2013" in words
    assert "Published values enter no estimate" in words
    assert "this run has no tick in a scenario like one-to-one" in words
    assert "ESXi HW-Assisted VM" in words and "59.61 ms" in words
    tables = tmp_path / "with" / "tables"
    assert (tables / "reference-fayyad2013.csv").is_file()
    latex = (tables / "reference-fayyad2013.tex").read_text(encoding="utf-8")
    assert latex.count("\\begin{table}") == 7
    assert "tables/reference-fayyad2013.csv" in set(page.addresses())


def test_a_run_with_nothing_alike_says_so(comparison: Comparison, tmp_path: Path) -> None:
    bare = replace(comparison, summaries=(), effects=(), aa=())
    reference = load_reference("fayyad2013-hyperv")
    path = build_report(bare.runs, bare, tmp_path, [reference])
    words = read(path.read_text(encoding="utf-8")).words
    assert "measured nothing that can be compared with" in words


def run_command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["tare", *words])
    try:
        return main()
    except SystemExit as end:
        return int(end.code or 0)


def test_the_command_prints_published_values_next_to_measured_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = run_command(monkeypatch, "report", str(folder), "--reference", "fayyad2013")
    assert status == 0
    assert (folder / "tables" / "reference-fayyad2013.csv").is_file()


def test_the_command_names_the_known_references(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run_command(monkeypatch, "report", str(folder), "--reference", "fayyad")
    assert status == EXIT_INPUT
    text = capsys.readouterr().err
    assert "there is no reference 'fayyad'" in text
    assert "fayyad2013, fayyad2013-hyperv" in text
