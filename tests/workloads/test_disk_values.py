"""The requests of filebench, fio and bonnie, and the values in fio's and Bonnie++'s reports."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.workloads import WORKLOADS
from tare.workloads.disk.bonnie import PHASES, BonnieParameters, bonnie_values
from tare.workloads.disk.filebench import FilebenchParameters
from tare.workloads.disk.fio import FioParameters, command, fio_values
from tare.workloads.disk.metrics import DISK_METRICS, disk_values

CSV = (
    "1.98,2.00a,vm,1,1795284304,64M,,8192,5,567,14,301000,31,+++++,+++,872,15,+++++,+++,"
    "2345.6,9,1,1024,,,,+++++,+++,+++++,+++,264,1,1884,9,+++++,+++,265,1,209ms,18421us,25146us,"
    "205ms,13054us,22811us,17004us,9218us,120ms,94925us,75us,2s"
)


def latencies(scale: float) -> dict[str, Any]:
    return {
        "min": 1,
        "max": int(9000 * scale),
        "mean": 1500.5 * scale,
        "percentile": {
            "50.000000": int(1000 * scale),
            "99.000000": int(5000 * scale),
            "99.900000": int(7000 * scale),
        },
    }


def report() -> dict[str, Any]:
    idle = {"total_ios": 0, "bw_bytes": 0, "iops": 0.0}
    return {
        "fio version": "fio-3.33",
        "jobs": [
            {
                "error": 0,
                "read": {"total_ios": 10, "bw_bytes": 40960, "iops": 10.5, "clat_ns": latencies(1)},
                "write": idle,
                "sync": {"total_ios": 0},
                "usr_cpu": 1.5,
                "sys_cpu": 4.5,
            }
        ],
    }


def test_fio_values_are_its_own_in_si_units() -> None:
    values = fio_values(report())
    assert values == {
        "rate": 40960.0,
        "operations": 10.5,
        "read-rate": 40960.0,
        "read-operations": 10.5,
        "read-latency-mean": pytest.approx(1500.5e-9),
        "read-latency-median": pytest.approx(1e-6),
        "read-latency-p99": pytest.approx(5e-6),
        "read-latency-p999": pytest.approx(7e-6),
        "read-latency-maximum": pytest.approx(9e-6),
        "cpu": pytest.approx(0.06),
    }


def test_fio_directions_add_up_and_syncs_are_reported() -> None:
    parsed = report()
    parsed["jobs"][0]["write"] = {
        "total_ios": 4,
        "bw_bytes": 16384,
        "iops": 4.0,
        "clat_ns": latencies(2),
    }
    parsed["jobs"][0]["sync"] = {"total_ios": 2, "lat_ns": {"mean": 3e6, "max": 5e6}}
    values = fio_values(parsed)
    assert values["rate"] == 40960 + 16384
    assert values["operations"] == 14.5
    assert values["write-latency-p99"] == pytest.approx(10e-6)
    assert values["sync-latency-maximum"] == pytest.approx(5e-3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"error": 28}, "error 28"), ({"read": None}, "read"), ({"usr_cpu": "x"}, "usr_cpu")],
)
def test_a_report_with_something_wrong_is_refused(change: dict[str, Any], reason: str) -> None:
    parsed = report()
    parsed["jobs"][0] |= change
    with pytest.raises((KeyError, ValueError), match=reason):
        fio_values(parsed)


def test_fio_is_asked_for_what_the_parameters_say() -> None:
    asked = FioParameters(mode="random-write", io_size=8192, depth=16, jobs=3, total=100_000)
    argv = command(asked)
    assert argv[0] == "fio"
    for word in ("--rw=randwrite", "--bs=8192", "--iodepth=16", "--ioengine=libaio", "--direct=1"):
        assert word in argv
    # Whole I/Os only, in each of the three files.
    assert "--size=32768" in argv
    assert "--end_fsync=1" in command(asked.model_copy(update={"direct": False}))
    request = WORKLOADS["fio"].request(asked)
    assert request["bytes"] == 3 * 32768
    assert request["prepare"] == [[*argv, "--create_only=1"]]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (FioParameters, {"depth": 4, "engine": "psync"}),
        (FioParameters, {"total": 4096, "jobs": 2}),
        (FioParameters, {"io-size": 1000}),
        (BonnieParameters, {"direct": True}),
        (FilebenchParameters, {"work": "varmail", "direct": True}),
        (FilebenchParameters, {"work": "random-read", "direct": True, "io_size": 1000}),
        (FilebenchParameters, {"work": "mailserver"}),
    ],
)
def test_impossible_values_are_refused(model: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(values)


def test_bonnie_values_are_its_own_in_si_units() -> None:
    values = bonnie_values(f"some words\n{CSV}\n")
    assert values["put-char"] == 567 * 1024
    assert values["put-char-cpu"] == pytest.approx(0.14)
    assert values["put-block"] == 301_000 * 1024
    assert values["get-char"] == 872 * 1024
    assert values["seeks"] == 2345.6
    assert values["sequential-delete"] == 264
    assert values["random-create"] == 1884
    assert values["put-char-latency"] == pytest.approx(0.209)
    assert values["random-stat-latency"] == pytest.approx(75e-6)
    assert values["random-delete-latency"] == 2.0
    # Too quick to be rated, as Bonnie++ says: no number, and no zero.
    assert not {"rewrite", "get-block", "sequential-create", "random-stat"} & set(values)
    assert set(values) <= {metric.name for metric in WORKLOADS["bonnie"].metrics}
    assert len(PHASES) == 12


@pytest.mark.parametrize("text", ["", "1.97,2.00a\n", CSV[:100], CSV.replace("567", "56x")])
def test_another_csv_than_bonnies_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Bonnie\+\+"):
        bonnie_values(text)


@pytest.mark.fuzz
@given(st.text() | st.lists(st.text(max_size=6), max_size=60).map(lambda f: "1.98," + ",".join(f)))
def test_no_text_makes_the_reader_of_bonnie_fail_otherwise(text: str) -> None:
    with contextlib.suppress(ValueError):
        values = bonnie_values(text)
        assert all(value >= 0 for value in values.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
PLACES = st.sampled_from(
    [
        ("jobs",),
        ("jobs", 0),
        ("jobs", 0, "read"),
        ("jobs", 0, "read", "clat_ns"),
        ("jobs", 0, "read", "clat_ns", "percentile"),
        ("jobs", 0, "read", "clat_ns", "percentile", "99.000000"),
        ("jobs", 0, "write", "total_ios"),
        ("jobs", 0, "sync"),
        ("jobs", 0, "usr_cpu"),
    ]
)


@pytest.mark.fuzz
@given(PLACES, JSON)
def test_no_report_makes_the_reader_of_fio_fail_otherwise(place: tuple[Any, ...], put: Any) -> None:
    parsed = report()
    inner: Any = parsed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = put
    with contextlib.suppress(KeyError, ValueError):
        assert all(isinstance(value, float) for value in fio_values(parsed).values())


def test_the_disks_counters_are_metrics_where_there_is_a_disk() -> None:
    assert disk_values({"disk": None}) == {}
    fields = (
        "read_bytes_per_s",
        "write_bytes_per_s",
        "reads_per_s",
        "writes_per_s",
        "merged_per_s",
        "flushes_per_s",
        "queue",
        "wait_s",
        "utilisation",
    )
    values = disk_values({"disk": {name: float(at) for at, name in enumerate(fields)}})
    assert list(values.values()) == [float(at) for at in range(len(fields))]
    assert set(values) == {metric.name for metric in DISK_METRICS}


def test_filebench_sends_the_given_parameters_only() -> None:
    workload = WORKLOADS["filebench"]
    plain = workload.request(FilebenchParameters())
    assert plain == {
        "work": "fileserver",
        "seconds": 60.0,
        "total_bytes": 64 << 20,
        "direct": False,
        "cached": False,
    }
    asked = FilebenchParameters.model_validate(
        {"work": "varmail", "files": 50, "file_size": "4KiB"}
    )
    assert workload.request(asked)["mean_bytes"] == 4096
    assert json.dumps(workload.request(asked))
    assert workload.expected_s(asked) < workload.expected_s(FilebenchParameters())


@pytest.mark.parametrize("settings", [{"files": 9}, {"file_size": "1MiB"}, {"preallocated": 0.5}])
def test_settings_of_personalities_are_refused_for_microbenchmarks(
    settings: dict[str, Any],
) -> None:
    name = next(iter(settings)).replace("_", "-")
    with pytest.raises(ValueError, match=f"{name} is for personalities.*write `total`"):
        FilebenchParameters.model_validate({"work": "sequential-write", **settings})
    assert FilebenchParameters.model_validate({"work": "fileserver", **settings})
