"""What workloads declare, ask of the agent, and make of its results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.workloads import WORKLOADS, MachineFacts, Workload, fitted
from tare.workloads.cpu.bytemark import INDICES, REFERENCE_RATES, indices
from tare.workloads.cpu.bytemark import KERNELS as BYTEMARK
from tare.workloads.memory.latency import LADDER, MemoryLatencyParameters
from tare.workloads.realtime.switch import SwitchParameters
from tare.workloads.realtime.tick import TickParameters
from workloads.workloads_results import SAMPLES, parameters_of, result_of

ALL = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
UNITS = {"s", "B", "B/s", "1/s", "1"}
NEIGHBOURS_ONLY = {name for name, kind in WORKLOADS.items() if kind.neighbour_only}
"""They end when a subject does, so the report's first screen has none of their figures."""


def test_the_registry_names_each_workload_as_it_names_itself() -> None:
    assert all(name == workload.name for name, workload in WORKLOADS.items())
    assert {"tick", "switch", "cpu-load", "memory-load", "memory-bandwidth"} <= set(WORKLOADS)
    assert {"bytemark", "memory-latency", *REFERENCE_RATES} <= set(WORKLOADS)


def test_every_workload_has_a_sample_of_its_result() -> None:
    assert set(SAMPLES) == set(WORKLOADS)


@ALL
def test_metrics_are_unique_in_si_units_and_one_to_three_stand_for_the_workload(
    workload: Workload[Any],
) -> None:
    names = [metric.name for metric in workload.metrics]
    assert len(set(names)) == len(names)
    assert {metric.unit for metric in workload.metrics} <= UNITS
    headlines = [metric for metric in workload.metrics if metric.headline]
    assert bool(headlines) == (workload.name not in NEIGHBOURS_ONLY)
    assert len(headlines) <= 3
    # What is more or less, but neither better nor worse, cannot stand for a comparison.
    assert all(metric.better != "neither" for metric in headlines)
    assert all(metric.summary.endswith(".") for metric in workload.metrics)


@ALL
def test_recorded_metrics_name_a_resource(workload: Workload[Any]) -> None:
    recorded = workload.recorded_metrics(parameters_of(workload.name))
    assert {metric.resource for metric in recorded} == {workload.resource}
    if workload.name in ("fio", "switch", "numeric-sort", "memory-latency", "net-stream"):
        known = {"fio": "disk", "switch": "latency", "numeric-sort": "cpu"}
        known |= {"memory-latency": "memory", "net-stream": "network"}
        assert workload.resource == known[workload.name]


@ALL
def test_the_clock_ends_no_more_than_a_cell_takes(workload: Workload[Any]) -> None:
    known = parameters_of(workload.name)
    assert 0 <= workload.clocked_s(known) <= workload.expected_s(known)


@ALL
def test_parameters_have_defaults_and_are_described(workload: Workload[Any]) -> None:
    known = parameters_of(workload.name)
    fields = workload.parameters.model_fields
    # Which program runs is the one thing that nobody can guess.
    required = {name for name, field in fields.items() if field.is_required()}
    assert required == ({"argv"} if workload.name in ("program", "command") else set())
    assert workload.parameters.model_validate(known.model_dump(mode="json")) == known
    for name, field in fields.items():
        assert field.description, f"{workload.name}.{name} is not described"
    with pytest.raises(ValidationError):
        workload.parameters.model_validate({"sampels": 5})


@ALL
def test_requests_are_plain_json(workload: Workload[Any]) -> None:
    parameters = parameters_of(workload.name)
    request = workload.request(parameters)
    assert json.loads(json.dumps(request, allow_nan=False)) == request
    assert workload.expected_s(parameters) > 0


@ALL
@given(data=st.data())
def test_observe_gives_each_metric_its_number(workload: Workload[Any], data: st.DataObject) -> None:
    sample = SAMPLES[workload.name]
    number = data.draw(st.floats(sample.least, sample.most))
    observed = workload.observe(parameters_of(workload.name), sample.result(number))
    named = {metric.name for metric in workload.metrics}
    assert set(observed) == named - sample.lacking
    for metric, value in sample.expected(workload.name, number).items():
        assert observed[metric] == pytest.approx(value, rel=sample.close), metric


@pytest.mark.parametrize("load", ["cpu-load", "memory-load", "disk-load"])
def test_a_load_that_is_measured_itself_ends(load: str) -> None:
    workload = WORKLOADS[load]
    alone, parameters = (
        workload.parameters(),
        workload.parameters.model_validate({"duration": "2 s"}),
    )
    assert "seconds" not in workload.request(alone)
    assert workload.request(workload.ending(alone))["seconds"] == workload.expected_s(alone)
    assert workload.request(workload.ending(parameters))["seconds"] == 2.0
    assert WORKLOADS["tick"].ending(TickParameters()) == TickParameters()


@ALL
def test_counters_and_loading_threads_are_declared(workload: Workload[Any]) -> None:
    asked = parameters_of(workload.name)
    counting = "counters" in workload.parameters.model_fields
    assert not workload.counts_memory(asked)
    if counting:
        assert workload.counts_memory(asked.model_copy(update={"counters": True}))
    assert counting == (workload.name in ("tick", "memory-bandwidth"))
    assert workload.logs_gaps == (workload.name == "tick")
    assert workload.threads_for(asked) == workload.request(asked).get("threads")


def test_a_load_wants_as_many_cpus_as_it_has_threads() -> None:
    load = WORKLOADS["cpu-load"]
    assert load.threads_for(load.parameters.model_validate({"threads": 3})) == 3
    assert load.threads_for(load.parameters.model_validate({})) is None


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


def test_wakeup_speaks_nanoseconds_to_the_agent_and_wants_two_cpus_for_a_futex() -> None:
    wakeup = WORKLOADS["wakeup"]
    given = wakeup.parameters.model_validate({"by": "futex", "interval": "2ms", "duration": "3s"})
    asked = {"by": "futex", "interval_ns": 2_000_000, "seconds": 3.0}
    assert wakeup.request(given) == asked
    assert wakeup.vcpus_for(given) == 2
    assert wakeup.vcpus_for(wakeup.parameters()) == 1
    assert wakeup.expected_s(given) == pytest.approx(3.0, abs=0.5)


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


def test_tick_has_no_slowdown_if_the_machines_speed_changed() -> None:
    tick = WORKLOADS["tick"]
    result = result_of("tick", 2.0)
    sped_up = {"slowdown": None, "duration_mean_s": 1.8}
    assert tick.observe(TickParameters(), result)["slowdown"] == 2.0
    assert "slowdown" not in tick.observe(TickParameters(), {**result, **sped_up})
    with pytest.raises(ValueError, match="faster than undisturbed"):
        tick.observe(TickParameters(), {**result, "slowdown": 0.88})


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
    result = {"latency": {str(size): {"median_s": 1e-9} for size in (16 << 10, 48 << 10)}}
    assert latency.observe(asked, result) == {"latency-16KiB": 1e-9}
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
