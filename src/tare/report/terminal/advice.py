"""Print the advice of a pilot on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.effects.pilot import Advice
from tare.report.page.words import Names, Part, metric_name
from tare.units import format_duration, format_percent


def render_advice(advices: Sequence[Advice], precision: float, console: Console) -> None:
    """Print one line per headline ratio: repeats per boot, blocks, and the time they take.

    For arms that are measured in sessions of different boots, print the number of rounds and the
    blocks of each.

    Args:
        advices: The pilot's advice, one for each ratio.
        precision: The requested relative half-width of intervals.
        console: The console to print to.
    """
    if not advices:
        console.print(
            "The pilot has no headline ratio in two blocks, or in two rounds of sessions for arms "
            "of different boots, so it advises nothing."
        )
        return
    console.print(
        Text(f"for ± {format_percent(precision)} on each ratio, the pilot advises", "bold")
    )
    table = Table(box=None, header_style="bold", pad_edge=False)
    in_sessions = any(one.rounds for one in advices)
    rounds = ("rounds",) if in_sessions else ()
    for title in ("what", "arm", "repeats", "blocks", *rounds, "expected", "time"):
        table.add_column(title, justify="left" if title in ("what", "arm") else "right")
    parts = {one: Part(one.scenario, one.workload, one.parameters, SUBJECT) for one in advices}
    names = Names(parts.values())
    for one in sorted(advices, key=lambda advice: -advice.blocks):
        table.add_row(
            Text(f"{names.name(parts[one])} · {metric_name(one.metric)}"),
            Text(one.arm),
            str(one.repeats),
            str(one.blocks),
            *((_rounds(one),) if in_sessions else ()),
            f"± {format_percent(one.half_width)}",
            format_duration(one.cost_s),
        )
    console.print(table)


def _rounds(one: Advice) -> str:
    """Return the rounds of sessions, with the blocks of each session, as a study writes them."""
    return f"{one.rounds} of {one.blocks // one.rounds}" if one.rounds else "–"
