"""Tables of how effects changed between two runs, and of what else differs between these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.changed import Changed
from tare.analysis.model import Comparison, Effect, RunData, as_cost, cost_ends
from tare.analysis.run_differences import (
    RunDifference,
    environment_differences,
    study_differences,
)
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
from tare.units import format_quantity

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


def what_of(one: Changed, names: Names) -> str:
    """Return what was measured, in words."""
    return f"{names.name(Part.of(one.change.key))} · {metric_name(one.change.key.metric)}"


def _estimate(effect: Effect) -> str:
    if effect.scale == "ratio":
        return ratio(as_cost(effect.estimate, effect.better))
    return format_quantity(effect.estimate, effect.unit)


def _change(one: Changed) -> str:
    if one.change.ratio:
        return ratio(as_cost(one.change.change, one.change.before.better))
    return format_quantity(one.change.change, one.change.before.unit)


def _interval(one: Changed) -> str:
    if one.verdict == "preliminary":
        return "–"
    ends = one.change.low, one.change.high
    if one.change.ratio:
        return ratio_interval(cost_ends(*ends, one.change.before.better))
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
    shown_as = pair.before[pair.chosen].shown_as
    names = Names((Part.of(one.change.key) for one in own), shown_as, short=True)
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
            "Cost before",
            lambda o: _estimate(o.change.before),
            True,
        ),
        Column(
            "after",
            lambda o: o.change.after.estimate,
            "Cost after",
            lambda o: _estimate(o.change.after),
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
        f"Costs against {legible(pair.chosen)}, and how they changed; above 1 is worse",
        columns,
        tuple(own),
        lambda o: f"{o.verdict}{' emulated' if o.change.before.emulated else ''}",
        lambda o: anchor_of(o.change.key, o.change.arm),
    )


def environment_table(pair: RunPair) -> Table[RunDifference]:
    """Return what differs between the runs: studies, hosts, versions, and arms one by one."""
    before, after = pair.runs
    rows = (*study_differences(before, after), *environment_differences(before, after))
    columns: tuple[Column[RunDifference], ...] = (
        Column("where", lambda r: r.where, "Where"),
        Column("path", lambda r: r.what, "What"),
        Column("baseline_value", lambda r: r.before, "Before", lambda r: short(r.before, 120)),
        Column("arm_value", lambda r: r.after, "After", lambda r: short(r.after, 120)),
        Column("why", lambda r: r.why, "How it could explain a change", lambda r: r.why or "–"),
    )
    return Table("environment", "What differs between the runs", columns, rows)
