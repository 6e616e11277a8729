"""Every arm against every other as data, and the ranks that this leaves possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.effects.results import Effect, Key, VerdictWord

DECLARED: tuple[VerdictWord, ...] = ("better", "worse")


@dataclass(frozen=True)
class Tie:
    """An arm that shares ranks with another, and why: *equivalent* to it, or not told from it."""

    arm: str
    verdict: VerdictWord


@dataclass(frozen=True)
class Rank:
    """The places that an arm can have in one metric, 1 being the best.

    An arm that others were declared better than comes after these, and before those that it was
    declared better than; between the two nothing decides. So the places are a range, and ranges
    of arms that were not told apart overlap. Where no pair is wrongly declared, which holds for
    all pairs together, all true places lie within their ranges (Mogstad et al. 2024, Klein et al.
    2020).

    Args:
        key: The metric.
        arm: The arm.
        best: The least place that is possible.
        worst: The greatest.
        ties: The arms that it was not told apart from, in the arms' order.
    """

    key: Key
    arm: str
    best: int
    worst: int
    ties: tuple[Tie, ...]


@dataclass(frozen=True)
class AllPairs:
    """Every arm against every other, over all headline metrics: one family of tests of its own.

    Args:
        arms: The arms; a twin is not among them, for its boots count as its arm's.
        effects: Each pair of arms and metric twice, either arm as the baseline of the other.
        ranks: Of each metric that has a better direction.
        tests: How many tests the family holds, each pair counted once.
        level: The familywise error kept.
        left_out: Why nothing was compared; empty where it was.
    """

    arms: tuple[str, ...]
    effects: tuple[Effect, ...]
    ranks: tuple[Rank, ...]
    tests: int
    level: float
    left_out: str = ""

    @property
    def each_once(self) -> tuple[Effect, ...]:
        """Each pair once: the later arm against the earlier one."""
        place = {arm: number for number, arm in enumerate(self.arms)}
        return tuple(e for e in self.effects if place[e.arm] > place[e.baseline])

    @property
    def declared(self) -> int:
        """How many pairs were told apart."""
        return sum(e.verdict in (*DECLARED, "differs") for e in self.each_once)


def ranked(effects: Iterable[Effect], arms: Sequence[str]) -> tuple[Rank, ...]:
    """Return the possible places of all arms, metric by metric.

    Args:
        effects: Each pair of arms both ways round, as `AllPairs` has them.
        arms: The arms, in the order in which ties are told.
    """
    of_key: dict[Key, list[Effect]] = {}
    for effect in effects:
        if effect.better != "neither":
            of_key.setdefault(effect.key, []).append(effect)
    found = []
    for key, members in of_key.items():
        verdicts = {(effect.arm, effect.baseline): effect.verdict for effect in members}
        there = [arm for arm in arms if any(arm in pair for pair in verdicts)]
        found += [_rank(key, arm, there, verdicts) for arm in there]
    return tuple(found)


def _rank(
    key: Key, arm: str, arms: Sequence[str], verdicts: Mapping[tuple[str, str], VerdictWord]
) -> Rank:
    others = [other for other in arms if other != arm]
    said = {other: _either_way(verdicts, arm, other) for other in others}
    behind = sum(word == "worse" for word in said.values())
    ahead = sum(word == "better" for word in said.values())
    ties = tuple(Tie(other, word) for other, word in said.items() if word not in DECLARED)
    return Rank(key, arm, 1 + behind, len(arms) - ahead, ties)


def _either_way(
    verdicts: Mapping[tuple[str, str], VerdictWord], arm: str, other: str
) -> VerdictWord:
    """Return a verdict that holds whichever of the two is the baseline."""
    ours = verdicts.get((arm, other), "inconclusive")
    turned = _TURNED.get(verdicts.get((other, arm), "inconclusive"))
    return ours if ours == turned else "inconclusive"


_TURNED: dict[VerdictWord, VerdictWord] = {
    "better": "worse",
    "worse": "better",
    "equivalent": "equivalent",
    "preliminary": "preliminary",
}
