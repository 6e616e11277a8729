"""Any output of an agent or a program: it is read, or refused by name, and never anything else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.workloads import WORKLOADS, Workload
from tare.workloads.values import finite, number, per_second, shortened, words
from workloads.workloads_results import SAMPLES, changed, parameters_of, places, without

ALL = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
NO_NUMBERS: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    None,
    "1",
    "",
    True,
    False,
    [],
    [1],
    {},
    10**400,
]
TEXTS = ("bonnie", "openssl-aes", "scimark", "net-stream")
"""Those that read what a program printed."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def good(name: str) -> dict[str, Any]:
    return SAMPLES[name].result(2.5)


def read(workload: Workload[Any], result: Any) -> dict[str, float] | None:
    """Return the values read from ``result``; None if it is refused as documented."""
    try:
        values = workload.observe(parameters_of(workload.name), result)
    except (KeyError, ValueError) as refused:
        assert str(refused)
        return None
    assert set(values) <= {metric.name for metric in workload.metrics}
    assert all(type(value) is float and math.isfinite(value) for value in values.values()), values
    return values


def leaves(changed_value: Any) -> list[tuple[Any, ...]]:
    def at(place: tuple[Any, ...]) -> Any:
        inner = changed_value
        for key in place:
            inner = inner[key]
        return inner

    return [place for place in places(changed_value) if not isinstance(at(place), dict | list)]


def key_of(place: tuple[Any, ...]) -> str:
    return str([key for key in place if isinstance(key, str)][-1])


@ALL
@pytest.mark.parametrize("bad", NO_NUMBERS, ids=shortened)
def test_a_value_that_is_not_finite_is_refused_by_its_name(
    workload: Workload[Any], bad: Any
) -> None:
    result = good(workload.name)
    parameters = parameters_of(workload.name)
    usual = workload.observe(parameters, result)
    refused = 0
    for place in leaves(result):
        try:
            values = workload.observe(parameters, changed(result, place, bad))
        except (KeyError, ValueError) as refusal:
            assert key_of(place) in str(refusal), (place, refusal)
            refused += 1
        else:
            # Nothing that counts was there.
            assert values == usual, place
    assert refused > 0


@ALL
def test_missing_values_are_named_or_left_out(workload: Workload[Any]) -> None:
    result = good(workload.name)
    parameters = parameters_of(workload.name)
    usual = workload.observe(parameters, result)
    for place in places(result):
        try:
            values = workload.observe(parameters, without(result, place))
        except KeyError as refusal:
            assert key_of(place) in str(refusal), (place, refusal)
        except ValueError as refusal:
            # One missing element of a list is not noticed; if all are missing, it is.
            assert not isinstance(place[-1], str) or key_of(place) in str(refusal), place
        else:
            counted = {"phases", "jobs"} if isinstance(place[-1], int) else set()
            left = {name: value for name, value in values.items() if name not in counted}
            assert left.items() <= usual.items(), place
    with pytest.raises(KeyError):
        workload.observe(parameters, {})


@ALL
@pytest.mark.parametrize("bad", [None, 5, "x", [], {}], ids=shortened)
def test_results_without_parts_are_read_or_refused(workload: Workload[Any], bad: Any) -> None:
    result = good(workload.name)
    for place in set(places(result)) - set(leaves(result)):
        read(workload, changed(result, place, bad))


ANY = st.sampled_from(list(WORKLOADS))


@pytest.mark.fuzz
@given(name=ANY, data=st.data())
def test_a_result_with_anything_in_it_is_read_or_refused(name: str, data: st.DataObject) -> None:
    result: Any = good(name)
    for _ in range(data.draw(st.integers(1, 3))):
        result = changed(result, data.draw(st.sampled_from(places(result))), data.draw(JSON))
    read(WORKLOADS[name], result)


@pytest.mark.fuzz
@given(name=ANY, result=st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_any_result_at_all_is_read_or_refused(name: str, result: dict[str, Any]) -> None:
    read(WORKLOADS[name], result)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.fuzz
@given(text=st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")))
def test_any_text_of_a_program_is_read_or_refused(name: str, text: str) -> None:
    assert read(WORKLOADS[name], {**good(name), "output": text}) is None


PIECES = st.sampled_from(
    [
        "", "\n", "\r\n", "\x00", ",", ":", "-", "+++++", "nan", "inf", "1e999", "9" * 400, "1.2.3",
        "-1", "٣", "{", "}", '"', "[" * 3000, "NaN", "Infinity", "k", "us", "AES-128-CBC 1k\n",
    ]
) | st.text(max_size=4)  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.fuzz
@given(data=st.data())
def test_a_damaged_text_of_a_program_is_read_or_refused(name: str, data: st.DataObject) -> None:
    result: str = good(name)["output"]
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(result)))
        end = data.draw(st.integers(begin, min(len(result), begin + 40)))
        result = result[:begin] + data.draw(PIECES) + result[end:]
    values = read(WORKLOADS[name], {**good(name), "output": result})
    assert values is None or name == "net-stream" or min(values.values()) >= 0


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("digits", ["9" * 400, "1e999", "NaN", "inf", "1.2.3"])
def test_numbers_beyond_all_bounds_are_not_read_from_texts(name: str, digits: str) -> None:
    plain = "2.5" if name == "net-stream" else "2.500000000"
    result = good(name)["output"]
    assert plain in result
    assert read(WORKLOADS[name], {**good(name), "output": result.replace(plain, digits)}) is None


def test_json_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no JSON"):
        WORKLOADS["net-stream"].observe(parameters_of("net-stream"), {"output": "[" * 200_000})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
        max_leaves=6,
    )
)
def test_number_never_fails_otherwise(result: Any) -> None:
    given_result = result if isinstance(result, dict) else {"a": result}
    try:
        assert math.isfinite(number(given_result, "a.b"))
    except (KeyError, ValueError) as refused:
        assert "a.b" in str(refused)


def test_a_key_may_hold_a_dot() -> None:
    result = {"p": {"99.9": 4, "99": {"9": 5}}}
    assert number(result, ("p", "99.9")) == 4.0
    assert number(result, "p.99.9") == 5.0
    with pytest.raises(KeyError, match=r"p\.50\.0"):
        number(result, ("p", "50.0"))


def test_numbers_from_texts_are_bounded() -> None:
    assert finite("1.5E3", "x") == 1500.0
    for wrong in ("1e999", "nan", "x", 10**400):
        with pytest.raises(ValueError, match=r"x is .* not a finite number"):
            finite(wrong, "x")
    # Python refuses to print so long a number, and the refusal has to be printed.
    assert shortened(10**5000) == "a int"
    assert len(shortened("y" * 500)) == 80


def test_a_rate_needs_time_that_passed() -> None:
    assert per_second(3.0, {"s": 2}, "s") == 1.5
    for wrong in (0, 0.0, -1.0):
        with pytest.raises(ValueError, match=r"s is .* not above 0"):
            per_second(3.0, {"s": wrong}, "s")
    with pytest.raises(ValueError, match="not a finite number"):
        per_second(3.0, {"s": 5e-324}, "s")


def test_words_are_a_text() -> None:
    assert words({"output": "x"}, "output") == "x"
    for wrong in (None, 1, ["x"]):
        with pytest.raises(ValueError, match=r"output is .* not a text"):
            words({"output": wrong}, "output")
    with pytest.raises(KeyError, match="output"):
        words({}, "output")


def test_samples_are_plain_json() -> None:
    for name in SAMPLES:
        assert json.loads(json.dumps(good(name), allow_nan=False)) == good(name)
