"""Compare all arms of a study with its baseline, over the blocks of one or more runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tare.analysis.data.grouping import group, taken_together
from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects import controls as controlled
from tare.analysis.effects.arm_summaries import summarise_arm
from tare.analysis.effects.block_order import BlockOrder, orders, widened
from tare.analysis.effects.block_positions import places_in_blocks
from tare.analysis.effects.block_positions import taken_together as place_together
from tare.analysis.effects.cached_arrays import ShownAs, What, cached_notes, shown_names
from tare.analysis.effects.comparison import ArmVerdict, Comparison, Correction
from tare.analysis.effects.duets import overlaps
from tare.analysis.effects.estimates import (
    Estimate,
    Pair,
    estimate_all,
    pair_up,
    rare_events,
    rounding_step,
    with_shared_slopes,
    with_trimmed_means,
)
from tare.analysis.effects.families import Tested, tested
from tare.analysis.effects.findings import failure_rates, lost_cells, slow_modes
from tare.analysis.effects.flags import Known, doubts, flags_of, robust_flags
from tare.analysis.effects.resources import ResourceCost, resource_costs
from tare.analysis.effects.results import DECLARED, Effect, Family, Interval, Key, cost_not_excluded
from tare.analysis.effects.sequence import with_sequential_intervals
from tare.analysis.effects.survivorship_bias import survivorship_bias
from tare.analysis.effects.two_stage import with_two_stage_intervals
from tare.analysis.effects.verdict import Evidence, judge, sentence
from tare.analysis.runs.proofs import change_sentences, environment_changes, proof_differences
from tare.analysis.runs.sessions import session_blocks
from tare.analysis.series.steadiness import steadiness
from tare.analysis.statistics.dip import detect_two_humps
from tare.analysis.statistics.exchange import least_exchanged_p
from tare.analysis.statistics.logratio import relative_half_width
from tare.analysis.statistics.maxt import least_p
from tare.analysis.topics.unit_cost import host_costs
from tare.analysis.words import (
    aa_notes,
    arm_verdict,
    described,
    itself_notes,
    marked,
    notes_on,
    shape_notes,
)
from tare.errors import InputError


def compare(runs: RunData | Sequence[RunData], settings: Settings | None = None) -> Comparison:
    """Compare every arm of a run with the baseline.

    Args:
        runs: One run, by itself or in a sequence. Several are never pooled: the blocks of one run
            do not show how much runs differ.
        settings: How to compare; by default as the run's study defines it.

    Raises:
        InputError: There is no run, or more than one.
    """
    return compare_with(runs, settings)[1]


def compare_with(
    runs: RunData | Sequence[RunData], settings: Settings | None = None
) -> tuple[Comparing, Comparison]:
    """Compare as `compare` does, and return the intermediate data too, for further comparisons."""
    several = (runs,) if isinstance(runs, RunData) else tuple(runs)
    chosen = settings or Settings.of(several)
    if len(several) > 1:
        raise InputError(
            f"{len(several)} runs are not compared as one",
            "compare each by itself, and take them together by `tare.analysis.runs.run_changes`: "
            "`changes` of two, `pooled` of more, with a term for the run",
        )
    making = Comparing(several, chosen)
    return making, making.comparison()


class Comparing:
    """A comparison that is being made."""

    def __init__(self, runs: tuple[RunData, ...], settings: Settings) -> None:
        self.runs = runs
        self.settings = settings
        self.measured = group(runs)
        self.emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
        self.arms = self._arms()
        self.seed = " ".join(sorted(run.run for run in runs))
        self.sessions = session_blocks(runs, {})
        self.summaries = {
            (key, arm): summarise_arm(
                key,
                measured,
                arm,
                emulated=arm in self.emulated,
                confidence=settings.confidence,
                session_of=self.sessions.session_of if self.sessions.rounds else None,
            )
            for key, measured in self.measured.items()
            for arm in self.arms
            if arm in measured.arms
        }
        self.known = Known(
            unsteady=steadiness(runs),
            humped=self._humped(),
            slow=slow_modes(self.measured, self.arms, settings.confidence),
            lost=lost_cells(runs),
            level=settings.level,
            confidence=settings.confidence,
            overlaps=overlaps(runs),
        )
        self.places = places_in_blocks(runs) if settings.position else None
        self.twins = settings.twins
        self.differing_twins: Mapping[tuple[Key, str], str] = {}
        self.pooled = self._pool() if settings.pool_twin else {}
        """Each baseline with its twin, by their joint name."""
        self.sessions = session_blocks(runs, self.pooled)

    def _arms(self) -> tuple[str, ...]:
        named = dict.fromkeys(arm for run in self.runs for arm in run.arms)
        valued = {arm for measured in self.measured.values() for arm in measured.arms}
        order = [self.settings.baseline, *named, *sorted(valued)]
        return tuple(arm for arm in dict.fromkeys(order) if arm in valued)

    def _humped(self) -> Mapping[tuple[Key, str], float]:
        """Return the metrics and arms whose boots form two humps, with the dip test's p.

        Each boot counts as one value; the values within a boot are not tested.
        """
        found = {}
        for key, measured in self.measured.items():
            for arm in measured.arms:
                values = list(measured.values(arm, logs=False).values())
                humps = detect_two_humps(
                    values, step=rounding_step(measured.unit, measured.raw(arm))
                )
                if humps.flagged:
                    found[key, arm] = humps.p
        return found

    def _pool(self) -> dict[str, tuple[str, str]]:
        """Add the joint values of each baseline and its twin; return the pairs by joint name."""
        names = {f"{baseline}+{twin}": (baseline, twin) for baseline, twin in self.twins.items()}
        for name, both in names.items():
            for measured in self.measured.values():
                if both[1] in measured.arms:
                    together = taken_together(measured, both)
                    raw = [value for arm in both for value in measured.raw(arm)]
                    measured.add(name, together, positive=measured.positive(both), raw=raw)
            if self.places is not None:
                place_together(self.places, name, both)
        return names

    def pooled_name(self, baseline: str) -> str:
        """Return the joint name of a baseline and its twin; empty if they are not pooled."""
        return next((name for name, both in self.pooled.items() if both[0] == baseline), "")

    def comparison(self) -> Comparison:
        """Return the comparison with the baseline."""
        settings = self.settings
        controls = self._effects(self._control_pairs(), {}, control=True)
        floors = controlled.floors(controls, settings)
        self.differing_twins = controlled.differing_twins(controls, settings)
        pairs = self._pairs(pooled=bool(self.pooled))
        effects = self._effects(pairs, floors)
        blocks = {
            block
            for measured in self.measured.values()
            for arm in self.arms
            for block in measured.arms.get(arm, ())
        }
        baselines = {arm: settings.baseline_of(arm) for arm in self.arms}
        changed, named = environment_changes(self.runs), shown_names(self.runs)
        notes = self._notes(len(blocks), effects, controls, floors)
        return Comparison(
            runs=self.runs,
            title=str(self.runs[0].study.get("title") or self.runs[0].study.get("study", "")),
            baseline=settings.baseline,
            arms=self.arms,
            aa_pair=settings.aa_pair,
            confidence=settings.confidence,
            margin=settings.margin,
            level=settings.level,
            blocks=len(blocks),
            effects=effects,
            aa=controls,
            summaries=tuple(self.summaries.values()),
            families=corrections((*effects, *controls), settings.level),
            arm_verdicts=self._arm_verdicts(effects),
            proof_differences=proof_differences(
                (machine for run in self.runs for machine in run.machines),
                settings.baseline,
                self.arms,
                settings.own_baselines,
            ),
            host_costs=host_costs(self.runs, self.emulated),
            notes=(
                *itself_notes(self.runs),
                *shape_notes(self.runs, baselines),
                *change_sentences(changed),
                *notes,
                *cached_notes(named),
            ),
            own_baselines=settings.own_baselines,
            pooled=dict(self.pooled.values()),
            position=settings.position,
            trimmed=settings.trimmed,
            failures=failure_rates(self.runs, baselines, settings.confidence),
            environment_changes=changed,
            shown_as=named,
            resources=self._resources(pairs, effects, named),
        )

    def _resources(
        self, pairs: Sequence[Pair], effects: Sequence[Effect], named: Mapping[What, ShownAs]
    ) -> tuple[ResourceCost, ...]:
        """Return the cost of every arm by resource."""
        lost, confidence = self.known.lost, self.settings.confidence
        doubt, flattered = [], []
        for pair, effect in zip(pairs, effects, strict=True):
            arms = self.pooled.get(pair.baseline, (pair.baseline,))
            doubt.append(
                doubts(pair, arms, list(effect.flags), self.known)
                or self.differing_twins.get((pair.key, self.settings.baseline_of(pair.arm)), "")
            )
            flattered.append(survivorship_bias(pair, arms, lost, confidence))
        return resource_costs(pairs, effects, doubt, flattered, self.settings, self.seed, named)

    def _control_pairs(self) -> list[Pair]:
        found = (
            self._pair(key, second, first)
            for first, second in self.settings.aa_pairs
            for key in self.measured
        )
        return self.prepared([pair for pair in found if pair is not None])

    def _pairs(self, *, pooled: bool) -> list[Pair]:
        twins = frozenset(self.twins.values())
        against = {
            arm: (baseline, self.pooled_name(baseline) if pooled else "")
            for arm in self.arms
            if arm not in twins and arm != (baseline := self.settings.baseline_of(arm))
        }
        found = (
            self._pair(key, arm, both if both in measured.arms else baseline)
            for key, measured in self.measured.items()
            for arm, (baseline, both) in against.items()
        )
        return self.prepared([pair for pair in found if pair is not None])

    def prepared(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the pairs with trimmed means if the study asks for them, else with shared slopes.

        A slope is the growth of an arm's values with its position in the block.
        """
        if self.settings.trimmed:
            return with_trimmed_means(pairs)
        return with_shared_slopes(pairs)

    def _pair(self, key: Key, arm: str, baseline: str) -> Pair | None:
        if self.sessions.across(arm, baseline):
            return self.sessions.pair(key, self.measured[key], arm, baseline)
        places = None if self.places is None else self.places.get(key.scenario, {})
        pair = pair_up(key, self.measured[key], arm, baseline, places)
        both = self.pooled.get(baseline)
        if pair is None or both is None:
            return pair
        return replace(pair, twins=both, places=places or {})

    def _effects(
        self,
        pairs: Sequence[Pair],
        floors: Mapping[tuple[Key, str], float | None],
        *,
        control: bool = False,
    ) -> tuple[Effect, ...]:
        estimates = estimate_all(pairs, self.settings.confidence, self.seed)
        families: list[Family] = [
            "headline" if pair.measured.headline else "detail" for pair in pairs
        ]
        names = [(pair.arm, family) for pair, family in zip(pairs, families, strict=True)]
        plan, confidence = self.settings.plan, self.settings.confidence
        tests = tested(pairs, names, self.seed, self.settings.level, plan)
        if plan is not None:
            estimates = with_sequential_intervals(pairs, estimates, plan, confidence)
        elif first := self.settings.first:
            estimates = with_two_stage_intervals(pairs, estimates, first, confidence)
        of_order = orders(pairs, self.seed, confidence, looks=plan is not None)
        return tuple(
            self.effect(
                pair,
                estimate,
                "control" if control else family,
                test,
                floors.get((pair.key, self.settings.baseline_of(pair.arm))),
                of_order.get(i),
            )
            for i, (pair, estimate, family, test) in enumerate(
                zip(pairs, estimates, families, tests, strict=True)
            )
        )

    def effect(
        self,
        pair: Pair,
        estimate: Estimate,
        family: Family,
        test: Tested,
        floor: float | None,
        order: BlockOrder | None,
    ) -> Effect:
        """Combine a pair's estimate, test and flags into an effect with its verdict."""
        settings = self.settings
        arms: tuple[str, ...] = self.pooled.get(pair.baseline, (pair.baseline,))
        baseline = arms[0]
        emulated = pair.arm in self.emulated or baseline in self.emulated
        summary = self.summaries.get((pair.key, baseline)) or self.summaries[pair.key, arms[-1]]
        block_effects = pair.block_effects()
        values = [block.value for block in block_effects]
        flags = flags_of(pair, arms, self.known, order)
        interval, surest, wider = widened(pair, estimate, order)
        margin = settings.margin_of(pair.key, pair.scale, abs(summary.centre))
        rare = None
        if pair.scale == "difference":
            rare = rare_events(pair.differences, margin, settings.level)
        evidence = Evidence(
            metric=pair.measured.metric,
            scale=pair.scale,
            estimate=estimate.estimate,
            interval=interval,
            blocks=len(pair.blocks),
            p=test.p,
            adjusted_p=test.adjusted,
            margin=margin,
            tests=test.tests,
            level=settings.level,
            baseline_value=summary.mean if pair.seldom else summary.centre,
            spread=(min(values), max(values)),
            doubt=doubts(pair, arms, flags, self.known)
            or self.differing_twins.get((pair.key, settings.baseline_of(pair.arm)), ""),
            grid=pair.hidden,
            surest=surest,
            each=pair.each,
            share_beyond=rare.high if rare is not None else None,
            without=_without_events(pair, baseline),
            lost=next((f.text for f in flags if f.kind in ("failures", "baseline-failures")), ""),
            slow=next((f.text for f in flags if f.kind == "slow-boots"), ""),
            trimmed=pair.trimmed,
            flattered=survivorship_bias(pair, arms, self.known.lost, settings.confidence),
        )
        verdict = judge(evidence)
        if verdict == "preliminary":
            evidence = replace(evidence, interval=None)
        in_words = sentence(
            evidence,
            verdict,
            cost_not_excluded(evidence.interval, pair.scale, evidence.better),
            what=described(pair.key),
            arm=marked(pair.arm, emulated=pair.arm in self.emulated),
            baseline=marked(baseline, emulated=baseline in self.emulated),
        )
        return Effect(
            key=pair.key,
            arm=pair.arm,
            baseline=baseline,
            metric=pair.measured.metric,
            emulated=emulated,
            family=family,
            scale=pair.scale,
            blocks=len(pair.blocks),
            arm_summary=self.summaries[pair.key, pair.arm],
            baseline_summary=summary,
            block_effects=block_effects,
            estimate=estimate.estimate,
            interval=evidence.interval,
            student_t=estimate.student_t,
            bootstrap=estimate.bootstrap,
            order=estimate.order,
            robust=estimate.robust,
            half_width=_half_width(evidence.interval, pair),
            p=test.p,
            p_least=(least_exchanged_p if pair.twins else least_p)(len(pair.blocks)),
            adjusted_p=test.adjusted,
            noise_floor=floor,
            margin=evidence.margin,
            verdict=verdict,
            sentence=in_words,
            flags=(
                *flags,
                *robust_flags(pair, estimate, evidence.interval),
            ),
            widened=wider,
            step=pair.step,
            each=pair.each,
            compared=pair.compared,
            trimmed=pair.trimmed,
        )

    def _arm_verdicts(self, effects: Sequence[Effect]) -> tuple[ArmVerdict, ...]:
        compared = {effect.arm: effect.baseline for effect in effects}
        return tuple(
            arm_verdict(
                arm,
                marked(compared[arm], emulated=compared[arm] in self.emulated),
                [effect for effect in effects if effect.arm == arm and effect.headline],
                emulated=arm in self.emulated,
            )
            for arm in self.arms
            if arm in compared
        )

    def _notes(
        self,
        blocks: int,
        effects: Sequence[Effect],
        controls: Sequence[Effect],
        floors: Mapping[tuple[Key, str], float | None],
    ) -> tuple[str, ...]:
        notes = list(notes_on(self.runs, blocks, self.settings.level))
        if not effects:
            notes.append(
                f"No arm shares a block with the baseline, {self.settings.baseline}: nothing "
                "can be compared."
            )
        if not self.settings.aa_pairs:
            notes.append(
                "The study has no A/A pair, so nothing says how far identical arms differ here."
            )
        failed = [e for e in controls if e.headline and e.verdict in DECLARED]
        if failed:
            # Also without the twin, to show the reader what depends on it.
            alone = self._effects(self._pairs(pooled=False), floors) if self.pooled else ()
            notes[:0] = aa_notes(failed, effects, alone, self.settings.level)
        return tuple(notes)


def _half_width(interval: Interval | None, pair: Pair) -> float | None:
    if interval is None:
        return None
    if pair.scale == "difference":
        return interval.half_width
    if interval.low <= 0:
        return float("inf")
    return relative_half_width(float(np.log(interval.low)), float(np.log(interval.high)))


def _without_events(pair: Pair, baseline: str) -> tuple[str, ...]:
    """Return the arms whose blocks all have a count of zero, if the other arm counted any."""
    if not pair.seldom or not any(pair.differences):
        return ()
    sides = ((pair.arm, pair.over), (baseline, pair.under))
    return tuple(name for name, values in sides if not any(values[b] for b in pair.blocks))


def corrections(effects: Sequence[Effect], level: float) -> tuple[Correction, ...]:
    """Describe how the tests of each family and arm were corrected.

    Args:
        effects: All effects, including controls.
        level: Familywise error rate.
    """
    order: tuple[Family, ...] = ("headline", "detail", "control")
    found = []
    tested: dict[tuple[str, str], list[Effect]] = {}
    for effect in effects:
        if effect.p is not None:
            tested.setdefault((effect.family, effect.arm), []).append(effect)
    for family in order:
        for arm in dict.fromkeys(effect.arm for effect in effects):
            if members := tested.get((family, arm), []):
                declared = sum(e.verdict in DECLARED for e in members)
                least = min(e.p_least for e in members)
                found.append(Correction(family, arm, len(members), declared, level, least))
    return tuple(found)
