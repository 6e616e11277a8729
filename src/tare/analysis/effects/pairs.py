"""The comparison of every arm with every other as data, and the ranks that it leaves possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.effects.results import Effect, Key, VerdictWord

DECLARED: tuple[VerdictWord, ...] = ("better", "worse")


@dataclass(frozen=True)
class Tie:
    """An arm that shares ranks with another: *equivalent* to it, or no difference was detected."""

    arm: str
    verdict: VerdictWord


@dataclass(frozen=True)
class Rank:
    """The ranks that an arm can have in one metric; 1 is the best.

    An arm comes after the arms that were declared better than it, and before those that it was
    declared better than. The order of all others is open. So its ranks are a range, and the ranges
    of arms without a detected difference overlap. If no pair is wrongly declared, all true ranks
    are within their ranges (Mogstad et al. 2024, Klein et al. 2020). The familywise level covers
    all pairs together.

    Args:
        key: The metric.
        arm: The arm.
        best: The least possible rank.
        worst: The greatest possible rank.
        ties: The arms from which no difference was declared, in the arms' order.
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
        arms: The arms without twins, whose boots count as their arm's.
        effects: Each pair of arms and metric twice, with either arm as the baseline of the other.
        ranks: The ranks of arms for each metric that has a better direction.
        tests: The number of tests in the family; each pair counts once.
        level: The familywise error rate.
        left_out: Why nothing was compared; empty if it was.
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
        """The number of pairs whose arms were declared to differ."""
        return sum(e.verdict in (*DECLARED, "differs") for e in self.each_once)


def ranked(effects: Iterable[Effect], arms: Sequence[str]) -> tuple[Rank, ...]:
    """Return the possible ranks of all arms, metric by metric.

    Args:
        effects: Each pair of arms both ways round, as in `AllPairs`.
        arms: The arms, in the order in which ties are listed.
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
    against = {other: _either_way(verdicts, arm, other) for other in others}
    behind = sum(word == "worse" for word in against.values())
    ahead = sum(word == "better" for word in against.values())
    ties = tuple(Tie(other, word) for other, word in against.items() if word not in DECLARED)
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
