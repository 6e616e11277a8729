from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tare.units import (
    Duration,
    Size,
    format_duration,
    format_quantity,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(0.5, 0.5), (3, 3.0), ("68us", 68e-6), ("68 µs", 68e-6), ("1ms", 1e-3), ("2 min", 120.0),
     ("1h", 3600.0), ("1.5e3 ns", 1.5e-6), (" .5s ", 0.5), ("7", 7.0)],
)  # fmt: skip
def test_durations(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [(1048576, 1 << 20), ("512MiB", 512 << 20), ("2GB", 2 * 10**9), ("1.5 KiB", 1536),
     ("64kB", 64000)],
)  # fmt: skip
def test_sizes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize(
    "written", ["", "s", "1 m", "1,5s", "-1s", "nan", "1e999", True, None, [], "1s1"]
)
def test_an_invalid_duration_is_refused_with_the_units(written: object) -> None:
    with pytest.raises(ValueError, match="ns, us, ms, s, min or h"):
        parse_duration(written)


@pytest.mark.parametrize("written", ["", "1 mb", "0.5", "1.0001 KiB", -1, "1e40", False, {}, 2**70])
def test_an_invalid_size_is_refused_with_the_units(written: object) -> None:
    with pytest.raises(ValueError, match="KiB, MiB, GiB, TiB"):
        parse_size(written)


def test_models_store_plain_numbers() -> None:
    class Both(BaseModel):
        wait: Duration
        room: Size

    both = Both.model_validate({"wait": "1 min", "room": "1KiB"})
    assert both.model_dump(mode="json") == {"wait": 60.0, "room": 1024}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(3.1e-3, "s", "3.10 ms"), (12.4e9, "B/s", "12.4 GB/s"), (0.97, "1", "0.970"),
     (4200, "1/s", "4,200/s"), (1000, "1/s", "1,000/s"), (999.96, "1/s", "1,000/s"),
     (0.994, "1/s", "0.994/s"), (40.6, "1/s", "40.6/s"), (3.004e6, "1/s", "3,000,000/s"),
     (0, "1/s", "0/s"), (math.inf, "1/s", "inf/s"), (-250, "1/s", "-250/s"), (999.96, "1", "1,000"),
     (0, "s", "0 s"), (999.96, "B", "1.00 kB"), (-68e-6, "s", "-68.0 µs"), (math.inf, "s", "inf s"),
     (1, "s", "1.00 s"), (123456, "B/s", "123 kB/s")],
)  # fmt: skip
def test_quantities_are_shown_with_a_prefix(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(1000, "1/s", "1,000/s"), (50800, "1/s", "50,800/s"), (12.5, "1/s", "12.5/s"),
     (0.02, "s", "20 ms"), (1.5e9, "B/s", "1.5 GB/s"), (1000.5, "1", "1,000.5"),
     (2e15, "1/s", "2.00000e+15/s")],
)  # fmt: skip
def test_idle_zeros_are_left_out_where_wanted(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit, digits=6, trim=True) == text


@given(st.floats(1e-3, 1e11))
def test_a_shown_rate_is_within_half_a_digit(value: float) -> None:
    number = format_quantity(value, "1/s").removesuffix("/s")
    assert math.isclose(float(number.replace(",", "")), value, rel_tol=5.1e-3)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (68e-6, "68 µs"), (3.1e-3, "3.1 ms"), (12.5, "12.5 s"), (59.97, "1 min"),
     (245, "4 min 05 s"),
     (3600, "1 h"), (7261, "2 h 01 min"), (-3, "-3 s"), (math.nan, "nan s"), (3599.9, "1 h")],
)  # fmt: skip
def test_durations_are_shown_as_people_say_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_sizes_are_shown_in_binary_units() -> None:
    assert [format_size(n) for n in (0, 512, 512 << 20, 1536, 2 * 10**9)] == [
        "0 B", "512 B", "512 MiB", "1.5 KiB", "1.863 GiB",
    ]  # fmt: skip


@given(st.floats(1e-9, 1e12), st.sampled_from(["s", "B/s"]))
def test_a_shown_quantity_is_within_half_a_digit(value: float, unit: str) -> None:
    number, _, rest = format_quantity(value, unit).partition(" ")
    prefix = rest.removesuffix(unit)
    scale = {
        "p": 1e-12,
        "n": 1e-9,
        "µ": 1e-6,
        "m": 1e-3,
        "": 1,
        "k": 1e3,
        "M": 1e6,
        "G": 1e9,
        "T": 1e12,
    }
    assert math.isclose(float(number.replace(",", "")) * scale[prefix], value, rel_tol=5.1e-3)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    for parse in (parse_duration, parse_size):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("written", "rate"),
    [("1Gbit", 1e9), ("100 Mbit", 1e8), ("1.5 kbit", 1500.0), (1e9, 1e9), ("10_000 bit", 1e4)],
)
def test_speeds_are_read_as_bits_per_second(written: object, rate: float) -> None:
    assert parse_rate(written) == rate


@pytest.mark.parametrize(
    "written", ["1GB", "0Gbit", "-1Gbit", "fast", True, None, "1 Gbit/s", "inf"]
)
def test_an_invalid_speed_is_refused_with_the_remedy(written: object) -> None:
    with pytest.raises(ValueError, match="like '1Gbit'"):
        parse_rate(written)
