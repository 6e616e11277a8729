"""When a run continues: precision decides, each kind of metric by its own, significance never."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tare.analysis.effects.stopping import StoppingValue, decide
from tare.analysis.statistics.logratio import t_quantile
from tare.events.metric import Kind


def values_of(blocks: int, spread: float, kind: Kind = "typical") -> list[StoppingValue]:
    rng = np.random.default_rng(1)
    return [
        StoppingValue(
            b, arm, ("s", "w", "{}", "subject", "m"), float(np.exp(spread * rng.normal())), kind
        )
        for b in range(blocks)
        for arm in ("base", "arm")
    ]


@pytest.mark.parametrize(
    ("blocks", "spread", "continues", "reason"),
    [
        (3, 0.001, True, "3 of at least 8"),
        (8, 0.001, False, "or better"),
        (8, 0.5, True, "w m .s. of arm is known to"),
        (30, 0.5, False, "the most"),
    ],
)
def test_stopping_looks_at_precision_between_least_and_most(
    blocks: int, spread: float, continues: bool, reason: str
) -> None:
    decision = decide(
        values_of(blocks, spread),
        baseline="base",
        blocks_done=blocks,
        least=8,
        most=30,
        precision=0.05,
    )
    assert decision.continues == continues
    assert re.search(reason, decision.reason)


def test_stopping_ignores_whether_a_difference_is_significant() -> None:
    close, far = values_of(8, 0.3), values_of(8, 0.3)
    far = [v._replace(value=v.value * (50 if v.arm == "arm" else 1)) for v in far]
    asked: dict[str, Any] = {
        "baseline": "base",
        "blocks_done": 8,
        "least": 8,
        "most": 30,
        "precision": 0.05,
    }
    assert decide(close, **asked).half_width == pytest.approx(decide(far, **asked).half_width)


ASKED: dict[str, Any] = {"baseline": "base", "least": 2, "most": 30, "precision": 0.05}


def test_run_without_values_continues_and_tails_need_six_blocks() -> None:
    assert decide([], blocks_done=8, **ASKED).continues
    assert decide(values_of(4, 0.001, kind="tail"), blocks_done=4, **ASKED).continues
    assert not decide(values_of(8, 0.001, kind="tail"), blocks_done=8, **ASKED).continues


def test_a_maximum_keeps_no_run_going() -> None:
    """Maxima of boots spread by half their size: no number of blocks brings them to 5 %."""
    maxima = [v._replace(key="max") for v in values_of(8, 0.5, kind="maximum")]
    typical = values_of(8, 0.001)
    assert not decide([*maxima, *typical], blocks_done=8, **ASKED).continues
    alone = decide(maxima, blocks_done=8, **ASKED)
    assert not alone.continues and "maxima" in alone.reason


def test_tails_are_asked_a_quarter_of_the_precision() -> None:
    spread = 0.15
    typical, tail = (
        decide(values_of(12, spread, kind=kind), blocks_done=12, **ASKED)
        for kind in ("typical", "tail")
    )
    assert typical.continues and not tail.continues


def test_an_arm_that_gives_no_values_any_more_keeps_no_run_going() -> None:
    noisy = values_of(4, 0.5)
    steady = [v._replace(arm="other") for v in values_of(12, 0.001) if v.arm == "arm"]
    base = [v for v in values_of(12, 0.001) if v.arm == "base"]
    dead = [v for v in noisy if v.arm == "arm"]
    assert decide([*base, *steady, *dead], blocks_done=5, **ASKED).continues
    assert not decide([*base, *steady, *dead], blocks_done=12, **ASKED).continues


def test_zeros_do_not_exempt_a_metric_from_the_precision() -> None:
    """Losses of 0 to 9 in each boot have no ratio, and a mean that is not known to 5 %."""
    rng = np.random.default_rng(2)
    lossy = [v._replace(value=float(rng.integers(0, 10))) for v in values_of(8, 0.1)]
    assert min(v.value for v in lossy) == 0
    assert decide(lossy, blocks_done=8, **ASKED).continues
    none_at_all = [v._replace(value=0.0) for v in values_of(8, 0.1)]
    found = decide(none_at_all, blocks_done=8, **ASKED)
    assert (found.continues, found.half_width) == (False, None)


def test_the_twins_boots_count_as_the_baselines() -> None:
    rng = np.random.default_rng(2)
    values = [
        StoppingValue(b, arm, "m", float(np.exp(0.06 * rng.normal())))
        for b in range(200)
        for arm in ("base", "twin", "arm")
    ]

    def blocks(twins: dict[str, str]) -> tuple[int, str]:
        for done in range(8, 200):
            seen = [value for value in values if value.block < done]
            found = decide(
                seen, baseline="base", blocks_done=done, least=8, most=200, precision=0.03,
                twins=twins,
            )  # fmt: skip
            if not found.continues:
                return done, found.reason
        return 200, ""

    # Nobody asks how precisely a baseline and its twin are known to differ, and two boots tell
    # more of a baseline than one does.
    alone, together = blocks({})[0], blocks({"base": "twin"})[0]
    assert together < 0.9 * alone
    wide = [v._replace(value=v.value * 3.0 ** (v.block % 2)) if v.arm == "twin" else v
            for v in values if v.block < 30]  # fmt: skip
    reason = decide(
        wide, baseline="base", blocks_done=30, least=8, most=200, precision=0.01,
        twins={"base": "twin"},
    ).reason  # fmt: skip
    assert reason.startswith("m of arm is known to")


@pytest.mark.parametrize("method", ["precision", "pilot"])
def test_precision_is_looked_at_from_eight_blocks_on(method: Any) -> None:
    asked: dict[str, Any] = {**ASKED, "least": 6, "method": method}
    for blocks, continues in ((6, True), (7, True), (8, False)):
        found = decide(values_of(blocks, 0.001), blocks_done=blocks, **asked)
        assert found.continues is continues
    assert "looked at from 8 on" in decide(values_of(6, 0.001), blocks_done=6, **asked).reason
    # A run that is too short for verdicts, or has no more blocks, ends as requested.
    short: dict[str, Any] = {**asked, "least": 2}
    assert not decide(values_of(4, 0.001), blocks_done=4, **short).continues
    assert not decide(values_of(7, 0.001), blocks_done=7, **{**asked, "most": 7}).continues


def test_stopping_on_precision_covers_better_from_eight_blocks_on() -> None:
    rng = np.random.default_rng(11)
    studies, most, asked = 20_000, 40, np.log1p(0.06)
    drawn = 0.05 * np.sqrt(2) * rng.standard_normal((studies, most))
    blocks = np.arange(1, most + 1)
    means = np.cumsum(drawn, axis=1) / blocks
    squares = np.cumsum(drawn**2, axis=1) - blocks * means**2
    squares[:, 0] = np.inf
    t = np.array([1.0, *(t_quantile(0.95, n - 1) for n in range(2, most + 1))])
    widths = t * np.sqrt(np.maximum(squares, 0) / np.maximum(blocks - 1, 1) / blocks)
    covered = {}
    for first in (6, 8):
        narrow = (widths <= asked) & (blocks >= first)
        stop = np.where(narrow.any(axis=1), narrow.argmax(axis=1), most - 1)
        each = np.arange(studies)
        covered[first] = float((np.abs(means[each, stop]) <= widths[each, stop]).mean())
    assert covered[8] > covered[6] + 0.005, covered
    assert covered[8] >= 0.94, covered
