"""Any two arms: the page's part, its tables, and the commands that choose a baseline."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from report.report_page_reader import Page, read
from report.report_synthetic import write_run
from run.run_driving import tare
from tare.analysis import compare_every_pair, load_run
from tare.analysis.model import AllPairs, Comparison
from tare.report import build_report
from tare.report.sections.pairs import pairs_table, rank_range, ranking_table

Made = tuple[Path, Page, Comparison, AllPairs]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = write_run(tmp_path_factory.mktemp("pairs"), series=False)
    comparison = compare_every_pair(load_run(folder))
    page = build_report(comparison.runs, comparison, folder)
    assert comparison.pairs is not None
    return folder, read(page.read_text(encoding="utf-8")), comparison, comparison.pairs


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_the_page_ranks_arms_and_lists_all_pairs(made: Made) -> None:
    _, page, _, pairs = made
    assert page.faults == []
    assert f"All pairs of arms and headline metrics ({pairs.tests}) are one family" in page.words
    assert f"All pairs: {len(pairs.each_once)}" in page.words
    assert "1–2" in page.words
    assert "bare ? oci" in page.words or "bare = oci" in page.words


def test_files_hold_each_pair_once_and_the_ranks(made: Made) -> None:
    folder, _, _, pairs = made
    listed = rows_of(folder / "tables" / "pairs.csv")
    assert len(listed) == len(pairs.each_once)
    assert {row["family"] for row in listed} == {"pairs"}
    assert {row["baseline"] for row in listed} == {"bare", "oci", "qemu-pv"}
    ranks = rows_of(folder / "tables" / "ranking.csv")
    assert len(ranks) == len({rank.key for rank in pairs.ranks})
    assert {row["rank_qemu-em"] for row in ranks} & {"3–4"}


def test_tables_are_in_the_order_of_the_study(made: Made) -> None:
    _, _, comparison, pairs = made
    table = pairs_table(comparison, pairs)
    assert [c.title for c in table.columns if c.key == "baseline"] == ["Against"]
    assert len(ranking_table(comparison, pairs).rows) > 0
    assert rank_range(None) == "–"


def test_another_baseline_turns_the_whole_report(tmp_path: Path) -> None:
    write_run(tmp_path, series=False)
    done = tare("report", tmp_path, "--baseline", "oci")
    assert done.returncode == 0, done.stderr
    words = read((tmp_path / "report.html").read_text(encoding="utf-8")).words
    assert "baseline oci" in words
    assert "Cost against oci" in words
    wrong = tare("report", tmp_path, "--baseline", "xen")
    assert wrong.returncode == 2
    assert "there is no arm xen to compare with" in wrong.stderr
    assert "bare, bare-again, oci" in wrong.stderr


def test_the_terminal_lists_all_pairs(made: Made) -> None:
    folder, _, _, pairs = made
    done = tare("compare", folder, "--pairs")
    assert done.returncode == 0, done.stderr
    assert "Against" in done.stdout
    assert done.stdout.count("qemu-pv") > len({e.key for e in pairs.effects})
    assert "Ties" in done.stdout
    two = tare("compare", folder, folder, "--pairs")
    assert two.returncode == 2
    assert "--pairs compares the arms of one run" in two.stderr
