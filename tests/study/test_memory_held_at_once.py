"""How much memory the machines of an arm hold at once."""

from __future__ import annotations

import pytest

from study.study_pairs import study_of
from tare.study.planning.memory_held import held_at_once

GIB = 1 << 30
HEAD = """
study: memory
shape: {vcpus: 1, memory: 8 GiB}
arms: {bare: {platform: bare}, small: {platform: bare, shape: {memory: 1 GiB}}}
baseline: bare
workloads: {tick: {}}
scenarios:
"""


@pytest.mark.parametrize(
    ("scenarios", "held"),
    [
        ("  alone: {}\n", (8 * GIB,)),
        ("  n: {neighbours: [{load: cpu-load, count: 2, memory: 1 GiB}]}\n", (8 * GIB, GIB, GIB)),
        ("  n: {neighbours: [{load: cpu-load}]}\n  alone: {}\n", (8 * GIB, 8 * GIB)),
        ("  n: {neighbours: [{load: cpu-load, count: fill}]}\n", (8 * GIB, 8 * GIB)),
    ],
)
def test_the_scenario_with_most_counts(scenarios: str, held: tuple[int, ...]) -> None:
    study = study_of(HEAD + scenarios)
    assert held_at_once(study, "bare") == held


def test_an_arm_has_its_own_shape() -> None:
    assert held_at_once(study_of(HEAD + "  alone: {}\n"), "small") == (GIB,)
