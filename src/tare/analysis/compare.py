"""Compare all arms of a study with its baseline, over the blocks of one or more runs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tare.analysis.effects import Estimate, Pair, estimate_all, pair_up, summarise_arm
from tare.analysis.grouping import Measured, group
from tare.analysis.noise import noise_floor
from tare.analysis.proofs import proof_differences
from tare.analysis.results import (
    ArmSummary,
    ArmVerdict,
    Comparison,
    Correction,
    Effect,
    Family,
    Flag,
    HostCost,
    Interval,
    Key,
)
from tare.analysis.rundata import RunData
from tare.analysis.series_data import SeriesKey
from tare.analysis.settings import Settings
from tare.analysis.statistics.dip import two_humped
from tare.analysis.statistics.logratio import relative_half_width
from tare.analysis.statistics.multiplicity import benjamini_hochberg
from tare.analysis.statistics.permutation import LEAST_BLOCKS, least_p
from tare.analysis.steadiness import steadiness
from tare.analysis.verdict import Evidence, judge, sentence
from tare.analysis.words import arm_verdict, described, marked, notes_on
from tare.errors import InputError
from tare.events.results import MachineResult


def compare(runs: RunData | Sequence[RunData], settings: Settings | None = None) -> Comparison:
    """Compare every arm with the baseline.

    Blocks of different runs are different blocks; values are only ever paired within one.

    Args:
        runs: One run, or several of one study.
        settings: How to compare; by default what the first run's study says.

    Raises:
        InputError: There is no run, the runs have different baselines, or one appears twice.
    """
    several = (runs,) if isinstance(runs, RunData) else tuple(runs)
    chosen = settings or Settings.of(several)
    if len({run.run for run in several}) < len(several):
        raise InputError("the same run is given twice", "name each run once")
    return _Comparing(several, chosen).comparison()


class _Comparing:
    """One comparison in the making."""

    def __init__(self, runs: tuple[RunData, ...], settings: Settings) -> None:
        self.runs = runs
        self.settings = settings
        self.measured = group(runs)
        self.emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
        self.arms = self._arms()
        self.seed = " ".join(sorted(run.run for run in runs))
        self.summaries = {
            (key, arm): summarise_arm(
                key,
                measured,
                arm,
                emulated=arm in self.emulated,
                confidence=settings.confidence,
            )
            for key, measured in self.measured.items()
            for arm in self.arms
            if arm in measured.arms
        }

        self.unsteady = steadiness(runs)
        self.humped = {
            (key, arm)
            for key, measured in self.measured.items()
            for arm in measured.arms
            if two_humped(measured.pooled(arm)).flagged
        }

    def _arms(self) -> tuple[str, ...]:
        named = dict.fromkeys(arm for run in self.runs for arm in run.arms)
        valued = {arm for measured in self.measured.values() for arm in measured.arms}
        order = [self.settings.baseline, *named, *sorted(valued)]
        return tuple(arm for arm in dict.fromkeys(order) if arm in valued)

    def comparison(self) -> Comparison:
        settings = self.settings
        controls = self._effects(self._control_pairs(), {}, "control")
        floors = {effect.key: noise_floor(effect) for effect in controls}
        effects = self._effects(self._pairs(), floors, None)
        blocks = {
            block
            for measured in self.measured.values()
            for values in measured.arms.values()
            for block in values
        }
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
            families=_corrections((*effects, *controls), settings.level),
            arm_verdicts=self._arm_verdicts(effects),
            proof_differences=proof_differences(
                (machine for run in self.runs for machine in run.machines),
                settings.baseline,
                self.arms,
                settings.own_baselines,
            ),
            host_costs=host_costs(self.runs, self.emulated),
            notes=self._notes(len(blocks), effects),
            own_baselines=settings.own_baselines,
        )

    def _control_pairs(self) -> list[Pair]:
        if self.settings.aa_pair is None:
            return []
        first, second = self.settings.aa_pair
        found = (pair_up(key, measured, second, first) for key, measured in self.measured.items())
        return [pair for pair in found if pair is not None]

    def _pairs(self) -> list[Pair]:
        baseline, control = self.settings.baseline, self.settings.aa_pair
        twin = control[1] if control is not None and control[0] == baseline else None
        return [
            pair
            for key, measured in self.measured.items()
            for arm in self.arms
            if arm not in (self.settings.baseline_of(arm), twin)
            and (pair := pair_up(key, measured, arm, self.settings.baseline_of(arm))) is not None
        ]

    def _effects(
        self, pairs: Sequence[Pair], floors: Mapping[Key, float | None], family: Family | None
    ) -> tuple[Effect, ...]:
        estimates = estimate_all(pairs, self.settings.confidence, self.seed)
        families = [family or _family(pair.measured) for pair in pairs]
        tests = Counter(families)
        q_values = _q_values(families, [estimate.p for estimate in estimates])
        return tuple(
            self._effect(pair, estimate, name, q, floors.get(pair.key), tests[name])
            for pair, estimate, name, q in zip(pairs, estimates, families, q_values, strict=True)
        )

    def _effect(
        self,
        pair: Pair,
        estimate: Estimate,
        family: Family,
        q: float | None,
        floor: float | None,
        tests: int,
    ) -> Effect:
        settings = self.settings
        emulated = pair.arm in self.emulated or pair.baseline in self.emulated
        interval = estimate.student_t if pair.typical else estimate.order
        evidence = Evidence(
            better=pair.measured.better,
            scale=pair.scale,
            estimate=estimate.estimate,
            interval=interval,
            blocks=len(pair.blocks),
            p=estimate.p,
            p_least=least_p(len(pair.blocks)),
            q=q,
            noise_floor=floor,
            margin=settings.margin,
            tests=tests,
            level=settings.level,
            unit=pair.measured.unit,
        )
        verdict = judge(evidence)
        return Effect(
            key=pair.key,
            arm=pair.arm,
            baseline=pair.baseline,
            unit=pair.measured.unit,
            better=pair.measured.better,
            kind=pair.measured.kind,
            headline=pair.measured.headline,
            emulated=emulated,
            family=family,
            scale=pair.scale,
            blocks=len(pair.blocks),
            arm_summary=self._summary(pair, pair.arm),
            baseline_summary=self._summary(pair, pair.baseline),
            block_effects=pair.block_effects(),
            estimate=estimate.estimate,
            interval=interval,
            student_t=estimate.student_t,
            bootstrap=estimate.bootstrap,
            order=estimate.order,
            half_width=_half_width(interval, pair),
            p=estimate.p,
            p_least=evidence.p_least,
            q=q,
            noise_floor=floor,
            margin=settings.margin,
            verdict=verdict,
            sentence=sentence(
                evidence,
                verdict,
                what=described(pair.key),
                arm=marked(pair.arm, emulated=pair.arm in self.emulated),
                baseline=marked(pair.baseline, emulated=pair.baseline in self.emulated),
            ),
            flags=self._flags(pair),
        )

    def _flags(self, pair: Pair) -> tuple[Flag, ...]:
        flags = []
        blocks = len(pair.blocks)
        if blocks < LEAST_BLOCKS:
            flags.append(
                Flag(
                    "few-blocks",
                    f"{blocks} shared blocks; {LEAST_BLOCKS} are the least that can reach p < 0.01",
                )
            )
        if pair.scale == "difference":
            flags.append(
                Flag(
                    "not-positive",
                    "a value is zero or below, so differences are compared, not ratios",
                )
            )
        for arm, other in ((pair.arm, pair.baseline), (pair.baseline, pair.arm)):
            values = pair.measured.arms[arm]
            missing = sum(block not in values for block in pair.measured.arms[other])
            if missing:
                flags.append(Flag("missing-blocks", f"{arm} has no value in {missing} blocks"))
            series = SeriesKey(
                pair.key.scenario, pair.key.workload, pair.key.parameters, pair.key.role, arm
            )
            unsteady = self.unsteady.get(series, ())
            flags += [replace(flag, text=f"{arm}: {flag.text}") for flag in unsteady]
            if (pair.key, arm) in self.humped:
                flags.append(
                    Flag(
                        "two-humped",
                        f"the values of {arm} have two humps, which a mean hides",
                    )
                )
        return tuple(flags)

    def _summary(self, pair: Pair, arm: str) -> ArmSummary:
        return self.summaries[pair.key, arm]

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

    def _notes(self, blocks: int, effects: Sequence[Effect]) -> tuple[str, ...]:
        notes = list(notes_on(self.runs, blocks, LEAST_BLOCKS))
        if not effects:
            notes.append(
                f"No arm shares a block with the baseline, {self.settings.baseline}: nothing "
                "can be compared."
            )
        if self.settings.aa_pair is None:
            notes.append("The study has no A/A pair, so there is no noise floor.")
        return tuple(notes)


def _family(measured: Measured) -> Family:
    return "headline" if measured.headline else "detail"


def _q_values(families: Sequence[Family], p_values: Sequence[float | None]) -> list[float | None]:
    """Return q-values, each family corrected by itself."""
    p = np.array([np.nan if value is None else value for value in p_values], dtype=np.float64)
    q = np.full_like(p, np.nan)
    for family in set(families):
        members = np.array([name == family for name in families])
        q[members] = benjamini_hochberg(p[members])
    return [None if np.isnan(value) else float(value) for value in q]


def _corrections(effects: Sequence[Effect], level: float) -> tuple[Correction, ...]:
    order: tuple[Family, ...] = ("headline", "detail", "control")
    found = []
    for family in order:
        members = [e for e in effects if e.family == family and e.p is not None]
        if members:
            declared = sum(e.q is not None and e.q < level for e in members)
            least = min(e.p_least for e in members)
            found.append(Correction(family, len(members), declared, level, least))
    return tuple(found)


def _half_width(interval: Interval | None, pair: Pair) -> float | None:
    if interval is None:
        return None
    if pair.scale == "difference":
        return interval.half_width
    if interval.low <= 0:
        return float("inf")
    return relative_half_width(float(np.log(interval.low)), float(np.log(interval.high)))


def host_costs(runs: Sequence[RunData], emulated: frozenset[str]) -> tuple[HostCost, ...]:
    """Return what machines cost the host, per arm and scenario (medians over machines)."""
    groups: dict[tuple[str, str], list[MachineResult]] = {}
    for run in runs:
        for machine in run.machines:
            if machine.role == "subject":
                groups.setdefault((machine.arm, machine.scenario), []).append(machine)

    def median(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    return tuple(
        HostCost(
            arm=arm,
            scenario=scenario,
            machines=len(machines),
            boot_s=median([machine.boot_s for machine in machines]),
            cpu_s=median([machine.host_cost.get("cpu_s") for machine in machines]),
            rss_bytes=median([machine.host_cost.get("rss_bytes") for machine in machines]),
            emulated=arm in emulated,
        )
        for (arm, scenario), machines in groups.items()
    )
