"""Xen's run states are reported unchanged: whole rows, or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.platforms.xenserver.vm import STEP_S, rows_within

times = st.integers(0, 1000).map(float)


@given(st.lists(st.integers(0, 200).map(lambda n: n * 5), unique=True), times, times)
def test_rows_are_kept_whole_or_not_at_all(ends: list[int], one: float, two: float) -> None:
    begun, ended = sorted((one, two))
    legend = ["AVERAGE:vm:u:runstate_fullrun", "AVERAGE:vm:other:runstate_fullrun"]
    data = [{"t": end, "values": [0.5, 0.9]} for end in ends]
    answer = {"meta": {"step": STEP_S, "legend": legend}, "data": data}
    found = rows_within(answer, "u", begun, ended)
    inner = [end for end in ends if begun <= end - STEP_S and end + STEP_S <= ended]
    assert (found is None) == (not inner)
    for figure in found.figures if found is not None else ():
        assert (figure.name, figure.unit) == ("runstate-fullrun", "1")
        assert figure.of == tuple(sorted(inner)) and set(figure.values) == {0.5}
    coarse = {"meta": {"step": 60, "legend": legend}, "data": data}
    assert rows_within(coarse, "u", begun, ended) is None


json_values = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)


@pytest.mark.fuzz
@given(json_values)
def test_figures_of_any_form_end_in_figures_or_a_refusal(value: Any) -> None:
    meta = {"step": 5, "legend": ["AVERAGE:vm:u:runstate_fullrun"]}
    for each in (
        value,
        {"meta": value},
        {"meta": meta, "data": value},
        {"meta": meta, "data": [value]},
    ):
        try:
            rows_within(each, "u", 0, 100)
        except (ValueError, LookupError, TypeError, OverflowError):
            continue
