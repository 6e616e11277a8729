"""Gates: limits on how much an effect may change from one run to another.

``switch latency-median < +5 %`` holds if the whole interval of the change is within the limit, and
fails if the whole interval is beyond. Otherwise it is open: more blocks would decide it.

A limit with a unit is absolute. With a sign, ``switch latency-median < +200 ns``, it limits the
change of the arm's cost against the baseline. Without a sign, ``switch latency-median < 3 us``, it
limits the arm's own value in the second run. Counts and shares have the unit 1:
``net lost < 10 1``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Effect, Interval
from tare.analysis.runs.run_changes import SPOILS, Change, changes
from tare.analysis.runs.run_variation import (
    ASSUMED,
    RunVariation,
    value_with_variation,
    with_variation,
)
from tare.analysis.statistics.logratio import error_of_mean
from tare.analysis.statistics.tails import median_interval
from tare.analysis.words import unfit_words
from tare.errors import InputError
from tare.study.reading.checking import closest
from tare.units import DURATION_UNITS

ERROR = 0.05
"""The rate at which any gate of a call may wrongly fail, or wrongly hold."""

WITHIN = "runs of one set-up may differ by as much: more runs would decide, more blocks would not"
"""The reason why a gate is open although the two runs alone would decide it."""

Outcome = Literal["holds", "fails", "open"]

_GATE = re.compile(
    r"(?P<workload>[\w.-]+)\s+(?P<metric>[\w.%-]+)(?:\s+of\s+(?P<arm>\S+))?"
    r"(?:\s+in\s+(?P<scenario>\S+))?\s*(?P<side>[<>])\s*(?P<sign>[+-]?)(?P<limit>\d+(?:\.\d+)?)"
    r"(?:\s*(?P<unit>%|[^\s\d%]\S*)|\s+(?P<counted>1(?:/s)?))"
)
WRITE = (
    "write it as `switch latency-median < +5 %` or `… of ARM in SCENARIO < +5 %`; a limit in the "
    "metric's unit as `< +200 ns` for the change, as `< 3 us` for the value itself"
)
_FACTORS = (
    {unit: ("s", factor) for unit, factor in DURATION_UNITS.items()}
    | {
        f"{prefix}{unit}": (unit, factor)
        for unit in ("B/s", "1/s", "B", "W", "J", "Hz", "1")
        for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))
    }
    | {"/s": ("1/s", 1.0)}
)
"""Units of limits, each with the metric's unit and the factor to it; ``/s`` is for rates."""


@dataclass(frozen=True)
class Gate:
    """One limit on a change or on a value.

    Args:
        text: The text of the gate.
        workload: The study's label of the workload.
        metric: The metric.
        below: Whether the change must stay below the limit, or above it.
        limit: Relative, 0.05 is +5 %; or in ``unit``.
        arm: The arm; empty: every arm.
        scenario: The scenario; empty: every scenario.
        floor: A change of the arm's value, in its unit, that never matters.
        share: A relative change that never matters; the greater of both counts.
        unit: SI unit of an absolute limit; empty: relative.
        value: Whether the limit is on the value itself, not on its change.
    """

    text: str
    workload: str
    metric: str
    below: bool
    limit: float
    arm: str = ""
    scenario: str = ""
    floor: float = 0.0
    share: float = 0.0
    unit: str = ""
    value: bool = False

    def matches(self, what: Change | Effect) -> bool:
        """Return whether the gate is about a change, or about an effect."""
        key = what.key
        return (
            (key.workload, key.metric, key.role) == (self.workload, self.metric, "subject")
            and self.arm in ("", what.arm)
            and self.scenario in ("", key.scenario)
        )


@dataclass(frozen=True)
class Checked:
    """The check of one gate against one change.

    Args:
        gate: The gate.
        change: Its change.
        limit: The limit on the scale of the change, or of ``value``.
        outcome: The outcome.
        value: The interval of the value in the metric's unit, if the gate limits the value itself.
        at: The value.
        reason: Why it is open although its interval alone would decide; empty: no other reason.
        by_floor: Whether the limit is that of a floor, which is wider than the gate's own.
        runs: The variation between runs that the interval includes, as the end of a sentence; empty
            if time counts instructions, because such runs do not differ by themselves.
    """

    gate: Gate
    change: Change
    limit: float
    outcome: Outcome
    value: Interval | None = None
    at: float = math.nan
    reason: str = ""
    by_floor: bool = False
    runs: str = ""


def parse_gate(text: str, floor: float = 0.0, share: float = 0.0) -> Gate:
    """Return the gate that a text describes.

    Args:
        text: Such as ``switch latency-median of kvm < +5 %``.
        floor: A change in the metric's unit that never matters.
        share: A relative change that never matters.

    Raises:
        InputError: It does not describe a gate; the message has the form to write.
    """
    found = _GATE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"no gate: {text!r}", WRITE)
    size = float(f"{found['sign']}{found['limit']}")
    written = found["unit"] or found["counted"]
    unit, factor = _FACTORS.get(written, ("", 0.0))
    if written == "%":
        unit, factor = "", 0.01
    elif not factor:
        raise InputError(f"no gate: {text!r}: unknown unit {written!r}", WRITE)
    if not unit and size <= -100:
        raise InputError(f"no gate: {text!r}: nothing can fall by 100 % or more", WRITE)
    return Gate(
        text=text.strip(),
        workload=found["workload"],
        metric=found["metric"],
        below=found["side"] == "<",
        limit=size * factor if unit else size / 100,
        arm=found["arm"] or "",
        scenario=found["scenario"] or "",
        floor=floor,
        share=share,
        unit=unit,
        value=bool(unit) and not found["sign"],
    )


def unfit_reason(before: Comparison, after: Comparison) -> str:
    """Return why two runs decide no gate, if a host of theirs was not fit for measuring.

    Empty if both were fit. If time counts instructions, the host's state does not affect results.
    """
    found = [
        f"the host of the {when} run was not fit for measuring: {words}"
        for when, comparison in (("first", before), ("second", after))
        for run in comparison.runs
        if (words := unfit_words(run)) and not run.counts_instructions
    ]
    if not found:
        return ""
    return f"{'; '.join(found)}. Run it again on a fit host, or add --accept-unfit"


def check(
    before: Comparison,
    after: Comparison,
    gates: Sequence[Gate],
    *,
    accept_unfit: bool = False,
    variation: RunVariation = ASSUMED,
) -> tuple[Checked, ...]:
    """Check all gates of one call against two runs; they are one family.

    Each side of each interval errs in at most `ERROR` ÷ checks, so that some gate wrongly fails, or
    wrongly holds, in at most `ERROR` of calls (Bonferroni). Intervals include the variation between
    runs. If both runs are of deterministic labs and too short for an interval, the range of their
    blocks is compared with the limit instead. This has no such error.

    Args:
        before: The first run.
        after: The second.
        gates: The gates.
        accept_unfit: Whether to decide gates although a host was not fit for measuring. Otherwise
            all gates are then open, with the reason.
        variation: How far runs of one set-up differ; by default an assumed share.

    Raises:
        InputError: No change that both runs have matches a gate; the message lists the known ones.
            Or a gate's arm has values only in the first run: a crashed arm never passes a gate.
    """
    found = changes(before, after, 1 - 2 * ERROR)
    for gate in gates:
        if not any(map(gate.matches, found)):
            raise _unmatched_gate(gate, found)
        _require_every_arm(gate, before, after)
        _require_unit(gate, [change for change in found if gate.matches(change)])
    checks = sum(gate.matches(change) for gate in gates for change in found)
    narrow = changes(before, after, 1 - 2 * ERROR / max(1, checks), ranges=True)
    counted = all(run.counts_instructions for run in (*before.runs, *after.runs))
    found_by = tuple(
        _checked(gate, change, None if counted else variation)
        for gate in gates
        for change in narrow
        if gate.matches(change)
    )
    unfit = "" if accept_unfit else unfit_reason(before, after)
    if not unfit:
        return found_by
    return tuple(replace(one, outcome="open", reason=unfit) for one in found_by)


def _unmatched_gate(gate: Gate, found: Sequence[Change]) -> InputError:
    """Return the error for a gate that no change matches: its arm or scenario, or its metric."""
    about = [
        change
        for change in found
        if (change.key.workload, change.key.metric) == (gate.workload, gate.metric)
    ]
    arms = {change.arm for change in about}
    scenarios = {change.key.scenario for change in about}
    for kind, named, known in (("arm", gate.arm, arms), ("scenario", gate.scenario, scenarios)):
        if about and named and named not in known:
            return InputError(
                f"the gate {gate.text!r} is about the {kind} {named}, but not both runs have its "
                f"{gate.metric}",
                f"both runs have it for: {', '.join(sorted(known))}",
            )
    there = sorted({f"{c.key.workload} {c.key.metric}" for c in found if c.before.headline})
    near = closest(f"{gate.workload} {gate.metric}", there)
    meant = f"did you mean {near}? " if near else ""
    return InputError(
        f"the gate {gate.text!r} is about nothing that both runs have",
        f"{meant}there are: {', '.join(there) or 'none'}",
    )


def _require_every_arm(gate: Gate, before: Comparison, after: Comparison) -> None:
    """Check that no arm of a gate has lost its values from the first run to the second."""
    there = {(effect.key, effect.arm) for effect in after.effects}
    lost = [
        f"{effect.arm} in {effect.key.scenario}"
        for effect in before.effects
        if gate.matches(effect) and (effect.key, effect.arm) not in there
    ]
    if lost:
        raise InputError(
            f"the gate {gate.text!r} is about {', '.join(dict.fromkeys(lost))}, which has no value "
            "in the second run",
            f"see why: tare report {after.runs[0].folder}; or narrow the gate by "
            "`… of ARM in SCENARIO`",
        )


def _require_unit(gate: Gate, about: Sequence[Change]) -> None:
    """Check that an absolute limit is in the unit of its metric."""
    units = sorted({change.before.unit for change in about})
    if gate.unit and units != [gate.unit]:
        raise InputError(
            f"the gate {gate.text!r} is in {gate.unit}, its metric in {' and '.join(units)}", WRITE
        )


def _checked(gate: Gate, change: Change, variation: RunVariation | None) -> Checked:
    """Return the result of a gate for one change.

    Args:
        gate: The gate.
        change: The change between the two runs.
        variation: How far runs of one set-up differ; None: they do not differ by themselves.
    """
    checked = _judge_by_interval(gate, change)
    if variation is not None:
        alone = checked.outcome
        checked = replace(
            _judge_by_interval(gate, change, variation), runs=variation.describe(change)
        )
        if checked.outcome != alone:
            return replace(checked, reason=WITHIN)
    reason = _doubt(checked)
    return replace(checked, outcome="open", reason=reason) if reason else checked


def _doubt(checked: Checked) -> str:
    """Return why the interval does not decide, or must not; empty if it decides.

    A gate does not hold if failed cells may have been the slow ones, if an arm has slow boots, or
    if blocks are correlated. It does not fail if the change may come from lost cells: the arm's in
    the first run, or the baseline's in the second.
    """
    change, gate = checked.change, checked.gate
    if checked.outcome == "fails" and not gate.value:
        return change.flattered
    if checked.outcome == "open" and not (change.ratio or change.value or gate.unit or gate.floor):
        return (
            "it was 0 in the first run, and a share of 0 is not a limit: give it a floor, such as "
            f"--floor '{gate.metric}=1', or a limit in its unit"
        )
    if checked.outcome != "holds":
        return ""
    runs, kinds = [("second", change.after), ("first", change.before)], SPOILS
    if gate.value:
        runs, kinds = runs[:1], SPOILS - {"baseline-failures"}
    return next(
        (
            f"in the {when} run, {flag.text}"
            for when, effect in runs
            for flag in effect.flags
            if flag.kind in kinds
        ),
        "",
    )


def _judge_by_interval(
    gate: Gate, change: Change, variation: RunVariation | None = None
) -> Checked:
    """Return the outcome by the interval alone.

    Args:
        gate: The gate.
        change: The change between the two runs.
        variation: The variation between runs to include; None: none.
    """
    if gate.value:
        at, interval = _own_value(change.after, change.confidence)
        if variation is not None:
            interval = value_with_variation(at, interval, change, variation)
        outcome = _outcome(gate, interval.low, interval.high, gate.limit)
        return Checked(gate, change, gate.limit, outcome, interval, at)
    if variation is not None:
        change = with_variation(change, variation)
    value = change.value
    even = 1.0 if change.ratio else 0.0
    # A ratio of effects is a change as a share of the arm's value: convert absolute limits to it.
    scale = (1 / value if value > 0 else math.inf) if change.ratio else 1.0
    own = gate.limit * scale if gate.unit else gate.limit * (1.0 if change.ratio else value)
    share = gate.share * (1.0 if change.ratio else value)
    floor = max(gate.floor * scale if gate.floor else 0.0, share)
    by_floor = floor > 0 and (floor > own if gate.below else -floor < own)
    limit = even + ((floor if gate.below else -floor) if by_floor else own)
    outcome = _outcome(gate, change.low, change.high, limit)
    return Checked(gate, change, limit, outcome, by_floor=by_floor)


def _own_value(effect: Effect, confidence: float) -> tuple[float, Interval]:
    """Return an arm's own value and its interval; infinite if there are too few blocks."""
    summary = effect.arm_summary
    values = [block.value for block in summary.blocks]
    # If most boots have no event, the median is 0, whatever the others have.
    means = summary.kind == "typical" or effect.seldom
    if means and len(values) > 1:
        error = error_of_mean(values, confidence)
        ends = Interval(summary.mean - error, summary.mean + error, "student-t", confidence)
        return summary.mean, ends
    bounds = None if means else median_interval(values, confidence)
    found = Interval(*(bounds or (-math.inf, math.inf)), "order-statistic", confidence)
    return summary.centre, found


def _outcome(gate: Gate, low: float, high: float, limit: float) -> Outcome:
    if gate.below:
        within, beyond = high < limit, low > limit
    else:
        within, beyond = low > limit, high < limit
    return "holds" if within else "fails" if beyond else "open"


def worst(checked: Sequence[Checked]) -> Outcome:
    """Return the outcome of a call: ``fails`` if any gate does, else ``open``, else ``holds``."""
    outcomes = {one.outcome for one in checked}
    order: tuple[Outcome, ...] = ("fails", "open", "holds")
    return next(outcome for outcome in order if outcome in outcomes)
