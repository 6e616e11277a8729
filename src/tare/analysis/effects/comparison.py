"""A whole comparison as data: its runs, its settings and its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.cached_arrays import ShownAs, What
from tare.analysis.effects.pairs import AllPairs
from tare.analysis.effects.resources import ResourceCost
from tare.analysis.effects.results import ArmSummary, Effect, Family
from tare.analysis.statistics.shares import Share


@dataclass(frozen=True)
class Correction:
    """How one family of tests was corrected for their number, by max-T.

    Args:
        family: The family's name.
        arm: The family's arm. The tests of different arms are corrected separately.
        tests: Number of p-values in it.
        declared: Number of those with an adjusted p below ``level``.
        level: The familywise error rate.
        p_least: The least p that the number of blocks can reach (None without tests).
    """

    family: Family
    arm: str
    tests: int
    declared: int
    level: float
    p_least: float | None


@dataclass(frozen=True)
class ProofDifference:
    """One difference between the environment proofs of an arm and the baseline.

    Args:
        arm: The arm.
        path: Its path in the proof, such as ``cpu.flags`` or ``kernel.release``.
        baseline_value: As text; ``(absent)`` if it is missing.
        arm_value: As text; ``(absent)`` if it is missing.
        explains: Whether it could explain a result.
        why: How it could, in a sentence; empty otherwise.
        varies: Whether the value also differed between machines of one arm (the values are then
            those of the first machines that differ).
        when: The blocks in which they differ, such as ``from block 5 on``; empty: all.
    """

    arm: str
    path: str
    baseline_value: str
    arm_value: str
    explains: bool
    why: str
    varies: bool
    when: str = ""


@dataclass(frozen=True)
class EnvironmentChange:
    """A change in the environment of one or more arms during a run.

    Args:
        arms: The arms with the same change.
        path: Its path in the proof.
        block: The first block after the change.
        before: The value until then; ``(absent)`` if it was missing.
        after: The value from that block on.
        blocks: All blocks at which it changed, ``block`` first.
        why: How it could explain a result; empty if it could not.
    """

    arms: tuple[str, ...]
    path: str
    block: int
    before: str
    after: str
    blocks: tuple[int, ...]
    why: str

    @property
    def explains(self) -> bool:
        """Whether it could explain a result."""
        return bool(self.why)


@dataclass(frozen=True)
class HostCost:
    """The cost of one of an arm's machines for its host.

    Args:
        arm: The arm.
        scenario: The scenario.
        machines: Number of machines that the figures are from.
        boot_s: Median boot time in seconds; None if none booted.
        cpu_s: Median CPU seconds of a machine on the host; None if not recorded.
        rss_bytes: Median resident memory on the host; None if not recorded.
        emulated: Whether the arm is emulated.
    """

    arm: str
    scenario: str
    machines: int
    boot_s: float | None
    cpu_s: float | None
    rss_bytes: float | None
    emulated: bool


@dataclass(frozen=True)
class ArmVerdict:
    """The headline results of one arm in words, for the first screen.

    Args:
        arm: The arm.
        emulated: Whether it is emulated.
        sentence: The verdict over its headline metrics.
        worse: Number of headline effects that are worse.
        better: Number that are better.
        equivalent: Number that were shown to be within the practical margin.
        inconclusive: Number that are inconclusive, or differ without direction.
        preliminary: Number that have too few blocks for a verdict.
    """

    arm: str
    emulated: bool
    sentence: str
    worse: int
    better: int
    equivalent: int
    inconclusive: int
    preliminary: int = 0

    @property
    def total(self) -> int:
        """The number of headline effects."""
        counts = (self.worse, self.better, self.equivalent, self.inconclusive, self.preliminary)
        return sum(counts)


@dataclass(frozen=True)
class FailureRate:
    """The failure rates of an arm's cells and of its baseline's in the same blocks.

    Args:
        arm: The arm.
        emulated: Whether it is emulated.
        baseline: Its baseline.
        failed: The arm's share of cells that failed or were withheld, with the exact interval for
            cells that fail independently.
        baseline_failed: The baseline's share.
        boots: The arm's share of boots with any such cell, with its exact interval: cells of one
            boot may fail together.
        p: The two-sided p of Fisher's exact test over boots (a boot with any such cell).
    """

    arm: str
    emulated: bool
    baseline: str
    failed: Share
    baseline_failed: Share
    boots: Share
    p: float


@dataclass(frozen=True)
class Comparison:
    """All arms of one study against its baseline, over the blocks of one or more runs.

    Args:
        runs: The runs that were combined.
        title: The study's title.
        baseline: The baseline arm.
        arms: All arms with a value, baseline first, in the study's order.
        aa_pair: The A/A pair of the baseline's host, or None.
        confidence: Nominal coverage of all intervals.
        margin: Practical margin, relative.
        level: Familywise error rate of verdicts.
        blocks: Number of blocks with any value, over all runs.
        effects: One per key and arm other than the baseline. If the baseline is the first arm of
            the A/A pair, the second arm is in ``aa`` instead.
        aa: The A/A pairs' effects, one per key and host.
        summaries: One per key and arm, including the baseline.
        families: How tests were corrected.
        arm_verdicts: Sentences for the first screen, one per arm.
        proof_differences: Differences between the arms' environment proofs and the baseline's;
            those that could explain a result come first.
        environment_changes: Changes within arms during a run.
        host_costs: The cost of machines for their host.
        notes: Sentences that the reader must know about the whole comparison (few blocks, other
            hosts, resumed, withheld cells ...).
        own_baselines: The baseline on its own host, for each arm on another than ``baseline``'s.
        pooled: The twin whose boots count as the baseline's, by the baseline of each host.
        position: Whether the positions of arms in a block are adjusted for.
        trimmed: Whether trimmed means of the blocks are compared.
        failures: One per arm that has, or whose baseline has, a failed or withheld cell.
        pairs: Every arm against every other; None if that was not asked for.
        shown_as: Names of workloads that did not measure what their own name says.
        resources: The cost of each arm by resource, with simultaneous intervals.
    """

    runs: tuple[RunData, ...]
    title: str
    baseline: str
    arms: tuple[str, ...]
    aa_pair: tuple[str, str] | None
    confidence: float
    margin: float
    level: float
    blocks: int
    effects: tuple[Effect, ...]
    aa: tuple[Effect, ...]
    summaries: tuple[ArmSummary, ...]
    families: tuple[Correction, ...]
    arm_verdicts: tuple[ArmVerdict, ...]
    proof_differences: tuple[ProofDifference, ...]
    host_costs: tuple[HostCost, ...]
    notes: tuple[str, ...]
    own_baselines: Mapping[str, str] = field(default_factory=dict)
    pooled: Mapping[str, str] = field(default_factory=dict)
    position: bool = False
    trimmed: bool = False
    failures: tuple[FailureRate, ...] = ()
    pairs: AllPairs | None = None
    environment_changes: tuple[EnvironmentChange, ...] = ()
    shown_as: Mapping[What, ShownAs] = field(default_factory=dict)
    resources: tuple[ResourceCost, ...] = ()

    @property
    def against(self) -> str:
        """The baselines of all arms, in words."""
        if not self.own_baselines:
            return self.baseline
        arms = self.runs[0].study.get("arms") or {}
        on = {arm: spec.get("on") for arm, spec in arms.items() if isinstance(spec, Mapping)}
        apart = {on.get(own) != on.get(self.baseline) for own in self.own_baselines.values()}
        of = [
            words
            for here, words in ((True, "on the same host"), (False, "of the same shape"))
            if here in apart
        ]
        return f"{self.baseline} {' and '.join(of)}"

    @cached_property
    def headlines(self) -> tuple[Effect, ...]:
        """The effects for the first screen."""
        return tuple(effect for effect in self.effects if effect.headline)
