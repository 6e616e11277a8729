"""The slowdown by neighbours: a ratio within one arm and block; above 1 is worse."""

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
from tare.analysis.topics.interference import (
    NeighbourEffect,
    interference,
    natural,
    neighbour_words,
)
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
def effects(run: RunData) -> tuple[NeighbourEffect, ...]:
    return interference([run], ARMS, 0.95)


def test_a_load_that_doubles_every_value_is_a_slowdown_of_two(
    effects: tuple[NeighbourEffect, ...],
) -> None:
    assert {effect.key.scenario for effect in effects} == {"tight", "crowd"}
    assert all(effect.slowdown == pytest.approx(2.0) for effect in effects)
    assert all(effect.blocks == BLOCKS and effect.quiet == "one-to-all" for effect in effects)
    assert {effect.arm: effect.emulated for effect in effects} == {"bare": False, "vm": True}


def test_few_blocks_give_sizes_without_interval_or_equality(
    effects: tuple[NeighbourEffect, ...],
) -> None:
    some = [
        replace(effect, blocks=3, p=None, decided=False) for effect in effects if effect.arm == "vm"
    ]
    few = [*some, replace(some[0], arm="other", slowdown=0.99)]
    answer = neighbours_answer(few)
    assert answer.startswith(
        "Neighbours, preliminary (3 blocks; 6 are the least for a verdict): the"
    )
    assert "the largest slowdown so far is 2.00× in vm (emulated)" in answer
    assert answer.endswith("no slowdown so far in other (emulated).")
    assert "was detected" not in answer
    drawn = [str(heat_figure(each, name="f").spec) for each in (few, effects)]
    assert [" to " in text for text in drawn] == [False, True]
    ends = [
        {row["low"] for row in csv.DictReader(slowdowns_table(each).csv().splitlines())}
        for each in (few, effects)
    ]
    assert ends[0] == {""}
    # The intervals include what rounding of the recorded values hides.
    assert all(1.9 < float(low) <= 2.0 for low in ends[1])


def test_where_more_is_better_half_the_value_is_a_slowdown_of_two(run: RunData) -> None:
    inverse = observed_as(
        run,
        lambda _, seen: Observation(
            seen.role, seen.metric._replace(better="higher"), 1 / seen.value
        ),
    )
    found = interference([replace(run, counted=inverse)], ARMS, 0.95)
    assert found and all(effect.slowdown == pytest.approx(2.0) for effect in found)
    assert all(
        effect.interval is None or effect.interval.low <= effect.slowdown * 1.0001
        for effect in found
    )


def test_a_study_without_neighbours_or_without_quiet_has_no_matrix(run: RunData) -> None:
    for name in ("one-to-all", "tight"):
        alone = replace(run, study={**run.study, "scenarios": {name: SCENARIOS[name]}})
        assert interference([alone], ARMS, 0.95) == ()
    assert interference([], ARMS, 0.95) == ()


def test_rows_come_arm_by_arm_and_numbers_by_their_value(
    effects: tuple[NeighbourEffect, ...],
) -> None:
    arms = [row.arm for row in heat_rows(effects)]
    assert arms == sorted(arms, key=ARMS.index)
    assert natural('{"threads":9}') < natural('{"threads":10}') < natural('{"threads":100}')


def test_the_figure_has_every_cell_and_colours_only_what_is_decided(
    effects: tuple[NeighbourEffect, ...],
) -> None:
    text = str(heat_figure(effects, name="interference").spec)
    assert text.count("2.00×") == len(effects)
    unsure = [replace(effect, decided=False) for effect in effects]
    assert HEAT[3].light not in str(heat_figure(unsure, name="interference").spec)


@given(st.floats(0, 1e6))
def test_a_worse_slowdown_never_has_a_paler_colour(slowdown: float) -> None:
    assert HEAT.index(ink_of(slowdown)) <= HEAT.index(ink_of(slowdown * 1.5 + 0.01))


def test_neighbours_in_words() -> None:
    assert neighbour_words(SCENARIOS["tight"]["neighbours"]) == "1 × cpu-load on same CPU"
    assert "one for each free CPU" in neighbour_words(SCENARIOS["crowd"]["neighbours"])
