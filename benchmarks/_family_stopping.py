"""Stopping rules for one metric or several, with the former verdicts and with today's.

The former rules are those before variances were moderated and places were covariates: `precision`
from 6 blocks, and `anytime`. Each rule gets the setting with which it declares the difference of
the first metric in 80 % of studies, so that the blocks are those of equal power. A block has four
boots in balanced order, and a gradient makes each boot slower than the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks._simulated import Setting, _evidence, _ordered
from tare.analysis.effects.verdict import judge
from tare.analysis.statistics import maxt
from tare.analysis.statistics.logratio import mean_interval, t_quantile
from tare.analysis.statistics.maxt import family_p, flips_at_looks
from tare.analysis.statistics.sequential import LookPlan, declared_at, sequential_p
from tare.analysis.statistics.shared_slope import mean_at_equal, shared_slopes, without_slopes

Floats = NDArray[np.float64]

POWER = 0.8
MOST = 80
PATTERNS = 1023
"""Sign patterns of tests from 14 blocks on, and of looks: reports draw eight times as many."""
BOOTS = 4
MARGIN = 0.02
FORMER_LEAST, LEAST = 6, 8


@dataclass(frozen=True)
class Case:
    """One kind of study.

    Args:
        metrics: Headline metrics of the arm; the first may differ.
        spread: Standard deviation of a boot's log-value.
        difference: The true difference of the first metric (0.05: 5 %).
        gradient: By how much the last boot of a block is slower than the first.
    """

    metrics: int
    spread: float
    difference: float
    gradient: float


class Study:
    """The block differences of one study, with the places, and the verdicts after some blocks."""

    def __init__(self, case: Case, truth: float, rng: np.random.Generator) -> None:
        self.metrics = case.metrics
        square = (np.arange(BOOTS)[:, None] + np.arange(BOOTS)) % BOOTS
        rows = np.concatenate([rng.permutation(square) for _ in range(MOST // BOOTS)])
        self.places = np.tile((rows[:, 0] - rows[:, 1]) / (BOOTS - 1.0), (case.metrics, 1))
        noise = rng.standard_normal((2, case.metrics, MOST))
        self.values = case.spread * (noise[0] - noise[1]) + case.gradient * self.places
        self.values[0] += truth
        count = np.arange(1, MOST + 1)
        means = np.cumsum(self.values, axis=1) / count
        squares = np.cumsum(self.values**2, axis=1) - count * means**2
        self.means = means
        self.errors = np.sqrt(np.maximum(squares, 0) / np.maximum(count - 1, 1) / count)
        self.known: dict[tuple[str, int], frozenset[int]] = {}
        self.looks: list[tuple[Floats, Floats | None]] = []

    def declared(self, which: str, blocks: int) -> frozenset[int]:
        """Return the metrics that are declared to differ after so many blocks."""
        place = (which, blocks)
        if place not in self.known:
            rule = self._former if which == "former" else self._today
            self.known[place] = rule(blocks)
        return self.known[place]

    def _former(self, blocks: int) -> frozenset[int]:
        seen = self.values[:, :blocks]
        tests, ends = family_p(seen, least=FORMER_LEAST), mean_interval(seen, 0.95)
        rows = zip(ends.mean, ends.low, ends.high, tests.adjusted, strict=True)
        apart = math.log1p(MARGIN)
        return frozenset(
            i
            for i, (mean, low, high, p) in enumerate(rows)
            if p < 0.05 and (low > 0 or high < 0) and abs(mean) > apart
        )

    def _today(self, blocks: int) -> frozenset[int]:
        seen, later = self.values[:, :blocks], self.places[:, :blocks]
        freed, left = self._freed(blocks)
        tests = family_p(freed, left, least=FORMER_LEAST, moderated=[True] * self.metrics)
        found = _intervals(seen, later, 0.95)
        return self._judged(found, tests.raw, tests.adjusted, blocks, looks=False)

    def _freed(self, blocks: int) -> tuple[Floats, Floats | None]:
        seen, later = self.values[None, :, :blocks], self.places[None, :, :blocks]
        freed, left = without_slopes(seen, later, np.ones(self.metrics))
        return freed[0], None if np.isnan(left).all() else left[0]

    def _judged(
        self, found: _Found, raw: Floats, adjusted: Floats, blocks: int, *, looks: bool
    ) -> frozenset[int]:
        setting = Setting(np.zeros((1, self.metrics)), blocks=blocks, margin=MARGIN)
        rows = zip(found.ends, raw.tolist(), adjusted.tolist(), strict=True)
        evidence = [_evidence(setting, *row, self.metrics) for row in rows]
        judged = _ordered(evidence, found.rest, looks=looks)
        return frozenset(i for i, e in enumerate(judged) if judge(e) in ("worse", "better"))

    def sequential(self, plan: LookPlan) -> tuple[int, frozenset[int]]:
        """Return after how many blocks the first metric, or any, is declared, and which are."""
        looks = plan.looks()
        shares = plan.shares(looks)
        extremes = flips_at_looks(
            self.values[:, : plan.most], looks,
            ranked=[False] * self.metrics, moderated=[True] * self.metrics, least=FORMER_LEAST,
            at_looks=[self._freed(n) for n in looks],
        )  # fmt: skip
        first = declared_at([each.max(axis=0) for each in extremes], shares, 0.05)
        if first is None:
            return plan.most, frozenset()
        for number, blocks in enumerate(looks[first:], first + 1):
            tests = sequential_p(extremes[:number], shares[:number], self.metrics)
            seen, later = self.values[:, :blocks], self.places[:, :blocks]
            found = _intervals(seen, later, 1 - plan.level(blocks))
            declared = self._judged(found, tests.raw, tests.adjusted, blocks, looks=True)
            if 0 in declared or blocks == looks[-1]:
                return blocks, declared
        return plan.most, frozenset()


@dataclass(frozen=True)
class _Found:
    """Means with the ends of their intervals, and the values without the effect of places."""

    ends: list[tuple[float, float, float]]
    rest: Floats


def _intervals(seen: Floats, later: Floats, confidence: float) -> _Found:
    slopes, plain = shared_slopes(seen, later), mean_interval(seen, confidence)
    ends = list(zip(plain.mean.tolist(), plain.low.tolist(), plain.high.tolist(), strict=True))
    for i, (slope, taken) in enumerate(zip(*(s.tolist() for s in slopes), strict=True)):
        if taken:
            mean, half = mean_at_equal(seen[i], later[i], slope, taken, confidence)
            ends[i] = (mean, mean - half, mean + half)
    return _Found(ends, seen - slopes.slope[:, None] * later)


Stopped = tuple[int, frozenset[int]]
Rule = Callable[[Study, float], Stopped]


def _precise(study: Study, asked: float, least: int) -> int:
    """Return after how many blocks all metrics are known as precisely as asked."""
    count = np.arange(least, MOST + 1)
    t = np.array([t_quantile(0.95, n - 1) for n in count])
    widest = (t * study.errors[:, least - 1 :]).max(axis=0)
    reached = widest <= asked
    return int(count[reached.argmax()]) if reached.any() else MOST


def former_precision(study: Study, asked: float) -> Stopped:
    """`precision` with ``least: 6``, without moderation and places."""
    blocks = _precise(study, asked, FORMER_LEAST)
    return blocks, study.declared("former", blocks)


def precision(study: Study, asked: float) -> Stopped:
    """Today's `precision`."""
    blocks = _precise(study, asked, LEAST)
    return blocks, study.declared("today", blocks)


def former_anytime(study: Study, most: float) -> Stopped:
    """The confidence sequence of earlier versions, from 6 blocks, corrected by Bonferroni."""
    looks = np.arange(FORMER_LEAST, round(most) + 1)
    bound = (np.sqrt(1 + looks) * study.metrics / 0.05) ** (2 / looks)
    free = 1 - bound / (1 + looks)
    with np.errstate(invalid="ignore", divide="ignore"):
        bars = np.where(free > 0, np.sqrt((bound - 1) / free * (looks - 1)), np.inf)
    means = np.abs(study.means[:, looks - 1])
    beyond = (means > bars * study.errors[:, looks - 1]) & (means > math.log1p(MARGIN))
    last = int(beyond[0].argmax()) if beyond[0].any() else len(looks) - 1
    # What was declared at any look stays declared.
    found = beyond[:, : last + 1].any(axis=1)
    return int(looks[last]), frozenset(np.flatnonzero(found).tolist())


def sequential(study: Study, most: float) -> Stopped:
    """Today's `sequential`."""
    return study.sequential(LookPlan(LEAST, max(LEAST, round(most))))


RULES: dict[str, tuple[Rule, bool]] = {
    "former `precision`": (former_precision, False),
    "former `anytime`": (former_anytime, True),
    "`precision`": (precision, False),
    "`sequential`": (sequential, True),
}
"""Each rule, and whether its setting is the most blocks."""


@dataclass(frozen=True)
class Found:
    """What a rule comes to at a power of 80 %: mean blocks, and shares of studies.

    Args:
        blocks: Mean blocks with the difference.
        decided: How often the difference is declared.
        wrong: Without any difference: how often any is declared.
        longest: Mean blocks without any difference.
    """

    blocks: float
    decided: float
    wrong: float
    longest: float


def simulated(rule: str, case: Case, studies: Sequence[Study], none: Sequence[Study]) -> Found:
    """Return what a rule comes to in studies with the difference, and in others without."""
    stop, is_count = RULES[rule]

    def decided(setting: float) -> float:
        return float(np.mean([0 in stop(study, setting)[1] for study in studies]))

    if is_count:
        least, most = LEAST, MOST
        # Most settings are small: double first, and halve the rest.
        high = 16
        while high < MOST and decided(high) < POWER:
            least, high = high + 1, min(2 * high, MOST)
        most = high
        while least < most:
            middle = (least + most) // 2
            least, most = (least, middle) if decided(middle) >= POWER else (middle + 1, most)
        setting = float(least)
    else:
        low, upper = 0.2 * math.log1p(case.difference), 2.0 * math.log1p(case.difference)
        for _ in range(8):
            middle_ = (low + upper) / 2
            low, upper = (middle_, upper) if decided(middle_) >= POWER else (low, middle_)
        setting = low
    with_it = [stop(study, setting) for study in studies]
    without = [stop(study, setting) for study in none]
    return Found(
        float(np.mean([blocks for blocks, _ in with_it])),
        float(np.mean([0 in found for _, found in with_it])),
        float(np.mean([bool(found) for _, found in without])),
        float(np.mean([blocks for blocks, _ in without])),
    )


CASES = tuple(
    Case(metrics, spread, difference, gradient)
    for metrics, spread, difference in ((1, 0.03, 0.03), (11, 0.03, 0.05), (11, 0.10, 0.10))
    for gradient in (0.0, 0.05)
)


def table(studies: int, minutes: float, cases: Sequence[Case] = CASES) -> str:
    """Return the table as Markdown.

    Args:
        studies: Number of studies of each kind, with the difference and without.
        minutes: Length of a block.
        cases: The kinds of studies.
    """
    maxt.DRAWS = PATTERNS
    lines = [
        f"Mean blocks (minutes, at {minutes:g} for a block) with the difference; it is decided / "
        f"any is declared without one, in per cent of {studies:,} studies each. *Saved*: blocks of "
        "today's better rule, relative to the better of the former ones.",
        "",
        "| metrics, CV, difference, gradient | " + " | ".join(RULES) + " | saved |",
        "|---|" + "---:|" * (len(RULES) + 1),
    ]
    for case in cases:
        rng = np.random.default_rng(1)
        there = [Study(case, math.log1p(case.difference), rng) for _ in range(studies)]
        none = [Study(case, 0.0, rng) for _ in range(studies)]
        found = {rule: simulated(rule, case, there, none) for rule in RULES}
        cells = " | ".join(
            f"{one.blocks:.1f} ({minutes * one.blocks:.0f}) · {100 * one.decided:.0f} / "
            f"{100 * one.wrong:.1f}"
            for one in found.values()
        )
        former, today = (
            min(one.blocks for name, one in found.items() if name.startswith("former") == old)
            for old in (True, False)
        )
        name = (
            f"{case.metrics}, {100 * case.spread:.0f} %, {100 * case.difference:.0f} %, "
            f"{100 * case.gradient:.0f} %"
        )
        lines.append(f"| {name} | {cells} | {100 * (1 - today / former):.0f} % |")
        print(lines[-1], flush=True)
    return "\n".join(lines)
