"""A source's figures of jobs: drawn over what the figure is about, with copies and bytes beside."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.references_planned import as_if_run, as_if_watched, kinds_of
from study.shipped_studies import shipped_plan
from tare.analysis.model import Comparison
from tare.analysis.monitoring import Monitor
from tare.references.exhibits import Exhibit
from tare.references.published import load_reference
from tare.report.figures.bars import Bar, bars_figure
from tare.report.palette import looks
from tare.report.paper_jobs import Shape, bars_of, counter_name, counters_of, telling
from tare.report.words import Part

REFERENCE = load_reference("li2013")
FIGURES = {exhibit.figure: exhibit for exhibit in REFERENCE.exhibits}
MADE = {
    "one": Shape(1, 1),
    "two": Shape(2, 1),
    "two-apart": Shape(2, 2),
    "four-apart": Shape(4, 2),
}


def part(scenario: str, size: int = 5) -> Part:
    return Part(scenario, "dfsio", json.dumps({"size": size}), "subject")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, tuple[Monitor, ...]]:
    plan = shipped_plan("mapreduce", 8)
    folder = tmp_path_factory.mktemp("jobs") / "run"
    return as_if_run(folder, plan, 8, kinds_of(REFERENCE)), as_if_watched(plan, REFERENCE)


def test_over_size_stand_all_sizes_of_one_scenario_in_their_order() -> None:
    found = telling([part("two", 9), part("one", 5), part("two", 7)], MADE, "size")
    assert found == [part("two", 7), part("two", 9)]


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


def test_every_table_of_jobs_tells_copies_and_bytes_written(
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


def test_what_was_not_measured_is_said_in_words(
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
