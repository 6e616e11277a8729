"""What notes, findings, pairs and ranks claim, and whether a known truth agrees."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from benchmarks._random_studies import BASELINE, TWIN
from benchmarks._sentence_claims import (
    LEAST,
    NUMBER,
    UNKNOWN,
    Claim,
    caution,
    direction_is_true,
    effect_claims,
    inside,
    number,
    rounding,
    within,
)
from benchmarks._sentence_truth import Truth
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Effect


def arm_claims(truth: Truth, comparison: Comparison) -> Iterator[Claim]:
    """Yield what the summary of each arm's verdicts claims."""
    for verdict in comparison.arm_verdicts:
        own = [e for e in comparison.headlines if e.arm == verdict.arm]
        text = verdict.sentence
        for word in ("worse", "better"):
            named = [e for e in own if e.verdict == word]
            if named and f"{word} in " in text:
                held = all(direction_is_true(truth, e, f"is {word} than") for e in named)
                yield Claim(f"arm: {word} in so many metrics", held, text)
        yield from _most_claims(truth, own, text)
        found = re.search(r"\(a cost up to (\S+) % is not excluded: (\S+) (\S+)", text)
        if found:
            effect = _named(own, found[2], found[3])
            size = (number(found[1]) + rounding(found[1])) / 100
            cost = truth.cost(effect)
            true = (max(cost, 1 / cost) if effect.better == "neither" else cost) - 1
            yield Claim("arm: a cost up to … is not excluded", true <= size, text)


def _named(effects: Sequence[Effect], workload: str, metric: str) -> Effect:
    return next(e for e in effects if (e.key.workload, e.key.metric) == (workload, metric))


def _most_claims(truth: Truth, own: Sequence[Effect], text: str) -> Iterator[Claim]:
    pattern = rf"\(most in (\S+) (\S+) \(\S+\): ({NUMBER}) to ({NUMBER}) times the cost\)"
    for found in re.finditer(pattern, text):
        true = truth.cost(_named(own, found[1], found[2]))
        yield Claim("arm: most in", inside(true, found[3], found[4]), text)


_SLOW = re.compile(
    r"(?P<count>\d+) of (?P<total>\d+) boots of (?P<arm>\S+) (?:was|were) slow, [\d.,]+× the "
    r"typical cost \(interval of the share: (?P<low>[\d.]+) to (?P<high>[\d.]+) %\)"
)
_BOOTS_WITH = re.compile(
    r"boots with any: (?P<arm>\S+) in (?P<counts>\d+ of \d+), interval (?P<low>[\d.]+) to "
    r"(?P<high>[\d.]+) %; the baseline in \d+ of \d+, interval (?P<base_low>[\d.]+) to "
    r"(?P<base_high>[\d.]+) %"
)
_ORDER = re.compile(
    r"(?:it seems to drift over the blocks|each block seems to be like the one before|over all "
    r"metrics of the arm each block seems to be like the one before|blocks seem to depend on each "
    r"other in another metric of the arm)"
)
_FAILED_ALONE = re.compile(r"\S+ failed in \d+ blocks? in which \S+(?: \S+)? did not")
_FACTS = re.compile(
    r"\d+ blocks? shared; 6 are the least for a verdict|.+ has no value in \d+ blocks?|a value is "
    r"zero or below, so differences are compared, not ratios.*|values sit on the clock's grid.*"
)


def flag_claims(truth: Truth, comparison: Comparison) -> Iterator[Claim]:
    """Yield what the findings next to effects claim, each once for an arm and metric."""
    yield from _cautions(truth, comparison)
    seen: set[tuple[str, str, str]] = set()
    for effect in comparison.headlines:
        for flag in effect.flags:
            about = (effect.arm, "" if flag.kind == "together" else effect.key.metric, flag.text)
            if about not in seen:
                seen.add(about)
                yield from _flag(truth, effect, flag.text)


def _cautions(truth: Truth, comparison: Comparison) -> Iterator[Claim]:
    """Yield whether cautions were given where they have no cause."""
    study = truth.study
    of_arm: dict[str, list[str]] = {}
    for effect in comparison.headlines:
        texts = [flag.text for flag in effect.flags]
        of_arm.setdefault(effect.arm, []).extend(texts)
        metric = truth.metric(effect.key)
        if effect.blocks < LEAST or metric.counted or metric.slow:
            continue
        grouped = [text for text in texts if text.startswith(f"the boots of {effect.arm} ")]
        yield caution("two groups of boots", given=bool(grouped), text="; ".join(grouped))
        slow = [text for text in texts if _SLOW.fullmatch(text) and f" {effect.arm} " in text]
        yield caution("slow boots", given=bool(slow), text="; ".join(slow))
    for texts in of_arm.values():
        if not study.lag and study.blocks >= LEAST:
            found = [text for text in texts if _ORDER.match(text)]
            yield caution(
                "blocks that depend on each other", given=bool(found), text="; ".join(found)
            )


def _flag(truth: Truth, effect: Effect, text: str) -> Iterator[Claim]:
    metric, study = truth.metric(effect.key), truth.study
    if found := _SLOW.fullmatch(text):
        share = metric.slow.get(found["arm"], (0.0, 1.0))[0]
        if share:
            yield Claim(
                "finding: share of slow boots",
                inside(100 * share, found["low"], found["high"]),
                text,
            )
    elif found := _BOOTS_WITH.fullmatch(text):
        for arm, low, high in ((found["arm"], "low", "high"), (BASELINE, "base_low", "base_high")):
            counted = metric.counted[arm]
            share = counted.share * (1 - math.exp(-counted.mean))
            if arm == BASELINE and TWIN in study.arms:
                share = 1 - (1 - share) ** 2
            yield Claim(
                "finding: boots with any", inside(100 * share, found[low], found[high]), text
            )
    elif _ORDER.match(text) or re.fullmatch(r"the boots of \S+ seem to form two groups, .+", text):
        return
    elif _FAILED_ALONE.fullmatch(text):
        yield Claim("finding: failed alone", bool(study.failing), text)
    elif text.startswith("a few boots move the mean"):
        found_robust = re.search(rf"(?:cost|ratio) is {NUMBER} \(({NUMBER}) to ({NUMBER})\)", text)
        assert found_robust is not None
        true = math.exp(truth.log_cost(effect.key, effect.arm, effect.baseline, mean=False))
        held = inside(true, found_robust[1], found_robust[2])
        yield Claim("finding: cost without a few boots", held, text)
    elif not _FACTS.fullmatch(text):
        yield Claim(UNKNOWN, False, text)


def failure_claims(truth: Truth, texts: Iterable[str]) -> Iterator[Claim]:
    """Yield what the notes on failed cells claim."""
    for text in texts:
        found = re.fullmatch(
            r"(\S+)(?: \(emulated\))?: \d+ of its \d+ cells failed, in \d+ of \d+ boots? "
            r"\((\S+) % to (\S+) % of all boots\); of bare \d+ of \d+\.",
            text,
        )
        if found:
            share = 100 * truth.study.share_of_failing_boots(found[1])
            held = inside(share, found[2], found[3])
            yield Claim("finding: share of boots with failed cells", held, text)
        elif not re.fullmatch(r".+ has no values: \d+ cells? failed \(.+\)\.", text):
            yield Claim(UNKNOWN, False, text)


def twin_claims(truth: Truth, comparison: Comparison) -> Iterator[Claim]:
    """Yield whether the note on the A/A pair was given although both are the same."""
    if comparison.aa_pair is None or truth.study.twin_cost != 1 or truth.study.blocks < LEAST:
        return
    notes = [note for note in comparison.notes if note.startswith("The A/A pair failed")]
    yield caution("the A/A pair failed", given=bool(notes), text=" ".join(notes))


def pair_claims(truth: Truth, comparison: Comparison) -> Iterator[Claim]:
    """Yield what the tables of pairs and ranks claim."""
    pairs = comparison.pairs
    if pairs is None or pairs.left_out:
        return
    for effect in pairs.each_once:
        yield from (
            effect_claims(truth, effect, "pairs, ")
            if effect.baseline == BASELINE
            else (_pair_verdicts(truth, effect))
        )
    for rank in pairs.ranks:
        metric = truth.metric(rank.key)
        if metric.counted:
            continue
        arms = [
            arm
            for arm in pairs.arms
            if any(r.key == rank.key and r.arm == arm for r in pairs.ranks)
        ]
        own = [truth.log_cost(rank.key, rank.arm, arm) for arm in arms if arm != rank.arm]
        best = 1 + sum(cost > 1e-12 for cost in own)
        worst = len(arms) - sum(cost < -1e-12 for cost in own)
        held = rank.best <= best and worst <= rank.worst
        yield Claim("ranking: places", held, f"{rank.arm} {rank.best} to {rank.worst}")


def _pair_verdicts(truth: Truth, effect: Effect) -> Iterator[Claim]:
    if truth.metric(effect.key).counted:
        return
    if effect.verdict in ("worse", "better", "differs"):
        word = {"worse": "is worse than", "better": "is better than", "differs": "differs from"}
        held = direction_is_true(truth, effect, word[effect.verdict])
        yield Claim(f"pairs, effect: {word[effect.verdict]}", held, effect.sentence)
    elif effect.verdict == "equivalent":
        held = within(truth.cost(effect), effect.margin)
        yield Claim("pairs, effect: equivalent", held, effect.sentence)
