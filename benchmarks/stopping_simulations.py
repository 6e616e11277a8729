"""How many blocks it takes to decide a difference, by each rule to stop, and how often it is right.

Two arms, one metric, normal logs. A study decides if the interval of the ratio excludes 1. Each
rule gets the setting with which it decides the difference in 80 % of studies, so that the blocks
are those of equal power. `verdicts` tries the group-sequential rule with the whole verdict: flips
of all metrics, and the rule for correlated blocks. `_family_stopping` compares the former rules
with today's, for one metric and several. By ``make simulations``; the tables are in
`tare help stopping`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._family_stopping import table as family_table
from benchmarks._simulated import Setting, _evidence, _ordered, draw
from benchmarks.verdict_simulations import write_between_marks
from tare.analysis.effects.verdict import judge
from tare.analysis.statistics.logratio import mean_interval, t_quantile
from tare.analysis.statistics.maxt import flips_at_looks
from tare.analysis.statistics.sequential import LookPlan, declared_at, sequential_p

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

STUDIES = 2000
LEAST = 8
POWER = 0.8
MOST = 400
PHORONIX = (3, 0.025, 15)
"""The Phoronix Test Suite's rule: three runs, and more while an arm's deviation is above 2.5 %, up
to fifteen."""
MINUTES = 4.0
"""Assumed length of a block of two arms: two boots with their cells."""
MARKS = ("<!-- stopping -->", "<!-- stopping end -->")
FAMILY_MARKS = ("<!-- families -->", "<!-- families end -->")
FAMILY_SHARE = 10
"""Studies of several metrics take so many times as long, so a tenth of them is drawn."""


class Studies:
    """Simulated studies of one difference, and what a rule needs of their first blocks.

    Args:
        truth: The true log-ratio.
        spread: Standard deviation of a boot's log-value.
        studies: Number of studies.
        seed: Seed of the draws.
    """

    def __init__(self, truth: float, spread: float, studies: int, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.arms = spread * rng.standard_normal((2, studies, MOST), dtype=np.float32)
        ratios = (self.arms[0] - self.arms[1]).astype(np.float64) + truth
        count = np.arange(1, MOST + 1)
        self.means = np.cumsum(ratios, axis=1) / count
        squares = np.cumsum(ratios**2, axis=1) - count * self.means**2
        self.errors = np.sqrt(np.maximum(squares, 0) / np.maximum(count - 1, 1) / count)
        self.truth = truth

    def at(self, values: Floats, blocks: Counts) -> Floats:
        """Return the value of each study after so many blocks."""
        found: Floats = values[np.arange(len(values)), blocks - 1]
        return found


Ends = tuple[Counts, Floats]
"""After how many blocks each study stops, and the half-width of its interval."""
Rule = Callable[[Studies, float], Ends]
"""From studies, and the setting that is chosen for power."""


def t_of(blocks: Counts, levels: Floats | float = 0.05) -> Floats:
    """Return two-sided t quantiles."""
    both = zip(blocks.tolist(), np.broadcast_to(levels, blocks.shape).tolist(), strict=True)
    return np.array([t_quantile(1 - level, n - 1) for n, level in both])


def _ordinary(studies: Studies, blocks: Counts) -> Ends:
    known = dict(zip(counts := np.unique(blocks), t_of(counts), strict=True))
    t = np.array([known[n] for n in blocks])
    return blocks, t * studies.at(studies.errors, blocks)


def _first(reached: NDArray[np.bool_], looks: Counts) -> Counts:
    found: Counts = np.where(reached.any(axis=1), looks[reached.argmax(axis=1)], looks[-1])
    return found


def fixed(studies: Studies, _: float) -> Ends:
    """Ten blocks, always."""
    return _ordinary(studies, np.full(len(studies.means), 10))


def phoronix(studies: Studies, _: float) -> Ends:
    """The Phoronix Test Suite's rule."""
    first, most_apart, last = PHORONIX
    looks = np.arange(first, last + 1)
    values = np.exp(studies.arms)
    apart = [values[..., :n].std(axis=-1, ddof=1) / values[..., :n].mean(axis=-1) for n in looks]
    return _ordinary(studies, _first((np.array(apart).max(axis=1) <= most_apart).T, looks))


def precision(studies: Studies, asked: float) -> Ends:
    """Until the half-width is as asked, checked after each block."""
    looks = np.arange(LEAST, MOST + 1)
    narrow = t_of(looks) * studies.errors[:, looks - 1] <= asked
    return _ordinary(studies, _first(narrow, looks))


def pilot(studies: Studies, asked: float) -> Ends:
    """As many as a pilot says, and again then, until the half-width is as asked."""
    looks = np.arange(LEAST, MOST + 1)
    t = t_of(looks)
    blocks = np.full(len(studies.means), LEAST)
    for _ in range(50):
        deviation = studies.at(studies.errors, blocks) * np.sqrt(blocks)
        done = t[blocks - LEAST] * deviation / np.sqrt(blocks) <= asked
        enough = (t / np.sqrt(looks)) * deviation[:, None] <= asked
        blocks = np.where(done, blocks, np.maximum(_first(enough, looks), blocks))
    return _ordinary(studies, blocks)


def stein(studies: Studies, asked: float) -> Ends:
    """As many as the first blocks say."""
    deviation = studies.errors[:, LEAST - 1] * math.sqrt(LEAST)
    scale = t_quantile(0.95, LEAST - 1) * deviation
    blocks = np.clip(np.ceil((scale / asked) ** 2), LEAST, MOST).astype(np.int64)
    return blocks, scale / np.sqrt(blocks)


def _declared(studies: Studies, looks: Counts, bars: Floats) -> Ends:
    """Stop as soon as the interval of a look excludes 1."""
    half = bars * studies.errors[:, looks - 1]
    blocks = _first(np.abs(studies.means[:, looks - 1]) > half, looks)
    return blocks, half[np.arange(len(half)), np.searchsorted(looks, blocks)]


def anytime(studies: Studies, most: float) -> Ends:
    """Until the confidence sequence of earlier versions excludes 1, at most so many blocks."""
    looks = np.arange(LEAST, round(most) + 1)
    bound = (np.sqrt(1 + looks) / 0.05) ** (2 / looks)
    return _declared(studies, looks, np.sqrt((bound - 1) / (1 - bound / (1 + looks)) * (looks - 1)))


def sequential(studies: Studies, most: float) -> Ends:
    """Until the group-sequential interval excludes 1, at most so many blocks."""
    plan = LookPlan(LEAST, round(most))
    looks = np.array(plan.looks())
    levels = np.array([plan.level(int(n)) for n in looks])
    return _declared(studies, looks, t_of(looks, levels))


RULES: dict[str, tuple[Rule, str]] = {
    "fixed 10": (fixed, ""),
    "Phoronix": (phoronix, ""),
    "`precision`": (precision, "narrow"),
    "`pilot`": (pilot, "narrow"),
    "`stein`": (stein, "narrow"),
    "former `anytime`": (anytime, "most"),
    "`sequential`": (sequential, "most"),
}


@dataclass(frozen=True)
class Cell:
    """What one rule comes to: mean blocks, and shares of studies.

    Args:
        blocks: Mean number of blocks, with the difference.
        decided: With the difference: the interval excludes 1 on the right side.
        covered: The interval covers the truth, with the difference and without.
        wrong: Without it: the interval excludes 1.
        longest: Mean number of blocks without the difference.
    """

    blocks: float
    decided: float
    covered: float
    wrong: float
    longest: float


def simulated(rule: str, difference: float, spread: float, studies: int) -> Cell:
    """Return what a rule comes to, with the setting that has a power of 80 % if it has any.

    Args:
        rule: One of `RULES`.
        difference: The true one (0.05: 5 %).
        spread: Standard deviation of a boot's log-value.
        studies: How many of each kind, with the difference and without.
    """
    stop, kind = RULES[rule]
    there = Studies(math.log1p(difference), spread, studies)
    none = Studies(0.0, spread, studies, 2)

    def decided(setting: float) -> float:
        blocks, half = stop(there, setting)
        return float((there.at(there.means, blocks) > half).mean())

    setting = 0.0
    if kind == "narrow":
        low, high = 0.2 * there.truth, 3 * there.truth
        for _ in range(14):
            setting = (low + high) / 2
            low, high = (setting, high) if decided(setting) >= POWER else (low, setting)
        setting = low
    elif kind == "most":
        least, most = LEAST, MOST
        while least < most:
            middle = (least + most) // 2
            least, most = (least, middle) if decided(middle) >= POWER else (middle + 1, most)
        setting = float(least)
    (blocks, half), (others, wide) = stop(there, setting), stop(none, setting)
    mean, even = there.at(there.means, blocks), none.at(none.means, others)
    covered = (np.abs(mean - there.truth) <= half).mean() + (np.abs(even) <= wide).mean()
    return Cell(
        float(blocks.mean()),
        float((mean > half).mean()),
        float(covered) / 2,
        float((np.abs(even) > wide).mean()),
        float(others.mean()),
    )


def table(studies: int) -> str:
    """Return the table as Markdown."""
    lines = [
        f"Mean blocks (minutes, at {MINUTES:g} for a block) with the difference; decided / "
        "covered / wrongly decided without any difference, in per cent of "
        f"{studies:,} studies each; by `make simulations`.",
        "",
        "| CV, difference | " + " | ".join(RULES) + " |",
        "|---|" + "---:|" * len(RULES),
    ]
    for spread in (0.03, 0.10):
        for difference in (0.03, 0.05, 0.10):
            cells = [simulated(rule, difference, spread, studies) for rule in RULES]
            row = " | ".join(
                f"{cell.blocks:.1f} ({MINUTES * cell.blocks:.0f}) · {100 * cell.decided:.0f} / "
                f"{100 * cell.covered:.0f} / {100 * cell.wrong:.1f}"
                for cell in cells
            )
            lines.append(f"| {100 * spread:.0f} %, {100 * difference:.0f} % | {row} |")
    return "\n".join(lines)


def verdicts(
    setting: Setting, plan: LookPlan, studies: int, seed: int = 1
) -> Iterator[tuple[int, set[int]]]:
    """Yield after how many blocks each study stops, and which metrics are declared by then.

    A study stops once its first metric is declared, or any metric if none truly differs.

    Args:
        setting: The studies, with one arm; its first metric is the one that may differ.
        plan: The looks.
        studies: Number of studies.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)
    metrics = setting.truth.shape[1]
    looks = plan.looks()
    shares = plan.shares(looks)
    for _ in range(studies):
        study = draw(setting, rng)
        differences = study.logs[0] - study.baseline
        extremes = flips_at_looks(
            differences, looks, ranked=[False] * metrics, moderated=[True] * metrics, least=6
        )
        highest = [each.max(axis=0) for each in extremes]
        first = declared_at(highest, shares, 0.05)
        if first is None:
            yield plan.most, set()
            continue
        for number, blocks in enumerate(looks[first:], first + 1):
            tests = sequential_p(extremes[:number], shares[:number], metrics)
            seen = differences[:, :blocks]
            ends = mean_interval(seen, 1 - plan.level(blocks))
            means = zip(ends.mean, ends.low, ends.high, strict=True)
            rows = zip(means, tests.raw.tolist(), tests.adjusted.tolist(), strict=True)
            evidence = _ordered(
                [_evidence(setting, *row, metrics) for row in rows], seen, looks=True
            )
            found = {i for i, each in enumerate(evidence) if judge(each) in ("worse", "better")}
            if 0 in found or (found and not setting.truth.any()) or blocks == plan.most:
                yield blocks, found
                break


def main(argv: list[str] | None = None) -> int:
    """Simulate, print the table, and write it to a document if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stopping_simulations")
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--tables", type=Path, help="a document with the marks to write between")
    wanted = parser.parse_args(argv)
    text = table(wanted.studies)
    print(text)
    families = family_table(max(1, wanted.studies // FAMILY_SHARE), MINUTES)
    if wanted.tables is not None:
        write_between_marks(wanted.tables, text, MARKS)
        write_between_marks(wanted.tables, families, FAMILY_MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
