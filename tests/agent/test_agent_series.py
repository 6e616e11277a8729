"""Series are put together exactly, or refused."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.agent.clocktrust import ClockReading, judge
from tare.agent.series import Assembler, read_chunk

HEADER = {"id": 1, "name": "s", "rows": 2, "columns": [["a", "u32"], ["b", "f64"]], "total": 24}
DATA = np.array([1, 2], "<u4").tobytes() + np.array([0.5, 0.25], "<f8").tobytes()


def payload(data: bytes, offset: int = 0, **changes: Any) -> bytes:
    return json.dumps({**HEADER, "offset": offset, **changes}).encode() + b"\n" + data


@given(st.lists(st.integers(0, 24), max_size=5))
def test_chunks_of_any_size_make_the_series(cuts: list[int]) -> None:
    assembler = Assembler()
    edges = [0, *sorted(cuts), 24]
    for start, end in pairwise(edges):
        assembler.add(read_chunk(payload(DATA[start:end], start)))
    (series,) = assembler.finish()
    np.testing.assert_array_equal(series.columns["a"], [1, 2])
    np.testing.assert_array_equal(series.columns["b"], [0.5, 0.25])


def test_a_series_without_rows_is_empty() -> None:
    assembler = Assembler()
    assembler.add(read_chunk(payload(b"", rows=0, total=0)))
    assert len(assembler.finish()[0].columns["a"]) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        b"no header",
        b"{}\n",
        b"[]\n",
        payload(DATA, rows=3),
        payload(DATA, total=25),
        payload(DATA, offset=1),
        payload(DATA, columns=[["a", "u128"]]),
        payload(DATA, columns=[["a"]]),
        payload(DATA, id="x"),
        payload(b"", rows=-1, total=-12),
        payload(b"", rows=1 << 60, total=12 << 60),
    ],
)
def test_invalid_series_are_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError):
        read_chunk(wrong)


@given(st.binary(max_size=200))
def test_no_bytes_fail_otherwise(data: bytes) -> None:
    for candidate in (data, b"{" + data, data + b"\n" + data):
        with contextlib.suppress(ValueError):
            read_chunk(candidate)


@given(
    st.dictionaries(
        st.sampled_from(["id", "name", "rows", "columns", "offset", "total"]),
        st.recursive(
            st.none() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=3),
        ),
    )
)
def test_no_header_fails_otherwise(changes: dict[str, Any]) -> None:
    header = {**HEADER, "offset": 0, **changes}
    with contextlib.suppress(ValueError):
        read_chunk(json.dumps(header).encode() + b"\n" + DATA)


def test_a_series_that_is_not_whole_is_refused() -> None:
    assembler = Assembler()
    assembler.add(read_chunk(payload(DATA[:8])))
    with pytest.raises(ValueError, match="8 of 24 bytes"):
        assembler.finish()
    with pytest.raises(ValueError, match="do not fit"):
        assembler.add(read_chunk(payload(DATA[16:], 16)))


@given(
    drift_ppm=st.floats(-2000, 2000),
    delay=st.integers(0, 10_000_000),
    first=st.floats(0, 1),
    last=st.floats(0, 1),
)
def test_the_true_drift_is_within_the_judged_bounds(
    drift_ppm: float, delay: int, first: float, last: float
) -> None:
    """Wherever in its round trip the machine's clock was read."""

    def reading(begin: int, at: float) -> ClockReading:
        guest = round((begin + at * delay) * (1 + drift_ppm / 1e6))
        return ClockReading(guest, begin, begin + delay, 0)

    trust = judge(reading(0, first), reading(5_000_000_000, last), limit_ppm=500)
    slack = trust.uncertainty_ppm * (1 + abs(drift_ppm) / 1e6) + 0.01
    assert abs(trust.drift_ppm - drift_ppm) <= slack
    if abs(drift_ppm) <= 499:
        assert trust.trusted


def test_a_clock_that_went_back_is_not_trusted() -> None:
    first, last = ClockReading(9, 0, 10, 0), ClockReading(5, 1000, 1010, 0)
    assert not judge(first, last, limit_ppm=500).trusted
    with pytest.raises(ValueError):
        judge(last, first, limit_ppm=500)
