"""Sentences of the first screen: claims hold for every true value that an interval allows."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from tare.analysis import compare_runs, load_run
from tare.analysis.effects.resources import resource_of
from tare.analysis.effects.results import Interval
from tare.analysis.model import Effect, ResourceCost, ResourceName
from tare.analysis.statistics.logratio import t_quantile
from tare.events.metric import Metric
from tare.report.page.verdicts import (
    LABELS,
    CostAxis,
    answer_lines,
    arm_sentences,
    bound,
    count_words,
    lead,
    resource_sentences,
)

COSTS = {
    "slower": (1.09, 1.06, 1.12),
    "much slower": (6.6, 6.3, 6.9),
    "faster": (0.91, 0.88, 0.95),
    "much faster": (0.32, 0.3, 0.35),
    "same": (1.001, 0.99, 1.012),
    "bounded": (1.02, 0.94, 1.118),
    "undecided": (1.1, 0.9, 1.31),
    "wide": (1.2, 0.2, 9.0),
}
"""Estimate and interval of each finding."""
RESOURCES: tuple[ResourceName, ...] = ("cpu", "memory", "network", "latency-worst")
NAMES = {label: name for name, label in LABELS.items()}


class Claim(NamedTuple):
    """Between which costs a sentence says that the true cost is."""

    low: float
    high: float


def a_cost(
    resource: ResourceName, numbers: tuple[float, float, float] | None, *, doubt: str = ""
) -> ResourceCost:
    """A cost of an invented arm; without numbers there are too few blocks."""
    interval = None if numbers is None else Interval(*numbers[1:], "student-t", 0.95)
    return ResourceCost(
        resource=resource, arm="kvm", baseline="bare", emulated=False, effects=(), averaged=1,
        blocks=8 if numbers else 3, each="block", cost=numbers[0] if numbers else 1.3,
        interval=interval, margin=0.02, doubt=doubt,
    )  # fmt: skip


def size(text: str) -> float:
    """A cost as sentences write it: ``+9 %``, ``−8 %``, ``6.6×``."""
    if text.endswith("×"):
        return float(text[:-1].replace(",", ""))
    return 1 + float(text.removesuffix(" %").replace("−", "-").replace(",", "")) / 100


def names_in(text: str) -> list[ResourceName]:
    found = [label for label in NAMES if re.search(rf"(?<![\w-]){label}(?![\w-])", text, re.I)]
    return [NAMES[label] for label in found]


def claims_of(sentences: Sequence[str]) -> Iterator[tuple[ResourceName, Claim]]:
    """Every claim of the sentences about an arm."""
    for sentence in sentences:
        if sentence.startswith(
            ("About ", "The figure for ", "The figures for ", "Slow boots", "So far: ")
        ):
            continue
        for clause in sentence.removesuffix(".").split("; "):
            if clause.lower().startswith("undecided: ") and "(" not in clause:
                for name in names_in(clause):
                    yield name, Claim(0, math.inf)
            elif clause.lower().startswith("undecided: "):
                for part in clause[11:].split("), "):
                    label, _, ends = part.removesuffix(")").partition(" (")
                    low, high = ends.split(" to ")
                    yield NAMES[label], Claim(size(low), size(high))
            elif " the same (" in clause or " within ±" in clause:
                share = size(clause.rpartition("±")[2].removesuffix(")")) - 1
                for name in names_in(clause):
                    yield name, Claim(1 / (1 + share), 1 + share)
            elif "no difference larger than" in clause:
                share = size(clause.rpartition("than ")[2]) - 1
                for name in names_in(clause):
                    yield name, Claim(1 / (1 + share), 1 + share)
            elif clause.lower().startswith("faster"):
                for name in names_in(clause):
                    yield name, Claim(0, 1)
            elif clause.lower().startswith("too few"):
                for name in names_in(clause) or RESOURCES:
                    yield name, Claim(0, math.inf)
            else:
                assert re.search("longer|as long|slower", clause, re.I), clause
                for name in names_in(clause):
                    yield name, Claim(1, math.inf)


KINDS: tuple[tuple[float, float, float] | None, ...] = (*COSTS.values(), None)


@pytest.mark.parametrize("worst", [*COSTS, "few blocks"])
def test_claims_hold_for_all_that_intervals_allow(worst: str) -> None:
    for numbers in itertools.product(KINDS, repeat=3):
        given = dict(zip(RESOURCES, (*numbers, COSTS.get(worst)), strict=True))
        costs = [a_cost(name, each) for name, each in given.items()]
        claims = list(claims_of(resource_sentences(costs)))
        assert sorted(name for name, _ in claims) == sorted(RESOURCES), "each is named once"
        for name, claim in claims:
            ends = given[name]
            if ends is not None:
                # Two digits of an end may be rounded by half a per cent of it.
                assert claim.low <= ends[1] * 1.006, (name, claim, ends)
                assert claim.high >= ends[2] * 0.994, (name, claim, ends)
            else:
                assert claim == Claim(0, math.inf)


WITHOUT_RATIO = replace(a_cost("memory", COSTS["same"]), averaged=0)


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize(("word", "other"), [("cache", "memory"), ("memory", "cache")])
def test_sentence_and_bar_have_one_word_for_a_resource(word: str, other: str, brief: bool) -> None:
    memory = [*(a_cost("memory", numbers) for numbers in KINDS), WITHOUT_RATIO]
    for cost, cpu in itertools.product(memory, KINDS):
        cost = replace(cost, cache=word == "cache")
        costs = [a_cost("cpu", cpu), cost]
        bar = CostAxis(costs).bar(cost)
        assert bar.label == word.capitalize()
        sentences = " ".join(resource_sentences(costs, brief=brief)).lower()
        assert other not in sentences + bar.about.lower()
        # If no resource has a verdict, none is named.
        assert word in sentences or (cost.finding, cpu) == ("preliminary", None)


def test_doubts_forbid_to_call_an_arm_equal_and_lost_cells_to_call_it_better() -> None:
    for kind in ("same", "bounded"):
        doubted = a_cost("cpu", COSTS[kind], doubt="1 boot of kvm is slow")
        assert doubted.finding == "undecided"
        assert doubted.blocks_to_decide is None
    lost = a_cost("cpu", COSTS["faster"])
    assert lost.finding == "faster"
    flattered = ResourceCost(**{**vars(lost), "flattered": frozenset({"better"})})
    assert flattered.finding == "undecided"


def test_more_blocks_are_advised_only_where_they_decide() -> None:
    undecided = a_cost("cpu", COSTS["undecided"])
    more = undecided.blocks_to_decide
    assert more is not None
    shrunk = math.sqrt(8 / (8 + more)) * t_quantile(0.95, 7 + more) / t_quantile(0.95, 7)
    half = shrunk * math.log(1.31 / 0.9) / 2
    then = a_cost("cpu", (1.0, math.exp(-half), math.exp(half)))
    assert then.finding == "bounded"
    assert a_cost("cpu", COSTS["wide"]).blocks_to_decide is None, (
        "advice of hundreds of blocks helps nobody"
    )
    assert "About" not in " ".join(resource_sentences([a_cost("latency-worst", COSTS["wide"])]))


def test_bounds_are_never_rounded_down() -> None:
    for share in (0.02, 0.0201, 0.1178, 0.9, 1.234, 12.01):
        shown = float(bound(share).removesuffix(" %").replace(",", "")) / 100
        assert share - 1e-9 <= shown <= share * 1.1 + 1e-9


def test_maxima_and_tails_are_a_resource_of_their_own() -> None:
    assert resource_of(Metric("m", "s", "lower", kind="maximum", resource="network")) == (
        "latency-worst"
    )
    assert resource_of(Metric("m", "s", "lower", resource="network")) == "network"
    assert resource_of(Metric("m", "s", "lower")) == "work"


TRUTH = {"cpu": 1.0, "memory": 1.15, "disk": 0.7, "network": 3.0}


def simulated(folder: Path, seed: int) -> dict[str, list[tuple[ResourceName, Claim]]]:
    """The claims of one simulated study whose metrics share noise within a resource."""
    metrics = [
        SimulatedMetric(
            f"m{number}",
            {"bare": 1.0, "a": cost, "b": cost},
            workload=f"{resource}-{number}",
            resource=resource,  # type: ignore[arg-type]
            spreads=(0.06, 0.02),
        )
        for resource, cost in TRUTH.items()
        for number in range(2)
    ]
    arms = {"bare": "bare", "a": "qemu", "b": "qemu"}
    run = SimulatedRun(metrics, arms=arms, emulated=frozenset(), seed=seed)
    found = compare_runs(load_run(write_run(folder / str(seed), events_of(run))))
    return {
        arm: list(claims_of(re.split(r"(?<=\.) ", sentence)))
        for arm, sentence in arm_sentences(found).items()
    }


def test_all_claims_of_a_study_are_true_together(tmp_path: Path) -> None:
    studies, wrong, decided = 40, 0, 0
    for seed in range(studies):
        claims = [one for of_arm in simulated(tmp_path, seed).values() for one in of_arm]
        assert len(claims) == 2 * len(TRUTH)
        true = [claim.low * 0.994 <= TRUTH[name] <= claim.high * 1.006 for name, claim in claims]
        wrong += not all(true)
        decided += sum(claim.low >= 1 or claim.high <= 1 for _, claim in claims)
    # 5 % of studies may be wrong in any claim: 2 of 40, and three standard errors more.
    assert wrong <= 6
    assert decided > 2 * studies, "not because nothing is claimed"


def test_a_resource_is_the_geometric_mean_of_its_metrics_in_the_direction_of_cost(
    tmp_path: Path,
) -> None:
    spreads = (1e-4, 1e-5)
    metrics = [
        SimulatedMetric("t", {"bare": 1.0, "a": 2.0}, "w1", resource="disk", spreads=spreads),
        SimulatedMetric(
            "rate", {"bare": 8.0, "a": 1.0}, "w2", unit="1/s", better="higher", resource="disk",
            spreads=spreads,
        ),
        SimulatedMetric(
            "max", {"bare": 1.0, "a": 30.0}, "w3", kind="maximum", resource="disk", spreads=spreads
        ),
    ]  # fmt: skip
    run = SimulatedRun(metrics, arms={"bare": "bare", "a": "qemu"}, emulated=frozenset())
    found = compare_runs(load_run(write_run(tmp_path, events_of(run))))
    disk, worst = found.resources
    assert (disk.resource, disk.averaged) == ("disk", 2)
    assert disk.cost == pytest.approx(4.0, rel=1e-3)
    assert disk.worst is not None and worst_of(disk).key.metric == "rate"
    assert (worst.resource, worst.averaged) == ("latency-worst", 1)
    assert worst.cost == pytest.approx(30.0, rel=1e-3)


SHORT_STUDIES: dict[str, tuple[int, tuple[ResourceName, ...]]] = {
    "quick": (3, ("cpu", "memory", "latency", "latency-worst")),
    "realtime-short": (3, ("cpu", "latency", "latency-worst")),
    "components-smoke": (
        2,
        ("cpu", "memory", "disk", "network", "latency", "latency-worst", "application"),
    ),
}
"""Arms next to the bare machine on a host without KVM, and the resources that are measured."""


@pytest.mark.parametrize("study", SHORT_STUDIES)
def test_an_answer_has_at_most_eighty_words_and_names_every_resource(
    tmp_path: Path, study: str
) -> None:
    arms, resources = SHORT_STUDIES[study]
    names = [f"arm-{number}" for number in range(arms)]
    metric = SimulatedMetric("m", {"bare": 1.0, **dict.fromkeys(names, 2.0)}, workload="w")
    platforms = {"bare": "bare", **dict.fromkeys(names, "qemu")}
    run = SimulatedRun([metric], arms=platforms, emulated=frozenset(), seed=3)
    found = compare_runs(load_run(write_run(tmp_path, events_of(run))))
    drawn = random.Random(1)
    for _ in range(500):
        costs = [
            replace(a_cost(name, drawn.choice(list(COSTS.values()))), arm=arm)
            for arm in names
            for name in resources
        ]
        answers = arm_sentences(replace(found, resources=tuple(costs)))
        assert count_words([lead(found), *answers.values()]) <= 80, answers
        for text in answers.values():
            assert sorted(names_in(text)) == sorted(resources)


def worst_of(cost: ResourceCost) -> Effect:
    assert cost.worst is not None
    return cost.worst


@pytest.mark.parametrize("width", [None, 40, 80, 200])
@pytest.mark.parametrize("arms", [1, 4, 12, 30])
def test_a_run_ends_with_at_most_twelve_lines(tmp_path: Path, arms: int, width: int | None) -> None:
    names = [f"arm-{number}" for number in range(arms)]
    metrics = [
        SimulatedMetric(
            resource,
            {"bare": 1.0, **dict.fromkeys(names, cost)},
            workload=resource,
            resource=resource,  # type: ignore[arg-type]
            spreads=(0.06, 0.02),
        )
        for resource, cost in TRUTH.items()
    ]
    platforms = {"bare": "bare", **dict.fromkeys(names, "qemu")}
    run = SimulatedRun(metrics, arms=platforms, emulated=frozenset(), seed=3)
    found = compare_runs(load_run(write_run(tmp_path / "run", events_of(run))))
    lines = answer_lines(found, 12, width)
    assert 2 <= len(lines) <= 12
    assert lines[0].startswith("Cost compared with bare")
    if width is not None:
        assert all(len(line) <= width for line in lines)
    shown = [name for name in names if any(re.match(rf"{name}\b", line) for line in lines)]
    if len(shown) == arms:
        assert "see the report" not in lines[-1]
    else:
        left = arms - len(shown)
        assert re.match(rf"{left} (more )?arms?: see the report\.", lines[-1])
    assert answer_lines(found) == answer_lines(found, 10**6)
