"""What each sentence of reports claims, read from its words, and whether a known truth agrees.

Every sentence has to match a pattern: one that does not is reported, so none goes unchecked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._random_studies import BASELINE, TWIN
from benchmarks._sentence_truth import Truth
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Effect, Key
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.maxt import least_blocks
from tare.report.page.verdicts import LABELS

UNKNOWN = "not recognized"
LEAST = least_blocks(0.05)
NUMBER = r"[-−+]?(?:[\d,]+(?:\.\d+)?|∞|inf)(?:e[-+]?\d+)?"
_PERCENT = rf"({NUMBER}) %"
_LABEL = "|".join(re.escape(label) for label in LABELS.values())
_OF_LABEL = {label.lower(): name for name, label in LABELS.items()}
_PREFIXES = {"p": 1e-12, "n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True)
class Claim:
    """One claim of a sentence.

    Args:
        kind: What kind of sentence it is.
        true: Whether it is true.
        text: The sentence.
        chance: How often such a sentence may be false by its own words, if not in 5 %.
    """

    kind: str
    true: bool
    text: str
    chance: float = 0.05


def caution(kind: str, *, given: bool, text: str = "") -> Claim:
    """Return whether a caution was given without a cause, where there is none.

    A caution says what seems to be, so it is counted over all that it may be given about, not only
    where it was given.
    """
    return Claim(f"caution without a cause: {kind}", not given, text)


def number(text: str) -> float:
    """Return a number as reports write it."""
    return float(text.replace(",", "").replace("−", "-").replace("∞", "inf"))


def rounding(text: str) -> float:
    """Return half a unit of the last digit: what rounding may hide."""
    digits = text.replace(",", "").strip("+-−")
    if not math.isfinite(number(text)) or "e" in digits:
        return 0.0
    places = len(digits.split(".")[1]) if "." in digits else 0
    if places:
        return float(0.5 * 10.0**-places)
    # Zeros at the end of a whole number may be rounded: 1,230 has three digits.
    return float(0.5 * 10.0 ** (len(digits) - len(digits.rstrip("0")))) if digits != "0" else 0.0


def quantity(text: str, unit: str) -> tuple[float, float]:
    """Return a quantity in its unit, and what rounding may hide of it."""
    found = re.fullmatch(rf"({NUMBER})\s*(.*)", text.strip())
    if found is None:
        raise ValueError(f"no quantity: {text!r}")
    written = found[2]
    shown = {"1": "", "1/s": "/s"}.get(unit, unit)
    factor = _PREFIXES[written.removesuffix(shown)] if shown else 1.0
    return number(found[1]) * factor, rounding(found[1]) * factor


def inside(value: float, low: str, high: str) -> bool:
    """Return whether a value is between two written numbers, up to their rounding."""
    return number(low) - rounding(low) <= value <= number(high) + rounding(high)


def answer_claims(
    truth: Truth,
    comparison: Comparison,
    arm: str,
    text: str,
    decides: Callable[[int], Mapping[str, bool]] | None = None,
) -> Iterator[Claim]:
    """Yield what the answer for an arm claims.

    Args:
        truth: The truth.
        comparison: The comparison.
        arm: The arm.
        text: Its sentences.
        decides: Returns by resource whether so many more blocks decide it; None: not tried.
    """
    costs = {c.resource: c for c in comparison.resources if c.arm == arm}

    slow = _SLOW_INCLUDED.search(text)
    with_slow = [label.lower() for label in _labels(slow[1] or slow[2])] if slow else []

    def true_cost(label: str) -> float:
        if label.lower() in with_slow:
            return replace(truth, typical=False).resource(costs[_OF_LABEL[label.lower()]].effects)
        return truth.resource(costs[_OF_LABEL[label.lower()]].effects)

    for sentence in re.split(r"(?<=\.)\s+(?=[A-Z0-9])", text):
        for clause in sentence.rstrip(".").split("; "):
            yield from _clause(truth, comparison, arm, clause, true_cost, decides)


_SLOW_INCLUDED = re.compile(
    r"(?:The figures? for (.+?) includes? boots that seem slow|Slow boots: (.+?))\."
)


def slow_included(text: str) -> frozenset[str]:
    """Return the resources whose answer reports that slow boots are included."""
    found = _SLOW_INCLUDED.search(text)
    return (
        frozenset(_OF_LABEL[label.lower()] for label in _labels(found[1] or found[2]))
        if found
        else frozenset()
    )


def _labels(text: str) -> list[str]:
    return re.split(r", | and ", text)


_NAMES = rf"(?i:(?:{_LABEL})(?:, (?:{_LABEL}))*(?: and (?:{_LABEL}))?)"
_MORE = rf"(?:{NUMBER} % longer|{NUMBER}× as long)"
_LESS = rf"(?:{NUMBER} % less time|{NUMBER}× as long)"
_SIZE = rf"(?:{NUMBER} %|{NUMBER}×)"
_ONE = rf"(?i:{_LABEL})"
_CHANGE_SO_FAR = rf"(?:[+−]?{NUMBER} %|{NUMBER}×|no change)"


def _clause(
    truth: Truth,
    comparison: Comparison,
    arm: str,
    clause: str,
    true_cost: Callable[[str], float],
    decides: Callable[[int], Mapping[str, bool]] | None,
) -> Iterator[Claim]:
    costs = {c.resource: c for c in comparison.resources if c.arm == arm}
    full: Callable[[str], re.Match[str] | None] = lambda pattern: re.fullmatch(pattern, clause)  # noqa: E731
    if full(rf"{_ONE} takes {_MORE}(?:, {_ONE} {_MORE})*"):
        for label in re.findall(rf"({_ONE}) (?:takes )?{_MORE}", clause):
            yield Claim("answer: slower", true_cost(label) > 1, clause)
    elif full(rf"(?i:faster): {_ONE} {_LESS}(?:, {_ONE} {_LESS})*"):
        for label in re.findall(rf"({_ONE}) {_LESS}", clause):
            yield Claim("answer: faster", true_cost(label) < 1, clause)
    elif found := full(rf"(?i:slower) in ({_NAMES}) \((?:{_MORE}|{NUMBER}× to {NUMBER}×)\)"):
        for label in _labels(found[1]):
            yield Claim("answer: slower", true_cost(label) > 1, clause)
    elif found := full(rf"(?i:faster) in ({_NAMES})"):
        for label in _labels(found[1]):
            yield Claim("answer: faster", true_cost(label) < 1, clause)
    elif found := full(rf"({_NAMES}) the same \((?:within )?±{_PERCENT}\)"):
        for label in _labels(found[1]):
            yield Claim(
                "answer: the same", within(true_cost(label), number(found[2]) / 100), clause
            )
    elif found := full(rf"({_NAMES})(?:: no difference larger than | within ±){_PERCENT}"):
        for label in _labels(found[1]):
            share = number(found[2]) / 100
            yield Claim("answer: no difference larger", within(true_cost(label), share), clause)
    elif found := full(rf"(?i:undecided): ({_NAMES})"):
        yield Claim("answer: undecided", True, clause)
    elif full(
        rf"(?i:undecided): {_ONE} \({_SIZE} to {_SIZE}\)(?:, {_ONE} \({_SIZE} to {_SIZE}\))*"
    ):
        for label, low, high in re.findall(rf"({_ONE}) \(({_SIZE}) to ({_SIZE})\)", clause):
            held = as_factor(low, -1) <= true_cost(label) <= as_factor(high, 1)
            yield Claim("answer: undecided, from … to", held, clause)
    elif found := full(rf"({_ONE}) (worse|better) by (\S+(?: \S+)?) \((\S+)/(\S+)\)"):
        metric = truth.study.by_name[found[4], found[5]]
        size = metric.difference(arm, BASELINE, mean=True)
        yield Claim("answer: difference of counts", (size > 0) == (found[2] == "worse"), clause)
    elif found := full(rf"({_ONE}) the same"):
        name = _OF_LABEL[found[1].lower()]
        cost = next(c for c in comparison.resources if (c.arm, c.resource) == (arm, name))
        held = all(abs(truth.difference(e)) <= e.margin * 1.001 for e in cost.effects)
        yield Claim("answer: counts the same", held, clause)
    elif full(rf"{_ONE} undecided"):
        yield Claim("answer: undecided", True, clause)
    elif found := full(
        rf"(?i:about) ([\d,]+) more blocks? (?:is|are) likely to decide (it|them|{_NAMES})"
    ):
        if decides is not None:
            undecided = [c.resource for c in comparison.resources
                         if c.arm == arm and c.blocks_to_decide is not None]  # fmt: skip
            after = decides(int(number(found[1])))
            for name in undecided:
                yield Claim("answer: more blocks decide", after.get(name, False), clause, 0.2)
    elif found := full(
        rf"(?i:too few) blocks for a verdict(?: on {_NAMES})? \((\d+) of the (\d+) needed\)"
    ):
        yield Claim("answer: too few blocks", int(found[1]) < int(found[2]) == LEAST, clause)
    elif full(rf"(?i:so far): {_ONE} {_CHANGE_SO_FAR}(?:, {_ONE} {_CHANGE_SO_FAR})*"):
        # Measured sizes without a bound: they may appear only if there is no verdict.
        for label in re.findall(rf"({_ONE}) {_CHANGE_SO_FAR}", clause):
            finding = costs[_OF_LABEL[label.lower()]].finding
            yield Claim("answer: sizes so far", finding == "preliminary", clause)
    elif full(rf"The figures? for {_NAMES} includes? boots that seem slow|Slow boots: {_NAMES}"):
        # How often boots seem slow that are not is counted with cautions.
        return
    elif found := full(r"(\d+) of its (\d+) cells failed"):
        yield Claim("answer: cells failed", truth.study.failing.get(arm, 0.0) > 0, clause)
    elif full("No headline metric was measured in blocks that it shares with the baseline"):
        yield Claim("answer: nothing shared", True, clause)
    else:
        yield Claim(UNKNOWN, False, clause)


def as_factor(text: str, side: int) -> float:
    """Return a size, in per cent or as a factor, as a factor, moved outwards by its rounding."""
    size = text.removesuffix(" %").removesuffix("×")
    value = number(size) + side * rounding(size)
    return 1 + value / 100 if text.endswith("%") else value


def within(cost: float, margin: float) -> bool:
    """Return whether a true cost is within a margin, in either direction."""
    return abs(math.log(cost)) <= math.log1p(margin) + 1e-9


def bar_claims(truth: Truth, comparison: Comparison, answers: Mapping[str, str]) -> Iterator[Claim]:
    """Yield whether all bars of a page hold together, next to the answers of all arms."""
    held, any_bar = True, False
    for cost in comparison.resources:
        if cost.interval is None or not cost.averaged:
            continue
        slow = cost.resource in slow_included(answers.get(cost.arm, ""))
        true = (replace(truth, typical=False) if slow else truth).resource(cost.effects)
        any_bar = True
        held = held and cost.interval.low <= true <= cost.interval.high
    if any_bar:
        yield Claim("bars: all hold together", held, truth.study.hard or "plain")


_WORST = re.compile(rf"worst metric (\S+)/(\S+), ({NUMBER}) to ({NUMBER})×\.")


def worst_claims(truth: Truth, arm: str, about: str, *, slow: bool) -> Iterator[Claim]:
    """Yield what a bar's words claim of its worst metric.

    Args:
        truth: The truth.
        arm: The arm.
        about: The words.
        slow: Whether slow boots are included, by the answer next to it.
    """
    known = replace(truth, typical=False) if slow else truth
    for found in _WORST.finditer(about):
        key = Key("", found[1], "", "", found[2])
        true = math.exp(known.log_cost(key, arm, BASELINE))
        yield Claim("bars: worst metric", inside(true, found[3], found[4]), about)


_TYPICAL_BOOTS = (
    r"(?P<typical> in typical boots; up to (?P<slow>\S+) % of boots may be slow and not be among "
    r"these \d+)"
)
_ENDS = r"\((?P<confidence>[\d.]+) % interval (?P<low>.+?) to (?P<high>.+?)\)"
_SHAPES = (
    ("declared", re.compile(
        rf".+: .+ (?P<word>is worse than|is better than|differs from) .+?, (?P<size>.+?) {_ENDS}, "
        r"p = .+ over .+\.")),
    ("equivalent", re.compile(
        rf".+: .+ is equivalent to .+?; (?P<size>.+?) (?:{_ENDS}|\(no difference in any of \d+ "
        rf"blocks\)), all within ± (?P<margin>.+?)(?:, and at most (?P<rare>\S+) % of blocks are "
        rf"beyond that|{_TYPICAL_BOOTS})?\.")),
    ("inconclusive", re.compile(
        rf".+: inconclusive between .+ and .+?: (?P<open>.+?); (?P<size>.+?) (?:{_ENDS}|"
        r"\(no interval\)|\(no difference in any of \d+ blocks\))(?P<why>.*)\.")),
    ("preliminary", re.compile(
        r".+: .+ against .+, preliminary: (?P<size>.+?)(?: \(.+ in its (?P<blocks>\d+) blocks\)"
            r"| in "
        r"one block)?; (?P<least>\d+) blocks are the least for a verdict\.")),
)  # fmt: skip


@dataclass(frozen=True)
class _Claimed:
    """What the sentence of an effect is about.

    Args:
        truth: The truth.
        effect: The effect.
        without: Arms whose events the sentence leaves out, as none was seen.
        left_out: Whether it says that failed cells are left out.
    """

    truth: Truth
    effect: Effect
    without: tuple[str, ...]
    left_out: bool

    @property
    def difference(self) -> float:
        """The true difference."""
        return self.truth.difference(self.effect, self.without)

    @property
    def cost(self) -> float:
        """The true cost, as a ratio."""
        if self.left_out:
            return self.truth.survivors(self.effect)
        return self.truth.cost(self.effect)

    @property
    def worse(self) -> float:
        """By how much the arm truly is worse: above 0, below 0, or 0."""
        if self.effect.scale == "ratio":
            return math.log(self.cost)
        return -self.difference if self.effect.better == "higher" else self.difference


_WITHOUT = re.compile(
    r" No block of (.+) had any: up to (\S+) % of its blocks may, which the interval does not "
    r"cover\."
)
_SLOW_BOOTS = re.compile(r" The mean includes slow boots: .+? \(interval of the share: .+?\)\.")
_LEFT_OUT = re.compile(
    r" Failed cells are left out: \S+ failed in \d+ blocks? in which .+? did not\."
)


def effect_claims(truth: Truth, effect: Effect, prefix: str = "") -> Iterator[Claim]:
    """Yield what the sentence of an effect claims.

    Args:
        truth: The truth.
        effect: The effect, which the sentence is about.
        prefix: Put before the kind, such as for pairs of arms.
    """
    text = effect.sentence
    without: tuple[str, ...] = ()
    if seen := _WITHOUT.search(text):
        without = tuple(seen[1].split(" and "))
        share = (number(seen[2]) + rounding(seen[2])) / 100
        for arm in without:
            counted = truth.metric(effect.key).counted[arm]
            held = counted.share * (1 - math.exp(-counted.mean)) <= share
            yield Claim(f"{prefix}effect: no boot had any, up to … may", held, text)
    left_out = _LEFT_OUT.search(text) is not None or " failed in " in text
    # A sentence that says so is about the mean of all boots, slow ones included.
    slow = _SLOW_BOOTS.search(text) is not None or "× the typical cost (" in text
    claimed = _Claimed(replace(truth, typical=False) if slow else truth, effect, without, left_out)
    short = _LEFT_OUT.sub("", _SLOW_BOOTS.sub("", _WITHOUT.sub("", text)))
    matches = ((name, pattern.fullmatch(short)) for name, pattern in _SHAPES)
    name, found = next((each for each in matches if each[1] is not None), ("", None))
    if found is None:
        yield Claim(UNKNOWN, False, text)
        return
    words = found.groupdict()
    yield from _interval_claim(claimed, words, text, prefix)
    if name == "declared":
        kind = f"{prefix}effect: {words['word']}"
        yield Claim(kind, _agrees(claimed.worse, words["word"]), text)
    elif name == "equivalent":
        yield _equivalent_claim(claimed, words, text, prefix)
        if words.get("slow"):
            yield from slow_claims(truth, effect, words["slow"], text, prefix)
        if words.get("rare"):
            beyond = truth.metric(effect.key).share_beyond(effect.arm, BASELINE, effect.margin)
            share = (number(words["rare"]) + rounding(words["rare"])) / 100
            yield Claim(f"{prefix}effect: at most so many beyond", beyond <= share, text)
    elif name == "preliminary":
        yield Claim(f"{prefix}effect: preliminary", effect.blocks < int(words["least"]), text)
    else:
        yield _open_claim(claimed, words["open"], text, prefix)
        yield from _reasons(truth, effect, words["why"], text, prefix)


def slow_claims(
    truth: Truth, effect: Effect, words: str, text: str, prefix: str
) -> Iterator[Claim]:
    """Yield whether no more boots are slow than a sentence leaves open."""
    slow = truth.metric(effect.key).slow
    share = (number(words) + rounding(words)) / 100
    for arm in (effect.arm, effect.baseline):
        held = slow.get(arm, (0.0, 1.0))[0] <= share
        yield Claim(f"{prefix}effect: up to … of slow boots are open", held, text)


def _interval_claim(
    claimed: _Claimed, words: Mapping[str, str | None], text: str, prefix: str
) -> Iterator[Claim]:
    effect = claimed.effect
    low, high = words.get("low"), words.get("high")
    if low is None or high is None:
        return
    if effect.scale == "difference":
        ends = quantity(low, effect.unit), quantity(high, effect.unit)
        held = ends[0][0] - ends[0][1] <= claimed.difference <= ends[1][0] + ends[1][1]
        yield Claim(f"{prefix}effect: interval of a difference", held, text)
    else:
        kind = "typical" if effect.kind == "typical" else "tails and maxima"
        yield Claim(f"{prefix}effect: interval ({kind})", inside(claimed.cost, low, high), text)


def direction_is_true(truth: Truth, effect: Effect, word: str) -> bool:
    return _agrees(_Claimed(truth, effect, (), False).worse, word)


def _agrees(more: float, word: str) -> bool:
    if word == "differs from":
        return abs(more) > 1e-12
    return more > 1e-12 if word == "is worse than" else more < -1e-12


def _equivalent_claim(
    claimed: _Claimed, words: Mapping[str, str | None], text: str, prefix: str
) -> Claim:
    margin, effect = words["margin"] or "", claimed.effect
    if effect.scale == "difference":
        size, step = quantity(margin, effect.unit)
        held = abs(claimed.difference) <= size + step
        return Claim(f"{prefix}effect: equivalent (difference)", held, text)
    share = (number(margin.removesuffix(" %")) + rounding(margin.removesuffix(" %"))) / 100
    return Claim(f"{prefix}effect: equivalent", within(claimed.cost, share), text)


def _open_claim(claimed: _Claimed, words: str, text: str, prefix: str) -> Claim:
    effect = claimed.effect
    kind = f"{prefix}effect: a cost up to … is not excluded"
    if words == "no cost is excluded":
        return Claim(f"{prefix}effect: no cost is excluded", True, text)
    if effect.scale == "difference":
        true = claimed.worse
    else:
        cost = claimed.cost
        true = (max(cost, 1 / cost) if effect.better == "neither" else cost) - 1
    if re.fullmatch(
        "the interval by itself excludes every (?:cost|difference), but no gain is shown", words
    ):
        # This is about the interval alone, which is counted by itself.
        return Claim(f"{prefix}effect: by itself excludes every cost", True, text)
    found = re.fullmatch(r"a (?:cost|difference) up to (.+) is not excluded", words)
    if found is None:
        return Claim(UNKNOWN, False, text)
    if effect.scale == "difference":
        size, step = quantity(found[1], effect.unit)
        true = abs(true) if effect.better == "neither" else true
        return Claim(kind, true <= size + step, text)
    size_text = found[1].removesuffix(" %")
    return Claim(kind, true <= (number(size_text) + rounding(size_text)) / 100, text)


def _reasons(truth: Truth, effect: Effect, why: str, text: str, prefix: str) -> Iterator[Claim]:
    if not why:
        return
    resolve = re.match(rf"\. This set-up cannot resolve {_PERCENT}(?P<rest>.*)", why)
    if resolve is not None:
        rest = resolve["rest"]
        if more := re.match(
            r": about ([\d,]+) blocks would in 80 % of studies of equal arms "
            r"whose noise is normal, or less noise",
            rest,
        ):
            normal = truth.metric(effect.key).law == "normal" and not truth.study.hard
            if prefix == "" and normal and effect.kind == "typical":
                shown = _shows_equality(
                    truth, effect, int(number(more[1])), number(resolve[1]) / 100
                )
                yield Claim("effect: so many blocks would show equality", shown, text, 0.2)
        elif not rest.startswith(
            (": its noise must become less first", ": the clock's steps hide")
        ):
            yield Claim(UNKNOWN, False, text)
    elif not re.match(
        r"\. (?:It is within ± |What is left looks |But |\d+ blocks leave open that each|[A-Z1-9])",
        why,
    ):
        yield Claim(UNKNOWN, False, text)


def _shows_equality(truth: Truth, effect: Effect, blocks: int, margin: float) -> bool:
    """Return whether a study of two equal arms with so many blocks shows that they are equal."""
    metric = truth.metric(effect.key)
    rng = np.random.default_rng([truth.study.seed, 3, *effect.key.metric.encode(), blocks])
    drawn = rng.standard_normal((3, blocks))
    base = (drawn[1] + drawn[2]) / 2 if TWIN in truth.study.arms else drawn[1]
    logs = metric.spread * (drawn[0] - base)
    found = mean_interval(logs, 0.95)
    bar = math.log1p(margin)
    return bool(-bar <= found.low and found.high <= bar)
