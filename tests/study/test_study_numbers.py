"""Numbers for reading: three significant digits and no exponent, over all magnitudes."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.effects.verdict import percent, significant
from tare.report.page import words
from tare.units import (
    format_duration,
    format_number,
    format_percent,
    format_quantity,
    format_size,
)

UNITS = ("s", "B", "B/s", "1/s", "1", "", "CPUs", "J", "1/block")
PLAIN = st.floats(-1e15, 1e15, exclude_min=True, exclude_max=True).filter(
    lambda value: abs(float(f"{value:.2e}")) < 1e15
)
EXPONENT = re.compile(r"\de[+-]?\d", re.IGNORECASE)
PREFIXES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    "m": 1e-3, "µ": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15, "a": 1e-18
}  # fmt: skip


@given(PLAIN, st.integers(1, 6))
def test_a_number_has_no_exponent_and_the_digits_that_are_asked_for(
    value: float, digits: int
) -> None:
    if abs(float(f"{value:.{digits - 1}e}")) >= 1e15:
        return
    text = format_number(value, digits)
    assert not EXPONENT.search(text), text
    if 0 < abs(value) < 1e-15:
        assert "0.000000000000001" in text
        return
    read = float(text.replace(",", ""))
    assert read == pytest.approx(value, rel=0.5 * 10 ** (1 - digits) * 1.001)
    significant_digits = re.sub(r"[^0-9]", "", text).lstrip("0").rstrip("0")
    assert len(significant_digits) <= digits


@given(PLAIN, st.sampled_from(UNITS))
def test_a_quantity_has_three_digits_and_units_that_people_use(value: float, unit: str) -> None:
    text = format_quantity(value, unit)
    assert not EXPONENT.search(text), text
    assert not text.startswith(("1000 ", "1,000 k")), text
    if unit == "s":
        assert not re.search(r" [kMGTPE]s$", text), text
    for shown in (format_duration(value), format_size(value), format_percent(value / 100)):
        assert not EXPONENT.search(shown), shown


@given(st.floats(1e-17, 1e18), st.sampled_from(["B/s", "B", "J"]))
def test_a_prefix_keeps_the_value(value: float, unit: str) -> None:
    number, _, scaled = format_quantity(value, unit).partition(" ")
    read = float(number.replace(",", "")) * PREFIXES[scaled.removesuffix(unit)]
    assert read == pytest.approx(value, rel=0.006)


@given(st.floats(1e-12, 1e12))
def test_ratios_and_shares_have_no_exponent(value: float) -> None:
    for text in (
        significant(value),
        percent(value),
        words.ratio(value),
        words.percent(value),
        words.percent(-value),
    ):
        assert not EXPONENT.search(text), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_percent(9.03), "903 %"),
        (format_percent(10.0), "1,000 %"),
        (format_percent(0.0213), "2.1 %"),
        (format_percent(1e-7), "0.00001 %"),
        (format_size(1e5 * 2**40), "97.66 PiB"),
        (format_size(2**70), "1024 EiB"),
        (format_size(1.5 * 2**30), "1.5 GiB"),
        (format_quantity(1234.0, "s"), "1,230 s"),
        (format_quantity(1e15, "B/s"), "1.00 PB/s"),
        (format_quantity(12_345_678_901_234, "1/s"), "12,300,000,000,000/s"),
        (format_quantity(0.0000123, "1"), "0.0000123"),
        (format_duration(1e6), "11 d 14 h"),
        (format_duration(1e12), "11,574,074 d 02 h"),
        (significant(1234.5), "1,230"),
        (significant(0.00001), "0.00001"),
        (words.ratio(0.00001), "0.00001×"),
        (format_number(math.inf), "inf"),
    ],
)
def test_numbers_are_formatted_for_reading(text: str, expected: str) -> None:
    assert text == expected
