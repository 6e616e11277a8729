"""The output of `tare compare --json`: effects and changes as plain values, under stable keys.

Keys are only ever added. `version` increases when a key changes its meaning or is removed. Numbers
are in SI units; a missing number is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.model import Comparison, Effect, Key
from tare.analysis.runs.change_verdicts import JudgedChange, changed
from tare.analysis.runs.run_changes import Pooled, pooled, require_same_baseline
from tare.report.compare.run_doubts import doubts_of
from tare.report.page.words import parameters_of

VERSION = 1


def effects_json(comparison: Comparison) -> dict[str, Any]:
    """Return the effects of one run against its baseline."""
    return {
        **_head("effects", [comparison]),
        "blocks": comparison.blocks,
        "margin": comparison.margin,
        "arms": [
            {"arm": each.arm, "emulated": each.emulated, "sentence": each.sentence}
            for each in comparison.arm_verdicts
        ],
        "effects": [_effect(effect) for effect in (*comparison.effects, *comparison.aa)],
        "notes": list(comparison.notes),
    }


def changes_json(before: Comparison, after: Comparison) -> dict[str, Any]:
    """Return the differences between the effects of a second run and those of the first.

    Raises:
        InputError: The runs have different baselines.
    """
    require_same_baseline([before, after])
    base = before.baseline
    return {
        **_head("changes", [before, after]),
        "margin": before.margin,
        "changes": [_change(one) for one in changed({base: before}, {base: after}, base)],
        "notes": list(map(str, doubts_of(before, after))),
    }


def pooled_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the pooled effects of three or more runs."""
    found = pooled(comparisons, comparisons[0].confidence)
    return {**_head("together", comparisons), "together": [_pooled(each) for each in found]}


def json_text(value: Mapping[str, Any]) -> str:
    """Return a value as JSON text; numbers that are not finite become null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n"


def _head(kind: str, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": kind,
        "runs": [run.run for comparison in comparisons for run in comparison.runs],
        "baseline": comparisons[0].baseline,
        "confidence": comparisons[0].confidence,
    }


def _key_fields(key: Key) -> dict[str, Any]:
    return {
        "scenario": key.scenario,
        "workload": key.workload,
        "parameters": dict(parameters_of(key.parameters)),
        "role": key.role,
        "metric": key.metric,
    }


def _effect(effect: Effect) -> dict[str, Any]:
    ends = effect.interval
    return {
        **_key_fields(effect.key),
        "arm": effect.arm,
        "baseline": effect.baseline,
        "emulated": effect.emulated,
        "unit": effect.unit,
        "better": effect.better,
        "kind": effect.kind,
        "headline": effect.headline,
        "family": effect.family,
        "scale": effect.scale,
        "blocks": effect.blocks,
        "arm_mean": effect.arm_summary.mean,
        "baseline_mean": effect.baseline_summary.mean,
        "estimate": effect.estimate,
        "low": None if ends is None else ends.low,
        "high": None if ends is None else ends.high,
        "p": effect.p,
        "adjusted_p": effect.adjusted_p,
        "verdict": effect.verdict,
        "sentence": effect.sentence,
        "flags": [flag.text for flag in effect.flags],
    }


def _change(one: JudgedChange) -> dict[str, Any]:
    change = one.change
    return {
        **_key_fields(change.key),
        "arm": change.arm,
        "unit": change.before.unit,
        "better": change.before.better,
        "kind": change.before.kind,
        "headline": change.before.headline,
        "scale": "ratio" if change.ratio else "difference",
        "before": change.before.estimate,
        "after": change.after.estimate,
        "change": change.change,
        "low": change.low,
        "high": change.high,
        "verdict": one.verdict,
        "reason": one.reason,
    }


def _pooled(each: Pooled) -> dict[str, Any]:
    first, together = each.effects[0], each.together
    return {
        **_key_fields(each.key),
        "arm": first.arm,
        "unit": first.unit,
        "better": first.better,
        "kind": first.kind,
        "headline": first.headline,
        "runs": len(each.effects),
        # Effects of runs are combined as logarithms.
        "estimate": math.exp(together.effect),
        "low": math.exp(together.low) if math.isfinite(together.low) else None,
        "high": math.exp(together.high) if math.isfinite(together.high) else None,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
