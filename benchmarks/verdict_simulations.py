"""Verdicts tried on studies of known truth: how often they are right, before and after.

*Before* is the rule of ``_former_verdicts``; *after* is what reports use. ``--tables FILE`` writes
the tables into a document between its marks; ``make simulations`` does so for
`tare help statistics`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import _duet_simulations as side_by_side
from benchmarks import _pair_simulations as pairs
from benchmarks import _proxy_simulations as proxies
from benchmarks._simulated import (
    DECLARED,
    EQUAL_OF_OLD,
    Setting,
    any_of,
    draw,
    former,
    intervals,
    present,
)
from tare.analysis.effects.block_order import order_of_each
from tare.analysis.statistics.maxt import family_p
from tare.analysis.statistics.robust import hodges_lehmann
from tare.analysis.statistics.serial import serial
from tare.analysis.statistics.slow_boots import slow_boots

STUDIES = 1000
START, END = "<!-- simulations -->", "<!-- end -->"

Rule = Callable[[Sequence[Sequence[str]]], bool]


@dataclass(frozen=True)
class Row:
    """One line of the table: shares from 0 to 1, or None where a rule knew no such thing."""

    case: str
    before: float | None
    after: float
    wanted: str
    good: bool


def shares(
    setting: Setting, before: Rule, after: Rule, studies: int, seed: int = 1
) -> tuple[float, float]:
    """Return for which share of studies each rule gives the asked verdict."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(2)
    for _ in range(studies):
        study = draw(setting, rng)
        counts += before(former(setting, study).tolist()), after(present(setting, study))
    return float(counts[0] / studies), float(counts[1] / studies)


def lone(effect: float, arms: int = 1, metrics: int = 30) -> np.ndarray:
    """Return the truth of studies in which one metric of the first arm differs."""
    truth = np.zeros((arms, metrics))
    truth[0, 0] = np.log1p(effect)
    return truth


def first_declared(found: Sequence[Sequence[str]]) -> bool:
    """Return whether the first metric of the first arm is called worse."""
    return found[0][0] == "worse"


def any_declared(found: Sequence[Sequence[str]]) -> bool:
    """Return whether any metric of the last arm is called worse or better."""
    return any_of(found[-1], DECLARED)


def called_equal(words: Sequence[str]) -> Rule:
    """Return a rule: whether the last arm is called equal in every given metric."""
    return lambda found: all(word in words for word in found[-1])


def power_rows(studies: int) -> list[Row]:
    """Return how often true differences are declared."""
    rows: list[Row] = []
    for effect, spread in ((0.10, 0.03), (10.0, 0.03), (0.10, 0.10)):
        found = shares(
            Setting(lone(effect), spread=spread), first_declared, first_declared, studies
        )
        wanted, good = ("≥ 80 %", found[1] >= 0.78) if spread < 0.05 else ("–", True)
        case = (
            f"lone true +{100 * effect:.0f} % among 30 metrics, CV {100 * spread:.0f} %: declared"
        )
        rows.append(Row(case, *found, wanted, good))
    all_slow = np.full((1, 7), np.log(11.0))
    every: Rule = lambda found: all(word == "worse" for word in found[0])  # noqa: E731
    found = shares(Setting(all_slow, spread=0.2), every, every, studies)
    rows.append(
        Row(
            "an arm 11× slower in all 7 metrics, CV 20 %: declared in all",
            *found,
            "100 %",
            found[1] > 0.98,
        )
    )
    crowd = lone(0.10, arms=3, metrics=11)
    crowd[1:] = np.log(3.0)
    crowded = shares(Setting(crowd), first_declared, first_declared, studies)
    alone = shares(Setting(lone(0.10, metrics=11)), first_declared, first_declared, studies)
    rows += [
        Row("lone +10 % among 11 metrics, arm by itself: declared", *alone, "the same …", True),
        Row(
            "… next to two arms three times slower",
            *crowded,
            "… with others",
            abs(crowded[1] - alone[1]) < 0.05,
        ),
    ]
    gated = Setting(lone(0.05, metrics=11), twin=True, blocks=12)
    found = shares(gated, first_declared, first_declared, studies)
    rows.append(
        Row(
            "lone +5 % among 11 metrics, 12 blocks, with an A/A pair: declared",
            *found,
            "higher",
            found[1] > found[0],
        )
    )
    return rows


def error_rows(studies: int) -> list[Row]:
    """Return how often differences are declared that do not exist."""
    rows = []
    names = {
        "normal": "log-normal noise",
        "outliers": "5 % of boots 3× slow",
        "heavy": "heavy tails (t, 2.2)",
        "exponential": "exponential noise",
    }
    for law, name in names.items():
        for twin in (False, True):
            setting = Setting(np.zeros((1, 30)), law=law, twin=twin)  # type: ignore[arg-type]
            found = shares(setting, any_declared, any_declared, studies)
            most = 0.05 if law == "normal" else 0.07
            error = 3 * np.sqrt(most * (1 - most) / studies)
            with_twin = ", with a twin" if twin else ""
            rows.append(
                Row(
                    f"no difference in 30 metrics, {name}{with_twin}: any declared",
                    *found, f"≤ {100 * most:.0f} %", found[1] <= most + error,
                )
            )  # fmt: skip
    crowd = np.zeros((3, 11))
    crowd[:2] = np.log(3.0)
    placed = Setting(np.zeros((1, 30)), blocks=10, gradient=0.1, position=True)
    limit = 0.05 + 3 * np.sqrt(0.05 * 0.95 / studies)
    for name, setting in (
        ("next to two arms 3× slower", Setting(crowd)),
        ("10 blocks, 10 % gradient, places as covariate", placed),
    ):
        found = shares(setting, any_declared, any_declared, studies)
        name = f"no difference, {name}: any declared"
        rows.append(Row(name, *found, "≤ 5 %", found[1] <= limit))
    return rows


def trimmed_rows(studies: int) -> list[Row]:
    """Return what trimmed means gain with slow boots, and cost without; before: the mean."""
    rows = []
    of = "(simple: the mean; Tare: trimmed means)"
    few, many = lone(0.10, metrics=1), lone(0.10)
    for law, noise in (("normal", "no slow boots"), ("outliers", "5 % of boots 3× slow")):
        for truth, name, blocks in (
            (few, "a single metric, 8 blocks", 8),
            (many, "lone among 30 metrics, 8 blocks", 8),
            (many, "lone among 30 metrics, 12 blocks", 12),
        ):
            setting = Setting(truth, law=law, blocks=blocks)  # type: ignore[arg-type]
            mean, trimmed = _by_average(setting, first_declared, studies)
            case = f"+10 %, CV 3 %, {name}, {noise}: declared {of}"
            better = law == "normal" or trimmed > mean
            rows.append(Row(case, mean, trimmed, "higher" if law == "outliers" else "–", better))
    for law, noise, most in (
        ("normal", "log-normal noise", 0.05),
        ("outliers", "5 % of boots 3× slow", 0.05),
        ("exponential", "exponential noise", 0.07),
    ):
        for twin in (False, True):
            setting = Setting(np.zeros((1, 30)), law=law, twin=twin)  # type: ignore[arg-type]
            mean, trimmed = _by_average(setting, any_declared, studies)
            case = (
                f"no difference in 30 metrics, {noise}{', with a twin' * twin}: any declared {of}"
            )
            limit = most + 3 * np.sqrt(most * (1 - most) / studies)
            rows.append(Row(case, mean, trimmed, f"≤ {100 * most:.0f} %", trimmed <= limit))
    return rows


def _by_average(setting: Setting, rule: Rule, studies: int) -> tuple[float, float]:
    """Return for which share of studies a rule holds with the mean, and with trimmed means."""
    mean, trimmed = (
        shares(replace(setting, trimmed=trimmed), rule, rule, studies)[1]
        for trimmed in (False, True)
    )
    return mean, trimmed


def equality_rows(studies: int) -> list[Row]:
    """Return how often arms are called equal, rightly and wrongly."""
    slower = Setting(np.full((1, 11), np.log(1.05)), spread=0.10, twin=True)
    rows = [
        Row("5 % slower in all 11 metrics, CV 10 %: called equal in all",
            *shares(slower, called_equal(EQUAL_OF_OLD), called_equal(["equivalent"]), studies),
            "never", True),
    ]  # fmt: skip
    edge = Setting(np.full((1, 1), np.log(1.02)), spread=0.01, blocks=12)
    rows.append(
        Row("exactly at the margin of 2 %, CV 1 %, 12 blocks: called equal",
            *shares(edge, called_equal(EQUAL_OF_OLD), called_equal(["equivalent"]), studies),
            "≤ 2.5 %", True)
    )  # fmt: skip
    same = replace(edge, truth=np.zeros((1, 1)))
    rows.append(
        Row("truly the same, CV 1 %, 12 blocks: called equal",
            *shares(same, called_equal(EQUAL_OF_OLD), called_equal(["equivalent"]), studies),
            "high", True)
    )  # fmt: skip
    limits = (0.0, 0.025 + 3 * np.sqrt(0.025 * 0.975 / studies))
    return [
        replace(rows[0], good=rows[0].after <= limits[0]),
        replace(rows[1], good=rows[1].after <= limits[1]),
        replace(rows[2], good=rows[2].after >= 0.9),
    ]


def finding_rows(studies: int) -> list[Row]:
    """Return how often conditions that spoil intervals are reported."""
    rng = np.random.default_rng(3)
    slow_found, covered, robust_covered, with_slow, false = 0, 0, 0, 0, 0
    for _ in range(studies):
        logs = 0.03 * rng.standard_normal((3, 20))
        false += bool(slow_boots(logs).any())
        slow = rng.random(20) < 0.05
        logs[0] += np.log(3.0) * slow
        with_slow += bool(slow.any())
        slow_found += bool((slow_boots(logs)[0] & slow).any())
        differences = (logs[0] - logs[1])[None]
        low, high = intervals(differences, None)[0][1:]
        covered += low <= 0 <= high
        robust = hodges_lehmann(differences, 0.95)
        robust_covered += bool(robust.low[0] <= 0 <= robust.high[0])
    rows = [
        Row(
            "slow boots in 5 % of 20, of those studies that have any: reported",
            None,
            slow_found / max(1, with_slow),
            "≥ 90 %",
            slow_found >= 0.9 * with_slow,
        ),
        Row(
            "no slow boots, 3 arms: reported",
            None,
            false / studies,
            "≤ 2 %",
            false <= 0.02 * studies,
        ),
        Row(
            "… typical boots' ratio covered by the interval of the mean",
            covered / studies,
            covered / studies,
            "–",
            True,
        ),
        Row(
            "… covered by the robust interval next to it",
            None,
            robust_covered / studies,
            "≥ 90 %",
            robust_covered >= 0.9 * studies,
        ),
    ]
    for lag in (0.0, 0.5, 0.8):
        setting = Setting(np.zeros((1, 11)), blocks=20, lag=lag)
        reported, inside = 0, 0
        sample = max(100, studies // 10)
        for draw_number in range(sample):
            study = draw(setting, rng)
            differences = study.logs[0] - study.baseline
            found = serial(differences, draw_number)
            reported += any(order.is_dependent(0.05) for order in order_of_each(found))
            inside += sum(low <= 0 <= high for _, low, high in intervals(differences, None))
        share = reported / sample
        good = share <= 0.05 + 3 * np.sqrt(0.0475 / sample) if not lag else True
        rows.append(
            Row(
                f"lag-1 correlation {lag:g}, 20 blocks, 11 metrics "
                f"(intervals cover {100 * inside / sample / 11:.0f} %): reported",
                None, share, "≤ 5 %" if not lag else "high", bool(good),
            )
        )  # fmt: skip
    return rows


def dependent_rows(studies: int) -> list[Row]:
    """Return what is declared with correlated blocks: rarely nothing, and large effects."""
    rows, sample = [], max(100, studies // 5)
    for lag, effect, limit in ((0.5, 0.0, 0.25), (0.8, 0.0, 0.1), (0.8, 10.0, 0.9)):
        asked = first_declared if effect else any_declared
        setting = Setting(lone(effect, metrics=11), spread=0.1, blocks=20, lag=lag)
        both = shares(setting, asked, asked, sample)
        what = f"lone +{100 * effect:.0f} % among" if effect else "no difference in"
        name = (
            f"{what} 11 metrics, 20 blocks, lag-1 correlation {lag:g} ({sample} studies): declared"
        )
        good = both[1] >= limit if effect else both[1] <= limit
        rows.append(Row(name, *both, "high" if effect else "low", good))
    return rows


def precision_rows(studies: int) -> list[Row]:
    """Return what the covariate of position gains: half-widths in per cent, not shares."""
    rng = np.random.default_rng(4)
    wide: list[float] = []
    narrow: list[float] = []
    setting = Setting(np.zeros((3, 1)), spread=0.01, blocks=10, gradient=0.10)
    for _ in range(max(100, studies // 4)):
        study = draw(setting, rng)
        differences = study.logs[0] - study.baseline
        for later, widths in ((None, wide), (study.later[0], narrow)):
            _, low, high = intervals(differences, later)[0]
            widths.append((high - low) / 2)
    return [
        Row("median half-width, 10 blocks, CV 1 %, 10 % gradient within the block",
            float(np.median(wide)), float(np.median(narrow)), "narrower",
            bool(np.median(narrow) < np.median(wide) / 2)),
    ]  # fmt: skip


def position_rows(studies: int) -> list[Row]:
    """Return how much power positions as a covariate cost and gain at 8 blocks."""
    rows = []
    for gradient in (0.0, 0.05, 0.1):
        setting = Setting(lone(0.10), gradient=gradient)
        without, with_places = (
            shares(replace(setting, position=position), first_declared, first_declared, studies)[1]
            for position in (False, True)
        )
        rows.append(
            Row(
                f"lone +10 % among 30 metrics, CV 3 %, {100 * gradient:.0f} % gradient within the "
                "block: declared (simple: without places; Tare: with)",
                without, with_places, "–", True,
            )
        )  # fmt: skip
    return rows


def interference_rows(studies: int) -> list[Row]:
    """Return how often a matrix of neighbours shows any effect where there is none."""
    rng = np.random.default_rng(5)
    before = after = 0
    for _ in range(studies):
        cells = 0.03 * np.sqrt(2) * rng.standard_normal((5, 30, 8))
        before += any(low > 0 or end < 0 for _, low, end in intervals(cells.reshape(150, 8), None))
        after += bool((family_p(cells[0]).adjusted < 0.05).any())
    limit = 0.05 + 3 * np.sqrt(0.05 * 0.95 / studies)
    return [
        Row("150 slowdowns of 5 arms that are none: any coloured (Tare: in one arm)",
            before / studies, after / studies, "≤ 5 %", after / studies <= limit),
    ]  # fmt: skip


def pair_rows(studies: int) -> list[Row]:
    """Return how often equal arms differ if any baseline may be chosen; before: uncorrected."""
    rows = []
    for number, (name, law, most) in enumerate(pairs.CASES):
        found = pairs.wrongly_different(pairs.equal_arms(law), studies, 60 + number)
        limit = most + 3 * np.sqrt(most * (1 - most) / studies)
        case = f"all pairs of 5 equal arms, 11 metrics, {name}: any declared different"
        rows.append(Row(case, *found, f"≤ {100 * most:.0f} %", found[1] <= limit))
    setting, groups = pairs.two_groups()
    found = pairs.wrongly_different(setting, studies, 70, groups)
    case = (
        "all pairs of 3 and 2 equal arms, the two twice as slow: any equal ones declared different"
    )
    good = found[1] <= 0.05 + 3 * np.sqrt(0.0475 / studies)
    return [*rows, Row(case, *found, "≤ 5 %", good)]


def duet_rows(studies: int) -> list[Row]:
    """Return what measuring both arms at once gains or costs; before: one after the other."""
    return [Row(*each) for each in side_by_side.rows(studies)]


def proxy_rows(studies: int) -> list[Row]:
    """Return a load balancer's losses; before: point estimates, limited cells dropped."""
    rows = []
    for sizes in (1, 4):
        found = proxies.shares_claimed(studies, sizes, 80 + sizes)
        limit = 0.05 + 3 * np.sqrt(0.0475 / studies)
        case = f"load balancer, nothing lost, {sizes} size{'s' * (sizes > 1)}: a loss is claimed"
        rows.append(Row(case, *found, "≤ 5 %", found[1] <= limit))
    found = proxies.shares_claimed(studies, 4, 85, lag=0.5)
    limit = 0.07 + 3 * np.sqrt(0.0651 / studies)
    case = "load balancer, nothing lost, 4 sizes, lag-1 correlation 0.5: a loss is claimed"
    correlated = Row(case, *found, "≤ 7 %", found[1] <= limit)
    for ceiling, part in ((math.inf, "no cell"), (1.0, "half of the baseline's cells")):
        found = proxies.shares_covered(studies, 0.05, ceiling, 90)
        case = f"load balancer, 5.0 % lost, {part} limited, 12 blocks: interval covers"
        good = found[1] >= 0.93 - 3 * np.sqrt(0.0651 / studies)
        rows.append(Row(case, *found, "≥ 93 %", good))
    return [*rows, correlated]


def all_rows(studies: int) -> list[Row]:
    """Return all lines of the table."""
    parts = (
        power_rows, error_rows, trimmed_rows, equality_rows, finding_rows, dependent_rows,
        precision_rows, position_rows, interference_rows, pair_rows, duet_rows, proxy_rows,
    )  # fmt: skip
    return [row for part in parts for row in part(studies)]


def table(rows: Sequence[Row], studies: int) -> str:
    """Return the rows as Markdown."""
    lines = [
        f"{studies:,} simulated studies a line, 8 blocks unless stated; by `make simulations`.",
        "",
        "| case | simple | Tare | wanted |",
        "|---|---:|---:|---|",
    ]
    for row in rows:
        before = "–" if row.before is None else f"{100 * row.before:.3g} %"
        lines.append(f"| {row.case} | {before} | {100 * row.after:.3g} % | {row.wanted} |")
    return "\n".join(lines)


def write_between_marks(path: Path, text: str, marks: tuple[str, str] = (START, END)) -> None:
    """Put ``text`` into a document, between two marks."""
    whole = path.read_text(encoding="utf-8")
    start, rest = whole.split(marks[0], 1)
    _, end = rest.split(marks[1], 1)
    path.write_text(f"{start}{marks[0]}\n{text}\n{marks[1]}{end}", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Simulate, print the table, and write it where asked; 1 when something is not as wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict_simulations")
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--tables", type=Path, help="a document with the marks to write between")
    wanted = parser.parse_args(argv)
    rows = all_rows(wanted.studies)
    text = table(rows, wanted.studies)
    print(text)
    if wanted.tables is not None:
        write_between_marks(wanted.tables, text)
    missed = [row.case for row in rows if not row.good]
    for case in missed:
        print(f"MISSED {case}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
