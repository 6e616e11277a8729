"""What workloads declare, ask of the agent, and make of its results."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.workloads import WORKLOADS, MachineFacts, Parameters, Workload, fitted
from tare.workloads.bytemark import INDICES, REFERENCE_RATES, indices
from tare.workloads.bytemark import KERNELS as BYTEMARK
from tare.workloads.memory_latency import LADDER, STATED, MemoryLatencyParameters
from tare.workloads.switch import SwitchParameters
from tare.workloads.tick import TickParameters
from tare.workloads.values import number

# Results of these have a form of their own, which `result_of` does not know yet.
UNKNOWN = {
    "fio", "bonnie", "gnugo", "oggenc", "bzip2-compress", "bzip2-decompress", "tidy", "dcraw",
    "povray", "openssl-aes", "scimark", "kernel-compile", "net-stream", "request-response",
    "connect-request-response", "packet-rate", "http-load", "program", "phased-load", "filebench",
}  # fmt: skip
YET = pytest.mark.xfail(reason="the common tests do not know its result yet", strict=False)
ALL = pytest.mark.parametrize(
    "workload",
    [
        pytest.param(workload, id=name, marks=YET if name in UNKNOWN else ())
        for name, workload in WORKLOADS.items()
    ],
)

KERNELS = [
    f"{kernel}-{kind}" for kernel in ("copy", "scale", "add", "triad") for kind in ("u64", "f64")
]


def result_of(name: str, value: float) -> dict[str, Any]:
    """An agent's result in which every number that counts is ``value``."""
    tails = dict.fromkeys(("median_s", "p99_s", "p999_s", "p9999_s"), value)
    if name == "tick":
        keys = (
            "slowdown", "excess_max_s", "stolen_share", "undisturbed_s", "duration_min_s",
            "duration_max_s", "samples_per_s", "gaps", "seconds", "loop_rate",
        )  # fmt: skip
        return dict.fromkeys(keys, value) | {"duration": tails}
    if name == "switch":
        return {"switch_min_s": value, "switch_max_s": value, "switch": tails}
    if name == "bytemark":
        return {"kernels": {kernel: {"iterations_per_s": value} for kernel in REFERENCE_RATES}}
    if name == "memory-latency":
        return {"latency": {str(size): {"median_s": value} for size in STATED}}
    if name == "memory-bandwidth":
        return {"bandwidth": {kernel: {"median_bytes_per_s": value} for kernel in KERNELS}}
    return dict.fromkeys(("iterations_per_s", "operations_per_s", "bytes_per_s"), value)


def test_the_registry_names_each_workload_as_it_names_itself() -> None:
    assert all(name == workload.name for name, workload in WORKLOADS.items())
    assert {"tick", "switch", "cpu-load", "memory-load", "memory-bandwidth"} <= set(WORKLOADS)
    assert {"bytemark", "memory-latency", *REFERENCE_RATES} <= set(WORKLOADS)


@ALL
def test_metrics_are_unique_in_si_units_and_one_to_three_stand_for_the_workload(
    workload: Workload,
) -> None:
    names = [metric.name for metric in workload.metrics]
    assert len(set(names)) == len(names)
    assert {metric.unit for metric in workload.metrics} <= {"s", "B/s", "1/s", "1"}
    headlines = [metric for metric in workload.metrics if metric.headline]
    assert 1 <= len(headlines) <= 3
    assert all(metric.better != "neither" for metric in headlines)
    assert all(metric.summary.endswith(".") for metric in workload.metrics)


@ALL
def test_parameters_have_defaults_and_are_described(workload: Workload) -> None:
    defaults = workload.parameters()
    assert workload.parameters.model_validate(defaults.model_dump(mode="json")) == defaults
    for name, field in workload.parameters.model_fields.items():
        assert field.description, f"{workload.name}.{name} is not described"
    with pytest.raises(ValidationError):
        workload.parameters.model_validate({"sampels": 5})


@ALL
def test_requests_are_plain_json(workload: Workload) -> None:
    request = workload.request(workload.parameters())
    assert json.loads(json.dumps(request, allow_nan=False)) == request
    assert workload.expected_s(workload.parameters()) > 0


@ALL
def test_parameters_of_another_workload_are_refused(workload: Workload) -> None:
    class Foreign(Parameters):
        pass

    with pytest.raises(TypeError, match="Foreign"):
        workload.request(Foreign())


@ALL
@given(value=st.floats(min_value=1e-12, max_value=1e12))
def test_observe_gives_each_metric_its_number(workload: Workload, value: float) -> None:
    parameters = workload.parameters()
    observed = workload.observe(parameters, result_of(workload.name, value))
    assert set(observed) == {metric.name for metric in workload.metrics}
    own = [name for name in observed if name != "gap-rate" and name not in INDICES]
    assert all(observed[name] == value for name in own)


@ALL
@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "1", True])
def test_observe_refuses_what_is_no_finite_number(workload: Workload, bad: Any) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        workload.observe(workload.parameters(), result_of(workload.name, bad))


@ALL
def test_observe_names_what_is_missing(workload: Workload) -> None:
    with pytest.raises(KeyError):
        workload.observe(workload.parameters(), {})


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
        max_leaves=6,
    )
)
def test_number_never_fails_otherwise(result: Any) -> None:
    given_result = result if isinstance(result, dict) else {"a": result}
    with contextlib.suppress(KeyError, ValueError):
        assert math.isfinite(number(given_result, "a.b"))


def test_tick_speaks_nanoseconds_to_the_agent() -> None:
    tick = WORKLOADS["tick"]
    request = tick.request(
        tick.parameters.model_validate({"duration": "2 s", "loop": "68us", "threshold": "500ns"})
    )
    assert request["seconds"] == 2.0
    assert "samples" not in request
    assert request["loop_ns"] == pytest.approx(68_000)
    assert request["threshold_ns"] == pytest.approx(500)
    assert "allow_untrusted_tsc" not in request
    assert tick.request(TickParameters())["samples"] == 20_000


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"samples": 5, "duration": "1s"}, "not both"),
        ({"loop": "10ns"}, "100ns"),
        ({"threshold": 0}, "greater than or equal"),
        ({"samples": 0}, "greater than or equal"),
        ({"duration": "5 parsecs"}, "parsecs"),
    ],
)
def test_tick_refuses_what_cannot_be(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        TickParameters.model_validate(parameters)


def test_tick_without_a_loop_has_no_loop_rate() -> None:
    observed = WORKLOADS["tick"].observe(TickParameters(loop=0), result_of("tick", 2.0))
    assert "loop-rate" not in observed
    assert observed["gap-rate"] == 1.0


def test_expectations_grow_with_the_work() -> None:
    tick, switch = WORKLOADS["tick"], WORKLOADS["switch"]
    assert tick.expected_s(TickParameters(samples=20_000)) == pytest.approx(1.46, abs=0.1)
    assert tick.expected_s(TickParameters(samples=50_000_000)) > 3400
    assert tick.expected_s(TickParameters(duration=9)) == pytest.approx(9.1, abs=0.2)
    few, many = SwitchParameters(threads=2), SwitchParameters(threads=1000)
    assert switch.expected_s(few) < switch.expected_s(many)


def test_the_hosts_facts_reach_only_workloads_that_take_them() -> None:
    facts = MachineFacts(emulated=True, memory=256 << 20, last_level_cache=8 << 20, caches=9 << 20)
    taken = {name: fitted(workload, {}, facts) for name, workload in WORKLOADS.items()}
    assert taken["tick"] == taken["switch"] == {"allow_untrusted_tsc": True}
    assert taken["memory-bandwidth"] == {"memory_bytes": 256 << 20, "last_level_bytes": 8 << 20}
    assert taken["memory-latency"] == {"memory_bytes": 256 << 20}
    assert taken["memory-load"] == {"memory_bytes": 256 << 20, "caches_bytes": 9 << 20}
    assert taken["numeric-sort"] == taken["cpu-load"] == {}
    assert fitted(WORKLOADS["tick"], {"raw": True}, MachineFacts()) == {"raw": True}


def test_the_ten_kernels_make_up_the_indices_once_each() -> None:
    grouped = [kernel for kernels in INDICES.values() for kernel in kernels]
    assert sorted(grouped) == sorted(REFERENCE_RATES)
    assert [kernel.name for kernel in BYTEMARK] == list(REFERENCE_RATES)
    assert [len(kernels) for kernels in INDICES.values()] == [3, 4, 3]


def test_the_reference_rates_have_an_index_of_one() -> None:
    assert indices(REFERENCE_RATES) == pytest.approx(dict.fromkeys(INDICES, 1.0))


@given(
    rates=st.fixed_dictionaries(dict.fromkeys(REFERENCE_RATES, st.floats(1e-6, 1e6))),
    factor=st.floats(1e-3, 1e3),
)
def test_ratios_of_indices_do_not_depend_on_the_reference(
    rates: dict[str, float], factor: float
) -> None:
    before, after = indices(rates), indices({name: rate * factor for name, rate in rates.items()})
    for index, kernels in INDICES.items():
        assert after[index] / before[index] == pytest.approx(factor)
        one = indices(rates | {kernels[0]: rates[kernels[0]] * factor})
        assert one[index] / before[index] == pytest.approx(factor ** (1 / len(kernels)))


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_an_index_of_nothing_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"kernels\.lu is"):
        indices({**REFERENCE_RATES, "lu": rate})


def test_memory_latency_has_metrics_for_the_sizes_that_were_measured() -> None:
    latency = WORKLOADS["memory-latency"]
    asked = latency.parameters.model_validate({"sizes": ["16KiB", "48KiB", "1GiB"], "pages": "2M"})
    request = latency.request(asked)
    assert request["sizes_bytes"] == [16 << 10, 48 << 10, 1 << 30]
    assert request["pages"] == "2M"
    told = {"latency": {str(size): {"median_s": 1e-9} for size in (16 << 10, 48 << 10)}}
    assert latency.observe(asked, told) == {"latency-16KiB": 1e-9}
    assert latency.request(MemoryLatencyParameters())["sizes_bytes"] == list(LADDER)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"pages": "1G"}, "4k"),
        ({"stride": 12}, "multiple of 8"),
        ({"stride": "4KiB"}, "shorter than two strides"),
        ({"sizes": ["64B"]}, "shorter than two strides"),
    ],
)
def test_memory_latency_refuses_what_cannot_be(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        MemoryLatencyParameters.model_validate(parameters)
