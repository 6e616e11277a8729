"""Labs are refused before they begin where there is too little memory for all of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError
from tare.lab.memory import SPARE, available, require_memory
from tare.lab.options import GIB, MIB


def meminfo(bytes_: int) -> str:
    return f"MemTotal: 99 kB\nMemAvailable:   {bytes_ >> 10} kB\n"


@given(
    has=st.integers(0, 64).map(lambda n: n * GIB), wanted=st.integers(1, 8), labs=st.integers(2, 64)
)
def test_labs_are_refused_that_do_not_fit_together_and_as_many_are_named_as_do(
    has: int, wanted: int, labs: int
) -> None:
    each = wanted * GIB + SPARE
    if labs * each <= has:
        require_memory(meminfo(has), wanted * GIB, labs)
        return
    with pytest.raises(InputError) as refused:
        require_memory(meminfo(has), wanted * GIB, labs)
    assert refused.value.message.startswith(f"{labs} labs want {labs * each // MIB} MiB")
    (named,) = re.findall(r"local:(\d+)", refused.value.hint)
    fewer = int(named)
    assert fewer < labs
    assert fewer == 1 or fewer * each <= has < (fewer + 1) * each


def test_a_single_lab_is_named_in_the_singular() -> None:
    with pytest.raises(InputError, match="the lab wants 4096 MiB of memory, and 4096 MiB are"):
        require_memory(meminfo(4 * GIB), 4 * GIB)


def test_a_kernel_that_does_not_say_refuses_nothing() -> None:
    assert available("MemTotal: 1 kB\n") > 1 << 50
