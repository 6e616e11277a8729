"""How many do Bonnie++'s phases at once, and how much of the file they do byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.workloads import WORKLOADS
from tare.workloads.disk.bonnie import BonnieParameters

MIB = 1 << 20
BONNIE = WORKLOADS["bonnie"]


def argv(**given: object) -> list[str]:
    asked = BonnieParameters.model_validate(given)
    words: list[str] = BONNIE.request(asked)["argv"]
    return words


def test_phases_byte_by_byte_take_a_part_of_a_file_that_memory_does_not_hold() -> None:
    words = argv(size=4096 * MIB)
    assert "-f20" in words and words[words.index("-s") + 1] == "4096"
    assert "-f4" in argv(size=64 * MIB, char_size=4 * MIB)
    # Never more than there is of the file.
    assert "-f8" in argv(size=8 * MIB)
    assert "-f" in argv(size=64 * MIB, chars=False)


def test_several_at_once_share_the_file_and_have_small_files_of_their_own() -> None:
    asked = BonnieParameters.model_validate({"size": 64 * MIB, "files": 2, "concurrency": 4})
    request = BONNIE.request(asked)
    assert request["argv"][-2:] == ["-c", "4"]
    assert request["bytes"] == 64 * MIB + 4 * 2 * 1024 * 4096
    assert argv(size=64 * MIB)[-2:] == ["-c", "1"]


@pytest.mark.parametrize("given", [{"concurrency": 0}, {"size": 4 * MIB, "char_size": 8 * MIB}])
def test_impossible_values_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        BonnieParameters.model_validate(given)


@given(st.integers(2, 1 << 14), st.integers(1, 256), st.booleans())
def test_more_work_is_never_expected_to_take_less(size: int, copies: int, chars: bool) -> None:
    def expected(mebibytes: int) -> float:
        parameters = {"size": mebibytes * MIB, "concurrency": copies, "chars": chars}
        return BONNIE.expected_s(BonnieParameters.model_validate(parameters))

    assert expected(size) <= expected(size + 1)
