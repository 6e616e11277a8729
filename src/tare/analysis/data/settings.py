"""How runs are compared: by default as their study says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.results import Key, Scale
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.sequential import LookPlan
from tare.errors import InputError
from tare.study.planning.blocks import LEAST_BLOCKS, MOST_BLOCKS


@dataclass(frozen=True)
class Settings:
    """How to compare; by default what the study says.

    Args:
        baseline: The arm that the others are compared with.
        aa_pair: Two arms that are the same, or None.
        own_aa: The same for other hosts' baselines, if there are several hosts.
        confidence: Nominal coverage of intervals.
        margin: Practical margin, relative.
        level: Familywise error of verdicts.
        own_baselines: The baseline on its own host, for each arm on another than ``baseline``'s.
        pool_twin: Whether the boots of the baseline's twin count as the baseline's.
        position: Whether the positions of arms in a block are adjusted for.
        plan: The looks of a group-sequential study, whose intervals and tests hold at all of them.
        first: The number of blocks that set the number of all blocks (Stein's two stages); 0: the
            study does not use that method.
        floors: Absolute differences that never matter, by metric and in its unit.
        trimmed: Whether trimmed means of the blocks are compared.
    """

    baseline: str
    aa_pair: tuple[str, str] | None
    confidence: float = 0.95
    margin: float = 0.02
    level: float = LEVEL
    own_baselines: Mapping[str, str] = field(default_factory=dict)
    pool_twin: bool = True
    position: bool = False
    plan: LookPlan | None = None
    first: int = 0
    floors: Mapping[str, float] = field(default_factory=dict)
    own_aa: tuple[tuple[str, str], ...] = ()
    trimmed: bool = False

    @property
    def aa_pairs(self) -> tuple[tuple[str, str], ...]:
        """All pairs of arms that are the same, at most one of each host."""
        return (self.aa_pair, *self.own_aa) if self.aa_pair is not None else self.own_aa

    @property
    def twins(self) -> Mapping[str, str]:
        """The twin of each baseline that has one."""
        baselines = {self.baseline, *self.own_baselines.values()}
        return {first: second for first, second in self.aa_pairs if first in baselines}

    def baseline_of(self, arm: str) -> str:
        """Return the arm that an arm is compared with: itself, for a baseline."""
        return self.own_baselines.get(arm, self.baseline)

    def margin_of(self, key: Key, scale: Scale, baseline_value: float) -> float:
        """Return a metric's practical margin: relative, or for differences in the metric's unit.

        Args:
            key: What was measured; a floor may name its metric.
            scale: Whether ratios or differences are compared.
            baseline_value: The baseline's typical value, in the metric's unit, 0 or more.
        """
        floor = self.floors.get(key.metric, 0.0)
        if scale == "difference":
            return max(self.margin * baseline_value, floor)
        return max(self.margin, floor / baseline_value)

    def against(self, arm: str, arms: Iterable[str]) -> Settings:
        """Return these settings with another baseline, for the arms on that baseline's host.

        Arms on other hosts keep the baseline of theirs: raw values of different hosts are never
        compared.

        Args:
            arm: The new baseline.
            arms: All arms of the runs.

        Raises:
            InputError: There is no such arm.
        """
        known = tuple(dict.fromkeys(arms))
        if arm not in known:
            raise InputError(
                f"there is no arm {arm} to compare with", f"the arms are: {', '.join(known)}"
            )
        here = self.baseline_of(arm)
        own = {other: self.baseline_of(other) for other in known if self.baseline_of(other) != here}
        return replace(self, baseline=arm, own_baselines=own)

    @classmethod
    def of(cls, runs: Sequence[RunData]) -> Settings:
        """Return the settings in the runs' studies, which must agree on the baseline.

        Raises:
            InputError: There is no run, or the baselines differ.
        """
        if not runs:
            raise InputError("there is no run to compare", "name at least one folder")
        baselines = {run.baseline for run in runs}
        if len(baselines) > 1:
            raise InputError(
                f"the runs have different baselines: {', '.join(sorted(baselines))}",
                "compare runs of one study, or each run by itself",
            )
        study = runs[0].study
        pair, blocks = study.get("aa"), study.get("blocks") or {}
        stein, sequential = (blocks.get("method") == name for name in ("stein", "sequential"))
        trimmed = blocks.get("average") == "trimmed"
        own = {arm: base for run in runs for arm, base in run.own_baselines.items()}
        return cls(
            baseline=runs[0].baseline,
            aa_pair=(str(pair[0]), str(pair[1])) if pair else None,
            confidence=float(study.get("confidence") or 0.95),
            margin=float(study.get("margin", 0.02)),
            # The intervals of these methods, and of trimmed means, have no covariate.
            position=bool(blocks.get("position")) and not (stein or trimmed),
            trimmed=trimmed,
            plan=_plan(study) if sequential else None,
            first=int(blocks.get("least", 0)) if stein else 0,
            floors={str(k): float(v) for k, v in (study.get("floors") or {}).items()},
            own_baselines=own,
            own_aa=_own_pairs(study, frozenset(own.values())),
        )


def _plan(study: Mapping[str, Any]) -> LookPlan:
    """Return the looks of a group-sequential study: after blocks, or after rounds of sessions."""
    blocks = study.get("blocks") or {}
    least = int(blocks.get("least") or LEAST_BLOCKS)
    most = int(blocks.get("most") or max(MOST_BLOCKS, least))
    each = int((study.get("sessions") or {}).get("blocks") or 1)
    return LookPlan(-(-least // each), -(-most // each))


def _own_pairs(study: Mapping[str, Any], baselines: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return each other host's baseline with its twin, from the recorded study."""
    arms = study.get("arms") or {}
    found = {
        str(arm.get("twin_of")): str(name) for name, arm in arms.items() if isinstance(arm, Mapping)
    }
    return tuple((base, found[base]) for base in sorted(baselines) if base in found)
