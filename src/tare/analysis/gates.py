"""Gates: limits on how much an effect may change from one run to another.

``switch latency-median < +5 %`` holds where the whole interval of the change lies within the limit,
and fails where it lies wholly beyond. Between the two it is open: more blocks would tell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tare.analysis.between import Change, changes
from tare.analysis.comparison import Comparison
from tare.errors import InputError

ERROR = 0.05
"""How often any gate of a call may fail, or hold, though the truth is on the other side."""

Outcome = Literal["holds", "fails", "open"]

_GATE = re.compile(
    r"(?P<workload>[\w.-]+)\s+(?P<metric>[\w.%-]+)(?:\s+of\s+(?P<arm>\S+))?"
    r"(?:\s+in\s+(?P<scenario>\S+))?\s*(?P<side>[<>])\s*(?P<limit>[+-]?\d+(?:\.\d+)?)\s*%"
)
_WRITE = "write it as `switch latency-median < +5 %`, or `… of ARM in SCENARIO < +5 %`"


@dataclass(frozen=True)
class Gate:
    """One limit.

    Args:
        text: As it was written.
        workload: The study's label of the workload.
        metric: The metric.
        below: Whether the change must stay below the limit, or above it.
        limit: The change, relative: 0.05 is +5 %.
        arm: The arm; empty: each.
        scenario: The scenario; empty: each.
        floor: A change of the arm's value, in its unit, that never matters.
    """

    text: str
    workload: str
    metric: str
    below: bool
    limit: float
    arm: str = ""
    scenario: str = ""
    floor: float = 0.0

    def matches(self, change: Change) -> bool:
        """Return whether the gate is about a change."""
        key = change.key
        return (
            (key.workload, key.metric, key.role) == (self.workload, self.metric, "subject")
            and self.arm in ("", change.arm)
            and self.scenario in ("", key.scenario)
        )


@dataclass(frozen=True)
class Checked:
    """One gate held against one change."""

    gate: Gate
    change: Change
    limit: float
    outcome: Outcome


def parse_gate(text: str, floor: float = 0.0) -> Gate:
    """Return the gate that a text says.

    Args:
        text: Such as ``switch latency-median of kvm < +5 %``.
        floor: A change in the metric's unit that never matters.

    Raises:
        InputError: It says none; says what to write.
    """
    found = _GATE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"no gate: {text!r}", _WRITE)
    limit = float(found["limit"]) / 100
    if limit <= -1:
        raise InputError(f"no gate: {text!r}: nothing can fall by 100 % or more", _WRITE)
    return Gate(
        text=text.strip(),
        workload=found["workload"],
        metric=found["metric"],
        below=found["side"] == "<",
        limit=limit,
        arm=found["arm"] or "",
        scenario=found["scenario"] or "",
        floor=floor,
    )


def read_gates(path: Path) -> tuple[Gate, ...]:
    """Return the gates of a YAML file: a list of texts, or of ``{gate: TEXT, floor: NUMBER}``.

    Raises:
        InputError: It cannot be read, or an entry is no gate; says which.
    """
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {error}", "name a YAML file with a list of gates") from None
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{path}: no list of gates", f"begin each line with `- `; {_WRITE}")
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries, 1))


def _entry(path: Path, number: int, entry: Any) -> Gate:
    where = f"{path}: entry {number}"
    known = isinstance(entry, dict) and set(entry) <= {"gate", "floor"}
    text = entry.get("gate") if known else entry
    floor = entry.get("floor", 0.0) if known else 0.0
    number_given = isinstance(floor, int | float) and not isinstance(floor, bool)
    if not isinstance(text, str) or not number_given or not 0 <= floor < math.inf:
        raise InputError(f"{where} is no gate", f"{_WRITE}; or {{gate: TEXT, floor: NUMBER}}")
    try:
        return parse_gate(text, float(floor))
    except InputError as error:
        raise InputError(f"{where}: {error}", _WRITE) from None


def check(before: Comparison, after: Comparison, gates: Sequence[Gate]) -> tuple[Checked, ...]:
    """Hold all gates of one call against two runs; they are one family.

    Each side of each interval errs in at most `ERROR` ÷ checks, so that any gate at all is
    wrongly failed, or wrongly passed, in at most `ERROR` of calls (Bonferroni).

    Args:
        before: The first run.
        after: The second.
        gates: The gates.

    Raises:
        InputError: A gate is about nothing that both runs have; says what there is.
    """
    found = changes(before, after, 1 - 2 * ERROR)
    for gate in gates:
        if not any(map(gate.matches, found)):
            there = sorted({f"{c.key.workload} {c.key.metric}" for c in found if c.before.headline})
            raise InputError(
                f"the gate {gate.text!r} is about nothing that both runs have",
                f"there are: {', '.join(there) or 'none'}",
            )
    checks = sum(gate.matches(change) for gate in gates for change in found)
    narrow = changes(before, after, 1 - 2 * ERROR / max(1, checks))
    return tuple(
        _checked(gate, change) for gate in gates for change in narrow if gate.matches(change)
    )


def _checked(gate: Gate, change: Change) -> Checked:
    value = abs(change.before.arm_summary.centre)
    limit = 1 + gate.limit if change.ratio else gate.limit * value
    if gate.floor > 0:
        even = 1.0 if change.ratio else 0.0
        floor = gate.floor / value if change.ratio and value > 0 else gate.floor
        limit = max(limit, even + floor) if gate.below else min(limit, even - floor)
    if gate.below:
        within, beyond = change.high < limit, change.low > limit
    else:
        within, beyond = change.low > limit, change.high < limit
    outcome: Outcome = "holds" if within else "fails" if beyond else "open"
    return Checked(gate, change, limit, outcome)


def worst(checked: Sequence[Checked]) -> Outcome:
    """Return what a call ends with: ``fails`` where any does, else ``open``, else ``holds``."""
    outcomes = {one.outcome for one in checked}
    order: tuple[Outcome, ...] = ("fails", "open", "holds")
    return next(outcome for outcome in order if outcome in outcomes)
