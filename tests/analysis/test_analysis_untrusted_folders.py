"""A folder of anyone's making, whose hashes all hold, is reported or refused: no traceback."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.analysis_written import RAW, RunContent, make_run
from tare.analysis import compare_runs, load_run
from tare.analysis.data.export import export_observations
from tare.errors import InputError
from tare.events.cell_facts import known_facts
from tare.plaintext import plain
from tare.report import build_report

pytestmark = pytest.mark.fuzz
CORPUS = Path(__file__).parents[1] / "corpora" / "seeds.json"
"""Seeds of what fuzzing found here, by what was odd."""
EXAMPLES = 2000 if os.environ.get("TARE_FUZZ") else 12

COUNTED = {"seconds": 1.0, "cycles": 2e9, "instructions": 1e9, "llc_misses": 5, "missing": ""}
FACTS: dict[str, Any] = {
    "phases": [{"name": "cpu-load", "begin_s": 0.1, "end_s": 0.5}],
    "neighbours": [{"role": "neighbour-1", "load": "cpu-load", "ran_share": 1.0}],
    "host_cost": {"cpu_s": 1.0, "rss_bytes": 1e6, "wall_s": 1.0},
    "origins_ns": {"subject": 5, "host": 6},
    "host_counters": {"sampled": True, "reason": ""},
    "host_trace": {
        "recorded": True, "reason": "", "threads": {"7": {"comm": "x", "role": "subject"}},
        "irqs": {"5": "eth0"}, "subject_threads": [7], "tick": {"seconds": 1.0, "gaps": 1},
        "clock": {"shared": True}, "cpus": [0], "throttled": {"times": 0}, "steal_s": 0.1,
    },
    "hypervisor": {
        "source": "x", "resolution_s": 1.0, "each": "vCPU",
        "figures": [{"name": "cpu-ready", "words": "w", "unit": "s", "values": [1], "of": [0]}],
    },
    "duet": {"share": 0.9, "partner": "oci"},
    "job": {
        "steps": {"sort": {"job": {"maps": 1}, "caches": [{"guest": "dropped"}]}},
        "written_bytes": 1e6, "replication": 2,
    },
    "proxy": {
        "size": 1024, "limits": ["the client"],
        "faults": [{"where": "client", "what": "timed_out", "count": 1}],
        "account": {
            "spent": [{"where": "host", "who": "vhost: a", "share": 0.5, "per_request_s": 1e-6}],
            "cpus": 2, "cycles_per_s": 1e9,
        },
        "network": {"link": {"bits_per_s": 1e9}}, "offered": {"per_s": 100.0},
        "said": {"show info": "Idle_pct: 5\nNbthread: 1\n"},
    },
    "hardware": COUNTED,
    "host_memory": {"bytes": 5, "seconds": 1.0},
    "host_hardware": {"subject": COUNTED, "neighbour-1": COUNTED},
    "clock_drift_ppm": 5.0,
    "start_skew_s": 0.1,
    "disk_moved_bytes": {"read": 5},
}  # fmt: skip
STUDY: dict[str, Any] = {
    "study": "small", "title": "t", "description": "d", "baseline": "bare", "aa": ["bare", "oci"],
    "confidence": 0.95, "margin": 0.02, "floors": {"excess-max": 1e-6}, "own_baselines": {},
    "arms": {"bare": {"platform": "bare"}, "oci": {"platform": "oci", "host_trace": False}},
    "blocks": {"least": 2, "most": 3, "method": "fixed"}, "shape": {"vcpus": 1, "memory": 1 << 30},
    "scenarios": {
        "alone": {
            "summary": "s", "subject": {"cpus": "any"},
            "neighbours": [{"load": "cpu-load", "count": 1, "parameters": {"threads": 1}}],
        },
    },
    "workloads": {"tick": {"workload": "tick"}},
}  # fmt: skip
PROOF: dict[str, Any] = {
    "kernel": {"release": "6.1", "tick_hz": 250, "preempt": "none"},
    "cpu": {"flags": ["a", "b"], "model": "m"}, "topology": {"tickless": "1"},
}  # fmt: skip
PLACEMENT: dict[str, Any] = {
    "cpus": [0, 1], "keeps_to": [1], "role": "subject", "sees_host_cpus": True,
    "network": {"way": "tap", "switch": "bridge", "link": {"bits_per_s": 1e9}},
    "nic": {"model": "virtio", "queues": 2},
}  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 5, 2**63, 1e308, -1e308, 1e-320, "", "x", "\x1b[2J", [], [5], [[]], [None],
    {}, {"a": 1}, {"name": 5}, [{}], [{"name": "p"}],
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, each in inner:
        yield from places(each, (*path, key))


def changed(template: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return it with up to three of its parts, however deep, something else or gone."""
    chance = random.Random(seed)
    made = copy.deepcopy(template)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice([each for each in places(made) if each] or [("x",)])
        inner: Any = made
        for key in path[:-1]:
            inner = inner[key]
        if chance.random() < 0.2 and isinstance(inner, dict):
            inner.pop(path[-1], None)
        else:
            inner[path[-1]] = copy.deepcopy(chance.choice(ODD))
    return made


def judge(run: Path) -> None:
    try:
        data = load_run(run)
    except InputError as error:
        assert plain(str(error)) == str(error)
        return
    page = build_report([data], compare_runs([data]), run, [], ())
    assert "\x1b" not in page.read_text()
    assert export_observations(data, "csv")


def test_an_intact_folder_is_read_completely(tmp_path: Path) -> None:
    """Otherwise the properties below would test content that is never read."""
    run = make_run(tmp_path / "run", content=RunContent(FACTS, STUDY, PROOF, PLACEMENT))
    data = load_run(run)
    assert all(cell.facts.keys() == FACTS.keys() for cell in data.cells)
    assert all(machine.placement == PLACEMENT for machine in data.machines)
    judge(run)


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("phases", [5]),
        ("phases", [{"name": "p"}]),
        ("phases", [{"name": "p", "begin_s": "soon", "end_s": 1}]),
        ("neighbours", [5]),
        ("neighbours", {"a": 1}),
        ("host_cost", {"cpu_s": "much"}),
        ("job", {"steps": [1]}),
        ("job", {"written_bytes": "x"}),
        ("job", {"steps": {"a": {"job": {}, "caches": [5]}}}),
        ("proxy", {"size": "big"}),
        ("proxy", {"faults": [{}]}),
        ("proxy", {"account": {"spent": [{"who": "x"}]}}),
        ("hardware", {"cycles": "x", "instructions": 1}),
    ],
)
def test_fact_of_another_form_counts_as_missing(name: str, odd: Any, tmp_path: Path) -> None:
    assert name not in known_facts({name: odd, "other": 1}) and "other" in known_facts({"other": 1})
    judge(make_run(tmp_path / "run", content=RunContent({**FACTS, name: odd})))


@pytest.mark.parametrize(
    ("key", "odd"),
    [
        ("baseline", None), ("scenarios", [5]), ("scenarios", {"alone": 5}),
        ("scenarios", {"alone": {"neighbours": [5]}}), ("arms", []), ("arms", {"bare": 5}),
        ("confidence", "high"), ("confidence", 7), ("confidence", 1e-320),
        ("aa", ["bare"]), ("blocks", 5), ("floors", {"x": "y"}), ("own_baselines", 5),
        ("sessions", {"boots": 5}),
    ],
)  # fmt: skip
def test_a_study_of_another_form_is_refused_with_its_key(
    key: str, odd: Any, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", content=RunContent(study={key: odd}))
    with pytest.raises(InputError, match=key):
        load_run(run)


def test_out_of_range_number_is_reported_with_its_line(tmp_path: Path) -> None:
    for number in ("1" + "0" * 400, "1e999", "NaN"):
        run = make_run(tmp_path / number[:9], content=RunContent({"clock_drift_ppm": 12345}))
        stream = run / "events.jsonl"
        stream.write_bytes(stream.read_bytes().replace(b"12345", number.encode(), 1))
        with pytest.raises(InputError, match="line 10: a number beyond all bounds"):
            load_run(run)


NAMES = (
    "raw", "responses", "counters", "histogram", "scatter", "gaps", "iterations", "host-sched",
    "repetitions", "ladder", "operations",
)  # fmt: skip
COLUMNS = (
    "time_ns", "low_ns", "width_ns", "count", "min_ns", "max_ns", "mean_ns", "first", "samples",
    "completed", "failed", "median_ns", "p99_ns", "due", "iteration_ns", "duration_ns", "thread",
    "kernel", "load_ns", "size_bytes", "excess_ns", "cpu.user", "cpu.idle", "disk.sda.io_ms",
    "disk.sda.sectors_read", "net.eth0.rx_bytes", "net.eth0.rx_packets", "cpu", "kind", "who",
    "other", "runnable",
)  # fmt: skip
FORMS = (
    ("low_ns", "width_ns", "count"),
    ("time_ns", "min_ns", "max_ns", "samples"),
    ("time_ns", "min_ns", "max_ns", "mean_ns", "first"),
    ("time_ns", "completed", "failed", "mean_ns", "median_ns", "p99_ns", "max_ns"),
    ("iteration_ns", "duration_ns"),
    ("duration_ns",),
    ("time_ns", "excess_ns"),
    ("time_ns", "cpu", "kind", "who", "other", "runnable"),
    ("time_ns", "cpu.user", "cpu.idle", "disk.sda.io_ms", "net.eth0.rx_bytes"),
)
DTYPES = ("u1", "u4", "u8", "i4", "i8", "f4", "f8", "bool", "U3")


def any_series(seed: int) -> Mapping[str, Mapping[str, Any]]:
    """Return one to three series of any form, whose numbers may be anything."""
    chance = random.Random(seed)
    made: dict[str, dict[str, Any]] = {}
    for name in chance.sample(NAMES, chance.randint(1, 3)):
        names = chance.choice(FORMS) if chance.random() < 0.7 else chance.sample(COLUMNS, 3)
        rows = chance.choice((0, 1, 2, 5, 40))
        made[name] = {column: _values(chance, rows) for column in names}
    return made


def _values(chance: random.Random, rows: int) -> Any:
    dtype = np.dtype(chance.choice(DTYPES if chance.random() < 0.4 else ("u8", "f8")))
    if chance.random() < 0.4:
        return np.sort(np.array([chance.randint(0, 200) for _ in range(rows)])).astype(dtype)
    odd: list[Any] = [0, 1, 2, 100, 127]
    if dtype.kind == "f":
        odd += [-1.0, 0.5, 1e30, np.inf, np.nan]
    elif dtype.kind in "ui":
        odd += [int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]
    with np.errstate(invalid="ignore", over="ignore"):
        return np.array([chance.choice(odd) for _ in range(rows)]).astype(dtype)


def facts_of(seed: int) -> RunContent:
    """Return content with odd facts, proof and placement of a cell."""
    proof, placement = changed(PROOF, seed + 1), changed(PLACEMENT, seed + 2)
    return RunContent(changed(FACTS, seed), STUDY, proof, placement)


def study_of(seed: int) -> RunContent:
    """Return content with an odd study."""
    return RunContent(FACTS, changed(STUDY, seed))


def series_of(seed: int) -> RunContent:
    """Return content with odd series."""
    return RunContent(FACTS, series=any_series(seed))


ODDITIES: Mapping[str, Callable[[int], RunContent]] = {
    "facts": facts_of,
    "study": study_of,
    "series": series_of,
}
FOUND = [(of, seed) for of, seeds in json.loads(CORPUS.read_text()).items() for seed in seeds]


@pytest.mark.parametrize("of", ODDITIES)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 1 << 32))
def test_no_folder_ends_in_a_traceback(
    of: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    judge(make_run(tmp_path_factory.mktemp("odd") / "run", content=ODDITIES[of](seed)))


@pytest.mark.parametrize(("of", "seed"), FOUND)
def test_inputs_that_once_ended_in_a_traceback_are_read_or_refused(
    of: str, seed: int, tmp_path: Path
) -> None:
    judge(make_run(tmp_path / "run", content=ODDITIES[of](seed)))


@pytest.mark.parametrize(
    "columns",
    [
        {"iteration_ns": np.ones(3), "duration_ns": np.ones(3)},
        {"low_ns": np.ones(2), "width_ns": np.ones(2), "count": np.array([2**63, 1], "u8")},
        {"low_ns": np.ones(2), "width_ns": np.zeros(2), "count": np.array([2, 1], "u8")},
    ],
)
def test_series_whose_columns_are_not_what_they_are_called(
    columns: Mapping[str, Any], tmp_path: Path
) -> None:
    judge(make_run(tmp_path / "run", content=RunContent(series={**RAW, "histogram": columns})))
