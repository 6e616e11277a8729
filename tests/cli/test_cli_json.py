"""The output of `--json`: the keys on which other programs may rely."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from tare.cli.main import app
from tare.errors import InputError

PLAN = {
    "version", "study", "title", "seed", "baseline", "probed", "blocks", "seconds", "warnings",
    "assumed", "notes", "designs", "arms", "skipped", "cells", "order",
}  # fmt: skip
ARM = {"arm", "platform", "description", "host", "emulated", "mark", "source"}
SKIP = {"arm", "scenario", "workload", "reason", "hint"}
CELL = {"arm", "scenario", "workload", "kind", "parameters", "repeat", "seconds"}
WORKLOAD = {"name", "summary", "realtime", "needs", "parameters", "metrics"}
METRIC = {"name", "unit", "better", "kind", "headline", "summary"}
ABOUT = {"scenario", "workload", "parameters", "role", "metric", "arm", "unit", "better", "kind",
         "headline"}  # fmt: skip
HEAD = {"version", "kind", "runs", "baseline", "confidence"}
EFFECT = ABOUT | {
    "baseline", "emulated", "family", "scale", "blocks", "arm_mean", "baseline_mean", "estimate",
    "low", "high", "p", "adjusted_p", "verdict", "sentence", "flags",
}  # fmt: skip
CHANGE = ABOUT | {"scale", "before", "after", "change", "low", "high", "verdict", "reason"}
TOGETHER = ABOUT | {"runs", "estimate", "low", "high"}


def printed_json(*words: str | Path) -> dict[str, Any]:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    found: dict[str, Any] = json.loads(done.stdout, parse_constant=refuse)
    return found


def test_a_plan() -> None:
    plan = printed_json("plan", "quick", "--json", "--seed", "7")
    assert plan.keys() == PLAN
    assert (plan["version"], plan["seed"], plan["study"]) == (1, 7, "quick")
    assert plan["arms"]
    assert plan["cells"]
    for part, keys in (("arms", ARM), ("skipped", SKIP), ("cells", CELL)):
        for each in plan[part]:
            assert each.keys() == keys
    assert plan["blocks"].keys() == {"least", "most"}
    assert plan["seconds"].keys() == {"noise", "block", "least", "most"}
    assert all(each.keys() == {"arm", "scenario"} for block in plan["order"] for each in block)
    assert math.isclose(
        sum(cell["seconds"] for cell in plan["cells"]), plan["seconds"]["block"], rel_tol=1
    )


def test_workloads() -> None:
    found = printed_json("workloads", "--json")
    assert found.keys() == {"version", "workloads"}
    assert found["version"] == 1
    named = {each["name"]: each for each in found["workloads"]}
    assert {"tick", "switch", "fio", "command"} <= named.keys()
    for each in named.values():
        assert each.keys() == WORKLOAD
        assert all(metric.keys() == METRIC for metric in each["metrics"])
    assert "samples" in named["tick"]["parameters"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    truth = {"bare": 1.0, "bare-again": 1.0, "qemu-pv": 1.4}
    metrics = [SimulatedMetric("duration-p50", truth, parameters={"samples": 10})]
    return [
        write_run(folder / name, events_of(SimulatedRun(metrics, run=name, seed=seed)))
        for seed, name in enumerate(("first", "second", "third"), start=1)
    ]


@pytest.mark.parametrize(
    ("count", "kind", "keys"),
    [(1, "effects", EFFECT), (2, "changes", CHANGE), (3, "together", TOGETHER)],
)
def test_comparisons(count: int, kind: str, keys: set[str], runs: list[Path]) -> None:
    found = printed_json("compare", *runs[:count], "--json")
    assert found.keys() >= HEAD | {kind}
    assert (found["version"], found["kind"], found["baseline"]) == (1, kind, "bare")
    assert found["runs"] == ["first", "second", "third"][:count]
    assert found[kind]
    for each in found[kind]:
        assert each.keys() == keys
        assert isinstance(each["parameters"], dict)


def test_json_is_written_to_a_file_and_refused_with_gates(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "effects.json"
    done = CliRunner().invoke(app, ["compare", str(runs[0]), "--json", "--out", str(out)])
    assert done.exit_code == 0
    assert json.loads(out.read_text())["kind"] == "effects"
    refused = CliRunner().invoke(
        app, ["compare", *map(str, runs[:2]), "--json", "--gate", "a < 1 %"]
    )
    assert isinstance(refused.exception, InputError)
