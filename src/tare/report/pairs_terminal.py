"""Every pair of arms in the terminal, for ``tare compare DIR --pairs``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from tare.analysis.model import Comparison
from tare.report.arrange import arrange
from tare.report.pairs import PAIR_COLUMNS, describe_pairs, pairs_table, ranking_table
from tare.report.svg import legible
from tare.report.tables import Table

PLAIN_WIDTH = 180
"""Width without a terminal: nothing is wrapped that has room in a usual line of a log."""


def render_pairs(comparison: Comparison, console: Console) -> None:
    """Print every pair of arms and the ranks they leave open.

    Args:
        comparison: One with all pairs.
        console: Where to.
    """
    comparison = arrange(comparison)
    pairs = comparison.pairs
    assert pairs is not None
    if not console.is_terminal:
        console = Console(file=console.file, width=PLAIN_WIDTH, no_color=True, highlight=False)
    console.print(Text(legible(comparison.title), style="bold"))
    console.print(Text(describe_pairs(pairs)))
    _print(pairs_table(comparison, pairs), PAIR_COLUMNS, console)
    ranks = ranking_table(comparison, pairs)
    if ranks.rows:
        _print(ranks, [c.key for c in ranks.columns if c.title], console)
        console.print(Text("= equivalent, ? not told apart.", style="dim"))


def _print(table: Table[Any], keys: Iterable[str], console: Console) -> None:
    shown = RichTable(
        box=box.SIMPLE_HEAD if console.is_terminal else box.ASCII2,
        pad_edge=False,
        title=Text(legible(table.caption)),
        title_justify="left",
    )
    wanted = set(keys)
    whole = table.shown(hide=[c.key for c in table.columns if c.key not in wanted])
    for heading in whole.headings:
        side: JustifyMethod = "right" if heading.numeric else "left"
        shown.add_column(Text(heading.text), justify=side, overflow="fold")
    for row in whole.rows:
        shown.add_row(*(Text(cell.text) for cell in row))
    console.print(shown)
