"""The interference matrix: the slowdown of each arm's work by each kind of neighbour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.topics.interference import NeighbourEffect
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import HEAT, RULE, SOFT, TEXT, Ink
from tare.report.page.links import Links
from tare.report.page.words import (
    Part,
    marked,
    metric_name,
    parameters_of,
    ratio,
    ratio_interval,
    short,
)

WIDE, NARROW = 720.0, 360.0
ROW, HEAD, ARM = 34.0, 26.0, 24.0
STEPS = (1.05, 1.25, 2.0, 4.0, 10.0)
"""The slowdowns at which the colour changes."""
MOST_ROWS = 60


@dataclass(frozen=True)
class HeatRow:
    """One metric of one arm: its name and its cells by scenario."""

    arm: str
    emulated: bool
    name: str
    cells: Mapping[str, NeighbourEffect]


def heat_rows(effects: Sequence[NeighbourEffect]) -> tuple[HeatRow, ...]:
    """Return the matrix: one row for each arm and metric, one column for each scenario."""
    cells: dict[tuple[str, str, str, str], dict[str, NeighbourEffect]] = {}
    for effect in effects:
        key = (effect.arm, effect.key.workload, effect.key.parameters, effect.key.metric)
        cells.setdefault(key, {})[effect.key.scenario] = effect
    given: dict[str, set[str]] = {}
    for _, workload, parameters, _ in cells:
        given.setdefault(workload, set()).add(parameters)
    rows = []
    for (arm, workload, parameters, metric), found in cells.items():
        any_cell = next(iter(found.values()))
        given_words = _parameter_words(parameters) if len(given[workload]) > 1 else ""
        name = f"{workload}{given_words}: {metric_name(metric)}"
        rows.append(HeatRow(arm, any_cell.emulated, name, found))
    return tuple(rows)


def _parameter_words(parameters: str) -> str:
    given = {k: v for k, v in parameters_of(parameters).items() if k in ("threads", "size")}
    return "".join(f" {value} {key}" for key, value in given.items())


def heat_figure(
    effects: Sequence[NeighbourEffect],
    *,
    name: str,
    title: str = "How much neighbours slow a machine down",
    links: Links | None = None,
) -> Figure:
    """Return the matrix of slowdowns as a heat map.

    Args:
        effects: The slowdowns; at least one.
        name: The figure's name.
        title: The figure's title.
        links: Finds the link targets of the matrix's fields.
    """
    rows = heat_rows(effects)[:MOST_ROWS]
    scenarios = tuple(dict.fromkeys(effect.key.scenario for effect in effects))
    return Figure(
        name=name,
        title=title,
        description="; ".join(
            f"{effect.arm}, {effect.key.workload} {effect.key.metric} with {effect.key.scenario}: "
            f"{ratio(effect.slowdown)}"
            for effect in effects[:MOST_ROWS]
        ),
        spec=_drawn(rows, scenarios, WIDE, links),
        narrow=_drawn(rows, scenarios, NARROW, links),
        emulated=any(effect.emulated for effect in effects),
        panels=1,
    )


def _drawn(
    rows: Sequence[HeatRow], scenarios: Sequence[str], width: float, links: Links | None
) -> Spec:
    canvas = Canvas(width)
    names = width * 0.30 if width > NARROW else width * 0.34
    room = (width - names) / len(scenarios)
    letters = int(room / (6.2 if width > NARROW else 5.4))
    for number, scenario in enumerate(scenarios):
        middle = names + (number + 0.5) * room
        canvas.text(middle, 10, short(scenario, max(4, letters)), size=11, ink=SOFT, align="center")
    top, arm = HEAD, ""
    for row in rows:
        if row.arm != arm:
            arm = row.arm
            canvas.text(0, top + ARM / 2, marked(arm, row.emulated), size=12, bold=True)
            canvas.rule(0, top + ARM - 2, width, top + ARM - 2, RULE)
            top += ARM
        canvas.text(0, top + ROW / 2, short(row.name, int(names / 5.9)), size=10)
        for number, scenario in enumerate(scenarios):
            effect = row.cells.get(scenario)
            if effect is not None:
                left = names + number * room
                _cell(canvas, effect, left, top, room)
                if links is not None:
                    to = links.part(Part.of(effect.key), effect.arm)
                    canvas.area(left + 1, top + 1, left + room - 1, top + ROW - 1, to)
        top += ROW
    return canvas.spec(top + 6)


def _cell(canvas: Canvas, effect: NeighbourEffect, left: float, top: float, room: float) -> None:
    ink = ink_of(effect.slowdown) if effect.decided else HEAT[0]
    canvas.rect(left + 1, top + 1, left + room - 1, top + ROW - 1, ink)
    middle = left + room / 2
    canvas.text(middle, top + 12, ratio(effect.slowdown), size=12, ink=TEXT, align="center")
    if effect.interval is not None and effect.blocks >= least_blocks(LEVEL) and room > 76:
        ends = ratio_interval((effect.interval.low, effect.interval.high))
        canvas.text(middle, top + 25, ends, size=9, ink=TEXT, align="center")


def ink_of(slowdown: float) -> Ink:
    """Return the colour of a slowdown; NaN counts as the worst."""
    if math.isnan(slowdown):
        return HEAT[-1]
    return HEAT[sum(slowdown >= step for step in STEPS)]
