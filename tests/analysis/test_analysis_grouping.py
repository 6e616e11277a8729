"""Observations by key, arm and block: the ways round the usual case give what the long way does."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.analysis_simulate import (
    SimulatedMetric,
    SimulatedRun,
    events_of,
    write_run,
)
from tare.analysis import load_run
from tare.analysis.data.grouping import Measured, group
from tare.analysis.data.rundata import OBSERVATION_COLUMNS
from tare.analysis.effects.results import Key
from tare.events.metric import Metric

VALUES = st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-9)
REPEATS = st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=3)
BLOCKS = st.dictionaries(
    st.tuples(st.just("run"), st.integers(1, 40)),
    st.one_of(REPEATS, VALUES.map(lambda value: [[value]])),
    min_size=1,
    max_size=5,
)


@given(BLOCKS, st.booleans())
def test_a_block_counts_as_the_mean_of_its_repeats_however_many(
    blocks: dict[tuple[str, int], list[list[float]]], above: bool
) -> None:
    if above:
        blocks = {
            block: [[abs(value) for value in repeat] for repeat in repeats]
            for block, repeats in blocks.items()
        }
    measured = Measured(Metric("duration", "s", "lower", headline=True), {"arm": blocks})
    everything = [v for repeats in blocks.values() for repeat in repeats for v in repeat]
    assert measured.pooled("arm") == everything
    assert measured.pooled("absent") == []
    assert measured.positive(["arm", "absent"]) == all(value > 0 for value in everything)
    assert measured.single("arm") == all(
        len(repeats) == 1 and len(repeats[0]) == 1 for repeats in blocks.values()
    )
    logs = measured.positive(["arm"])
    for block, mean in measured.values("arm", logs=logs).items():
        inner = [
            math.fsum(map(math.log, repeat) if logs else repeat) / len(repeat)
            for repeat in blocks[block]
        ]
        whole = math.fsum(inner) / len(inner)
        assert mean == (math.exp(whole) if logs else whole)


@pytest.mark.parametrize("repeats", [1, 3])
def test_groups_hold_each_row_of_the_table_once(tmp_path: Path, repeats: int) -> None:
    truth = {"bare": 1.0, "bare-again": 1.0, "qemu-pv": 2.0}
    metrics = [
        SimulatedMetric("rate", truth),
        SimulatedMetric("length", truth, workload="copy"),
    ]
    run = load_run(write_run(tmp_path / "run", events_of(SimulatedRun(metrics, repeats=repeats))))
    assert run.observations.columns == list(OBSERVATION_COLUMNS)
    rows: defaultdict[tuple[Key, str, int], list[list[float]]] = defaultdict(list)
    cells: dict[tuple[Key, str, str], list[float]] = {}
    for row in run.observations.iter_rows(named=True):
        names = ("scenario", "workload", "parameters", "role", "metric")
        key = Key(*(row[name] for name in names))
        cell = (key, row["arm"], row["cell"])
        if cell not in cells:
            cells[cell] = []
            rows[key, row["arm"], row["block"]].append(cells[cell])
        cells[cell].append(row["value"])
    found = {
        (key, arm, number): block
        for key, measured in group([run]).items()
        for arm, blocks in measured.arms.items()
        for (_, number), block in blocks.items()
    }
    assert found == rows
    assert {len(block) for block in found.values()} == {repeats}


def test_arithmetic_takes_one_thread_and_leaves_the_environment_alone() -> None:
    script = (
        "import os, threading, tare.analysis, numpy;"
        "numpy.ones((600, 600)) @ numpy.ones((600, 600));"
        "print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    for given_value, shown_value in ((None, "None"), ("1", "1")):
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        if given_value is not None:
            environment["OPENBLAS_NUM_THREADS"] = given_value
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["1", shown_value]
