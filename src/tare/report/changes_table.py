"""Tables of how effects changed between two runs, and of what else differs between these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tare.analysis.changed import Changed
from tare.analysis.formatting import format_quantity
from tare.analysis.model import Comparison, ProofDifference, RunData
from tare.analysis.proofs import flatten, proof_differences
from tare.report.anchors import anchor_of
from tare.report.svg import legible
from tare.report.tables import Column, Table
from tare.report.words import (
    Names,
    Part,
    marked,
    metric_name,
    percent,
    ratio,
    ratio_interval,
    short,
)

ANY = "any"
"""Told of costs that nothing bounds."""


@dataclass(frozen=True)
class RunPair:
    """Both runs, and their comparisons by baseline."""

    before: Mapping[str, Comparison]
    after: Mapping[str, Comparison]
    chosen: str

    @property
    def runs(self) -> tuple[RunData, RunData]:
        """The first run and the second."""
        return self.before[self.chosen].runs[0], self.after[self.chosen].runs[0]


class Difference(NamedTuple):
    """Something that differs between the runs: where, what, before, after, and what of it."""

    where: str
    what: str
    before: str
    after: str
    why: str


def what_of(one: Changed, names: Names) -> str:
    """Return what was measured, in words."""
    return f"{names.name(Part.of(one.change.key))} · {metric_name(one.change.key.metric)}"


def _estimate(one: Changed, which: str) -> str:
    effect = getattr(one.change, which)
    if effect.scale == "ratio":
        return ratio(effect.estimate)
    return format_quantity(effect.estimate, effect.unit)


def _change(one: Changed) -> str:
    if one.change.ratio:
        return ratio(one.change.change)
    return format_quantity(one.change.change, one.change.before.unit)


def _interval(one: Changed) -> str:
    if one.verdict == "preliminary":
        return "–"
    ends = one.change.low, one.change.high
    if one.change.ratio:
        return ratio_interval(ends)
    return " to ".join(format_quantity(end, one.change.before.unit) for end in ends)


def open_cost(one: Changed) -> str:
    """Return what cost an inconclusive change leaves open; a dash where it leaves none."""
    if one.verdict != "inconclusive":
        return "–"
    if apart := one.difference_not_excluded:
        return format_quantity(apart, one.change.before.unit) if math.isfinite(apart) else ANY
    if not one.not_excluded:
        return "–"
    return percent(one.not_excluded) if one.not_excluded < 1e6 else ANY


def changes_table(own: Sequence[Changed], pair: RunPair) -> Table[Changed]:
    """Return changes as a table, named for links."""
    names = Names(Part.of(one.change.key) for one in own)
    columns: tuple[Column[Changed], ...] = (
        Column("what", lambda o: names.name(Part.of(o.change.key)), "What"),
        Column(
            "metric",
            lambda o: o.change.key.metric,
            "Metric",
            lambda o: metric_name(o.change.key.metric),
        ),
        Column(
            "arm",
            lambda o: o.change.arm,
            "Arm",
            lambda o: marked(o.change.arm, o.change.before.emulated),
        ),
        Column(
            "before",
            lambda o: o.change.before.estimate,
            "Before",
            lambda o: _estimate(o, "before"),
            True,
        ),
        Column(
            "after",
            lambda o: o.change.after.estimate,
            "After",
            lambda o: _estimate(o, "after"),
            True,
        ),
        Column("change", lambda o: o.change.change, "After ÷ before", _change, True),
        Column("low", lambda o: o.change.low, "Interval", _interval, True),
        Column("verdict", lambda o: o.verdict, "Verdict"),
        Column("not_excluded", lambda o: o.not_excluded, "Not excluded", open_cost, True),
        Column("reason", lambda o: o.reason, "Why not told", lambda o: o.reason or "–"),
    )
    return Table(
        "changes",
        f"Effects against {legible(pair.chosen)}, and how they changed",
        columns,
        tuple(own),
        lambda o: f"{o.verdict}{' emulated' if o.change.before.emulated else ''}",
        lambda o: anchor_of(o.change.key, o.change.arm),
    )


def environment_table(pair: RunPair) -> Table[Difference]:
    """Return what differs between the runs: hosts, versions, and machines arm by arm."""
    before, after = pair.runs
    rows: list[Difference] = []
    for what, one, other in (
        ("host", before.host, after.host), ("version", before.versions, after.versions),
    ):  # fmt: skip
        flat, theirs = flatten(one), flatten(other)
        rows += [
            Difference(what, path, flat.get(path, "–"), theirs.get(path, "–"), "")
            for path in sorted({*flat, *theirs})
            if flat.get(path) != theirs.get(path)
        ]
    for arm, different in between_runs(pair).items():
        rows += [
            Difference(
                arm,
                f"{d.path} ({d.when})" if d.when else d.path,
                d.baseline_value,
                d.arm_value,
                d.why,
            )
            for d in different
        ]
    columns: tuple[Column[Difference], ...] = (
        Column("where", lambda r: r[0], "Where"),
        Column("path", lambda r: r[1], "What"),
        Column("baseline_value", lambda r: r[2], "Before", lambda r: short(r[2], 120)),
        Column("arm_value", lambda r: r[3], "After", lambda r: short(r[3], 120)),
        Column("why", lambda r: r[4], "How it could explain a change", lambda r: r[4] or "–"),
    )
    return Table("environment", "What differs between the runs", columns, tuple(rows))


def between_runs(pair: RunPair) -> dict[str, tuple[ProofDifference, ...]]:
    """Return by arm how its machines differ between the runs, what could explain it first."""
    before, after = pair.runs
    found = {}
    for arm in pair.before[pair.chosen].arms:
        machines = [
            replace(machine, arm=when)
            for when, run in (("before", before), ("after", after))
            for machine in run.machines
            if machine.arm == arm
        ]
        if different := proof_differences(machines, "before", ("before", "after")):
            found[arm] = different
    return found
