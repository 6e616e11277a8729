"""Random studies of known truth, as the run data that the analysis reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tare.analysis.data.rundata import RunData
from tare.events.metric import Better, Kind, Metric, Resource
from tare.events.model import CellStatus
from tare.events.results import CellResult, CheckResult, FinishedCell, Observation, PlatformResult

BASELINE, TWIN = "bare", "bare-again"
SCENARIO = "alone"

Law = Literal["normal", "heavy", "skewed"]
"""Noise of a boot's logarithm: normal, Student's t with 4 degrees, or exponential."""

COSTS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 1.005, 1.01, 1.02, 1.03, 1.05, 1.1, 1.2, 1.5, 3.0)


@dataclass(frozen=True)
class Counted:
    """Events of a boot: the share of boots with any, and how many they then have on average."""

    share: float
    mean: float


@dataclass(frozen=True)
class TrueMetric:
    """One metric with its truth.

    Args:
        metric: The metric.
        workload: Its workload.
        typical: The baseline's value in a typical boot.
        spread: Standard deviation of a boot's logarithm.
        law: The law of its noise.
        costs: By arm, the true cost in typical boots; 1 without an entry.
        slow: By arm, the share of slow boots and how many times slower they are.
        counted: By arm, the events of a boot; empty: the metric is not a count.
        floor: A difference in the metric's unit that never matters.
    """

    metric: Metric
    workload: str
    typical: float
    spread: float
    law: Law
    costs: Mapping[str, float]
    slow: Mapping[str, tuple[float, float]]
    counted: Mapping[str, Counted] = field(default_factory=dict)
    floor: float = 0.0

    def cost(self, arm: str, baseline: str) -> float:
        """Return the true cost of an arm in typical boots, as a ratio."""
        return self.costs.get(arm, 1.0) / self.costs.get(baseline, 1.0)

    def mean_cost(self, arm: str, baseline: str) -> float:
        """Return the true cost by the geometric mean over all boots, with the slow ones."""
        return self.cost(arm, baseline) * math.exp(self._slow(arm) - self._slow(baseline))

    def _slow(self, arm: str) -> float:
        share, factor = self.slow.get(arm, (0.0, 1.0))
        return share * math.log(factor)

    def difference(self, arm: str, baseline: str, *, mean: bool) -> float:
        """Return the true difference of counts: of their means, or the median over blocks."""
        ours, theirs = self.counted[arm], self.counted[baseline]
        if mean:
            return ours.share * ours.mean - theirs.share * theirs.mean
        return _median_difference(ours, theirs)

    def share_beyond(self, arm: str, baseline: str, margin: float) -> float:
        """Return the true share of blocks whose difference of counts is beyond a margin."""
        drawn = _differences(self.counted[arm], self.counted[baseline])
        return float((np.abs(drawn) > margin).mean())


@lru_cache(maxsize=512)
def _differences(ours: Counted, theirs: Counted) -> np.ndarray:
    rng = np.random.default_rng(1)
    drawn = [
        (rng.random(20_001) < each.share) * rng.poisson(each.mean, 20_001)
        for each in (ours, theirs)
    ]
    found: np.ndarray = drawn[0] - drawn[1]
    return found


@lru_cache(maxsize=512)
def _median_difference(ours: Counted, theirs: Counted) -> float:
    return float(np.median(_differences(ours, theirs)))


@dataclass(frozen=True)
class TrueStudy:
    """A study with its truth.

    Args:
        seed: What its noise is drawn from.
        arms: All arms, the baseline first.
        emulated: The arms that are emulated.
        metrics: Its metrics.
        blocks: Its blocks.
        margin: Its practical margin.
        lag: Correlation of a boot's noise with that of the same arm in the block before.
        failing: By arm, the share of boots whose cells fail.
        fails_slow: Whether the slowest boots fail, instead of random ones.
        by_cell: Whether each cell fails by itself, instead of all of a boot.
        twin_cost: What the baseline's twin costs, which should be nothing.
        hard: What makes it hard, in words; empty: nothing does.
    """

    seed: int
    arms: tuple[str, ...]
    emulated: frozenset[str]
    metrics: tuple[TrueMetric, ...]
    blocks: int
    margin: float = 0.02
    lag: float = 0.0
    failing: Mapping[str, float] = field(default_factory=dict)
    fails_slow: bool = False
    by_cell: bool = False
    twin_cost: float = 1.0
    hard: str = ""

    @property
    def others(self) -> tuple[str, ...]:
        """The arms that are compared with the baseline."""
        return tuple(arm for arm in self.arms if arm not in (BASELINE, TWIN))

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str], TrueMetric]:
        """The metrics by workload and name."""
        return {(each.workload, each.metric.name): each for each in self.metrics}

    def share_of_failing_boots(self, arm: str) -> float:
        """Return the true share of an arm's boots with a failed cell."""
        share = self.failing.get(arm, 0.0)
        cells = len({each.workload for each in self.metrics}) if self.by_cell else 1
        return 1 - (1 - share) ** cells


def random_study(seed: int) -> TrueStudy:
    """Return a random study.

    A quarter of all studies are hard: slow boots, correlated blocks, failing cells, or a twin that
    differs from its baseline.
    """
    rng = np.random.default_rng([seed, 1])
    count = int(rng.choice([1, 1, 2, 3]))
    arms = [BASELINE, *(f"arm{number}" for number in range(1, count + 1))]
    twin = rng.random() < 0.2
    if twin:
        arms.append(TWIN)
    blocks = int(rng.choice([2, 4, 6, 8, 8, 10, 12, 16, 20, 32]))
    emulated = frozenset(arm for arm in arms[1 : count + 1] if rng.random() < 0.2)
    study = TrueStudy(seed, tuple(arms), emulated, _random_metrics(rng, arms), blocks)
    return _made_hard(study, rng, twin=twin)


def _made_hard(study: TrueStudy, rng: np.random.Generator, *, twin: bool) -> TrueStudy:
    kind = rng.choice(["", "slow boots", "correlated blocks", "failures", "twin"],
                      p=[0.75, 0.08, 0.05, 0.09, 0.03])  # fmt: skip
    victims = [arm for arm in study.arms if arm != TWIN]
    victim = str(rng.choice(victims))
    if kind == "slow boots":
        share, factor = float(rng.choice([0.05, 0.1, 0.2])), float(rng.choice([1.3, 2.0, 3.0]))
        metrics = tuple(
            each if each.counted else replace(each, slow={victim: (share, factor)})
            for each in study.metrics
        )
        return replace(study, metrics=metrics, hard=str(kind))
    if kind == "correlated blocks":
        return replace(study, lag=float(rng.choice([0.3, 0.5])), hard=str(kind))
    if kind == "failures":
        failing = {victim: float(rng.choice([0.02, 0.1, 0.3]))}
        slow, by_cell = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
        return replace(
            study, failing=failing, fails_slow=slow and not by_cell, by_cell=by_cell, hard=str(kind)
        )
    if kind == "twin" and twin:
        cost = float(rng.choice([1.03, 1.1]))
        metrics = tuple(
            each if each.counted else replace(each, costs={**each.costs, TWIN: cost})
            for each in study.metrics
        )
        return replace(study, metrics=metrics, twin_cost=cost, hard="a twin that differs")
    return study


def _random_metrics(rng: np.random.Generator, arms: list[str]) -> tuple[TrueMetric, ...]:
    count = int(rng.choice([1, 2, 3, 5, 8, 15]))
    spread = float(rng.choice([0.003, 0.01, 0.03, 0.1]))
    law: Law = rng.choice(["normal", "normal", "heavy", "skewed"])
    # Some arms equal the baseline in everything; others cost the same in everything.
    plans = {arm: str(rng.choice(["equal", "alike", "any", "any"])) for arm in arms}
    alike = {arm: float(rng.choice(COSTS)) for arm in arms}
    found = []
    for number in range(count):
        kind: Kind = rng.choice(["typical", "typical", "typical", "tail", "maximum"])
        better: Better = rng.choice(
            ["lower", "lower", "higher", "neither"], p=[0.5, 0.2, 0.25, 0.05]
        )
        resource: Resource | None = rng.choice(["cpu", "memory", "disk", "network", "latency"])
        workload = f"work{number // 2}"
        own = spread * float(rng.choice([0.7, 1.0, 1.4])) * (1.0 if kind == "typical" else 3.0)
        typical = float(10 ** rng.uniform(-6, 0)) * (1.0 if better == "lower" else 1e7)
        unit = "s" if better == "lower" else "1/s"
        costs = {}
        for arm in arms[1:]:
            if plans[arm] == "equal" or arm == TWIN:
                continue
            costs[arm] = alike[arm] if plans[arm] == "alike" else float(rng.choice([1.0, *COSTS]))
        headline = bool(number == 0 or rng.random() < 0.85)
        metric = Metric(f"m{number}", unit, better, "", kind, headline, resource=resource)
        if rng.random() < 0.12:
            found.append(_random_count(rng, metric, workload, arms, plans))
            continue
        floor = 0.0
        if rng.random() < 0.1:
            floor = typical * float(rng.choice([0.01, 0.05, 0.2]))
        found.append(TrueMetric(metric, workload, typical, own, law, costs, {}, floor=floor))
    return tuple(found)


def _random_count(
    rng: np.random.Generator,
    metric: Metric,
    workload: str,
    arms: list[str],
    plans: Mapping[str, str],
) -> TrueMetric:
    base = Counted(float(rng.choice([0.0, 0.0, 0.1, 0.5])), float(rng.choice([2.0, 20.0])))
    counted = {BASELINE: base, TWIN: base}
    for arm in arms[1:]:
        if arm == TWIN or plans[arm] == "equal":
            counted.setdefault(arm, base)
        else:
            counted[arm] = Counted(
                float(rng.choice([0.0, 0.05, 0.1, 0.5, 1.0])), float(rng.choice([2.0, 20.0]))
            )
    floor = float(rng.choice([0.0, 1.0, 5.0]))
    lost = metric._replace(unit="1", better="lower", kind="typical")
    return TrueMetric(lost, workload, 0.0, 0.0, "normal", {}, {}, counted, floor)


def draw_run(
    study: TrueStudy,
    *,
    blocks: int | None = None,
    name: str = "r1",
    changes: Mapping[tuple[str, str, str], float] | None = None,
) -> RunData:
    """Draw one run of a study; the same name draws the same first blocks.

    Args:
        study: The study.
        blocks: How many blocks, if not the study's.
        name: The run's identity.
        changes: By arm, workload and metric, a factor on the arm's true cost in this run.
    """
    many = study.blocks if blocks is None else blocks
    rng = np.random.default_rng([study.seed, 2, *name.encode()])
    arms, metrics = len(study.arms), len(study.metrics)
    logs = np.empty((many, arms, metrics))
    counts = np.zeros((many, arms, metrics))
    slow, failed = np.empty((many, arms)), np.empty((many, arms, metrics))
    before = np.zeros((arms, metrics))
    for block in range(many):
        noise = np.column_stack([_noise(each.law, rng, arms) for each in study.metrics])
        if study.lag and block:
            noise = study.lag * before + math.sqrt(1 - study.lag**2) * noise
        before = noise
        logs[block] = noise + 5 * rng.standard_normal(metrics)
        # What a block has in common cancels out; without its own scale it would drown the noise.
        slow[block], failed[block] = rng.random(arms), rng.random((arms, metrics))
        for j, each in enumerate(study.metrics):
            for i, arm in enumerate(study.arms):
                if each.counted:
                    one = each.counted[arm]
                    counts[block, i, j] = (rng.random() < one.share) * rng.poisson(one.mean)
    values = counts
    for j, each in enumerate(study.metrics):
        if each.counted:
            continue
        for i, arm in enumerate(study.arms):
            change = (changes or {}).get((arm, each.workload, each.metric.name), 1.0)
            share, factor = each.slow.get(arm, (0.0, 1.0))
            cost = np.log(each.costs.get(arm, 1.0) * change) + (slow[:, i] < share) * math.log(
                factor
            )
            sign = -1.0 if each.metric.better == "higher" else 1.0
            values[:, i, j] = each.typical * np.exp(sign * cost + each.spread * logs[:, i, j])
    return _run(study, name, values, _lost(study, failed, logs))


def _noise(law: Law, rng: np.random.Generator, size: int) -> np.ndarray:
    if law == "heavy":
        found: np.ndarray = rng.standard_t(4, size) / math.sqrt(2)
    elif law == "skewed":
        found = rng.exponential(size=size) - 1
    else:
        found = rng.standard_normal(size)
    return found


def _lost(study: TrueStudy, chance: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return which cells fail, by block, arm and metric (those of one workload alike)."""
    lost = np.zeros(chance.shape, dtype=bool)
    for i, arm in enumerate(study.arms):
        share = study.failing.get(arm, 0.0)
        if not share:
            continue
        if study.fails_slow:
            # The slowest boots by the first metric fail.
            noise = logs[:, i, 0] - logs[:, :, 0].mean(axis=1)
            lost[:, i, :] = (noise > np.quantile(noise, 1 - share))[:, None]
        elif study.by_cell:
            first = {each.workload: j for j, each in reversed(list(enumerate(study.metrics)))}
            for j, each in enumerate(study.metrics):
                lost[:, i, j] = chance[:, i, first[each.workload]] < share
        else:
            lost[:, i, :] = (chance[:, i, 0] < share)[:, None]
    return lost


def _run(study: TrueStudy, name: str, values: np.ndarray, lost: np.ndarray) -> RunData:
    workloads = list(dict.fromkeys(each.workload for each in study.metrics))
    cells, counted = [], []
    for block in range(len(values)):
        for i, arm in enumerate(study.arms):
            for workload in workloads:
                own = [j for j, each in enumerate(study.metrics) if each.workload == workload]
                failed = bool(lost[block, i, own[0]])
                status: CellStatus = "failed" if failed else "ok"
                cell = CellResult(
                    f"b{block + 1:03d}/{arm}/{SCENARIO}/{workload}[]", name, block + 1, arm,
                    SCENARIO, workload, "{}", 1, status, "it died" if failed else "", (), (), 1.0,
                    {}, 1,
                )  # fmt: skip
                cells.append(cell)
                if not failed:
                    seen = tuple(
                        Observation("subject", study.metrics[j].metric, float(values[block, i, j]))
                        for j in own
                    )
                    counted.append(FinishedCell(cell, seen, ()))
    return RunData(
        folder=Path("/nowhere"), run=name, study=_as_study(study, len(values)), study_path="",
        study_sha256="", seed=study.seed, host={"hostname": "here"}, versions={}, started_at=0.0,
        resumed=0, checks=(CheckResult("load", "ok", "0.1"),),
        platforms=tuple(_platform(arm, arm in study.emulated) for arm in study.arms),
        skipped=(), images=(), machines=(), cells=tuple(cells), counted=tuple(counted), series=(),
        blocks_finished=tuple(range(1, len(values) + 1)), decisions=(), complete=True,
        ended="complete", end_reason="", wall_s=1.0, booting_s=0.0, measuring_s=1.0,
    )  # fmt: skip


def _platform(arm: str, emulated: bool) -> PlatformResult:
    platform = "bare" if arm in (BASELINE, TWIN) else "qemu"
    return PlatformResult(arm, platform, {}, True, "", "", emulated, {}, {})


def _as_study(study: TrueStudy, blocks: int) -> dict[str, Any]:
    return {
        "study": "simulated",
        "title": "Simulated",
        "baseline": BASELINE,
        "aa": [BASELINE, TWIN] if TWIN in study.arms else None,
        "confidence": 0.95,
        "margin": study.margin,
        "blocks": {"least": blocks, "most": blocks, "precision": 0.05},
        "floors": {each.metric.name: each.floor for each in study.metrics if each.floor},
        "arms": {arm: {"platform": "bare" if arm == BASELINE else "qemu"} for arm in study.arms},
    }


def described(study: TrueStudy) -> str:
    """Return a study in one line, for the reader of a false sentence."""
    about = {"seed": study.seed, "arms": study.arms, "blocks": study.blocks, "hard": study.hard}
    return json.dumps(about)
