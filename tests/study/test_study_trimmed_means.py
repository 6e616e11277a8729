"""A study may compare trimmed means; incompatible keys are refused."""

from __future__ import annotations

import pytest

from study.study_pairs import study_of, two_arms
from tare.errors import InputError

STUDY = two_arms("turns").replace(", turns: true", ", average: trimmed")


def test_trimmed_means_take_no_positions() -> None:
    blocks = study_of(STUDY).blocks
    assert blocks.average == "trimmed"
    assert not blocks.position
    assert study_of(STUDY.replace(", average: trimmed", "")).blocks.average == "mean"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("position: true", "remove `position` or `average`"),
        ("method: stein", "remove `average: trimmed`"),
    ],
)
def test_options_that_need_the_mean_of_all_blocks_are_refused(more: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        study_of(STUDY.replace("average: trimmed", f"average: trimmed, {more}"))
