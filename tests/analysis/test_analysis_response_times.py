"""Response times over a cell: steps, phases, and what each phase did, from known series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.references_run import write_realtime_run
from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.topics.monitoring import Phase
from tare.analysis.topics.response_times import (
    QUIET,
    SETTLE_S,
    Timeline,
    TimeStep,
    mean_of,
    phase_effects,
    timelines,
)
from tare.events.cell_facts import PhaseFacts
from tare.events.results import SeriesEntry
from tare.report.figures.response_times import ends_of, thinned, timeline_figure
from tare.report.sections.response_times import _lead, phases_table

PHASES = (Phase("cpu-load", 2.0, 4.0), Phase("net-load", 6.0, 8.0))


def step(begin_s: float, mean_s: float, *, failed: int = 0) -> TimeStep:
    return TimeStep(begin_s, 10, failed, mean_s, mean_s, 2 * mean_s, 3 * mean_s)


def timeline(block: int = 1, arm: str = "bare", added_s: float = 4.0) -> Timeline:
    """Ten seconds in steps of 100 ms: quiet at 1 ms, slower while the CPU is loaded."""
    steps = []
    for number in range(100):
        begin = number / 10
        mean = 1e-3 * (added_s if 2.0 <= begin < 4.0 else 1.0) * 1.01**block
        steps.append(step(begin, mean, failed=1 if 6.0 <= begin < 6.5 else 0))
    return Timeline(
        "run", f"b{block}", block, arm, "phases", "web", "{}", False, 0.1, tuple(steps), PHASES
    )


def test_each_phase_is_compared_with_the_quiet_time_of_its_own_cell() -> None:
    found = phase_effects([timeline(1), timeline(2), timeline(3)], 0.95)
    assert [effect.phase for effect in found] == [QUIET, "cpu-load", "net-load"]
    quiet, cpu, net = found
    assert quiet.slowdown is None and quiet.mean_s == pytest.approx(1e-3 * 1.01**2)
    assert cpu.slowdown == pytest.approx(4.0) and cpu.blocks == 3
    assert cpu.interval is not None and cpu.interval.holds(4.0)
    assert not cpu.interval.holds(1.0)
    assert net.slowdown == pytest.approx(1.0)
    assert net.failed_share == pytest.approx(5 / 205)


def test_all_phases_of_an_arm_are_one_family() -> None:
    random = np.random.default_rng(5)

    def study() -> list[Timeline]:
        # Response times of all phases are alike, except for chance in each stretch of time.
        made = []
        for block in range(1, 9):
            noise = [float(each) for each in np.exp(random.normal(0, 0.05, 20))]
            phases = tuple(Phase(f"load {n}", 10.0 * n, 10.0 * n + 4.0) for n in range(10))
            steps = tuple(step(2.0 * n, 1e-3 * noise[2 * n // 5]) for n in range(50))
            made.append(replace(timeline(block), steps=steps, phases=phases, interval_s=2.0))
        return made

    studies = [phase_effects(study(), 0.95) for _ in range(60)]
    alone = [
        any(e.interval is not None and not e.interval.holds(1.0) for e in each) for each in studies
    ]
    together = [any(e.decided for e in each) for each in studies]
    assert np.mean(alone) > 0.15, "each interval by itself is not enough"
    assert np.mean(together) <= 0.1
    effects = phase_effects([timeline(block) for block in range(1, 9)], 0.95)
    assert [effect.decided for effect in effects] == [False, True, False]


def test_few_blocks_never_call_a_phase_harmless() -> None:
    few = phase_effects([timeline(1), timeline(2), timeline(3)], 0.95)
    assert all(effect.p is None and not effect.decided for effect in few)
    assert _lead(few, []).startswith(
        "What phases do is preliminary (3 blocks; 6 are the least for a verdict)."
    )
    many = phase_effects([timeline(block, added_s=1.0) for block in range(1, 9)], 0.95)
    assert _lead(many, []).startswith("No phase’s response times differ from")


def test_time_right_after_a_phase_counts_neither_as_phase_nor_as_quiet() -> None:
    one = timeline()
    begins = [each.begin_s for each in one.quiet()]
    assert not [b for b in begins if 2.0 - 0.1 < b < 4.0 + SETTLE_S or 6.0 - 0.1 < b < 8.5]
    inside = [each.begin_s for each in one.within(PHASES[0])]
    assert min(inside) >= 2.0 and max(inside) + 0.1 <= 4.0 + 1e-9


def test_a_single_block_has_an_effect_and_no_interval() -> None:
    effect = phase_effects([timeline()], 0.95)[1]
    assert effect.slowdown == pytest.approx(4.0) and effect.interval is None
    assert phases_table([effect]).csv().count("\n") == 2


def test_timeline_without_phases_is_drawn_without_effects() -> None:
    alone = replace(timeline(), phases=())
    assert phase_effects([alone], 0.95) == ()
    figure = timeline_figure([alone, timeline(arm="vm")], name="course-1", title="web")
    text = str(figure.spec)
    assert "cpu" in text and "✕" in text and figure.panels == 2


@given(
    st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=400),
    st.integers(1, 60),
)
def test_no_long_response_is_lost_by_thinning(values: list[float], most: int) -> None:
    steps = tuple(step(number / 10, value) for number, value in enumerate(values))
    whole = replace(timeline(), steps=steps, phases=())
    shown = thinned(whole, most)
    assert len(shown) <= most
    assert max(each.max_s for each, _ in shown) == max(each.max_s for each in steps)
    assert sum(each.completed for each, _ in shown) == 10 * len(steps)
    ends = ends_of([whole])
    assert 0 < ends.low_s < ends.high_s


def test_steps_count_by_their_requests() -> None:
    many, few = replace(step(0, 1.0), completed=30), replace(step(1, 3.0), completed=10)
    assert mean_of([many, few]) == pytest.approx(1.5)
    assert mean_of([]) is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return load_run(write_realtime_run(tmp_path_factory.mktemp("run")))


def with_series(run: RunData, path: Path) -> RunData:
    cell = next(cell for cell in run.cells if cell.status == "ok")
    phases: list[PhaseFacts] = [{"name": "cpu-load", "begin_s": 0.2, "end_s": 0.4}]
    cells = tuple(
        replace(each, facts={**each.facts, "phases": phases}) if each is cell else each
        for each in run.cells
    )
    entry = SeriesEntry(
        run=run.run, cell=cell.cell, block=cell.block, arm=cell.arm, scenario=cell.scenario,
        workload=cell.workload, parameters=cell.parameters, repeat=1, role="subject",
        name="responses", path=path, columns={}, rows=0,
    )  # fmt: skip
    return replace(run, cells=cells, series=(entry,))


def test_series_are_read_as_the_agent_writes_them(run: RunData, tmp_path: Path) -> None:
    path = tmp_path / "responses.parquet"
    pl.DataFrame(
        {
            "time_ns": [500_000_000 + 100_000_000 * n for n in range(4)],
            "due": [5, 5, 0, 5],
            "completed": [5, 4, 0, 5],
            "failed": [0, 1, 0, 0],
            "mean_ns": [1e6, 2e6, 0.0, 1e6],
            "median_ns": [1_000_000, 2_000_000, 0, 1_000_000],
            "p99_ns": [2_000_000, 3_000_000, 0, 1_000_000],
            "max_ns": [2_000_000, 9_000_000, 0, 1_000_000],
        }
    ).write_parquet(path)
    (found,) = timelines([with_series(run, path)])
    assert [each.begin_s for each in found.steps] == pytest.approx([0.5, 0.6, 0.8])
    assert found.interval_s == pytest.approx(0.1)
    second = found.steps[1]
    assert (second.completed, second.failed) == (4, 1)
    assert second.mean_s == pytest.approx(2e-3) and second.p99_s == pytest.approx(3e-3)
    assert second.max_s == pytest.approx(9e-3)
    assert found.phases == (Phase("cpu-load", 0.2, 0.4),)


def test_a_series_that_cannot_be_read_is_left_out(run: RunData, tmp_path: Path) -> None:
    path = tmp_path / "responses.parquet"
    assert timelines([with_series(run, path)]) == ()
    path.write_bytes(b"not parquet")
    assert timelines([with_series(run, path)]) == ()
    pl.DataFrame({"time_ns": [1, 2]}).write_parquet(path)
    assert timelines([with_series(run, path)]) == ()
