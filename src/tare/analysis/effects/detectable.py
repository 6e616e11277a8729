"""Estimates of the differences that a study can detect, before it runs."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.analysis.data.grouping import group, taken_together
from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.estimates import pair_up
from tare.analysis.effects.results import Each
from tare.analysis.effects.stopping import TAIL_FACTOR
from tare.analysis.effects.verdict import LEVEL, percent
from tare.analysis.runs.sessions import session_blocks
from tare.analysis.statistics.detectable import POWER, detectable
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.moderation import LEAST_METRICS, trigamma
from tare.analysis.statistics.sequential import LookPlan
from tare.analysis.statistics.trimmed import spread_of_trimmed
from tare.events.metric import Kind

ASSUMED_CV = 0.03
"""The variation that is assumed without a pilot: boots of one arm differ by 3 % (standard
deviation), like CPU and memory work on a quiet computer."""

BLOCKS_OF_SPREAD = 3
"""The least number of a pilot's blocks from which a spread is estimated."""


@dataclass(frozen=True)
class Basis:
    """The variation between boots, and the source of that figure.

    Args:
        spread: Standard deviation of log-ratios between blocks, for the median headline metric.
        worst: The same for the noisiest headline metric.
        source: The source of these figures, in words.
        dispersion: How far the metrics' deviations differ: the standard deviation of their
            logarithms, without the part that comes from the small number of blocks.
    """

    spread: float
    worst: float
    source: str
    dispersion: float = 0.0


@dataclass(frozen=True)
class Plans:
    """The parts of a study's plan that determine which differences it can detect.

    Args:
        blocks: The least and the most blocks.
        headlines: Headline metrics of one arm by kind, over all scenarios.
        margin: The practical margin.
        precision: The relative half-width that is asked of typical values.
        tail_precision: The relative half-width that is asked of tails.
        sequential: Whether the study is group-sequential.
        trimmed: Whether trimmed means are compared.
        each: The unit of ``blocks``.
    """

    blocks: tuple[int, int]
    headlines: Mapping[Kind, int]
    margin: float = 0.02
    precision: float = 0.05
    tail_precision: float = TAIL_FACTOR * 0.05
    sequential: bool = False
    trimmed: bool = False
    each: Each = "block"


def assumed_basis(boots: int = 1, why: str = "nothing was measured") -> Basis:
    """Return the variation that is assumed if nothing was measured.

    Args:
        boots: Boots of the baseline in a block: two if it has a twin, otherwise one.
        why: Why it is assumed, in words.
    """
    spread = ASSUMED_CV * math.sqrt(1 + 1 / boots)
    source = f"an assumed variation of {percent(ASSUMED_CV)} between boots: {why}"
    return Basis(spread, spread, source)


def basis_of(run: RunData, source: str, each: Each = "block") -> Basis | None:
    """Estimate how far boots differed in a run; return None if it has too few blocks.

    Args:
        run: The run.
        source: A description of the run, in words.
        each: ``round``: use only pairs of arms of different boots, compared by rounds of sessions.
            ``block``: use only the other pairs.
    """
    settings = Settings.of([run])
    twins = set(settings.twins.values())
    pooled = {"+".join(both): both for both in settings.twins.items()}
    sessions = session_blocks([run], pooled)
    every: list[float] = []
    noise: list[float] = []
    for key, measured in group([run]).items():
        if not measured.headline or measured.kind != "typical":
            continue
        for arm in set(measured.arms) - twins:
            base = settings.baseline_of(arm)
            both = (base, settings.twins.get(base, ""))
            if arm == base:
                continue
            against = base
            if both[1] in measured.arms and base in measured.arms:
                against = "+".join(both)
                together = taken_together(measured, both)
                raw = [value for each in both for value in measured.raw(each)]
                measured.add(against, together, positive=measured.positive(both), raw=raw)
            across = sessions.across(arm, against)
            if across != (each == "round"):
                continue
            compare = sessions.pair if across else pair_up
            pair = compare(key, measured, arm, against)
            if pair is None or pair.scale != "ratio" or len(pair.blocks) < BLOCKS_OF_SPREAD:
                continue
            every.append(statistics.stdev(pair.differences))
            noise.append(trigamma((len(pair.blocks) - 1) / 2) / 4)
    if not every:
        return None
    logs = [math.log(spread) for spread in every if spread > 0]
    differs = statistics.variance(logs) - statistics.fmean(noise) if len(logs) > 1 else 0.0
    dispersion = math.sqrt(max(0.0, differs))
    return Basis(statistics.median(every), max(every), source, dispersion)


SAME_HOST = ("name", "machine", "cpu_model", "cpus", "memory_bytes")
"""Facts that identify the computer of a run. The kernel is left out, because it changes."""


def earlier_run(folders: Iterable[Path], study: str, host: Mapping[str, Any]) -> Path | None:
    """Return the newest folder that holds a run of this study on this computer.

    Only the first event of each run is read.

    Args:
        folders: The folders to look in.
        study: The study's name.
        host: Facts that identify this computer.
    """
    found: list[tuple[float, Path]] = []
    for folder in folders:
        try:
            with (folder / "events.jsonl").open(encoding="utf-8") as lines:
                first = json.loads(lines.readline())
            started = first["event"]
            its = started["host"]
            alike = all(its.get(name) == host.get(name) for name in SAME_HOST)
            if alike and started["study"]["study"] == study:
                found.append((float(first["time"]), folder))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return max(found)[1] if found else None


def describe_detectable(basis: Basis, plans: Plans, level: float = LEVEL) -> list[str]:
    """Return one sentence for each count of blocks, with the differences that it can detect.

    Args:
        basis: The variation between boots.
        plans: The parts of the study's plan that matter here.
        level: Familywise error of verdicts.
    """
    tests = max(1, sum(plans.headlines.values()))
    moderated = plans.headlines.get("typical", 0) >= LEAST_METRICS
    dispersion = basis.dispersion if moderated else math.inf
    looks = LookPlan(*plans.blocks) if plans.sequential else None
    lines = [f"the detectable differences are estimated from {basis.source}"]
    if plans.trimmed:
        lines.append(
            "verdicts compare trimmed means, without a fifth of the blocks at either end: they "
            "are about typical boots, and a few slow boots do not move them"
        )
    for count in dict.fromkeys(plans.blocks):
        margin = math.log1p(plans.margin)
        cost = spread_of_trimmed(count) if plans.trimmed else 1.0
        typical, worst = (
            detectable(
                spread,
                count,
                tests,
                level,
                margin=margin,
                plan=looks,
                dispersion=dispersion,
            )
            for spread in (cost * basis.spread, cost * basis.worst)
        )
        if math.isinf(typical):
            few = count < least_blocks(level)
            lines.append(
                f"{count} {plans.each}s: none, {'all will be preliminary' if few else 'so early'}"
            )
            continue
        text = (
            f"{count} {plans.each}s: {percent(math.expm1(typical))} in the typical headline metric"
        )
        if worst > typical:
            text += f", {percent(math.expm1(worst))} in the noisiest"
        family = "one metric" if tests == 1 else f"{tests} metrics"
        lines.append(f"{text} ({100 * POWER:.0f} % power over {family})")
        resolved = detectable(
            cost * basis.spread, count, tests, level, plan=looks, dispersion=dispersion
        )
        if count == plans.blocks[-1] and resolved > margin:
            lines.append(
                f"this set-up cannot resolve the margin of {percent(plans.margin)}: quieten the "
                f"host, lengthen the cells, or ask for more {plans.each}s"
            )
    return [*lines, *sentences_on_kinds(plans)]


def sentences_on_kinds(plans: Plans) -> list[str]:
    """Return sentences on tails and maxima, which do not depend on how much boots vary."""
    lines = []
    if plans.headlines.get("tail"):
        lines.append(
            f"tails are asked to ± {percent(plans.tail_precision)}, typical values to "
            f"± {percent(plans.precision)}"
        )
    if plans.headlines.get("maximum"):
        lines.append(
            "maxima are reported, but no number of blocks makes them precise: they never stop a run"
        )
    return lines
