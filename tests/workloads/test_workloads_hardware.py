"""What is asked of the processor's counters, and what may come back."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.workloads import WORKLOADS
from tare.workloads.hardware import HARDWARE, counted

COUNTS = {"seconds": 1.5, "cycles": 3e9, "instructions": 2e9, "missing": "llc_misses: none"}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=10,
)


@pytest.mark.parametrize("name", ["tick", "memory-bandwidth"])
def test_counters_are_asked_for_only_where_a_study_wants_them(name: str) -> None:
    workload = WORKLOADS[name]

    def request(**given: Any) -> dict[str, Any]:
        asked: dict[str, Any] = workload.request(workload.parameters.model_validate(given))
        return asked

    assert request(counters=True)["counters"] is True
    assert "counters" not in request()
    asked = workload.parameters.model_validate({"counters": True})
    assert workload.facts(asked, {HARDWARE: COUNTS}) == {HARDWARE: COUNTS}
    assert workload.facts(asked, {}) == {}


@pytest.mark.parametrize(
    "given_value",
    [[], "none", {"cycles": "many"}, {"cycles": -1}, {"cycles": True}, {"seconds": float("nan")},
     {"missing": 3}, {"others": 1}],
)  # fmt: skip
def test_impossible_counts_are_refused(given_value: object) -> None:
    with pytest.raises(ValueError, match="not what counters report"):
        counted({HARDWARE: given_value})


@pytest.mark.fuzz
@given(ANY | st.dictionaries(st.sampled_from([*COUNTS, "llc_misses"]), ANY))
def test_nothing_that_an_agent_says_fails_otherwise(given_value: object) -> None:
    with contextlib.suppress(ValueError):
        found = counted({HARDWARE: given_value}).get(HARDWARE, {})
        assert all(value >= 0 for name, value in found.items() if name != "missing")
