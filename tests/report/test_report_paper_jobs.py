"""A source's figures of jobs: drawn over the figure's own variable, with copies and bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.references_planned import as_if_run, as_if_watched, kinds_of
from study.shipped_studies import shipped_plan
from tare.analysis.model import Comparison
from tare.analysis.topics.monitoring import Monitor
from tare.references.exhibits import Exhibit
from tare.references.published import load_reference
from tare.report.figures.bars import Bar, bars_figure
from tare.report.figures.palette import looks
from tare.report.page.words import Part
from tare.report.sources import paper_jobs
from tare.report.sources.paper_jobs import Shape, bars_of, counter_name, counters_of, telling

REFERENCE = load_reference("li2013")
FIGURES = {exhibit.figure: exhibit for exhibit in REFERENCE.exhibits}
MADE = {
    "one": Shape(1, 1),
    "two": Shape(2, 1),
    "two-apart": Shape(2, 2),
    "four-apart": Shape(4, 2),
}


def part(scenario: str, size: int = 5, **more: int) -> Part:
    return Part(scenario, "dfsio", json.dumps({"size": size, **more}), "subject")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, tuple[Monitor, ...]]:
    plan = shipped_plan("mapreduce", 8)
    folder = tmp_path_factory.mktemp("jobs") / "run"
    return as_if_run(folder, plan, 8, kinds_of(REFERENCE)), as_if_watched(plan, REFERENCE)


def test_over_size_stand_all_sizes_of_one_scenario_in_their_order() -> None:
    found = telling([part("two", 9), part("one", 5), part("two", 7)], MADE, "size")
    assert found == [part("two", 7), part("two", 9)]


def test_a_figure_over_size_leaves_out_jobs_of_a_single_size() -> None:
    several = [part("two", 9), part("two", 5)]
    assert telling([part("two", 7, replication=1), *several], MADE, "size") == several[::-1]
    # Where no work has several, all that was done on most slaves is shown.
    one = [part("one", 7), part("two", 7), part("two", 7, replication=1)]
    assert {each.scenario for each in telling(one, MADE, "size")} == {"two"}
    assert len(telling(one, MADE, "size")) == 2


def test_a_figure_over_slaves_leaves_out_jobs_with_a_single_number_of_slaves() -> None:
    same = [part("one"), part("two")]
    assert telling([part("two", 9), *same, part("two", 5, replication=1)], MADE, "slaves") == same
    assert telling([part("two-apart", 7), *same], MADE, "hosts") == []


def test_over_slaves_stand_clusters_of_one_host_alone() -> None:
    parts = [part("two-apart"), part("two"), part("one"), part("elsewhere")]
    assert telling(parts, MADE, "slaves") == [part("one"), part("two")]
    # One number of slaves shows nothing of what more of them do.
    assert telling([part("two"), part("two", 7)], MADE, "slaves") == []


def test_over_hosts_stand_as_many_slaves_on_one_and_on_several() -> None:
    parts = [part("four-apart"), part("two-apart"), part("one"), part("two")]
    assert telling(parts, MADE, "hosts") == [part("two"), part("two-apart")]
    assert telling([part("four-apart"), part("two")], MADE, "hosts") == []


@given(
    st.lists(st.builds(part, st.sampled_from([*MADE, "x"]), st.integers(0, 9))),
    st.sampled_from(["", "size", "slaves", "hosts"]),
)
def test_nothing_is_shown_that_was_not_measured_nor_twice(parts: list[Part], over: str) -> None:
    found = telling(parts, MADE, over)  # type: ignore[arg-type]
    assert set(found) <= set(parts)
    assert len(found) == len(set(found))


def test_every_table_of_jobs_lists_copies_and_bytes_written(
    run: tuple[Comparison, tuple[Monitor, ...]],
) -> None:
    comparison, watched = run
    style = looks(comparison.arms, comparison.baseline)
    for number, exhibit in FIGURES.items():
        if exhibit.view == "bars" and exhibit.over != "hosts":
            made = bars_of(comparison, style, exhibit, "f")
        elif exhibit.view == "counters":
            made = counters_of(comparison, watched, style, exhibit, "f")
        else:
            continue
        assert made.figure is not None and made.table is not None, (number, made.empty)
        assert {"Copies", "Written"} <= {head.text for head in made.table.shown().headings}
        if exhibit.workloads != ("filebench",):
            assert "1 copy, 1 B written" in made.figure.description


def test_bars_over_slaves_are_of_each_number_of_them(
    run: tuple[Comparison, tuple[Monitor, ...]],
) -> None:
    comparison, _ = run
    made = bars_of(comparison, looks(comparison.arms, comparison.baseline), FIGURES["8(a)"], "f")
    assert made.figure is not None
    for slaves in ("1 slave", "2 slaves", "3 slaves", "4 slaves"):
        assert f", {slaves}," in made.figure.description


def test_bars_over_size_are_in_the_order_of_sizes_though_blocks_are_in_none(
    run: tuple[Comparison, tuple[Monitor, ...]],
) -> None:
    comparison, watched = run
    style = looks(comparison.arms, comparison.baseline)
    for made in (
        bars_of(comparison, style, FIGURES["2(b)"], "f"),
        counters_of(comparison, watched, style, FIGURES["5(a)"], "f"),
    ):
        assert made.table is not None
        sizes = [json.loads(row.part.parameters)["size"] for row in made.table.rows]
        assert sizes == [number * 1_000_000_000 for number in (5, 10, 15, 20, 25)]


def test_rows_that_do_not_fit_a_figure_are_in_its_table_and_reported(
    run: tuple[Comparison, tuple[Monitor, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison, _ = run
    style = looks(comparison.arms, comparison.baseline)
    whole = bars_of(comparison, style, FIGURES["8(a)"], "f")
    assert whole.figure is not None and whole.table is not None and not whole.left_out
    # Three arms: a row is drawn with all of them, or left out.
    monkeypatch.setattr(paper_jobs, "MOST_BARS", 8)
    made = bars_of(comparison, style, FIGURES["8(a)"], "f")
    assert made.figure is not None and made.table is not None
    assert len(made.table.rows) == len(whole.table.rows) == 12
    assert made.figure.description.count("; ") + 1 == 6
    assert made.left_out == "The figure has 2 of 12 rows, the table has all."


def test_no_figure_of_the_source_lacks_a_row_with_the_five_arms_of_its_study(
    run: tuple[Comparison, tuple[Monitor, ...]],
) -> None:
    comparison, watched = run
    style = looks(comparison.arms, comparison.baseline)
    for exhibit in FIGURES.values():
        if exhibit.view == "bars":
            made = bars_of(comparison, style, exhibit, "f")
        elif exhibit.view == "counters":
            made = counters_of(comparison, watched, style, exhibit, "f")
        else:
            continue
        rows = made.table.rows if made.table else ()
        assert 5 * len(rows) <= paper_jobs.MOST_BARS, exhibit.figure


def test_the_throughput_that_explains_terasort_is_terasorts() -> None:
    # Figure 9 is there to say why TeraSort gains by a fourth machine (section IV.A).
    for number in ("9(a)", "9(b)"):
        assert (FIGURES[number].workloads, FIGURES[number].step) == (("terasort",), "sort")


def test_unmeasured_values_are_explained_in_words(
    run: tuple[Comparison, tuple[Monitor, ...]],
) -> None:
    comparison, _ = run
    style = looks(comparison.arms, comparison.baseline)
    made = bars_of(comparison, style, FIGURES["10"], "f")
    assert made.figure is None and "of one host and as many on several" in made.empty
    assert "in step write" in counters_of(comparison, (), style, FIGURES["2(a)"], "f").empty


def test_counters_have_names_that_never_call_idle_time_use() -> None:
    assert counter_name("others-iowait") == "CPUs without machines, idle, waiting for I/O"
    assert counter_name("cpu-used") == "CPU, used"
    assert counter_name("disk-merged") == "disk merged"


@given(
    st.lists(
        st.builds(
            Bar,
            st.sampled_from(["a", "b"]),
            st.just("bare"),
            st.booleans(),
            st.floats(0, 1e12),
            st.none() | st.tuples(st.floats(0, 1e12), st.floats(0, 1e12)),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_values_are_drawn_within_the_figure(bars: list[Bar]) -> None:
    figure = bars_figure(bars, looks(["bare"], "bare"), "B/s", name="f", title="t")
    for spec in (figure.spec, figure.narrow):
        assert spec is not None
        assert all(0 <= mark["x"] <= mark["x2"] <= spec.width for mark in spec.marks["rect"])


def test_a_view_of_counters_needs_to_know_of_what() -> None:
    with pytest.raises(ValueError, match="needs `workloads` and `metrics`"):
        Exhibit.model_validate({"figure": "1", "view": "counters", "workloads": ["dfsio"]})
