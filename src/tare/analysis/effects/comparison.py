"""A whole comparison as data: what it is of, and what it says. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.cached import ShownAs, What
from tare.analysis.effects.pairs import AllPairs
from tare.analysis.effects.resources import ResourceCost
from tare.analysis.effects.results import ArmSummary, Effect, Family
from tare.analysis.statistics.shares import Share


@dataclass(frozen=True)
class Correction:
    """How one family of tests was corrected for their number, by max-T.

    Args:
        family: Its name.
        arm: The arm that it is of; families of different arms have nothing in common.
        tests: How many p-values it holds.
        declared: How many have an adjusted p below ``level``.
        level: The familywise error kept.
        p_least: The least p reachable with the blocks at hand (None without tests).
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
        path: Where in the proof, e.g. ``cpu.flags`` or ``kernel.release``.
        baseline_value: As text; ``(absent)`` where it is missing.
        arm_value: As text; ``(absent)`` where it is missing.
        explains: Whether it could explain a result.
        why: How it could, in a sentence; empty otherwise.
        varies: Whether the value differed between machines of one arm as well (values are
            those of the first machines that differ then).
        when: In which blocks they differ, such as ``from block 5 on``; empty: in all.
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
    """Something in the environment of one or more arms that changed during a run.

    Args:
        arms: The arms that changed alike.
        path: Where in the proof.
        block: The first block after the change.
        before: The value until then; ``(absent)`` where it was missing.
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
    """What an arm's machines cost the host, per machine.

    Args:
        arm: The arm.
        scenario: The scenario.
        machines: How many machines the figures are from.
        boot_s: Median boot time in seconds; None if none got there.
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
        worse: How many headline effects are worse.
        better: How many are better.
        equivalent: How many were shown to lie within the practical margin.
        inconclusive: How many are inconclusive, or differ without direction.
        preliminary: How many have too few blocks for a verdict.
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
        """How many headline effects there are."""
        counts = (self.worse, self.better, self.equivalent, self.inconclusive, self.preliminary)
        return sum(counts)


@dataclass(frozen=True)
class FailureRate:
    """How often an arm's cells failed, against the baseline's in the same blocks.

    Args:
        arm: The arm.
        emulated: Whether it is emulated.
        baseline: What it is compared with.
        failed: The arm's share of cells that failed or were withheld, with the exact interval for
            cells that fail independently.
        baseline_failed: The baseline's.
        boots: The arm's share of boots with any such cell, with its exact interval: cells of one
            boot may fail together.
        p: Of Fisher's exact test over boots (a boot with any such cell), two-sided.
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
        level: Familywise error of verdicts.
        blocks: Number of blocks in which anything counted, over all runs.
        effects: One per key and arm other than the baseline (the A/A pair's second arm is not
            among them if the first is the baseline: it is in ``aa``).
        aa: The A/A pairs' effects, one per key and host.
        summaries: One per key and arm, the baseline's too.
        families: How tests were corrected.
        arm_verdicts: Sentences for the first screen, one per arm.
        proof_differences: Differences between the arms' environment proofs and the baseline's,
            those that could explain a result first.
        environment_changes: What changed within arms during a run.
        host_costs: What machines cost the host.
        notes: What the reader must know about the whole (few blocks, other hosts, resumed,
            withheld cells ...), as sentences.
        own_baselines: The baseline on its own host, for each arm on another than ``baseline``'s.
        pooled: The twin whose boots count as the baseline's, by the baseline of each host.
        position: Whether places in the order of a block are taken into account.
        failures: One per arm with a cell that failed or was withheld, or whose baseline's did.
        pairs: Every arm against every other; None where that was not asked for.
        shown_as: What workloads are called that did not measure what their name says.
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
    failures: tuple[FailureRate, ...] = ()
    pairs: AllPairs | None = None
    environment_changes: tuple[EnvironmentChange, ...] = ()
    shown_as: Mapping[What, ShownAs] = field(default_factory=dict)
    resources: tuple[ResourceCost, ...] = ()

    @property
    def against(self) -> str:
        """What arms are compared with, in words."""
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
