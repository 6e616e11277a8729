"""The page of two runs in one offline file: changes of effects from the first to the second run."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tare.analysis.model import DECLARED, Comparison, Effect, Key, RunData, as_cost, cost_ends
from tare.analysis.runs.change_verdicts import JudgedChange, changed
from tare.analysis.runs.run_changes import two_runs_caveat
from tare.analysis.runs.run_differences import (
    RunDifference,
    environment_differences,
    machine_differences,
    settings_sha256,
    study_differences,
)
from tare.analysis.topics.monitoring import monitors
from tare.outputs import put_for_user
from tare.report.compare.answer import change_heading, change_lines, open_cost
from tare.report.compare.run_doubts import run_doubts, study_doubts, why_not_comparable
from tare.report.figures.axes import log_axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Spec
from tare.report.figures.palette import MARGIN, SOFT, TEXT, TIE, ArmStyle, looks
from tare.report.figures.plot import Plot, fitted, width_of
from tare.report.figures.svg import inline_svg, legible
from tare.report.figures.vector import svg_of
from tare.report.page.arrange import arrange
from tare.report.page.explorer import (
    MOST_DIFFERENCES,
    cells_of_runs,
    counters_of,
    ends_of_runs,
    finite,
    machines_of_runs,
)
from tare.report.page.links import anchor_of
from tare.report.page.rendering import SCRIPTS, fill_template
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.verdicts import ArmLine
from tare.report.page.warnings import LINE, Warned
from tare.report.page.words import (
    Names,
    Part,
    marked,
    metric_name,
    ratio,
    ratio_interval,
    short,
)
from tare.units import format_quantity

ROW, FOOT, TOP, GAP = 22.0, 40.0, 6.0, 14.0


@dataclass(frozen=True)
class ChangeMark:
    """One row of the figure: metric, arm, the factor by which the cost changed, and the link."""

    what: str
    arm: str
    emulated: bool
    verdict: str
    cost: tuple[float, float, float]
    to: str


def changes_figure(
    marks: Sequence[ChangeMark], looks: dict[str, ArmStyle], margin: float, width: float
) -> Spec:
    """Return the drawing; at least one mark.

    Args:
        marks: The rows, in order.
        looks: The style of each arm.
        margin: The practical margin, drawn as a band.
        width: The width in pixels.
    """
    canvas, labels = Canvas(width), [f"{mark.arm}: {mark.what}" for mark in marks]
    # Labels are left of the marks, or above them if they would be cut.
    named = width * 0.42 if max(map(width_of, labels)) <= width * 0.42 else 0.0
    row = ROW if named else 2 * ROW
    plot = Plot(canvas, named + GAP, TOP, width - named - 2 * GAP, row * len(marks))
    centre = max(max(mark.cost[0], 1 / mark.cost[0]) for mark in marks)
    ends = [end for mark in marks for end in mark.cost[1:] if 0 < end < math.inf]
    # The axis does not extend to the ends of almost unbounded intervals.
    far = max(1 + 2 * margin, *(min(max(end, 1 / end), 1.5 * centre) for end in ends), centre)
    axis = log_axis(1 / far, far, "", most=5)
    left, right = plot.x(axis, 1 / (1 + margin)), plot.x(axis, 1 + margin)
    plot.across(axis, "cost after ÷ before")
    for number, (mark, label) in enumerate(zip(marks, labels, strict=True)):
        end = TOP + (number + 1) * row
        y = end - ROW / 2
        canvas.rect(left, end - ROW, right, end, MARGIN)
        Plot(canvas, plot.left, end - ROW, plot.width, ROW).across_grid(axis)
        canvas.rule(plot.x(axis, 1.0), end - ROW, plot.x(axis, 1.0), end, SOFT)
        canvas.text(0, end - row + ROW / 2, fitted(label, named or width), ink=TEXT)
        ink = looks[mark.arm].ink if mark.verdict in DECLARED else TIE
        ends = [min(max(end, axis.low), axis.high) for end in mark.cost[1:] if math.isfinite(end)]
        if len(ends) == 2:
            canvas.rule(plot.x(axis, ends[0]), y, plot.x(axis, ends[1]), y, ink, size=2)
        canvas.point(
            plot.x(axis, min(max(mark.cost[0], axis.low), axis.high)), y, ink,
            looks[mark.arm].shape, hollow=mark.emulated, to=mark.to,
            tip=f"{mark.what}, {mark.arm}: {mark.verdict}",
        )  # fmt: skip
    return canvas.spec(TOP + plot.height + FOOT)


WIDE, NARROW, MOST_MARKS = 900.0, 360.0, 40


@dataclass(frozen=True)
class ChangesPage:
    """The data for the template."""

    title: str
    subtitle: str
    differences: tuple[str, ...]
    lead: str
    arms: tuple[ArmLine, ...]
    bars_note: str
    warnings: tuple[Warned, ...]
    wide: str
    narrow: str
    note: str
    explorer: str
    headline: ShownTable | None
    detail: ShownTable | None
    environment: ShownTable | None
    method: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    footer: str


def write_changes(
    before: Mapping[str, Comparison], after: Mapping[str, Comparison], chosen: str, out: Path
) -> None:
    """Write the page of two runs.

    Args:
        before: The first run's comparisons, by baseline.
        after: The second run's comparisons, by baseline.
        chosen: The baseline that was chosen beforehand.
        out: The file to write.

    Raises:
        InputError: The file cannot be written, or the runs have no effect in common.
    """
    first = {name: arrange(comparison) for name, comparison in before.items()}
    pair = RunPair(first, after, chosen)
    page = changes_page(pair, changed(first, after, chosen), out.parent)
    html = fill_template("changes.html.j2", page, SCRIPTS if page.explorer else SCRIPTS[:1])
    put_for_user(out, html.encode(), "or choose another file with --html")


def changes_page(pair: RunPair, found: Sequence[JudgedChange], folder: Path) -> ChangesPage:
    """Return the data for the page's template.

    Args:
        pair: The runs.
        found: All changes, judged.
        folder: The folder of the page.
    """
    own = [one for one in found if one.baseline == pair.chosen]
    table = changes_table(own, pair)
    headlines = [one for one in own if one.change.before.headline]
    rest = [one for one in own if not one.change.before.headline]
    before, after = pair.runs
    comparison = pair.before[pair.chosen]
    wide, narrow = _figures(headlines, comparison)
    environment = environment_table(pair)
    return ChangesPage(
        title=f"{legible(comparison.title)}: two runs",
        subtitle=f"{_named(after)} against {_named(before)}; each effect against "
        f"{legible(pair.chosen)}",
        differences=study_doubts(before, after),
        lead=f"{change_heading(comparison, pair.after[pair.chosen])}."
        if headlines
        else _not_comparable_text(pair),
        arms=change_lines(headlines, comparison, pair.after[pair.chosen]),
        bars_note=_bars_note(comparison, pair.after[pair.chosen]) if headlines else "",
        warnings=tuple(
            Warned(short(doubt.text, LINE), doubt.text, doubt.action)
            for doubt in run_doubts(comparison, pair.after[pair.chosen])
        ),
        wide=wide,
        narrow=narrow,
        note="Each mark is the change of an arm’s cost against the baseline, from the first run to "
        "the second, with its interval by itself; the band is the practical margin. Only "
        "declared changes are coloured.",
        explorer=changes_data(found, pair, folder) if found else "",
        headline=table.shown(rows=headlines, named=True) if headlines else None,
        detail=table.shown(rows=rest, named=True) if rest else None,
        environment=environment.shown() if environment.rows else None,
        method=_method(comparison),
        facts=tuple(
            (legible(f"{when}: {key}"), legible(str(value)))
            for when, run in (("Before", before), ("After", after))
            for key, value in (
                ("run", run.run), ("folder", run.folder), ("blocks", len(run.blocks_finished)),
                ("seed", run.seed), ("SHA-256 of its settings", settings_sha256(run)),
            )
        ),
        footer=f"Made by Tare {legible(str(after.versions.get('tare', '')))} from both runs’ "
        "events alone.",
    )  # fmt: skip


def _named(run: RunData) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.started_at))
    return f"{legible(run.run)} ({day} UTC)"


def _not_comparable_text(pair: RunPair) -> str:
    why, _ = why_not_comparable(pair.before[pair.chosen], pair.after[pair.chosen])
    return f"Nothing can be compared: {why}."


def _bars_note(before: Comparison, after: Comparison) -> str:
    level = f"{100 * before.confidence:.4g} %"
    note = (
        "Right of the line: the cost grew. A mark is the geometric mean over a resource’s metrics, "
        f"a bar its interval; all bars together hold with {level} confidence."
    )
    caveat = two_runs_caveat(before, after)
    return f"{note} {caveat}." if caveat else note


def _figures(headlines: Sequence[JudgedChange], comparison: Comparison) -> tuple[str, str]:
    parts = (Part.of(one.change.key) for one in headlines)
    names = Names(parts, comparison.shown_as, short=True)
    marks = [
        ChangeMark(
            measured_text(one, names), one.change.arm, one.change.before.emulated, one.verdict,
            one.cost, anchor_of(one.change.key, one.change.arm),
        )
        for one in headlines
        if one.cost is not None
    ][:MOST_MARKS]  # fmt: skip
    if not marks:
        return "", ""
    style = looks(comparison.arms, comparison.baseline)
    words = "; ".join(f"{m.what}, {m.arm}: {ratio(m.cost[0])}, {m.verdict}" for m in marks)
    drawn = [
        inline_svg(
            svg_of(changes_figure(marks, style, comparison.margin, width)),
            name=f"changes-{name}", title="How costs changed", description=words,
        )
        for name, width in (("wide", WIDE), ("narrow", NARROW))
    ]  # fmt: skip
    return drawn[0], drawn[1]


def _method(comparison: Comparison) -> tuple[str, ...]:
    return (
        "Only effects are compared, each arm against the baseline in the same run and block; "
        "values of different runs never are. What a host or a day does to all arms alike cancels.",
        f"The interval of a change is Welch’s, {100 * comparison.confidence:.4g} %, each by "
        "itself; of tails and maxima that of the rank-sum test.",
        "Worse or better: the interval that holds for all of the arm’s headline effects together "
        f"(Bonferroni, {100 * comparison.level:g} %) excludes 1, and the change is beyond the "
        f"margin of ±{100 * comparison.margin:g} %. Equivalent: the interval by itself is within "
        "the margin, and neither run has a finding that speaks against it. Everything else is "
        "inconclusive. With fewer than 6 blocks, changes are preliminary, without an interval.",
        "If you choose another baseline than the study’s, all changes against all other baselines "
        "are one family, because choosing a baseline after seeing results tests all of them.",
        "Two runs show what differs between these two. Only more runs show how far runs of one "
        "set-up differ: use tare history, or tare compare with three or more runs.",
    )


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


def measured_text(one: JudgedChange, names: Names) -> str:
    """Return the workload and the metric of a change, in words."""
    return f"{names.name(Part.of(one.change.key))} · {metric_name(one.change.key.metric)}"


def _estimate(effect: Effect) -> str:
    if effect.scale == "ratio":
        return ratio(as_cost(effect.estimate, effect.better))
    return format_quantity(effect.estimate, effect.unit)


def _change(one: JudgedChange) -> str:
    if one.change.ratio:
        return ratio(as_cost(one.change.change, one.change.before.better))
    return format_quantity(one.change.change, one.change.before.unit)


def _interval(one: JudgedChange) -> str:
    if one.verdict == "preliminary":
        return "–"
    ends = one.change.low, one.change.high
    if one.change.ratio:
        return ratio_interval(cost_ends(*ends, one.change.before.better))
    return " to ".join(format_quantity(end, one.change.before.unit) for end in ends)


def changes_table(own: Sequence[JudgedChange], pair: RunPair) -> Table[JudgedChange]:
    """Return changes as a table whose rows have names for links."""
    shown_as = pair.before[pair.chosen].shown_as
    names = Names((Part.of(one.change.key) for one in own), shown_as, short=True)
    columns: tuple[Column[JudgedChange], ...] = (
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
        Column("reason", lambda o: o.reason, "Why not decided", lambda o: o.reason or "–"),
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
    """Return the differences between the runs' studies, hosts, versions and machines by arm."""
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


REPORT = "report.html"


def changes_data(found: Sequence[JudgedChange], pair: RunPair, folder: Path) -> str:
    """Return the changes as JSON that may be inside a page.

    Args:
        found: All changes, judged.
        pair: The runs.
        folder: The folder of the page, from which it links to the runs' own pages.
    """
    keys = list(dict.fromkeys(one.change.key for one in found))
    place = {key: number for number, key in enumerate(keys)}
    runs = pair.runs
    blocks = [
        (number, block)
        for number, comparisons in enumerate((pair.before, pair.after))
        for block in sorted({b.block for s in comparisons[pair.chosen].summaries for b in s.blocks})
    ]
    every = changes_table(found, pair)
    rows = [_row(one, every, place, pair.chosen) for one in found]
    about = {
        name: f"Against {name}: how each effect changed from the first run to the second"
        + ("" if name == pair.chosen else ", all baselines being one family")
        for name in dict.fromkeys(one.baseline for one in found)
    }
    arms = dict.fromkeys(
        arm for comparisons in (pair.before, pair.after) for arm in comparisons[pair.chosen].arms
    )
    data = {
        "baseline": pair.chosen,
        "twins": dict(pair.before[pair.chosen].pooled),
        "own": [],
        "arms": list(arms),
        "emulated": sorted(runs[0].emulated_arms | runs[1].emulated_arms),
        "keys": [[legible(key.scenario), legible(key.workload), ""] for key in keys],
        "rows": rows,
        "flags": {
            row[0]: flags for row, one in zip(rows, found, strict=True) if (flags := _flags(one))
        },
        "blocks": blocks,
        "values": _values(pair, place, blocks),
        "cells": cells_of_runs(runs, place),
        "machines": machines_of_runs(runs, folder),
        "ends": ends_of_runs(runs),
        "counters": counters_of(monitors(runs), runs),
        "differences": _machine_differences(pair),
        "runs": [run.run for run in runs],
        "about": about,
        "apart": "the first run’s",
        "reports": _reports(runs, folder),
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _row(
    one: JudgedChange, table: Table[JudgedChange], place: Mapping[Key, int], chosen: str
) -> list[Any]:
    texts, change = table.texts_of(one), one.change
    tip = f"{texts['before']} → {texts['after']}: {texts['change']}"
    return [
        anchor_of(change.key, change.arm, "" if one.baseline == chosen else one.baseline),
        place[change.key],
        change.arm,
        one.baseline,
        int(change.before.headline),
        f"{change.before.blocks} and {change.after.blocks}",
        [*(texts[name] for name in ("what", "metric")), tip, texts["low"], one.verdict,
         texts["not_excluded"], "–"],
        [finite(end) for end in one.cost or (None, None, None)],
    ]  # fmt: skip


def _flags(one: JudgedChange) -> list[str]:
    return [
        legible(f"{when}: {flag.text}")
        for when, effect in (("before", one.change.before), ("after", one.change.after))
        for flag in effect.flags
    ]


def _values(
    pair: RunPair, place: Mapping[Key, int], blocks: Sequence[tuple[int, int]]
) -> dict[str, dict[str, tuple[str, str]]]:
    known: dict[tuple[int, str], dict[tuple[int, int], float]] = {}
    units: dict[tuple[int, str], str] = {}
    for number, comparisons in enumerate((pair.before, pair.after)):
        for summary in comparisons[pair.chosen].summaries:
            if summary.key in place:
                whose = place[summary.key], summary.arm
                units[whose] = summary.unit
                known.setdefault(whose, {}).update(
                    {(number, block.block): block.value for block in summary.blocks}
                )
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for (key, arm), values in known.items():
        text = " ".join(f"{values[b]:.6g}" if b in values else "-" for b in blocks)
        found.setdefault(str(key), {})[arm] = (units[key, arm], text)
    return found


def _machine_differences(pair: RunPair) -> dict[str, Any]:
    """Return by arm how many differences its machines have between the runs, and the first few."""
    found = {}
    for arm in pair.before[pair.chosen].arms:
        if different := machine_differences(*pair.runs, arm):
            shown = [
                [legible(d.what), short(legible(d.before), 100), short(legible(d.after), 100),
                 legible(d.why)]
                for d in different[:MOST_DIFFERENCES]
            ]  # fmt: skip
            found[arm] = [len(different), shown]
    return found


def _reports(runs: Sequence[RunData], folder: Path) -> list[list[str]]:
    """Return the name of each run's own page, and its path relative to this page."""
    found = []
    for when, run in zip(("first", "second"), runs, strict=True):
        page = run.folder / REPORT
        if page.is_file():
            where = os.path.relpath(page.resolve(), folder.resolve())
            found.append([f"in the {when} run’s report", quote(where)])
    return found
