"""The tables of a comparison: effects against the baseline, values per arm, host cost, failures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.analysis.formatting import format_duration, format_quantity, format_size
from tare.analysis.model import (
    ArmSummary,
    CellResult,
    Comparison,
    Effect,
    EnvironmentChange,
    HostCost,
    Interval,
    Key,
    ProofDifference,
    RunData,
    SkippedPart,
    as_cost,
    cost_ends,
)
from tare.report.anchors import anchor_of
from tare.report.tables import Column, Table
from tare.report.words import (
    NONE,
    Names,
    Part,
    apart,
    cost,
    cost_interval,
    marked,
    metric_name,
    parameters_of,
    percent,
    probability,
    ratio,
    ratio_interval,
    short,
    told,
)
from tare.skips import LeftOut, Line, lines_of

COST = "Cost factor"
"""The heading of an effect as a cost."""
PAIRED = " †"
"""Marks a cost that is not the quotient of the two values next to it."""
ABOUT_COST = (
    "Cost factor: how many times worse than the baseline in the same blocks; above 1 is worse, for "
    "rates too. Values are geometric means over these blocks, of tails and maxima medians."
)
ABOUT_PAIRED = (
    "† Not the quotient of the two values: the median of the blocks’ own ratios, or adjusted for "
    "the order within blocks"
)


def effects_table(
    comparison: Comparison, name: str, effects: Iterable[Effect], caption: str = ""
) -> Table[Effect]:
    """Return ``effects`` with estimates, intervals, p and verdicts, one row each."""
    rows = tuple(effects)
    plain, names = _names(comparison, [effect.key for effect in comparison.effects])
    columns: tuple[Column[Effect], ...] = (
        Column(
            "what",
            lambda e: plain.name(Part.of(e.key)),
            "What",
            lambda e: names.name(Part.of(e.key)),
        ),
        Column("scenario", lambda e: e.key.scenario),
        Column("workload", lambda e: e.key.workload),
        Column("parameters", lambda e: e.key.parameters),
        Column("role", lambda e: e.key.role),
        Column("metric", lambda e: e.key.metric, "Metric", lambda e: metric_name(e.key.metric)),
        Column("arm", lambda e: e.arm, "Arm", lambda e: marked(e.arm, e.emulated)),
        Column("emulated", lambda e: e.emulated),
        Column("baseline", lambda e: e.baseline),
        Column("unit", lambda e: e.unit),
        Column("better", lambda e: e.better),
        Column("kind", lambda e: e.kind),
        Column("headline", lambda e: e.headline),
        Column("scale", lambda e: e.scale),
        Column("estimate", lambda e: e.estimate, COST, _estimate, numeric=True),
        Column("low", lambda e: _end(e.interval, 0), "Interval", _interval, numeric=True),
        Column("high", lambda e: _end(e.interval, 1)),
        Column("method", lambda e: None if e.interval is None else e.interval.method),
        Column("confidence", lambda e: comparison.confidence),
        Column("student_t_low", lambda e: _end(e.student_t, 0)),
        Column("student_t_high", lambda e: _end(e.student_t, 1)),
        Column("bootstrap_low", lambda e: _end(e.bootstrap, 0)),
        Column("bootstrap_high", lambda e: _end(e.bootstrap, 1)),
        Column("order_low", lambda e: _end(e.order, 0)),
        Column("order_high", lambda e: _end(e.order, 1)),
        Column("cost", cost),
        Column("cost_low", lambda e: (cost_interval(e) or (None, None))[0]),
        Column("cost_high", lambda e: (cost_interval(e) or (None, None))[1]),
        Column("verdict", lambda e: e.verdict, "Verdict"),
        Column(
            "value",
            lambda e: _own(e, e.arm_summary),
            "Arm's value",
            lambda e: format_quantity(_compared(e)[0], e.unit, digits=4),
            numeric=True,
        ),
        Column(
            "baseline_value",
            lambda e: _own(e, e.baseline_summary),
            "Baseline",
            lambda e: format_quantity(_compared(e)[1], e.unit, digits=4),
            numeric=True,
        ),
        Column("compared_value", lambda e: _compared(e)[0]),
        Column("compared_baseline", lambda e: _compared(e)[1]),
        Column("robust", lambda e: e.robust.estimate if e.robust else None),
        Column("robust_low", lambda e: e.robust.interval.low if e.robust else None),
        Column("robust_high", lambda e: e.robust.interval.high if e.robust else None),
        Column("not_excluded", lambda e: e.not_excluded, "Not excluded", _open, numeric=True),
        Column("p", lambda e: e.p),
        Column(
            "adjusted_p",
            lambda e: e.adjusted_p,
            "p",
            lambda e: probability(e.adjusted_p),
            numeric=True,
        ),
        Column(
            "noise_floor",
            lambda e: e.noise_floor,
            "A/A within",
            _floor,
            numeric=True,
        ),
        Column("family", lambda e: e.family),
        Column("margin", lambda e: e.margin),
        Column("blocks", lambda e: e.blocks, "Blocks", numeric=True),
        Column("flags", lambda e: "; ".join(flag.text for flag in e.flags)),
    )
    caption = caption or (
        f"Effects against {comparison.against}, with {100 * comparison.confidence:.4g} % intervals"
    )
    caption = ". ".join((caption, *cost_notes(rows)))
    return Table(name, caption, columns, rows, _tone, lambda e: anchor_of(e.key, e.arm))


def _names(comparison: Comparison, keys: Sequence[Key]) -> tuple[Names, Names]:
    """Return names for files, which never change, and those that people read."""
    parts = [Part.of(key) for key in keys]
    return Names(parts), Names(parts, comparison.shown_as, short=True)


def cost_notes(effects: Sequence[Effect]) -> tuple[str, ...]:
    """Return what a reader must know of the costs and values of these effects."""
    notes = []
    ratios = {effect.better for effect in effects if effect.scale == "ratio"}
    if ratios & {"lower", "higher"}:
        notes.append("Cost factor: above 1 is worse")
    if "neither" in ratios:
        notes.append("Where neither direction is better the factor is arm ÷ baseline")
    if any(not effect.follows for effect in effects):
        notes.append(ABOUT_PAIRED)
    return tuple(notes)


def _compared(effect: Effect) -> tuple[float, float]:
    """Return the arm's value and the baseline's over the blocks that both have."""
    if effect.compared is not None:
        return effect.compared
    return _own(effect, effect.arm_summary), _own(effect, effect.baseline_summary)


def _own(effect: Effect, summary: ArmSummary) -> float:
    """Return an arm's own value over all its blocks: the mean where it is often 0."""
    return summary.mean if effect.seldom else summary.centre


def _tone(effect: Effect) -> str:
    words = [effect.verdict.replace(" ", "-")]
    if effect.emulated:
        words.append("emulated")
    return " ".join(words)


def _end(interval: Interval | None, which: int) -> float | None:
    return None if interval is None else (interval.low, interval.high)[which]


def _estimate(effect: Effect) -> str:
    mark = "" if effect.follows else PAIRED
    if effect.scale == "ratio":
        return ratio(as_cost(effect.estimate, effect.better)) + mark
    return apart(effect.estimate, effect.unit) + mark


def _floor(effect: Effect) -> str:
    if effect.noise_floor is None:
        return NONE
    if effect.scale == "ratio":
        return percent(effect.noise_floor)
    return format_quantity(effect.noise_floor, effect.unit)


def _open(effect: Effect) -> str:
    """Return the greatest cost that is not excluded, of what is not decided otherwise."""
    if not effect.not_excluded or effect.verdict != "inconclusive":
        return NONE
    if math.isinf(effect.not_excluded):
        return "any"
    if effect.scale == "ratio":
        return percent(effect.not_excluded)
    return format_quantity(effect.not_excluded, effect.unit)


def _interval(effect: Effect) -> str:
    if effect.interval is None:
        return NONE
    ends = effect.interval.low, effect.interval.high
    if effect.scale == "ratio":
        return ratio_interval(cost_ends(*ends, effect.better))
    return " to ".join(apart(end, effect.unit) for end in ends)


def summaries_table(comparison: Comparison) -> Table[ArmSummary]:
    """Return every arm's own values: mean and median over blocks, spread, interval, E."""
    plain, names = _names(comparison, [summary.key for summary in comparison.summaries])

    def quantity(key: str, title: str) -> Column[ArmSummary]:
        def raw(summary: ArmSummary) -> float | None:
            found: float | None = getattr(summary, key)
            return found

        def text(summary: ArmSummary) -> str:
            value = raw(summary)
            return NONE if value is None else format_quantity(value, summary.unit, digits=4)

        return Column(key, raw, title, text, numeric=True)

    columns: tuple[Column[ArmSummary], ...] = (
        Column(
            "what",
            lambda s: plain.name(Part.of(s.key)),
            "What",
            lambda s: names.name(Part.of(s.key)),
        ),
        Column("scenario", lambda s: s.key.scenario),
        Column("workload", lambda s: s.key.workload),
        Column("parameters", lambda s: s.key.parameters),
        Column("role", lambda s: s.key.role),
        Column("metric", lambda s: s.key.metric, "Metric", lambda s: metric_name(s.key.metric)),
        Column("arm", lambda s: s.arm, "Arm", lambda s: marked(s.arm, s.emulated)),
        Column("emulated", lambda s: s.emulated),
        Column("unit", lambda s: s.unit),
        Column("better", lambda s: s.better),
        Column("kind", lambda s: s.kind),
        Column("blocks", lambda s: len(s.blocks), "Blocks", numeric=True),
        quantity("mean", "Mean"),
        quantity("error", "± E"),
        quantity("median", "Median"),
        quantity("least", "Least"),
        quantity("greatest", "Greatest"),
        quantity("deviation", "Deviation"),
        Column("low", lambda s: _end(s.interval, 0), "Interval", _own_interval, numeric=True),
        Column("high", lambda s: _end(s.interval, 1)),
        Column("method", lambda s: None if s.interval is None else s.interval.method),
    )
    caption = f"Values per arm over blocks, with {100 * comparison.confidence:.4g} % intervals"
    tone = lambda s: "emulated" if s.emulated else ""  # noqa: E731
    return Table("values", caption, columns, comparison.summaries, tone=tone)


def _own_interval(summary: ArmSummary) -> str:
    if summary.interval is None:
        return NONE
    ends = (summary.interval.low, summary.interval.high)
    return " to ".join(format_quantity(end, summary.unit, digits=4) for end in ends)


def host_cost_table(comparison: Comparison) -> Table[HostCost]:
    """Return what each arm's machines cost the host."""
    columns: tuple[Column[HostCost], ...] = (
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("emulated", lambda c: c.emulated),
        Column("scenario", lambda c: c.scenario, "Scenario"),
        Column("machines", lambda c: c.machines, "Machines", numeric=True),
        Column(
            "boot_s",
            lambda c: c.boot_s,
            "Boot",
            lambda c: NONE if c.boot_s is None else format_duration(c.boot_s),
            numeric=True,
        ),
        Column(
            "cpu_s",
            lambda c: c.cpu_s,
            "CPU time",
            lambda c: NONE if c.cpu_s is None else format_duration(c.cpu_s),
            numeric=True,
        ),
        Column(
            "rss_bytes",
            lambda c: c.rss_bytes,
            "Memory",
            lambda c: NONE if c.rss_bytes is None else format_size(c.rss_bytes),
            numeric=True,
        ),
    )
    caption = "What a machine costs the host: medians over machines"
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    return Table("host-cost", caption, columns, comparison.host_costs, tone=tone)


def proof_table(comparison: Comparison, emulated: frozenset[str]) -> Table[ProofDifference]:
    """Return the differences between the arms' environment proofs and the baseline's."""
    columns: tuple[Column[ProofDifference], ...] = (
        Column("arm", lambda d: d.arm, "Arm", lambda d: marked(d.arm, d.arm in emulated)),
        Column("emulated", lambda d: d.arm in emulated),
        Column("path", lambda d: d.path, "What"),
        Column("baseline_value", lambda d: d.baseline_value, f"On {comparison.against}"),
        Column("arm_value", lambda d: d.arm_value, "In the arm"),
        Column("explains", lambda d: d.explains),
        Column("why", lambda d: d.why, "How it could explain a result"),
        Column("varies", lambda d: d.varies),
        Column("when", lambda d: d.when, "Blocks", lambda d: d.when or "all"),
    )
    caption = f"Differences between the arms' environments and that of {comparison.against}"
    return Table("environment", caption, columns, comparison.proof_differences)


def environment_changes_table(
    comparison: Comparison, emulated: frozenset[str]
) -> Table[EnvironmentChange]:
    """Return what changed in the environment of arms from one block to a later one."""
    columns: tuple[Column[EnvironmentChange], ...] = (
        Column("block", lambda c: c.block, "From block", numeric=True),
        Column(
            "arms",
            lambda c: ", ".join(c.arms),
            "Arms",
            lambda c: ", ".join(marked(arm, arm in emulated) for arm in c.arms),
        ),
        Column("path", lambda c: c.path, "What"),
        Column("before", lambda c: c.before, "Before"),
        Column("after", lambda c: c.after, "From then on"),
        Column(
            "again",
            lambda c: ", ".join(map(str, c.blocks[1:])),
            "Changed again at block",
            lambda c: ", ".join(map(str, c.blocks[1:])) or NONE,
        ),
        Column("why", lambda c: c.why, "How it could explain a result", lambda c: c.why or NONE),
    )
    caption = "What changed in the environment during the run"
    return Table("environment-changes", caption, columns, comparison.environment_changes)


@dataclass(frozen=True)
class ProofGroup:
    """Differences that could explain a result in the same way, over arms."""

    why: str
    arms: tuple[str, ...]
    differences: tuple[str, ...]


SHOWN_DIFFERENCES = 3
"""Of each group; the rest is counted, and listed in the whole table."""


def proof_groups_table(comparison: Comparison, emulated: frozenset[str]) -> Table[ProofGroup]:
    """Return the differences that could explain a result, those of one kind in one row."""
    arms: dict[str, dict[str, None]] = {}
    found: dict[str, dict[str, None]] = {}
    for difference in comparison.proof_differences:
        if difference.explains:
            arms.setdefault(difference.why, {})[difference.arm] = None
            values = f"{difference.baseline_value} → {difference.arm_value}"
            values += f" ({difference.when})" if difference.when else ""
            found.setdefault(difference.why, {})[f"{difference.path}: {values}"] = None

    def what(group: ProofGroup) -> str:
        texts = [short(text, 120) for text in group.differences[:SHOWN_DIFFERENCES]]
        more = len(group.differences) - len(texts)
        return "; ".join([*texts, f"and {more} more"] if more else texts)

    columns: tuple[Column[ProofGroup], ...] = (
        Column("why", lambda g: g.why, "What could explain a result"),
        Column(
            "arms",
            lambda g: ", ".join(g.arms),
            "Arms",
            lambda g: ", ".join(marked(arm, arm in emulated) for arm in g.arms),
        ),
        Column("differences", what, f"What differs from {comparison.against}"),
    )
    rows = tuple(ProofGroup(why, tuple(arms[why]), tuple(found[why])) for why in found)
    caption = f"Differences from {comparison.against} that could explain a result"
    return Table("explaining", caption, columns, rows)


def lost_cells_table(runs: Iterable[RunData]) -> Table[CellResult]:
    """Return the cells that do not count, with their reasons."""
    rows = tuple(cell for run in runs for cell in run.cells if cell.status != "ok")
    emulated = {(run.run, arm) for run in runs for arm in run.emulated_arms}
    columns: tuple[Column[CellResult], ...] = (
        Column("run", lambda c: c.run),
        Column("block", lambda c: c.block, "Block", numeric=True),
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, (c.run, c.arm) in emulated)),
        Column("cell", lambda c: c.cell, "Cell", lambda c: c.cell),
        Column("status", lambda c: c.status, "Status"),
        Column("reason", lambda c: c.reason, "Reason"),
        Column("attempt", lambda c: c.attempt),
    )
    return Table("lost-cells", "Cells that do not count", columns, rows)


@dataclass(frozen=True)
class LostGroup:
    """Cells of one arm and workload that did not count for one reason."""

    arm: str
    emulated: bool
    what: str
    status: str
    reason: str
    blocks: tuple[int, ...]


def lost_groups_table(runs: Iterable[RunData]) -> Table[LostGroup]:
    """Return the cells that do not count, those of one arm, workload and reason in one row."""
    blocks: dict[tuple[str, bool, str, str, str], list[int]] = {}
    for run in runs:
        for cell in run.cells:
            if cell.status != "ok":
                given = told(parameters_of(cell.parameters))
                what = f"{cell.workload} {given} ({cell.scenario})"
                kind = (cell.arm, cell.arm in run.emulated_arms, what, cell.status, cell.reason)
                blocks.setdefault(kind, []).append(cell.block)
    columns: tuple[Column[LostGroup], ...] = (
        Column("arm", lambda g: g.arm, "Arm", lambda g: marked(g.arm, g.emulated)),
        Column("what", lambda g: g.what, "Cell"),
        Column("status", lambda g: g.status, "Status"),
        Column("blocks", lambda g: ", ".join(map(str, sorted(set(g.blocks)))), "Blocks"),
        Column("reason", lambda g: g.reason, "Reason"),
    )
    rows = tuple(LostGroup(*kind, tuple(found)) for kind, found in blocks.items())
    return Table("lost", "Cells that do not count", columns, rows)


def skipped_table(runs: Iterable[RunData]) -> Table[SkippedPart]:
    """Return what did not run at all, with the reasons, each once."""
    runs = tuple(runs)
    rows = tuple(dict.fromkeys(part for run in runs for part in run.skipped))
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    columns: tuple[Column[SkippedPart], ...] = (
        Column("arm", lambda s: s.arm, "Arm", lambda s: marked(s.arm, s.arm in emulated)),
        Column("scenario", lambda s: s.scenario, "Scenario", lambda s: s.scenario or "all"),
        Column("workload", lambda s: s.workload, "Workload", lambda s: s.workload or "all"),
        Column("reason", lambda s: s.reason, "Reason"),
    )
    return Table("skipped", "What did not run here", columns, rows)


def skipped_groups_table(runs: Iterable[RunData]) -> Table[Line]:
    """Return what did not run at all, one row for each reason."""
    parts = (
        LeftOut(each.arm, each.scenario, each.workload, each.reason)
        for run in runs
        for each in run.skipped
    )
    columns: tuple[Column[Line], ...] = (
        Column("what", lambda line: line.what, "Skipped"),
        Column("reason", lambda line: line.reason, "Reason"),
    )
    rows = tuple(lines_of(parts, between=" / "))
    return Table("skipped-by-reason", "What did not run here", columns, rows)
