"""How time and memory grow with a study: its cells, arms, vCPUs and hosts.

Each step runs in a process of its own, which reports the CPU seconds and the memory that the step
alone took, without the imports. An exponent is fitted over the sizes: 1 is linear, 2 is quadratic.
``n log n`` over these sizes has an exponent of at most 1.1, which is the goal.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._source import ROOT
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Event,
    EventLog,
    MachineReady,
    MachineStarting,
    MachineStopped,
    Observed,
    PlatformChecked,
    RunFinished,
    RunStarted,
    read_fold,
)

MOST_EXPONENT = 1.1
BLOCKS = 8
"""Blocks of a synthetic run: the least that a verdict needs."""
MOST_COMBINATIONS = 500
"""Combinations of parameters that a study file may have for one workload."""
LEAST_CPU_S = 0.03
LEAST_BYTES = 4 << 20
"""Growth below these is noise, and no exponent is fitted to it."""
CHILD = "import sys; from benchmarks.scaling import child; child(*sys.argv[1:])"
LEAST_DETAIL = "the growth is too small to measure"


@dataclass(frozen=True)
class Size:
    """The size of a study or a run.

    Args:
        cells: Cells of an arm in a block.
        arms: Arms, with the baseline.
        vcpus: vCPUs of a machine.
        hosts: Hosts, among which the arms are divided.
    """

    cells: int = 1
    arms: int = 2
    vcpus: int = 1
    hosts: int = 1


@dataclass(frozen=True)
class Axis:
    """What grows, and the steps that it is measured for.

    Args:
        unit: What grows.
        sizes: The sizes to measure, by their number.
        steps: The steps: keys of :data:`STEPS`.
    """

    unit: str
    sizes: Mapping[int, Size]
    steps: tuple[str, ...]


def axes(most: int) -> dict[str, Axis]:
    """Return what is measured, by name, with sizes up to ``most``."""
    read = ("fold", "analysis", "report")

    def up_to(*sizes: int) -> list[int]:
        return [size for size in sizes if size <= most]

    cells = up_to(10, 100, 1_000, 10_000)
    run = [size for size in cells if size <= 1_000]
    arms, hosts = up_to(2, 10, 100, 1_000), up_to(1, 10, 100, 1_000)
    per_arm = {n: Size(cells=max(1, n // (2 * BLOCKS))) for n in cells}
    return {
        "cells": Axis("cells", {n: Size(cells=n // 2) for n in cells}, ("plan",)),
        "stub cells": Axis("cells", {n: Size(cells=n, arms=1) for n in run}, ("run",)),
        "cells of a run": Axis("cells", per_arm, read),
        "arms": Axis("arms", {n: Size(arms=n) for n in arms}, ("plan", *read)),
        "vCPUs": Axis("vCPUs", {n: Size(vcpus=n) for n in up_to(2, 16, 128, 512)}, ("plan",)),
        "hosts": Axis("hosts", {n: Size(arms=max(2, n), hosts=n) for n in hosts}, ("plan", *read)),
    }


def study_of(size: Size) -> dict[str, Any]:
    """Return a study of a size, as a study file has it."""
    names = [f"h{number:04}" for number in range(size.hosts)]
    many = {"hosts": {name: {"ssh": f"{name}.example", "user": "root"} for name in names}}
    arms = {
        arm: {"platform": "bare", **({"on": names[number % size.hosts]} if names[1:] else {})}
        for number, arm in enumerate(arms_of(size))
    }
    return {
        "study": "scaling",
        "baseline": "arm-0000",
        "blocks": {"least": BLOCKS, "most": BLOCKS},
        "shape": {"vcpus": size.vcpus, "memory": "256MiB"},
        **(many if names[1:] else {}),
        "arms": arms,
        "scenarios": {"pinned": {"subject": {"cpus": "pinned"}}},
        "workloads": _workloads(size.cells, "numeric-sort", "duration", "{}ms"),
    }


def _workloads(cells: int, workload: str, parameter: str, form: str) -> dict[str, Any]:
    """Return workloads with as many cells together; a study file allows some hundred for each."""
    values = [yaml.safe_load(form.format(number)) for number in range(100, 100 + cells)]
    return {
        f"{workload}-{first}": {
            "workload": workload,
            parameter: values[first : first + MOST_COMBINATIONS],
        }
        for first in range(0, cells, MOST_COMBINATIONS)
    }


def arms_of(size: Size) -> list[str]:
    """Return the names of a study's arms, the baseline first."""
    return [f"arm-{number:04}" for number in range(size.arms)]


def write_run(folder: Path, size: Size) -> None:
    """Write the events of a synthetic run, through the log that a run writes."""
    folder.mkdir(parents=True)
    with EventLog(folder / "events.jsonl") as log:
        for event in _events(size):
            log.append(event)


def _events(size: Size) -> Iterator[Event]:
    study = study_of(size)
    versions = {"tare": "0"}
    yield RunStarted(
        run="scaling", study=study, study_path="synthetic.yaml", study_sha256="0" * 64, seed=1,
        host={"hostname": "synthetic"}, versions=versions,
    )  # fmt: skip
    arms = arms_of(size)
    for arm in arms:
        yield PlatformChecked(arm=arm, platform="bare", options={}, usable=True, reason="synthetic")
    for block in range(1, BLOCKS + 1):
        yield BlockStarted(block=block, order=tuple(arms))
        for number, arm in enumerate(arms):
            yield from _machine(size, block, number, arm)
        yield BlockFinished(block=block)
    yield RunFinished(status="complete", wall_s=100, booting_s=10, measuring_s=80)


def _machine(size: Size, block: int, number: int, arm: str) -> Iterator[Event]:
    name = f"tare-scaling-{block}-{arm}"
    yield MachineStarting(machine=name, block=block, arm=arm, scenario="alone", role="subject")
    yield MachineReady(machine=name, boot_s=1.0, proof={"kernel": {"release": "6.1"}})
    for k in range(size.cells):
        cell = f"b{block:03d}/{arm}/alone/numeric-sort[duration={k}]"
        yield CellStarted(
            cell=cell, block=block, arm=arm, scenario="alone", workload="numeric-sort",
            parameters={"duration": k},
        )  # fmt: skip
        # Values that differ between blocks, and by arm; the same in every process.
        value = 100.0 + number % 7 + ((block * 31 + number * 17 + k * 7) % 13) / 10
        yield Observed(
            cell=cell, metric="rate", unit="1/s", better="higher", headline=True, value=value
        )
        yield CellFinished(cell=cell, status="ok", measured_s=1.0)
    yield MachineStopped(machine=name, expected=True, host_cost={"cpu_s": 1.0, "rss_bytes": 1e8})


def _plan(folder: Path, size: Size) -> Callable[[], object]:
    from benchmarks.placement_scale import large_host
    from tare.registry import installed
    from tare.run.catalog import build_catalog
    from tare.study.planning.plan import ArmFacts, HostFacts, make_plan
    from tare.study.reading.load import load_study

    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study_of(size), sort_keys=False))
    catalog, kinds, cpus = build_catalog(), installed().workloads, large_host()

    def plan() -> int:
        study = load_study(path, catalog)
        facts = {arm: ArmFacts(usable=True, max_vcpus=512, pinning=True) for arm in study.arms}
        hosts = {name: HostFacts(cpus) for name in study.computers}
        planned = make_plan(study, 1, facts, hosts, kinds)
        found = sum(len(batch.cells) for batch in planned.block(1))
        if found != size.cells * size.arms:
            raise ValueError(f"{found} cells were planned, not {size.cells * size.arms}")
        return found

    return plan


def _run(folder: Path, size: Size) -> Callable[[], object]:
    study = study_of(size) | {"scenarios": {"plain": {}}, "blocks": {"least": 1, "most": 1}}
    study["workloads"] = _workloads(size.cells, "tick", "samples", "{}")
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))

    def run() -> None:
        argv = [sys.executable, "-m", "tare", "run", str(path), "--out", str(folder / "run")]
        subprocess.run(argv, check=True, capture_output=True)

    return run


def _fold(folder: Path, size: Size) -> Callable[[], object]:
    write_run(folder / "run", size)
    return lambda: read_fold(folder / "run" / "events.jsonl")


def _analysis(folder: Path, size: Size) -> Callable[[], object]:
    from tare.analysis import compare_runs, load_run

    write_run(folder / "run", size)
    return lambda: compare_runs(load_run(folder / "run"))


def _report(folder: Path, size: Size) -> Callable[[], object]:
    from tare.cli.ending import write_report

    write_run(folder / "run", size)
    return lambda: write_report(folder / "run")


STEPS: dict[str, Callable[[Path, Size], Callable[[], object]]] = {
    "plan": _plan,
    "run": _run,
    "fold": _fold,
    "analysis": _analysis,
    "report": _report,
}
"""Each prepares a step in a folder, and returns what is measured."""


def child(step: str, size: str) -> None:
    """Run one step in this process, and print its CPU seconds, memory and size of the page."""
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as temporary:
        folder = Path(temporary)
        work = STEPS[step](folder, Size(**json.loads(size)))
        output = sys.stdout
        sys.stdout = sys.stderr
        before_s, before = _cpu_s(), _peak()
        work()
        page = folder / "run" / "report.html"
        found = {
            "cpu_s": _cpu_s() - before_s,
            "bytes": _peak() - before,
            "page_bytes": page.stat().st_size if page.exists() else 0,
        }
        print(json.dumps(found), file=output)


def _cpu_s() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak() -> int:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(usage.ru_maxrss for usage in usages) * 1024


def measure(step: str, size: Size, times: int) -> dict[str, float]:
    """Run one step in processes of their own; return the least that it took.

    Raises:
        RuntimeError: It failed, with its last words.
    """
    argv = [sys.executable, "-c", CHILD, step, json.dumps(vars(size))]
    found: list[dict[str, float]] = []
    for _ in range(times):
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{step} of {size} failed: {done.stderr[-500:]}")
        found.append(json.loads(done.stdout))
    return {key: min(each[key] for each in found) for key in found[0]}


def exponent(sizes: Sequence[int], values: Sequence[float], noise: float) -> float | None:
    """Fit how a value grows with a size, without what it is at the smallest size.

    The two largest sizes count: at smaller ones, a linear part hides what grows faster.

    Args:
        sizes: The sizes, ascending.
        values: The value at each.
        noise: Growth that is not distinguished from none.

    Returns:
        The exponent; None if fewer than two sizes show growth.
    """
    grown = [
        (math.log(size - sizes[0]), math.log(value - values[0]))
        for size, value in zip(sizes[1:], values[1:], strict=True)
        if value - values[0] > noise
    ]
    if len(grown) < 2:
        return None
    (x, y), (x_largest, y_largest) = grown[-2:]
    return (y_largest - y) / (x_largest - x)


def _goal(name: str, sizes: Sequence[int], values: Sequence[float], noise: float) -> Goal:
    found = exponent(sizes, values, noise)
    shown = ", ".join(f"{size:,}: {value:.3g}" for size, value in zip(sizes, values, strict=True))
    detail = shown if found is not None else f"{LEAST_DETAIL} ({shown})"
    # What hardly grows cannot be worse than linear.
    return Goal(name, "linear growth", MOST_EXPONENT, found or 0.0, "", detail=detail)


def grow(name: str, axis: Axis, step: str, times: int) -> tuple[list[Goal], list[Fact]]:
    """Measure a step along an axis, and fit both exponents."""
    sizes = sorted(axis.sizes)
    found = []
    for number in sizes:
        found.append(measure(step, axis.sizes[number], times))
        print(f"  {step}, {number:,} {axis.unit}: {found[-1]['cpu_s']:.2f} s", flush=True)
    cpu_s, memory = ([each[key] for each in found] for key in ("cpu_s", "bytes"))
    label = f"{step} by {name}"
    goals = [
        _goal(f"{label}: exponent of CPU time", sizes, cpu_s, LEAST_CPU_S),
        _goal(f"{label}: exponent of memory", sizes, memory, LEAST_BYTES),
    ]
    facts = [
        Fact(f"{label}: CPU time at {sizes[-1]:,}", cpu_s[-1], "s"),
        Fact(f"{label}: memory at {sizes[-1]:,}", memory[-1] / 1e6, "MB"),
    ]
    if page := found[-1]["page_bytes"]:
        facts.append(Fact(f"{label}: the page at {sizes[-1]:,}", page / 1e6, "MB"))
    return goals, facts


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when something grows faster than linearly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--most", type=int, default=10_000, help="the largest size of any axis")
    parser.add_argument("--times", type=int, default=2, help="runs of each step, the least counts")
    parser.add_argument("--axis", action="append", help="one axis: " + ", ".join(axes(1)))
    parser.add_argument("--step", action="append", choices=sorted(STEPS), help="one step")
    parser.add_argument("--skip-run", action="store_true", help="every step but `run`")
    parser.add_argument("--trial", action="store_true", help="keep no result")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    goals: list[Goal] = []
    facts: list[Fact] = []
    for name, axis in axes(wanted.most).items():
        if wanted.axis and name not in wanted.axis:
            continue
        for step in axis.steps:
            if step == "run" and wanted.skip_run:
                continue
            if not wanted.step or step in wanted.step:
                more_goals, more_facts = grow(name, axis, step, wanted.times)
                goals += more_goals
                facts += more_facts
    result = Result("scaling", tuple(goals), tuple(facts))
    if wanted.trial:
        with tempfile.TemporaryDirectory() as nowhere:
            return finish(result, machine, Path(nowhere))
    return finish(result, machine)


if __name__ == "__main__":
    sys.exit(main())
