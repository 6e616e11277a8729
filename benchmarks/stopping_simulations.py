"""How many blocks it takes to decide a difference, by each way to stop, and how often it is right.

Two arms, one metric, normal logs. A study decides where the interval of the ratio leaves 1. By
``make simulations``; the table is in `tare help stopping`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdict_simulations import write_between_marks
from tare.analysis.effects.stopping import Asked, Look, Value, blocks_wanted, settled
from tare.analysis.effects.two_stage import stein_error
from tare.analysis.statistics.anytime import mean_ends
from tare.analysis.statistics.logratio import t_quantile

Floats = NDArray[np.float64]

STUDIES = 400
LEAST, MOST = 6, 400
PHORONIX = (3, 0.025, 15)
"""The Phoronix Test Suite's rule: three runs, and more while an arm's deviation is above 2.5 %, up
to fifteen."""
SHARE = 0.7
"""Precision asked for a difference, as a share of it: an interval as wide as the difference on each
side would leave 1 out only every other time."""
MARKS = ("<!-- stopping -->", "<!-- stopping end -->")


@dataclass(frozen=True)
class Cell:
    """What one rule comes to: mean blocks, and shares of studies.

    Args:
        blocks: Mean number of blocks.
        decided: Where the difference is there: its interval leaves 1 on the right side.
        covered: The interval covers the truth.
        wrong: Where there is none: the interval leaves 1 nevertheless.
    """

    blocks: float
    decided: float
    covered: float
    wrong: float


Rule = Callable[[Floats, Floats, float], int]
"""From both arms' logs and the difference that is to be decided: after how many blocks it stops."""


def fixed(_arm: Floats, _base: Floats, _difference: float) -> int:
    """Ten blocks, always."""
    return 10


def phoronix(arm: Floats, base: Floats, _difference: float) -> int:
    """The Phoronix Test Suite's rule."""
    first, most_apart, last = PHORONIX
    for blocks in range(first, last):
        if max(np.exp(x[:blocks]).std(ddof=1) / np.exp(x[:blocks]).mean() for x in (arm, base)) <= (
            most_apart
        ):
            return blocks
    return last


def precision(arm: Floats, base: Floats, difference: float) -> int:
    """Until the half-width is as asked, looked at after each block."""
    ratios = arm - base
    count = np.arange(LEAST, MOST + 1)
    sums, squares = np.cumsum(ratios), np.cumsum(ratios**2)
    variance = (squares[count - 1] - sums[count - 1] ** 2 / count) / (count - 1)
    t = np.array([t_quantile(0.95, int(n) - 1) for n in count])
    narrow = t * np.sqrt(variance / count) <= math.log1p(SHARE * difference)
    return int(count[narrow.argmax()]) if narrow.any() else MOST


def _wanted(arm: Floats, base: Floats, difference: float, *, once: bool) -> int:
    values = [
        Value(block, name, "m", math.exp(logs[block]))
        for block in range(MOST)
        for name, logs in (("arm", arm), ("base", base))
    ]
    goal = Asked("base", {}, 0.95, SHARE * difference)
    return min(MOST, blocks_wanted(values, goal, LEAST, MOST, once=once))


def pilot(arm: Floats, base: Floats, difference: float) -> int:
    """As many as a pilot says, and again then."""
    return _wanted(arm, base, difference, once=False)


def stein(arm: Floats, base: Floats, difference: float) -> int:
    """As many as the first blocks say."""
    return _wanted(arm, base, difference, once=True)


def anytime(arm: Floats, base: Floats, difference: float) -> int:
    """Until it is decided, looked at after each block; the margin is half the difference."""
    ratios = (arm - base).tolist()
    for blocks in range(LEAST, MOST):
        if settled(ratios[:blocks], "typical", Look(difference / 2, difference / 10, 0.95, 1)):
            return blocks
    return MOST


RULES: dict[str, Rule] = {
    "fixed 10": fixed,
    "Phoronix": phoronix,
    "`precision`": precision,
    "`pilot`": pilot,
    "`stein`": stein,
    "`anytime`": anytime,
}


def simulated(rule: str, difference: float, spread: float, studies: int, seed: int = 1) -> Cell:
    """Return what a rule comes to.

    Args:
        rule: One of `RULES`.
        difference: The true one, and the one that is asked for (0.05: 5 %).
        spread: Standard deviation of a boot's log-value.
        studies: How many of each kind, with the difference and without.
        seed: The seed of the draws.
    """
    rng = np.random.default_rng(seed)
    blocks = decided = covered = wrong = 0
    for truth in (math.log1p(difference), 0.0):
        for _ in range(studies):
            base, arm = spread * rng.standard_normal((2, MOST))
            arm = arm + truth
            count = RULES[rule](arm, base, difference)
            low, high = _ends(rule, (arm - base)[:count])
            covered += low <= truth <= high
            if truth:
                blocks += count
                decided += low > 0
            else:
                wrong += low > 0 or high < 0
    return Cell(blocks / studies, decided / studies, covered / studies / 2, wrong / studies)


def _ends(rule: str, ratios: Floats) -> tuple[float, float]:
    if rule == "`anytime`":
        return mean_ends(ratios.tolist(), 0.95)
    if rule == "`stein`":
        error, mean = stein_error(ratios[:LEAST].tolist(), ratios.size, 0.95), float(ratios.mean())
        return mean - error, mean + error
    half = t_quantile(0.95, ratios.size - 1) * float(ratios.std(ddof=1)) / math.sqrt(ratios.size)
    return float(ratios.mean()) - half, float(ratios.mean()) + half


def table(studies: int) -> str:
    """Return the table as Markdown: mean blocks; decided; covered; wrong where nothing is."""
    lines = [
        f"Mean blocks · decided / covered / wrongly decided where there is none, in per cent of "
        f"{studies:,} studies each; by `make simulations`.",
        "",
        "| CV, difference | " + " | ".join(RULES) + " |",
        "|---|" + "---:|" * len(RULES),
    ]
    for spread in (0.03, 0.10):
        for difference in (0.03, 0.05, 0.10):
            cells = [simulated(rule, difference, spread, studies) for rule in RULES]
            row = " | ".join(
                f"{cell.blocks:.0f} · {100 * cell.decided:.0f} / {100 * cell.covered:.0f} / "
                f"{100 * cell.wrong:.1f}"
                for cell in cells
            )
            lines.append(f"| {100 * spread:.0f} %, {100 * difference:.0f} % | {row} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Simulate, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stopping_simulations")
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--tables", type=Path, help="a document with the marks to write between")
    wanted = parser.parse_args(argv)
    text = table(wanted.studies)
    print(text)
    if wanted.tables is not None:
        write_between_marks(wanted.tables, text, MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
