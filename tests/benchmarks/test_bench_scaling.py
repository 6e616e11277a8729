"""Growth: exponents are fitted as they are, and every step runs at a small size."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from benchmarks import scaling
from benchmarks._results import Goal, Result, finish, kept_goals
from benchmarks.scaling import Size, axes, exponent


@pytest.mark.parametrize("wanted", [0.5, 1.0, 1.5, 2.0])
def test_an_exponent_is_found_for_any_cost_of_the_smallest_size(wanted: float) -> None:
    sizes = (10, 100, 1_000, 10_000)
    values = [7.0 + 0.01 * (size - 10) ** wanted for size in sizes]
    assert exponent(sizes, values, noise=0.001) == pytest.approx(wanted)


def test_a_quadratic_part_shows_though_a_linear_one_hides_it_at_small_sizes() -> None:
    sizes = (10, 100, 1_000)
    values = [0.001 * size + 1e-5 * size**2 for size in sizes]
    found = exponent(sizes, values, noise=0.001)
    assert found is not None and found > scaling.MOST_EXPONENT


def test_nearly_constant_costs_have_no_exponent() -> None:
    assert exponent((10, 100, 1_000), (1.0, 1.01, 1.02), noise=0.03) is None


@pytest.mark.parametrize("step", ["plan", "fold", "analysis", "report"])
def test_each_step_runs_at_a_small_size(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    scaling.child(step, json.dumps(vars(Size(cells=2, arms=3, hosts=2))))
    found = json.loads(capsys.readouterr().out)
    assert found["cpu_s"] > 0
    assert (found["page_bytes"] > 10_000) == (step == "report")


def test_every_axis_reaches_the_stated_sizes() -> None:
    largest = {name: max(axis.sizes) for name, axis in axes(10_000).items()}
    assert largest == {
        "cells": 10_000,
        "stub cells": 1_000,
        "cells of a run": 10_000,
        "arms": 1_000,
        "vCPUs": 512,
        "hosts": 1_000,
    }


def test_a_short_run_shows_its_goals_and_none_of_an_older_result(tmp_path: Path) -> None:
    goals = (Goal("start", "a limit", 0.4, 0.3, "s"), Goal("boot", "QEMU", 0.1, 0.2, "s"))
    began = time.time()
    assert finish(Result("placement_scale", goals), {}, tmp_path) == 1
    assert kept_goals("placement_scale", began, tmp_path) == (
        "met     start: goal at most 0.4 s, found 0.3 s",
        "MISSED  boot: goal at most 0.1 s, found 0.2 s",
    )
    assert kept_goals("placement_scale", time.time() + 1, tmp_path) == ()
    assert kept_goals("never-run", began, tmp_path) == ()
