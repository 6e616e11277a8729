"""The rule of verdicts by itself, and the sentences that say them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.effects.verdict import Evidence, judge, sentence, significant
from tare.analysis.model import Interval, Metric, VerdictWord

LOWER, HIGHER = Metric("m", "1", "lower"), Metric("m", "1", "higher")
SURE = Evidence(
    metric=LOWER,
    scale="ratio",
    estimate=1.2,
    interval=Interval(1.15, 1.25, "student-t", 0.95),
    blocks=8,
    p=0.0078,
    adjusted_p=0.02,
    margin=0.02,
    tests=5,
)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "worse"),
        ({"metric": HIGHER}, "better"),
        ({"metric": LOWER._replace(better="neither")}, "differs"),
        ({"estimate": 0.8, "interval": Interval(0.75, 0.85, "student-t", 0.95)}, "better"),
        ({"adjusted_p": 0.06}, "inconclusive"),
        ({"adjusted_p": None, "p": None}, "inconclusive"),
        ({"interval": Interval(0.99, 1.45, "student-t", 0.95)}, "inconclusive"),
        ({"interval": None}, "inconclusive"),
        ({"margin": 0.3}, "equivalent"),
        ({"margin": 0.3, "doubt": "1 boot in 12 is 3× slow"}, "inconclusive"),
        ({"margin": 0.22}, "inconclusive"),
        ({"flattered": {"better": "arm failed in 2 blocks"}}, "worse"),
        ({"flattered": {"better": "arm failed"}, "metric": HIGHER}, "inconclusive"),
        ({"flattered": {"worse": "base failed in 2 blocks"}}, "inconclusive"),
        ({"blocks": 5}, "preliminary"),
        ({"blocks": 5, "margin": 0.3}, "preliminary"),
        ({"blocks": 1, "interval": None, "p": None, "adjusted_p": None}, "preliminary"),
    ],
)
def test_verdicts(change: dict[str, Any], verdict: VerdictWord) -> None:
    evidence = replace(SURE, **change)
    assert judge(evidence) == verdict
    text = sentence(evidence, verdict, 0.25, what="w m (s)", arm="arm", baseline="base")
    assert text.startswith("w m (s): ")
    assert text.endswith(".")
    assert "arm" in text
    assert "base" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0125, "1.012"),
        (0.0451, "0.0451"),
        (45.24, "45.2"),
        (0.0, "0"),
        (8.75e12, "8,750,000,000,000"),
    ],
)
def test_ratios_are_written_with_the_digits_they_deserve(value: float, text: str) -> None:
    assert significant(value) == text


def test_an_inconclusive_sentence_says_what_is_left_open() -> None:
    def sentence_with(not_excluded: float | None = 0.25, **change: Any) -> str:
        evidence = replace(SURE, **change)
        return sentence(evidence, judge(evidence), not_excluded, what="w", arm="a", baseline="b")

    assert "a cost up to 25 % is not excluded" in sentence_with(adjusted_p=0.06)
    assert "a difference up to 25 %" in sentence_with(
        adjusted_p=0.06, metric=LOWER._replace(better="neither")
    )
    assert "no cost is excluded" in sentence_with(None, interval=None)
    resolved = sentence_with(adjusted_p=0.06)
    assert "cannot resolve 2 %: about" in resolved
    assert (
        "blocks would in 80 % of studies of equal arms whose noise is normal, or less noise"
        in resolved
    )
    wide = Interval(0.1, 9.0, "student-t", 0.95)
    assert "its noise must become less first" in sentence_with(interval=wide)
    assert "but 1 boot in 12 is slow" in sentence_with(margin=0.3, doubt="1 boot in 12 is slow")
    seconds = Interval(-1e-3, 2e-3, "student-t", 0.95)
    text = sentence_with(
        2e-3,
        scale="difference",
        interval=seconds,
        metric=LOWER._replace(unit="s"),
        margin=1e-4,
        estimate=5e-4,
    )
    assert "a cost up to 2.00 ms is not excluded" in text


@given(
    st.floats(0.2, 5),
    st.floats(1, 3),
    st.floats(0.001, 1),
    st.floats(0, 0.5),
    st.integers(1, 30),
    st.sampled_from(["higher", "lower", "neither"]),
)
def test_verdicts_need_an_interval_that_supports_them(
    estimate: float, spread: float, p: float, margin: float, blocks: int, better: Any
) -> None:
    interval = Interval(estimate / spread, estimate * spread, "student-t", 0.95)
    change: dict[str, Any] = {
        "estimate": estimate,
        "interval": interval,
        "metric": LOWER._replace(better=better),
    }
    evidence = replace(SURE, **change, adjusted_p=p, margin=margin, blocks=blocks)
    verdict = judge(evidence)
    inside = max(interval.high, 1 / interval.low) <= (1 + margin) * (1 + 1e-9)
    if blocks < 6:
        assert verdict == "preliminary"
    elif verdict == "equivalent":
        assert inside
    elif verdict in ("worse", "better", "differs"):
        assert p < 0.05
        assert not interval.holds(1.0)
        assert not inside
    # Turning the direction around turns the verdict around, and nothing else.
    turned: Any = {"higher": "lower", "lower": "higher", "neither": "neither"}[better]
    other = judge(replace(evidence, metric=LOWER._replace(better=turned)))
    assert other == {"worse": "better", "better": "worse"}.get(verdict, verdict)


@pytest.mark.parametrize("interval", [(0.97, 1.016), (0.98, 1.03), (0.7, 1.4)])
def test_excluded_cost_is_stated_with_its_caveats(
    interval: tuple[float, float],
) -> None:
    """Half of the arm's cells failed: costs beyond the interval's end are not excluded of them."""
    lost = "arm failed in 6 blocks in which base did not"
    even = replace(
        SURE, estimate=1.0, interval=Interval(*interval, "student-t", 0.95), adjusted_p=0.9
    )
    text = sentence(
        replace(even, doubt=lost), "inconclusive", 0.1, what="w m (s)", arm="arm", baseline="base"
    )
    assert text.endswith(f". But {lost}.")
