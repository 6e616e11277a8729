"""How much neighbours hurt: a ratio within one arm and block, turned so that above 1 is worse."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.analysis_observed import observed_as
from references.references_run import BLOCKS, SCENARIOS, write_realtime_run
from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.topics.interference import Hurt, interference, natural, neighbour_words
from tare.events.results import Observation
from tare.report.figures.heat import heat_figure, heat_rows, ink_of
from tare.report.figures.palette import HEAT
from tare.report.sections.interference import neighbours_answer, slowdowns_table

ARMS = ("bare", "vm")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    data = load_run(write_realtime_run(tmp_path_factory.mktemp("run")))
    return replace(
        data,
        counted=observed_as(
            data, lambda _, seen: seen._replace(metric=seen.metric._replace(headline=True))
        ),
    )


@pytest.fixture(scope="module")
def hurts(run: RunData) -> tuple[Hurt, ...]:
    return interference([run], ARMS, 0.95)


def test_a_load_that_doubles_every_value_is_a_slowdown_of_two(hurts: tuple[Hurt, ...]) -> None:
    assert {hurt.key.scenario for hurt in hurts} == {"tight", "crowd"}
    assert all(hurt.slowdown == pytest.approx(2.0) for hurt in hurts)
    assert all(hurt.blocks == BLOCKS and hurt.quiet == "one-to-all" for hurt in hurts)
    assert {hurt.arm: hurt.emulated for hurt in hurts} == {"bare": False, "vm": True}


def test_of_few_blocks_the_sizes_are_told_and_no_interval_nor_that_nothing_hurts(
    hurts: tuple[Hurt, ...],
) -> None:
    some = [replace(hurt, blocks=3, p=None, decided=False) for hurt in hurts if hurt.arm == "vm"]
    few = [*some, replace(some[0], arm="other", slowdown=0.99)]
    said = neighbours_answer(few)
    assert said.startswith("Neighbours, preliminary (3 blocks; 6 are the least for a verdict): vm")
    assert "up to 2.00×" in said and said.endswith("nothing so far that slows other (emulated).")
    assert "is told from none" not in said
    drawn = [str(heat_figure(each, name="f").spec) for each in (few, hurts)]
    assert [" to " in text for text in drawn] == [False, True]
    ends = [
        {row["low"] for row in csv.DictReader(slowdowns_table(each).csv().splitlines())}
        for each in (few, hurts)
    ]
    assert ends[0] == {""} and "2.0" in ends[1]


def test_where_more_is_better_half_the_value_is_a_slowdown_of_two(run: RunData) -> None:
    inverse = observed_as(
        run,
        lambda _, seen: Observation(
            seen.role, seen.metric._replace(better="higher"), 1 / seen.value
        ),
    )
    found = interference([replace(run, counted=inverse)], ARMS, 0.95)
    assert found and all(hurt.slowdown == pytest.approx(2.0) for hurt in found)
    assert all(
        hurt.interval is None or hurt.interval.low <= hurt.slowdown * 1.0001 for hurt in found
    )


def test_a_study_without_neighbours_or_without_quiet_has_no_matrix(run: RunData) -> None:
    for name in ("one-to-all", "tight"):
        alone = replace(run, study={**run.study, "scenarios": {name: SCENARIOS[name]}})
        assert interference([alone], ARMS, 0.95) == ()
    assert interference([], ARMS, 0.95) == ()


def test_rows_come_arm_by_arm_and_numbers_by_their_value(hurts: tuple[Hurt, ...]) -> None:
    arms = [row.arm for row in heat_rows(hurts)]
    assert arms == sorted(arms, key=ARMS.index)
    assert natural('{"threads":9}') < natural('{"threads":10}') < natural('{"threads":100}')


def test_the_figure_has_every_cell_and_colours_only_what_is_decided(
    hurts: tuple[Hurt, ...],
) -> None:
    text = str(heat_figure(hurts, name="interference").spec)
    assert text.count("2.00×") == len(hurts)
    unsure = [replace(hurt, decided=False) for hurt in hurts]
    assert HEAT[3].light not in str(heat_figure(unsure, name="interference").spec)


@given(st.floats(0, 1e6))
def test_a_worse_slowdown_never_has_a_paler_colour(slowdown: float) -> None:
    assert HEAT.index(ink_of(slowdown)) <= HEAT.index(ink_of(slowdown * 1.5 + 0.01))


def test_neighbours_in_words() -> None:
    assert neighbour_words(SCENARIOS["tight"]["neighbours"]) == "1 × cpu-load on same CPU"
    assert "one for each free CPU" in neighbour_words(SCENARIOS["crowd"]["neighbours"])
