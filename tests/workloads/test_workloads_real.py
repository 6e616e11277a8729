"""The real agent runs every workload, and its results are what their names say."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tare.workloads import WORKLOADS, MachineFacts, fitted
from tare.workloads.cpu.bytemark import REFERENCE_RATES

HERE = MachineFacts(emulated=True, memory=64 << 20)
"""The machine that tests run on may be anything: its counter is used unchanged."""
CPU = max(os.sched_getaffinity(0))


class Agent:
    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder

    def run(self, name: str, parameters: dict[str, Any], cpu: int | None = CPU) -> Outcome:
        workload = WORKLOADS[name]
        given = workload.parameters.model_validate(parameters)
        request = fitted(workload, workload.request(given), HERE)
        command = [str(self.program), "run", name, json.dumps(request)]
        command += ["--series", str(self.folder)]
        command += ["--cpus", str(cpu)] if cpu is not None else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        output = json.loads(done.stdout)
        series = {entry["name"]: self._columns(entry) for entry in output["series"]}
        return Outcome(output["value"], workload.observe(given, output["value"]), series)

    def _columns(self, entry: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        data = (self.folder / f"{entry['name']}.bin").read_bytes()
        columns, offset = {}, 0
        for name, kind in entry["columns"]:
            dtype = np.dtype({"u32": "<u4", "u64": "<u8", "f64": "<f8"}[kind])
            columns[name] = np.frombuffer(data, dtype, entry["rows"], offset)
            offset += columns[name].nbytes
        assert offset == len(data)
        return columns


class Outcome:
    def __init__(
        self,
        value: dict[str, Any],
        observed: dict[str, float],
        series: dict[str, dict[str, np.ndarray[Any, Any]]],
    ) -> None:
        self.value = value
        self.observed = observed
        self.series = series


@pytest.fixture
def agent(agent_program: Path, tmp_path: Path) -> Agent:
    return Agent(agent_program, tmp_path)


GRID = [
    {"samples": samples, "loop": loop, "raw": raw}
    for samples, loop, raw in itertools.product((1, 300, 5000), (0, "2us", "68us"), (False, True))
]


@pytest.mark.parametrize("parameters", GRID, ids=lambda p: "-".join(map(str, p.values())))
def test_tick_over_its_grid(agent: Agent, parameters: dict[str, Any]) -> None:
    outcome = agent.run("tick", parameters)
    value, observed = outcome.value, outcome.observed
    assert value["samples"] + value["tsc_backwards"] == parameters["samples"]
    ordered = ["duration-median", "duration-p99", "duration-p99.9", "duration-p99.99"]
    tails = [observed[name] for name in ordered]
    assert tails == sorted(tails)
    # A bin's middle may be half a bin, and a coarse bin's 1/256, beyond what it holds.
    assert observed["duration-min"] <= tails[0] * 1.01 + 1e-8
    assert tails[-1] <= observed["duration-max"] * 1.01 + 1e-8
    assert 0 <= observed["stolen-share"] <= 1
    scatter = outcome.series["scatter"]
    assert scatter["samples"].sum() == parameters["samples"]
    assert (scatter["min_ns"] <= scatter["max_ns"]).all()
    assert (np.diff(scatter["time_ns"].astype(np.int64)) >= 0).all()
    assert outcome.series["histogram"]["count"].sum() == value["samples"]
    assert ("raw" in outcome.series) == parameters["raw"]


def test_tick_says_the_same_in_all_its_series(agent: Agent) -> None:
    outcome = agent.run("tick", {"samples": 3000, "loop": "20us", "raw": True})
    raw = outcome.series["raw"]["duration_ns"].astype(np.float64)
    observed, value = outcome.observed, outcome.value
    assert len(raw) == 3000
    assert raw.max() * 1e-9 == pytest.approx(observed["duration-max"], abs=2e-9)
    assert raw.min() * 1e-9 == pytest.approx(observed["duration-min"], abs=2e-9)
    assert np.median(raw) * 1e-9 == pytest.approx(observed["duration-median"], rel=0.01)
    assert raw.sum() * 1e-9 == pytest.approx(value["seconds"], rel=1e-3), "the chain has no gap"
    limit_ns = value["gap_limit_s"] * 1e9
    assert abs((raw >= limit_ns).sum() - value["gaps"]) <= ((raw - limit_ns).round() == 0).sum()
    logged = outcome.series.get("gaps", {"excess_ns": np.zeros(0)})["excess_ns"]
    assert len(logged) == value["gaps"]
    tolerance_s = 2e-9 * (1 + len(logged))
    # A gap that is shorter than most iterations, as on a computer that slows down, lasts no
    # negative time in the log, but lowers the sum.
    if logged.size and logged.min() == 0:
        assert logged.sum() * 1e-9 >= value["stolen_s"] - tolerance_s
    else:
        assert logged.sum() * 1e-9 == pytest.approx(value["stolen_s"], abs=tolerance_s)


def test_tick_says_under_what_conditions_it_ran(agent: Agent) -> None:
    value = agent.run("tick", {"samples": 100, "loop": "1us"}).value
    assert value["pinned"] == CPU
    assert value["policy"] in ("SCHED_FIFO", "SCHED_OTHER")
    refused = any("SCHED_OTHER" in warning for warning in value["warnings"])
    assert refused == (value["policy"] == "SCHED_OTHER")
    for fact in ("rt_runtime_us", "memory_locked", "idle_latency_held", "tsc_hz", "tsc_trusted"):
        assert fact in value
    assert set(value["witness"]) >= {"interrupts", "steal_s", "nonvoluntary_switches"}
    untrusted = any("untrusted" in warning for warning in value["warnings"])
    assert untrusted == (not value["tsc_trusted"])


def test_tick_may_stay_unpinned(agent: Agent) -> None:
    value = agent.run("tick", {"samples": 100, "loop": "1us"}, cpu=None).value
    assert value["pinned"] is None


def test_tick_for_a_duration(agent: Agent) -> None:
    outcome = agent.run("tick", {"duration": "50ms", "loop": "5us", "intervals": 10})
    assert outcome.value["seconds"] >= 0.0499
    assert len(outcome.series["scatter"]["time_ns"]) <= 21


@pytest.mark.parametrize("threads", [1, 2, 7, 1000])
def test_switch_between_any_number_of_threads(agent: Agent, threads: int) -> None:
    parameters = {"threads": threads, "samples": 5000, "intervals": 40, "raw": True}
    outcome = agent.run("switch", parameters)
    value, observed = outcome.value, outcome.observed
    left_out = value["not_switched"] + value["tsc_backwards"]
    assert 5000 <= value["samples"] + left_out <= 5000 + threads
    assert 0 < observed["latency-min"] <= observed["latency-median"] * 1.01 + 1e-8
    assert observed["latency-median"] <= observed["latency-p99"] <= observed["latency-p99.9"]
    assert observed["latency-p99.9"] <= observed["latency-max"] * 1.01 + 1e-8
    assert outcome.series["histogram"]["count"].sum() == value["samples"]
    scatter, raw = outcome.series["scatter"], outcome.series["raw"]["duration_ns"]
    assert scatter["samples"].sum() == value["samples"] == len(raw)
    assert (scatter["first"] == np.cumsum(scatter["samples"]) - scatter["samples"]).all()
    assert raw.max() * 1e-9 == pytest.approx(observed["latency-max"], abs=2e-9)
    assert scatter["max_ns"].max() * 1e-9 == pytest.approx(observed["latency-max"], abs=2e-9)
    assert (np.diff(scatter["time_ns"].astype(np.int64)) > 0).all()


@pytest.mark.parametrize("by", ["nanosleep", "timerfd", "futex"])
def test_wakeup_measures_how_late_each_kind_of_wake_up_is(agent: Agent, by: str) -> None:
    if by == "futex" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a futex's wake-up goes from one CPU to another")
    outcome = agent.run("wakeup", {"by": by, "duration": "200ms", "interval": "1ms"}, cpu=None)
    value, observed = outcome.value, outcome.observed
    met = value["samples"] + value["missed"] + value["early"] + value["awake"]
    assert met == 200, "each moment is met or missed, however late the computer is"
    assert 0 < observed["latency-min"] <= observed["latency-median"] * 1.01
    assert observed["latency-median"] <= observed["latency-p99"] <= observed["latency-p99.9"]
    assert observed["latency-p99.9"] <= observed["latency-max"] * 1.01
    assert outcome.series["histogram"]["count"].sum() == value["samples"]


def test_wakeup_shows_what_takes_its_cpu(agent: Agent, agent_program: Path) -> None:
    length_ns = 8_000_000
    order = {"period_ns": 5 * length_ns, "length_ns": length_ns, "count": 1000, "cpu": CPU}
    command = [str(agent_program), "run", "hog", json.dumps(order)]
    hog = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        crowded = agent.run("wakeup", {"duration": "500ms", "priority": 50})
    finally:
        hog.kill()
        hog.wait()
    if crowded.value["policy"] != "SCHED_FIFO":
        pytest.skip("the hog has no priority over it here")
    # A wake-up is due each millisecond, so one is nearly as late as the hog is long.
    assert crowded.observed["latency-max"] > (length_ns - 1_500_000) * 1e-9
    assert crowded.value["missed"] > 0
    assert any("had passed" in warning for warning in crowded.value["warnings"])


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_bandwidth_is_verified(agent: Agent, threads: int) -> None:
    outcome = agent.run(
        "memory-bandwidth", {"array": "1MiB", "duration": "5ms", "threads": threads}
    )
    assert outcome.value["verified"]
    assert outcome.value["array_bytes"] == 1 << 20
    assert all(rate > 1e6 for rate in outcome.observed.values())
    assert set(outcome.series["repetitions"]["kernel"]) == set(range(8))


def test_memory_bandwidth_keeps_to_its_share_and_says_so(agent: Agent) -> None:
    value = agent.run("memory-bandwidth", {"duration": "1ms"}).value
    assert HERE.memory is not None
    assert 3 * value["array_bytes"] <= 0.3 * HERE.memory
    assert value["capped"] == any("instead of" in warning for warning in value["warnings"])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kernel", REFERENCE_RATES)
def test_kernels_work_for_the_least_time(agent: Agent, kernel: str, threads: int) -> None:
    outcome = agent.run(kernel, {"duration": "30ms", "threads": threads}, cpu=None)
    assert outcome.value["verified"]
    series = outcome.series["iterations"]
    assert set(series["thread"]) == set(range(threads))
    for thread in range(threads):
        own = series["thread"] == thread
        began = series["time_ns"][own].astype(np.int64)
        assert (np.diff(began) > 0).all()
    assert outcome.observed["rate"] > 1


def test_bytemark_runs_all_ten_in_one_cell(agent: Agent) -> None:
    outcome = agent.run("bytemark", {"duration": "5ms", "threads": 2}, cpu=None)
    assert outcome.value["verified"]
    assert outcome.value["order"] == list(REFERENCE_RATES)
    assert set(outcome.value["kernels"]) == set(REFERENCE_RATES)
    assert all(value > 0 for value in outcome.observed.values())
    series = outcome.series["iterations"]
    assert set(series["kernel"]) == set(range(10))
    assert set(series["thread"]) == {0, 1}
    assert (series["iteration_ns"] > 0).all()


def test_memory_latency_climbs_its_ladder(agent: Agent) -> None:
    sizes = ["4KiB", "16KiB", "48KiB", "1MiB", "16MiB", "1GiB"]
    outcome = agent.run("memory-latency", {"sizes": sizes, "duration": "10ms"})
    assert set(outcome.observed) == {"latency-16KiB", "latency-1MiB", "latency-16MiB"}
    assert outcome.value["verified"]
    assert outcome.value["page_bytes"] == 4096
    assert any("1048576 KiB" in warning for warning in outcome.value["warnings"]), "left out"
    series = outcome.series["ladder"]
    measured = [4 << 10, 16 << 10, 48 << 10, 1 << 20, 16 << 20]
    assert list(dict.fromkeys(series["size_bytes"])) == measured
    # No cache holds what is a thousand times the smallest, whatever else the machine does.
    best = {size: series["load_ns"][series["size_bytes"] == size].min() for size in measured}
    assert best[16 << 20] > best[4 << 10]


def test_memory_latency_in_huge_pages_or_not_at_all(agent_program: Path) -> None:
    params = {"sizes_bytes": [4096, 4 << 20], "pages": "2M", "seconds": 0.005}
    command = [str(agent_program), "run", "memory-latency", json.dumps(params)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        value = json.loads(done.stdout)["value"]
        assert value["page_bytes"] == 2 << 20
        assert value["pages_proven"]
    else:
        assert "pages" in done.stderr


@pytest.mark.parametrize(
    ("load", "parameters"), [("cpu-load", {}), ("memory-load", {"block": "2MiB"})]
)
def test_loads_end_after_a_given_duration(
    agent: Agent, load: str, parameters: dict[str, Any]
) -> None:
    outcome = agent.run(load, {"duration": "30ms", "threads": 2, **parameters}, cpu=None)
    assert outcome.value["seconds"] >= 0.03
    assert outcome.value["threads"] == 2
    assert outcome.observed["rate"] > 0


@pytest.mark.parametrize(
    ("workload", "params", "names"),
    [
        ("tick", {"loop_ns": -1}, "loop_ns"),
        ("tick", {"sampels": 1}, "sampels"),
        ("tick", {"samples": 10, "raw": True, "loop_ns": "x"}, "invalid type"),
        ("switch", {"threads": 1001}, "threads"),
        ("wakeup", {"interval_ns": 1}, "interval_ns"),
        ("switch", {"threads": -1}, "threads"),
        ("memory-bandwidth", {"array_bytes": 1 << 60}, "do not fit"),
        ("memory-load", {"threads": 0}, "threads"),
        ("idea", {"seconds": 0}, "seconds"),
        ("bytemark", {"seconds": 0}, "seconds"),
        ("memory-latency", {"pages": "1G"}, "pages"),
        ("memory-latency", {"sizes_bytes": [64]}, "sizes_bytes"),
    ],
)
def test_bad_requests_are_refused_by_name(
    agent_program: Path, workload: str, params: dict[str, Any], names: str
) -> None:
    # JSON's -1 for a whole number is refused by serde, which names no field.
    command = [str(agent_program), "run", workload, json.dumps(params)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert names in done.stderr or "invalid value" in done.stderr
