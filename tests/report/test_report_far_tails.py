"""Tails extrapolated beyond the samples, and a run's stopping rule, as the report shows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from report.report_synthetic import comparison_of, write_run
from tare.analysis import compare_runs
from tare.analysis.model import Comparison
from tare.analysis.series.summaries import platform_bound
from tare.analysis.statistics.histogram import Histogram
from tare.analysis.statistics.pareto import tail_beyond
from tare.report.sections.long_series import Pooled, far_tail_tables, pooled_series
from tare.report.sections.method import method_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Pooled]:
    folder = tmp_path_factory.mktemp("far")
    write_run(folder, blocks=8)
    comparison = comparison_of(folder)
    return comparison, pooled_series(comparison)


def boots(shape: float) -> list[Histogram]:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(12):
        drawn = 1e4 + 2e3 * np.expm1(-shape * np.log(rng.random(10_000))) / shape
        values, count = np.unique(np.rint(drawn), return_counts=True)
        found.append(Histogram(values - 0.5, np.ones(values.size), count.astype(np.int64)))
    return found


def test_tail_levels_and_their_shapes_are_reported_or_the_reason_for_none(
    made: tuple[Comparison, Pooled],
) -> None:
    comparison, series = made
    part, arms = next((part, arms) for part, arms in series.items() if len(arms) > 1)
    first, second = list(arms)[:2]
    asked = {
        first: replace(arms[first], tail=tail_beyond(boots(0.2), 0.95)),
        second: replace(arms[second], tail=tail_beyond(boots(0.2), 0.95, "a cap stops it")),
    }
    levels, shapes = far_tail_tables(comparison, {part: asked})
    found = {(row.arm, row.level and row.level.one_in) for row in levels.rows}
    assert found == {(first, 1e6), (first, 1e7), (second, None)}
    text = {row.arm: levels.texts_of(row) for row in levels.rows}
    assert text[second]["reason"] == "a cap stops it"
    assert text[second]["value_s"] == "–"
    assert {row.arm for row in shapes.rows} == {first}
    assert sum(row.used for row in shapes.rows) == 1
    assert len(shapes.rows) >= 3
    assert "one_in" in levels.csv().splitlines()[0]
    few = {first: replace(arms[first], tail=tail_beyond(boots(0.2)[:5], 0.95))}
    assert far_tail_tables(comparison, {part: few}) == ()


def test_a_cap_bounds_what_an_arm_loses(made: tuple[Comparison, Pooled]) -> None:
    (run,) = made[0].runs
    capped = [
        replace(one, options={"scheduling": {"cap": 0.5}}) if one.arm == "oci" else one
        for one in run.platforms
    ]
    neighbours = [replace(one, options={"neighbour_scheduling": {"cap": 1}}) for one in capped]
    assert "cap" in platform_bound([replace(run, platforms=tuple(capped))], "oci")
    assert platform_bound([replace(run, platforms=tuple(capped))], "bare") == ""
    assert platform_bound([replace(run, platforms=tuple(neighbours))], "oci") == ""


@pytest.mark.parametrize(
    ("method", "shown", "not_shown"),
    [
        ("precision", "Student-t interval", "Stein"),
        ("stein", "Stein interval: the spread of the first blocks", "Student-t"),
        ("sequential", "each look spends a part", "Student-t"),
    ],
)
def test_the_page_says_how_its_run_was_stopped(
    made: tuple[Comparison, Pooled], method: str, shown: str, not_shown: str
) -> None:
    (run,) = made[0].runs
    blocks = {**run.study["blocks"], "method": method, "least": 6}
    comparison = compare_runs(replace(run, study={**run.study, "blocks": blocks}))
    text = " ".join(method_of(comparison))
    assert shown in text
    assert not_shown not in text
    duet = {**run.study, "blocks": {**blocks, "duet": True}}
    assert "(a duet)" in " ".join(method_of(compare_runs(replace(run, study=duet))))
    assert "(a duet)" not in text
