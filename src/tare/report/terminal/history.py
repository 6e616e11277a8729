"""Many runs of one study over time, in the terminal and as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tare.analysis.effects.results import as_cost
from tare.analysis.runs.history import EffectSeries, EffectTurn, History
from tare.report.figures.history import history_figure
from tare.report.figures.svg import TIP, legible
from tare.report.figures.vector import svg_of
from tare.report.page.words import (
    Names,
    Part,
    joined,
    marked,
    metric_name,
    probability,
    ratio,
    ratio_interval,
)
from tare.report.terminal.run_changes import print_table, table_of

_STEPS = "▁▂▃▄▅▆▇█"


def render_history(history: History, console: Console) -> None:
    """Print each headline effect over the runs, and the runs where it changed.

    Args:
        history: The effects over the runs.
        console: The console to print to.
    """
    names = Names(Part.of(line.key) for line in history.lines)
    table = table_of(
        "What", "Arm", "Runs", "Over time", "Changed at", "Now ÷ before", "Interval", "p",
        plain=console,
    )  # fmt: skip
    for line in history.lines:
        _add(table, names, line)
    turns = sum(len(line.turns) for line in history.lines)
    found = "nothing changed" if not turns else "1 change" if turns == 1 else f"{turns} changes"
    print_table(
        console,
        f"{len(history.runs)} runs, each effect against {history.baseline}: {found}",
        table,
        "Change points by E-divisive: an arm that did not change is reported as changed in at most "
        f"{100 * history.level:g} % of histories. Intervals have {100 * history.confidence:.4g} % "
        "confidence, with runs as the unit. With the same confidence, the first run after the "
        "change is one of those listed after the date. Only effects are compared, never values of "
        f"different runs.{_zeros(history)}",
    )


def _zeros(history: History) -> str:
    """Return a note on runs that were left out because they have no ratio; empty without any."""
    counts = [
        f"{key.workload} {key.metric} of {arm} in {key.scenario} ({zeros} of {len(history.runs)} "
        "runs)"
        for (arm, key), zeros in history.without_ratio.items()
    ]
    if not counts:
        return ""
    return f" Where a value is 0 there is no ratio, and the run is left out: {joined(counts)}."


def _add(table: Table, names: Names, line: EffectSeries) -> None:
    what = f"{names.name(Part.of(line.key))} · {metric_name(line.key.metric)}"
    about = (
        Text(what), Text(marked(line.arm, line.emulated)), str(len(line.runs)),
        _sparkline(line.effects),
    )  # fmt: skip
    if not line.turns:
        table.add_row(*about, "–", "", "", "")
    for place, turn in enumerate(line.turns):
        shown = about if place == 0 else ("", "", "", "")
        table.add_row(*shown, *_turn(turn))


def _turn(turn: EffectTurn) -> Iterable[str]:
    day = time.strftime("%Y-%m-%d", time.gmtime(turn.started_at))
    yield f"{legible(turn.after)} ({day}{_candidate_runs(turn)})"
    yield ratio(turn.change)
    yield ratio_interval((turn.low, turn.high))
    yield probability(turn.p)


def _candidate_runs(turn: EffectTurn) -> str:
    """Return the first and last run at which the change may be; empty if only one is possible."""
    if turn.earliest == turn.latest:
        return ""
    return f"; {legible(turn.earliest)} to {legible(turn.latest)}"


def _sparkline(effects: tuple[float, ...]) -> str:
    low, high = min(effects), max(effects)
    if high <= low:
        return _STEPS[0] * len(effects)
    most = len(_STEPS) - 1
    return "".join(_STEPS[round((each - low) / (high - low) * most)] for each in effects)


def history_svg(history: History) -> str:
    """Return the history as a picture, a complete SVG document."""
    return svg_of(history_figure(history)).replace(TIP, "")


def history_json(history: History) -> str:
    """Return the history as JSON, with all digits of each number."""
    lines = [
        {
            **line.key._asdict(),
            "arm": line.arm,
            "emulated": line.emulated,
            "runs": [
                {"run": run, "ratio": as_cost(effect, line.better), "cost": effect}
                for run, effect in zip(line.runs, line.effects, strict=True)
            ],
            "better": line.better,
            "changes": [turn.__dict__ for turn in line.turns],
        }
        for line in history.lines
    ]
    head = {
        "baseline": history.baseline,
        "runs": history.runs,
        "level": history.level,
        "confidence": history.confidence,
        "without_ratio": [
            {
                "workload": key.workload, "metric": key.metric, "arm": arm,
                "scenario": key.scenario, "runs": zeros,
            }
            for (arm, key), zeros in history.without_ratio.items()
        ],
    }  # fmt: skip
    return json.dumps({**head, "effects": lines}, indent=2, ensure_ascii=False) + "\n"
