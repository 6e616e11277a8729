"""Figures in what a program printed: their units, and where in its JSON they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import WorkloadFault
from tare.workloads.applications.command import (
    Command,
    CommandMetric,
    CommandParameters,
    _figures,
)
from tare.workloads.applications.figures import SI, figure, scale_of, units
from tare.workloads.applications.printed import steps_of, text_by_field


def metric(**values: Any) -> CommandMetric:
    return CommandMetric.model_validate({"better": "higher", **values})


def observed(output: str, **values: Any) -> float:
    parameters = CommandParameters(argv=("x",), metrics={"own": metric(**values)})
    return _figures(parameters.metrics, output)["own"]


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        ("B/s", "12 KiB/s", 12 * 1024),
        ("B/s", "12.5MiB/s", 12.5 * 2**20),
        ("B/s", "3 GB/s", 3e9),
        ("B/s", "900 kB/s", 9e5),
        ("B/s", "12 MB/sec", 12e6),
        ("B/s", "94.1 Mbits/sec", 94.1e6 / 8),
        ("B/s", "8 Mbit/s", 1e6),
        ("B/s", "1234", 1234),
        ("B/s", "1,234 B/s", 1234),
        ("B", "2 GiB", 2 * 2**30),
        ("B", "512", 512),
        ("s", "3us", 3e-6),
        ("s", "3 µs", 3e-6),
        ("s", "12.5 ms", 0.0125),
        ("s", "250 usec", 250e-6),
        ("s", "2 min", 120),
        ("s", "1,234.5 ms", 1.2345),
        ("1", "45 %", 0.45),
        ("1", "45%", 0.45),
        ("1", "1,234,567", 1234567),
        ("1", "1e3", 1000),
        ("1/s", "12.3k", 12300),
        ("1/s", "512 ops/s", 512),
        ("1/s", "1,234.56 req/sec", 1234.56),
        ("MiB/s", "12", 12 * 2**20),
        ("MiB/s", "12 KiB/s", 12 * 1024),
        ("ms", "7", 0.007),
        ("ms", "7 us", 7e-6),
        ("%", "45", 0.45),
        ("Mbit/s", "8", 1e6),
    ],
)
def test_a_unit_behind_a_number_is_read(unit: str, text: str, value: float) -> None:
    assert figure(text, "it", unit) == pytest.approx(value, rel=1e-12)
    assert observed(f"result: {text} of all", unit=unit, regex=r"result: (.*) of all") == (
        pytest.approx(value, rel=1e-12)
    )
    assert observed(json.dumps({"a": text}), unit=unit, field="a") == pytest.approx(value)


@pytest.mark.parametrize(
    ("unit", "text", "words"),
    [
        ("s", "12 MB/s", "is in B/s, and its metric is in s"),
        ("B/s", "12 ms", "is in s, and its metric is in B/s"),
        ("B", "12 MB/s", "is in B/s"),
        ("B/s", "12 MB", "is in B,"),
        ("s", "45 %", "is in 1,"),
        ("s", "12 parsecs", "'parsecs' is not a known unit"),
        ("B", "12 K", "'K' is not a known unit"),
        ("1/s", "12 MB/s", "is in B/s"),
        ("s", "1,5", "not a known unit of s"),
        ("s", "1.234,5", "not a known"),
        ("s", "fast", "not a finite number"),
        ("s", "nan", "not a finite number"),
        ("s", "1e999", "not a finite number"),
    ],
)
def test_a_wrong_unit_is_a_clear_error(unit: str, text: str, words: str) -> None:
    with pytest.raises(WorkloadFault) as refused:
        observed(f"result: {text}", unit=unit, regex="result: (.*)")
    assert words.replace("'", '"') in str(refused.value).replace("'", '"')


def test_scale_along_with_a_unit_is_refused() -> None:
    assert observed("12", unit="B/s", regex="(.*)", scale=1e6) == 12e6
    with pytest.raises(WorkloadFault, match="remove `scale`"):
        observed("12 MB/s", unit="B/s", regex="(.*)", scale=1e6)


@pytest.mark.parametrize("unit", units())
def test_every_unit_of_a_study_has_a_metrics_unit(unit: str) -> None:
    own = metric(unit=unit, regex="(1)")
    assert own.of("own").unit in SI
    assert scale_of(unit)[1] > 0
    assert figure(f"2 {unit}" if unit not in ("1", "1/s") else "2", "it", unit) == pytest.approx(
        2 * scale_of(unit)[1]
    )
    command = CommandParameters(argv=("x",), metrics={"own": own})
    assert any(each.name == "own" for each in Command().metrics_for(command))


@given(st.text(max_size=40), st.sampled_from(units()))
def test_any_text_is_a_number_or_refused(text: str, unit: str) -> None:
    try:
        assert isinstance(figure(text, "it", unit), float)
    except ValueError as error:
        assert len(str(error)) < 600


# Paths


FIO = {"jobs": [{"read": {"clat_ns": {"percentile": {"99.000000": 1234, "99.9": 5}}, "bw": 7}}]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ('jobs[0].read.clat_ns.percentile."99.000000"', "1234"),
        ("jobs[0].read.clat_ns.percentile['99.000000']", "1234"),
        ('jobs[0].read.clat_ns.percentile["99.9"]', "5"),
        ("jobs[0].read.clat_ns.percentile.99.000000", "1234"),
    ],
)
def test_keys_with_dots_are_found(path: str, value: str) -> None:
    assert text_by_field(FIO, path) == value


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a[",
        "a[b]",
        "a[0",
        'a."b',
        'a["b]',
        "a[0]b",
        'a."b"c',
        "[]",
        "a]",
    ],
)
def test_an_invalid_path_is_refused_with_its_place(path: str) -> None:
    if path == 'a."b"c':
        assert steps_of(path)[1].key == '"b"c'
        return
    if path == 'a."b':
        assert steps_of(path)[1].key == '"b'
        return
    with pytest.raises(ValueError, match=r"from character [0-9]+ on: write keys"):
        steps_of(path)


KEYS = st.text(min_size=1, max_size=12)
VALUES = st.recursive(
    st.integers(-(10**9), 10**9),
    lambda inner: (
        st.dictionaries(KEYS, inner, min_size=1, max_size=4)
        | st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


def leaves(value: Any, path: str = "") -> list[tuple[str, int]]:
    if isinstance(value, dict):
        return [
            found
            for key, inner in value.items()
            for found in leaves(inner, f"{path}[{json.dumps(key)}]")
        ]
    if isinstance(value, list):
        return [each for at, inner in enumerate(value) for each in leaves(inner, f"{path}[{at}]")]
    return [(path, value)]


@given(VALUES.filter(lambda value: not isinstance(value, int)))
def test_every_leaf_of_every_document_has_a_path(document: Any) -> None:
    for path, value in leaves(document):
        assert text_by_field(document, path) == str(value)


@given(st.text(max_size=40), VALUES)
def test_any_path_is_followed_or_refused(path: str, document: Any) -> None:
    try:
        text_by_field(document, path)
    except (KeyError, ValueError) as error:
        assert str(error)
