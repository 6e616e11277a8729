"""Every kind of sentence of reports, against the truth of random studies.

Random studies are drawn, compared, and put into the words of the page, the terminal, ``compare``
and gates. Each sentence is read back and held against the truth that the study was drawn from.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import _proxy_simulations as proxies
from benchmarks._finding_claims import (
    arm_claims,
    failure_claims,
    flag_claims,
    pair_claims,
    twin_claims,
)
from benchmarks._random_studies import BASELINE, TrueStudy, described, draw_run, random_study
from benchmarks._sentence_claims import (
    LEAST,
    UNKNOWN,
    Claim,
    answer_claims,
    as_factor,
    bar_claims,
    effect_claims,
    inside,
    number,
    slow_included,
    within,
    worst_claims,
)
from benchmarks._sentence_truth import Truth
from benchmarks.verdict_simulations import write_between_marks
from tare.analysis.effects.all_pairs import compare_every_pair
from tare.analysis.effects.compare import compare
from tare.analysis.effects.comparison import Comparison
from tare.analysis.runs.change_verdicts import JudgedChange, changed
from tare.analysis.runs.gates import check, parse_gate
from tare.analysis.runs.resource_changes import resource_changes
from tare.analysis.statistics.shares import exact_share
from tare.report.compare.answer import change_sentences
from tare.report.compare.gates import as_text
from tare.report.figures.palette import looks
from tare.report.page.verdicts import (
    LABELS,
    answer_lines,
    arm_lines,
    arm_sentences,
    failure_notes,
    lead,
)

STUDIES = 10_000
MARKS = ("<!-- sentences -->", "<!-- sentences end -->")
TYPICAL = "in typical boots"

Factor = Callable[[JudgedChange], float]
"""Returns the factor by which the cost of an arm truly changed."""


@dataclass(frozen=True)
class Kind:
    """How often one kind of sentence was produced, and how often it was false.

    Args:
        name: The kind.
        produced: How often.
        false: How often it was false.
        hard: How often it was false in hard studies.
        chance: How often it may be false by its own words.
    """

    name: str
    produced: int
    false: int
    hard: int
    chance: float

    @property
    def ends(self) -> tuple[float, float]:
        """The exact 95 % interval of the share that is false."""
        share = exact_share(self.false, self.produced, 0.95)
        return share.low, share.high

    @property
    def good(self) -> bool:
        """Whether no more are false than may be: the interval does not exclude it."""
        return self.name != UNKNOWN and self.ends[0] <= self.chance


def claims_of(study: TrueStudy, *, pairs: bool, runs: bool, more: bool) -> Iterator[Claim]:
    """Yield what all sentences about a study claim.

    Args:
        study: The study.
        pairs: Whether all pairs of arms are compared.
        runs: Whether a second run is drawn and compared with the first.
        more: Whether it is tried what more blocks decide.
    """
    run = draw_run(study)
    if not run.counted or not any(c.result.arm == BASELINE for c in run.counted):
        return
    comparison = compare_every_pair([run]) if pairs else compare([run])
    opening = lead(comparison)
    truth = Truth(study, typical=TYPICAL in opening)
    if not opening:
        return

    def decides(blocks: int) -> Mapping[str, bool]:
        longer = compare([draw_run(study, blocks=study.blocks + blocks)])
        return {c.resource: c.finding != "undecided" for c in longer.resources if c.arm == arm}

    yield from _lead_slow(study, comparison, opening)
    sentences = arm_sentences(comparison)
    for arm, text in sentences.items():
        yield from answer_claims(truth, comparison, arm, text, decides if more else None)
    shown = answer_lines(comparison)
    if shown[1:] != [f"{arm}{_mark(study, arm)}: {text}" for arm, text in sentences.items()]:
        yield Claim(UNKNOWN, False, "\n".join(shown))
    yield from bar_claims(truth, comparison, sentences)
    for line in arm_lines(comparison, looks(comparison.arms, BASELINE)):
        for bar in line.bars:
            slow = bar.resource in slow_included(sentences.get(line.name, ""))
            yield from worst_claims(truth, line.name, bar.about, slow=slow)
    for effect in comparison.effects:
        yield from effect_claims(truth, effect)
    yield from arm_claims(truth, comparison)
    yield from flag_claims(truth, comparison)
    yield from failure_claims(truth, failure_notes(comparison))
    yield from twin_claims(truth, comparison)
    if pairs:
        yield from pair_claims(truth, comparison)
    if runs:
        yield from run_claims(study, comparison)


def _lead_slow(study: TrueStudy, comparison: Comparison, opening: str) -> Iterator[Claim]:
    found = re.fullmatch(
        r"Cost compared with bare in typical boots \(\d+ blocks?\)"
        r"(?:; up to (\S+) % of boots may be slow and not be among these \d+)?",
        opening,
    )
    if found is None or (found[1] is None and comparison.blocks >= LEAST):
        yield Claim(UNKNOWN, False, opening)
    if found is None or found[1] is None:
        return
    shares = [share for each in study.metrics for share, _ in each.slow.values()]
    held = all(100 * share <= number(found[1]) for share in shares)
    yield Claim("answer: up to … of slow boots are open", held, opening)


def _mark(study: TrueStudy, arm: str) -> str:
    return " (emulated)" if arm in study.emulated else ""


def run_claims(study: TrueStudy, before: Comparison) -> Iterator[Claim]:
    """Yield what is claimed of a second run in which some costs changed."""
    rng = np.random.default_rng([study.seed, 4])
    true = {
        (arm, each.workload, each.metric.name): float(
            rng.choice([1.0, 1.0, 1.0, 1.02, 1.05, 1.2, 0.9])
        )
        for arm in study.others
        for each in study.metrics
        if not each.counted
    }
    second = draw_run(study, name="r2", changes=true)
    if not any(c.result.arm == BASELINE for c in second.counted):
        return
    after = compare([second])

    def factor(one: JudgedChange) -> float:
        return true.get((one.change.arm, one.change.key.workload, one.change.key.metric), 1.0)

    found = changed({BASELINE: before}, {BASELINE: after}, BASELINE)
    for one in found:
        yield from _change_claims(one, factor(one))
    headlines = [one for one in found if one.change.before.headline]
    yield from _change_answer_claims(found, before, after, factor)
    yield from _gate_claims(before, after, headlines, factor, rng)


def _change_claims(one: JudgedChange, factor: float) -> Iterator[Claim]:
    text = f"{one.change.key} {one.change.arm}: {one.verdict}"
    if one.verdict in ("worse", "better"):
        held = factor > 1 if one.verdict == "worse" else factor < 1
        yield Claim(f"change: {one.verdict}", held, text)
    elif one.verdict == "differs":
        yield Claim("change: differs", factor != 1, text)
    elif one.verdict == "equivalent" and one.change.ratio:
        margin = max(one.change.before.margin, one.change.after.margin)
        yield Claim("change: equivalent", within(factor, margin), text)
    elif one.verdict == "equivalent":
        yield Claim("change: equivalent (difference)", True, text)
    if one.cost is not None and one.verdict != "preliminary":
        low, high = one.cost[1:]
        yield Claim("change: interval", low * (1 - 1e-9) <= factor <= high * (1 + 1e-9), text)


_LABELS = "|".join(map(re.escape, LABELS.values()))
_SIZE = r"[-+−]?[\d.,∞]+(?: %|×)"
_RANGED = rf"(?i:({_LABELS}))(?: {_SIZE})? \(({_SIZE}) to ({_SIZE})\)"
_PART = rf"(?i:{_LABELS})(?: {_SIZE})?(?: \({_SIZE} to {_SIZE}\))?"
_CHANGE = re.compile(
    rf"(?P<word>(?i:costs more|costs less|undecided)): (?P<parts>{_PART}(?:(?:, | and ){_PART})*)"
    rf"|(?P<same>.+) unchanged \(within ±(?P<within>\S+) %\)"
    rf"|(?P<bounded>.+): no change larger than (?P<most>\S+) %"
    rf"|(?i:too few) blocks for a verdict.*"
    rf"|(?i:{_LABELS}) (?:undecided(?: \(.+\))?|unchanged|(?:worse|better) by .+)"
)


def _change_answer_claims(
    found: Sequence[JudgedChange], before: Comparison, after: Comparison, factor: Factor
) -> Iterator[Claim]:
    """Yield what the answer for each arm claims of the second run, by resource."""
    true: dict[tuple[str, str], float] = {}
    for change in resource_changes(found, before.confidence, before.margin):
        logs = [math.log(factor(one)) for one in change.changes if one.change.ratio]
        if logs:
            label = LABELS[change.cost.resource].lower()
            true[change.cost.arm, label] = math.exp(math.fsum(logs) / len(logs))
    for arm, text in change_sentences(found, before, after).items():
        for sentence in re.split(r"(?<=\.)\s+(?=[A-Z0-9])", text):
            for clause in sentence.rstrip(".").split("; "):
                yield from _change_clause(
                    {label: cost for (own, label), cost in true.items() if own == arm}, clause
                )


def _change_clause(true: Mapping[str, float], clause: str) -> Iterator[Claim]:
    read = _CHANGE.fullmatch(clause)
    if read is None:
        yield Claim(UNKNOWN, False, clause)
        return
    word = (read["word"] or "").lower()
    for label in re.findall(rf"(?i:{_LABELS})", read["parts"] or ""):
        cost = true[label.lower()]
        if word != "undecided":
            held = cost > 1 if word == "costs more" else cost < 1
            yield Claim(f"changes, answer: {word}", held, clause)
    for label, low, high in re.findall(_RANGED, read["parts"] or ""):
        held = as_factor(low, -1) <= true[label.lower()] <= as_factor(high, 1)
        yield Claim("changes, answer: from … to", held, clause)
    for kind, most in (("same", "within"), ("bounded", "most")):
        for label in re.findall(rf"(?i:{_LABELS})", read[kind] or ""):
            held = within(true[label.lower()], number(read[most]) / 100)
            words = "unchanged" if kind == "same" else "no change larger"
            yield Claim(f"changes, answer: {words}", held, clause)


_LIMITS = ("+2", "+5", "+10")


def _gate_claims(
    before: Comparison,
    after: Comparison,
    headlines: Sequence[JudgedChange],
    factor: Factor,
    rng: np.random.Generator,
) -> Iterator[Claim]:
    ratios = [one for one in headlines if one.change.ratio]
    if not ratios:
        return
    chosen = [ratios[int(rng.integers(len(ratios)))] for _ in range(min(2, len(ratios)))]
    gates, wanted = [], []
    for one in dict.fromkeys(chosen):
        key, limit = one.change.key, str(rng.choice(_LIMITS))
        higher = one.change.before.better == "higher"
        text = f"> -{limit[1:]} %" if higher else f"< {limit} %"
        gates.append(parse_gate(f"{key.workload} {key.metric} of {one.change.arm} {text}"))
        value = 1 / factor(one) if higher else factor(one)
        wanted.append((value, number(limit) / 100, higher))
    lines = [line for line in as_text(check(before, after, gates)).splitlines() if line]
    outcomes = [line for line in lines if line[0] in "✓✗?"]
    any_false = False
    for line, (value, most, higher) in zip(outcomes, wanted, strict=True):
        holds = value > 1 - most if higher else value < 1 + most
        if line.startswith("✓"):
            yield Claim("gate: holds", holds, line)
            any_false |= not holds
        elif line.startswith("✗"):
            yield Claim("gate: fails", not holds, line)
            any_false |= holds
        ends = re.search(r"changed by \S+× \((\S+) to (\S+)\)", line)
        if ends:
            yield Claim("gate: interval of the change", inside(value, ends[1], ends[2]), line)
    yield Claim("gates: wrongly failed or passed in at most 5 %", not any_false, lines[-1])


def proxy_claims(seed: int) -> Iterator[Claim]:
    """Yield what the finding on a load balancer of known loss claims."""
    rng = np.random.default_rng([seed, 5])
    loss = float(rng.choice([0.0, 0.0, 0.01, 0.05, 0.2, -0.1]))
    sizes, blocks = int(rng.choice([1, 2, 4])), int(rng.choice([4, 6, 8, 12, 20]))
    ceiling = float(rng.choice([math.inf, math.inf, 1.02, 1.0]))
    text = proxies.sentence(proxies.draw(rng, loss, sizes, blocks, ceiling))
    if found := re.search(r"it lost (\S+) % \((\S+) % to (\S+) %\)", text):
        yield Claim("load balancer: it lost", loss > 0, text)
        yield Claim("load balancer: lost, from … to", inside(100 * loss, found[2], found[3]), text)
    elif found := re.search(r"it lost at least (\S+) %", text):
        yield Claim("load balancer: it lost at least", 100 * loss >= number(found[1]) * 0.95, text)
    elif found := re.search(r"equals the baseline within ± (\S+) %", text):
        yield Claim("load balancer: equals the baseline", 100 * loss <= number(found[1]), text)
    elif "let more through" in text:
        yield Claim("load balancer: let more through", loss < 0, text)
    elif found := re.search(r"one of up to (\S+) % at .* is not excluded", text):
        held = 100 * loss <= number(found[1]) * 1.05
        yield Claim("load balancer: a loss up to … is not excluded", held, text)
    elif not re.search(
        r"too few for a verdict|limited cells leave open|No loss against the baseline", text
    ):
        yield Claim(UNKNOWN, False, text)


def simulate(studies: int, first: int = 0, *, every: int = 4) -> tuple[list[Kind], list[str]]:
    """Return the kinds of sentences of so many random studies, and false ones in words.

    Args:
        studies: How many.
        first: The seed of the first.
        every: Pairs of arms, second runs, and more blocks are tried in one study of so many each.
    """
    produced, false, hard = Counter[str](), Counter[str](), Counter[str]()
    chances: dict[str, float] = {}
    examples = []
    for seed in range(first, first + studies):
        study = random_study(seed)
        turn = seed % every
        claims = claims_of(study, pairs=turn == 0, runs=turn == 1 % every, more=turn == 2 % every)
        for claim in (*claims, *proxy_claims(seed)):
            produced[claim.kind] += 1
            chances[claim.kind] = claim.chance
            if not claim.true:
                false[claim.kind] += 1
                hard[claim.kind] += bool(study.hard)
                examples.append(f"{claim.kind}: {claim.text} {described(study)}")
    kinds = [
        Kind(name, count, false[name], hard[name], chances[name])
        for name, count in produced.items()
    ]
    return sorted(kinds, key=lambda kind: kind.name), examples


def table(kinds: Sequence[Kind], studies: int) -> str:
    """Return the kinds as Markdown."""
    lines = [
        f"{studies:,} random studies; `make simulations` draws {STUDIES:,}.",
        "",
        "| kind of sentence | produced | false | share (interval) | in hard studies | at most |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kind in kinds:
        low, high = (f"{100 * end:.1f}" for end in kind.ends)
        share = f"{100 * kind.false / kind.produced:.1f} % ({low} to {high})"
        lines.append(
            f"| {kind.name} | {kind.produced:,} | {kind.false:,} | {share} | {kind.hard:,} | "
            f"{100 * kind.chance:g} % |"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Simulate, print the table, and write it where asked; 1 if a kind is false too often."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sentence_simulations")
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first study")
    parser.add_argument("--tables", type=Path, help="a document with the marks to write between")
    parser.add_argument("--examples", help="print the false sentences whose kind starts with this")
    wanted = parser.parse_args(argv)
    kinds, examples = simulate(wanted.studies, wanted.first)
    text = table(kinds, wanted.studies)
    print(text)
    if wanted.examples is not None:
        print("\n".join(each for each in examples if each.startswith(wanted.examples)))
    if wanted.tables is not None:
        write_between_marks(wanted.tables, text, MARKS)
    missed = [kind.name for kind in kinds if not kind.good]
    for name in missed:
        print(f"MISSED {name}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
