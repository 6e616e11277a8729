"""Which settings to change: main effects and interactions of a study's matrices.

Each block has one boot of every run of a matrix, so each block gives one estimate of every effect,
on the log scale. Influences on a whole block cancel out: an effect's weights add up to 0.
Intervals are Student's t over the blocks, widened so that all intervals of the study cover
together. A verdict also needs a p-value that is corrected over all effects by max-T.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from tare.analysis.data.grouping import BlockId, Measured, group
from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.effects.results import Interval, Key, OfMetric, as_cost, cost_ends
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.bootstrap import seed_from
from tare.analysis.statistics.contrasts import Contrast, Term, all_terms, contrasts
from tare.analysis.statistics.logratio import error_of_mean
from tare.analysis.statistics.maxt import family_p, least_blocks, simultaneous_confidence
from tare.events.metric import Metric
from tare.study.model.matrix import Design

Outcome = Literal["better", "worse", "same", "undecided", "preliminary"]
Advice = Literal["change", "trade-off", "keep", "same", "undecided", "preliminary", "not measured"]


@dataclass(frozen=True)
class SettingChange:
    """One setting and the value that replaces the default.

    Args:
        setting: The setting's name.
        default: The default value in words.
        value: The other value in words.
        keys: The keys of the arm that the value sets.
    """

    setting: str
    default: str
    value: str
    keys: Mapping[str, Any]

    @property
    def words(self) -> str:
        """The change in words."""
        return f"{self.setting}: {self.default} → {self.value}"


@dataclass(frozen=True)
class TuningEffect(OfMetric):
    """One main effect (one change) or interaction (two changes) on one metric.

    Args:
        matrix: The matrix that measured it.
        arm: The arm whose settings are changed.
        emulated: Whether the arm is emulated.
        key: What was measured.
        metric: The metric.
        changes: The change, or the two changes that interact.
        alone: Whether a main effect is against the default run. Otherwise it is the average over
            the other settings of the matrix.
        ratio: Value after the change ÷ value before, geometric mean over blocks. For an
            interaction, the ratio of two such ratios: with the other change ÷ without it.
        interval: Its simultaneous interval; None with fewer than two blocks.
        p: Corrected over all effects of the study; None with too few blocks.
        blocks: The number of blocks.
        outcome: The verdict.
        aliased: Other interactions that the runs do not separate from it, in words.
        assumes: Whether it holds only if unnamed interactions are absent.
    """

    matrix: str
    arm: str
    emulated: bool
    key: Key
    metric: Metric
    changes: tuple[SettingChange, ...]
    alone: bool
    ratio: float
    interval: Interval | None
    p: float | None
    blocks: int
    outcome: Outcome
    aliased: tuple[str, ...] = ()
    assumes: bool = False

    @property
    def cost(self) -> float:
        """The ratio turned so that above 1 is worse."""
        return as_cost(self.ratio, self.better)

    @property
    def cost_ends(self) -> tuple[float, float] | None:
        """The ends of the interval, turned likewise."""
        if self.interval is None:
            return None
        return cost_ends(self.interval.low, self.interval.high, self.better)


@dataclass(frozen=True)
class SettingEffects:
    """The results on one change.

    Args:
        arm: The arm whose setting is changed.
        change: The change.
        advice: What to do.
        effects: Its main effects on all metrics.
        interactions: The interactions that were found, with other changes.
        reason: Why it was not measured; empty otherwise.
        emulated: Whether the arm is emulated.
    """

    arm: str
    change: SettingChange
    advice: Advice
    effects: tuple[TuningEffect, ...]
    interactions: tuple[TuningEffect, ...] = ()
    reason: str = ""
    emulated: bool = False


@dataclass(frozen=True)
class Tuning:
    """The result of all matrices of a study.

    Args:
        designs: The designs by the matrices' names.
        switches: One for each change, in the study's order.
        effects: All effects, main effects first in each matrix.
        unseparated: Effects that no run could separate, by matrix, in words.
        confidence: The confidence of all intervals together.
        single: The confidence of each interval.
        least: The fewest blocks for a verdict.
        left_out: Metrics that are not analysed: tails, maxima, and values of 0.
    """

    designs: Mapping[str, Design]
    switches: tuple[SettingEffects, ...]
    effects: tuple[TuningEffect, ...]
    unseparated: Mapping[str, tuple[str, ...]]
    confidence: float
    single: float
    least: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    """One effect on one metric: its difference of logs in each block."""

    effect: TuningEffect
    differences: Mapping[BlockId, float]


def designs_of(runs: Sequence[RunData]) -> Mapping[str, Design]:
    """Return the designs of the runs' study; empty for a study without matrices."""
    stored = (runs[0].study.get("designs") or {}) if runs else {}
    return {name: Design.model_validate(design) for name, design in stored.items()}


def tuning(
    runs: Sequence[RunData], confidence: float, margin: float, level: float = LEVEL
) -> Tuning | None:
    """Return the effects of all matrices of the runs' study; None if it has no matrix.

    Args:
        runs: Runs of one study.
        confidence: Confidence of all intervals together.
        margin: Practical margin, relative.
        level: Familywise error over all effects.
    """
    designs = designs_of(runs)
    if not designs:
        return None
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    measured, left_out = _analysed(group(runs))
    skipped = {
        part.arm: part.reason
        for run in runs
        for part in run.skipped
        if part.scenario is None and part.workload is None
    }
    rows: list[_Row] = []
    unseparated = {}
    for name, design in designs.items():
        found = [
            row
            for key, values in measured.items()
            for row in _rows(name, design, key, values, design.arm in emulated)
        ]
        rows += found
        unseparated[name] = _unseparated(design, [row.effect for row in found], skipped)
    effects, single = _judged(rows, confidence, margin, level, runs[0].run)
    return Tuning(
        designs=designs,
        switches=_switches(designs, effects, skipped, emulated),
        effects=effects,
        unseparated={name: words for name, words in unseparated.items() if words},
        confidence=confidence,
        single=single,
        least=least_blocks(level),
        left_out=left_out,
    )


def _analysed(measured: Mapping[Key, Measured]) -> tuple[dict[Key, Measured], tuple[str, ...]]:
    """Return the headline metrics that are analysed, and the names of the others."""
    found, others = {}, []
    for key, values in measured.items():
        if key.role != SUBJECT or not values.headline or values.better == "neither":
            continue
        if values.kind == "typical" and values.positive(list(values.arms)):
            found[key] = values
        else:
            others.append(f"{key.workload} {key.metric}")
    return found, tuple(dict.fromkeys(others))


def _rows(name: str, design: Design, key: Key, values: Measured, emulated: bool) -> Iterable[_Row]:
    """Return all effects of one matrix on one metric, without intervals."""
    logs = {
        run.arm: {
            block: math.log(value) for block, value in values.values(run.arm, logs=True).items()
        }
        for run in design.runs
        if run.arm in values.arms
    }
    core = [run for run in design.runs if not run.alone and run.arm in logs]
    # A level that no run has is not averaged over, whichever runs a block has.
    counts = tuple(len({run.levels[f] for run in core}) for f in range(len(design.settings)))
    found: dict[Term, tuple[Contrast, dict[BlockId, float]]] = {}
    for block in sorted({block for run in core for block in logs[run.arm]}):
        there = [run for run in core if block in logs[run.arm]]
        for contrast in _contrasts(tuple(run.levels for run in there), design.named, counts):
            total = math.fsum(
                weight * logs[run.arm][block]
                for weight, run in zip(contrast.weights, there, strict=True)
            )
            known, differences = found.setdefault(contrast.term, (contrast, {}))
            differences[block] = total
            if contrast.assumes and not known.assumes:
                found[contrast.term] = (contrast, differences)
    for term, (contrast, differences) in found.items():
        effect = _effect(name, design, key, values.metric, term, emulated)
        words = tuple(_words(design, other) for other in contrast.aliased)
        yield _Row(replace(effect, aliased=words, assumes=contrast.assumes), differences)
    for run in design.runs:
        if not run.alone or run.arm not in logs or design.arm not in logs:
            continue
        factor = next(place for place, level in enumerate(run.levels) if level)
        default = logs[design.arm]
        differences = {
            block: value - default[block]
            for block, value in logs[run.arm].items()
            if block in default
        }
        if differences:
            term = Term((factor,), (run.levels[factor],))
            effect = _effect(name, design, key, values.metric, term, emulated)
            yield _Row(replace(effect, alone=True), differences)


@lru_cache(maxsize=256)
def _contrasts(
    runs: tuple[tuple[int, ...], ...],
    named: tuple[tuple[int, int], ...],
    counts: tuple[int, ...],
) -> tuple[Contrast, ...]:
    return contrasts(runs, named, counts)


def _effect(
    name: str, design: Design, key: Key, metric: Metric, term: Term, emulated: bool
) -> TuningEffect:
    return TuningEffect(
        matrix=name,
        arm=design.arm,
        emulated=emulated,
        key=key,
        metric=metric,
        changes=_changes(design, term),
        alone=False,
        ratio=1.0,
        interval=None,
        p=None,
        blocks=0,
        outcome="undecided",
    )


def _changes(design: Design, term: Term) -> tuple[SettingChange, ...]:
    return tuple(
        SettingChange(
            design.settings[factor].name,
            design.settings[factor].levels[0],
            design.settings[factor].levels[level],
            design.settings[factor].values[level],
        )
        for factor, level in zip(term.factors, term.levels, strict=True)
    )


def _words(design: Design, term: Term) -> str:
    return " × ".join(f"{change.setting} {change.value}" for change in _changes(design, term))


def _judged(
    rows: Sequence[_Row], confidence: float, margin: float, level: float, seed: str
) -> tuple[tuple[TuningEffect, ...], float]:
    """Return the effects with intervals and verdicts, and the confidence of each interval."""
    blocks = sorted({block for row in rows for block in row.differences})
    table = np.array(
        [[row.differences.get(block, np.nan) for block in blocks] for row in rows], ndmin=2
    )
    counts = [len(row.differences) for row in rows]
    several = [place for place, count in enumerate(counts) if count >= 2]
    single = confidence
    adjusted: dict[int, float] = {}
    if several:
        drawn = seed_from(seed, "tuning")
        single = simultaneous_confidence(table[several], confidence, seed=drawn)
        found = family_p(table[several], seed=drawn, least=least_blocks(level)).adjusted
        adjusted = {
            place: float(p) for place, p in zip(several, found, strict=True) if not np.isnan(p)
        }
    effects = []
    for place, row in enumerate(rows):
        differences = list(row.differences.values())
        mean = math.fsum(differences) / len(differences)
        interval = None
        if len(differences) >= 2:
            error = error_of_mean(differences, single)
            interval = Interval(
                math.exp(mean - error), math.exp(mean + error), "student-t", confidence
            )
        effect = replace(
            row.effect,
            ratio=math.exp(mean),
            interval=interval,
            p=adjusted.get(place),
            blocks=len(differences),
        )
        effects.append(replace(effect, outcome=_outcome(effect, margin, level)))
    return tuple(effects), single


def _outcome(effect: TuningEffect, margin: float, level: float) -> Outcome:
    ends = effect.cost_ends
    if ends is None or effect.blocks < least_blocks(level):
        return "preliminary"
    if 1 / (1 + margin) < ends[0] and ends[1] < 1 + margin:
        return "same"
    if effect.p is None or effect.p >= level or ends[0] <= 1 <= ends[1]:
        return "undecided"
    return "better" if effect.cost < 1 else "worse"


def _unseparated(
    design: Design, effects: Sequence[TuningEffect], skipped: Collection[str]
) -> tuple[str, ...]:
    """Return the effects that a design should separate but its measured runs do not.

    Values that no run could have are not among them: they were not measured.
    """
    if not effects:
        return ()
    there = {
        place for run in design.runs if run.arm not in skipped for place in enumerate(run.levels)
    }
    known = {tuple((change.setting, change.value) for change in e.changes) for e in effects}
    named = {words for effect in effects for words in effect.aliased}
    found = []
    for term in all_terms([len(setting.levels) for setting in design.settings]):
        if len(term.factors) == 2 and design.design == "one-at-a-time":
            continue
        if len(term.factors) == 2 and design.design == "fractional" and max(term.levels) > 1:
            continue
        if not there.issuperset(zip(term.factors, term.levels, strict=True)):
            continue
        identity = tuple((change.setting, change.value) for change in _changes(design, term))
        if identity not in known and _words(design, term) not in named:
            found.append(_words(design, term))
    return tuple(found)


def _switches(
    designs: Mapping[str, Design],
    effects: Sequence[TuningEffect],
    skipped: Mapping[str, str],
    emulated: frozenset[str],
) -> tuple[SettingEffects, ...]:
    """Return one entry for each change, combined over the matrices that measured it."""
    found: dict[tuple[str, str, str], SettingEffects] = {}
    for design in designs.values():
        for factor, setting in enumerate(design.settings):
            for level in range(1, len(setting.levels)):
                change = _changes(design, Term((factor,), (level,)))[0]
                identity = (design.arm, change.setting, change.value)
                if identity in found:
                    continue
                own = [
                    effect
                    for effect in effects
                    if effect.arm == design.arm
                    and any((c.setting, c.value) == identity[1:] for c in effect.changes)
                ]
                mains = tuple(effect for effect in own if len(effect.changes) == 1)
                found[identity] = SettingEffects(
                    arm=design.arm,
                    change=change,
                    advice=_advice(mains),
                    effects=mains,
                    interactions=tuple(
                        effect
                        for effect in own
                        if len(effect.changes) == 2 and effect.outcome in ("better", "worse")
                    ),
                    reason="" if mains else _reason(designs, identity, skipped),
                    emulated=design.arm in emulated,
                )
    return tuple(found.values())


def _advice(mains: Sequence[TuningEffect]) -> Advice:
    outcomes = {effect.outcome for effect in mains}
    if not mains:
        return "not measured"
    if outcomes == {"preliminary"}:
        return "preliminary"
    if "better" in outcomes:
        return "trade-off" if "worse" in outcomes else "change"
    if "worse" in outcomes:
        return "keep"
    return "same" if outcomes == {"same"} else "undecided"


def _reason(
    designs: Mapping[str, Design], identity: tuple[str, str, str], skipped: Mapping[str, str]
) -> str:
    """Return why no run with a change was measured."""
    arm, name, value = identity
    for design in designs.values():
        if design.arm != arm:
            continue
        for run in design.runs:
            for setting, level in zip(design.settings, run.levels, strict=True):
                if (setting.name, setting.levels[level]) == (name, value) and run.arm in skipped:
                    return skipped[run.arm]
    return skipped.get(arm) or (
        "no run with it has a value that counts, or its runs do not separate it from other settings"
    )
