"""Hypervisors' counters have one form: events return them unchanged, or refuse them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.events.hypervisor import FACT, HypervisorFigure, HypervisorFigures, hypervisor_figures

numbers = st.floats(-1e12, 1e12)


@st.composite
def figures(draw: st.DrawFn) -> HypervisorFigure:
    many = draw(st.integers(1, 5))
    some = st.lists(numbers, min_size=many, max_size=many).map(tuple)
    weights = st.lists(st.floats(0.5, 1e9), min_size=many, max_size=many).map(tuple)
    return HypervisorFigure(
        draw(st.sampled_from(["cpu-ready", "wait", "runstate-full-run2"])),
        draw(st.text(max_size=20)),
        draw(st.sampled_from(["s", "s/s", "B/s", "1"])),
        draw(some),
        draw(some),
        draw(st.just(()) | weights),
    )


@given(st.lists(figures(), min_size=1, max_size=3), st.floats(0, 1e6))
def test_figures_in_events_are_read_back(
    figures_in: list[HypervisorFigure], resolution: float
) -> None:
    whole = HypervisorFigures("a source", resolution, "interval", tuple(figures_in))
    written = json.loads(json.dumps({FACT: whole.fact()}))
    assert hypervisor_figures(written) == whole


@given(figures())
def test_a_mean_is_between_the_least_and_the_greatest_value(figure: HypervisorFigure) -> None:
    edge = 1e-9 * max(map(abs, figure.values))
    assert min(figure.values) - edge <= figure.mean <= max(figure.values) + edge


def test_a_value_that_stands_for_more_counts_for_more() -> None:
    assert HypervisorFigure("w", "", "s", (1.0, 5.0), (0, 1), (3.0, 1.0)).mean == 2.0
    assert HypervisorFigure("w", "", "s", (1.0, 5.0), (0, 1)).mean == 3.0


@pytest.mark.parametrize(
    ("name", "values", "of", "weights"),
    [
        ("CPU ready", (1.0,), (0.0,), ()),
        ("w", (), (), ()),
        ("w", (1.0,), (), ()),
        ("w", (float("nan"),), (0.0,), ()),
        ("w", (1e300,), (0.0,), ()),
        ("w", (1.0,), (0.0,), (1.0, 1.0)),
        ("w", (1.0, 1.0), (0.0, 1.0), (-1.0, 3.0)),
        ("w", (1.0,), (0.0,), (0.0,)),
    ],
)
def test_invalid_figures_are_refused(
    name: str, values: tuple[float, ...], of: tuple[float, ...], weights: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=name):
        HypervisorFigure(name, "", "s", values, of, weights)


OLD: list[dict[str, Any]] = [
    {"resolution_s": 20, "intervals": [{"ended": 1.0, "seconds": 20.0, "ready_s": 0.1}]},
    {"source": "s", "resolution_s": 9.1, "vcpus": [{"vcpu": 0, "mean_wait_ns": 3.0}]},
    {"source": "s", "resolution_s": 60, "points": [{"time": 1.0, "cpu": 0.5}]},
]


@pytest.mark.parametrize("fact", OLD)
def test_the_old_form_of_figures_is_ignored(fact: dict[str, Any]) -> None:
    assert hypervisor_figures({FACT: fact}) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)


@given(json_values, json_values)
def test_any_content_of_events_is_read_as_figures_or_ignored(one: Any, other: Any) -> None:
    whole = {"source": one, "resolution_s": other, "each": one, "figures": other}
    figure = {"name": "w", "words": one, "unit": one, "values": other, "of": other, "weights": one}
    figured = {"source": "s", "resolution_s": 1, "each": "vCPU", "figures": [figure, one]}
    for fact in (one, whole, figured, {**figured, "figures": [figure]}):
        found = hypervisor_figures({FACT: fact})
        assert found is None or found.figures
