"""A comparison as a table in the terminal, for ``tare compare``."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from tare.analysis.model import Comparison, Effect
from tare.report.results import effects_table
from tare.report.svg import legible
from tare.report.words import EMULATED, EVEN, lead

COLUMNS = ("arm", "metric", "baseline_value", "value", "estimate", "low", "p", "q", "verdict")
"""What stands in the table, in order; narrower terminals lose some, see :data:`SPARE`."""

SPARE = (("p", 104), ("baseline_value", 92), ("value", 80), ("q", 66))
"""Columns and the width, in characters, below which they are left out."""

STYLES = {"worse": "bold red", "better": "bold green", "differs": "bold yellow"}


def print_comparison(comparison: Comparison, console: Console, *, every: bool = False) -> None:
    """Print ``comparison``: the verdict in words, then a table of effects.

    Args:
        comparison: What to show.
        console: Where to; without a terminal behind it the text is plain and never wrapped.
        every: Show all metrics, not only the headline ones.
    """
    wide = console.width if console.is_terminal else 200
    plain = not console.is_terminal
    console.print(
        render_comparison(comparison, width=wide, every=every, plain=plain),
        width=wide,
        soft_wrap=False,
        markup=False,
        highlight=False,
    )


def render_comparison(
    comparison: Comparison, *, width: int = 120, every: bool = False, plain: bool = False
) -> RenderableType:
    """Return ``comparison`` as something rich can print in ``width`` characters."""
    effects = comparison.effects if every or not comparison.headlines else comparison.headlines
    words = lead(comparison) or "No comparison: no arm beside the baseline has values."
    parts: list[RenderableType] = [Text(legible(comparison.title), style="bold"), Text(words)]
    parts += [Text(f"Note: {legible(note)}", style="yellow") for note in comparison.notes]
    if effects:
        parts.append(Padding(_table(comparison, effects, width, plain), (1, 0)))
        parts.append(Text(_foot(comparison), style="dim"))
    return Group(*parts)


def _table(
    comparison: Comparison, effects: tuple[Effect, ...], width: int, plain: bool
) -> RichTable:
    source = effects_table(comparison, "terminal", effects)
    missing = {key for key, least in SPARE if width < least}
    columns = [c for key in COLUMNS for c in source.columns if c.key == key and key not in missing]
    table = RichTable(
        box=box.ASCII2 if plain else box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            no_wrap=column.key in {"estimate", "low", "p", "q", "value", "baseline_value"},
            overflow="fold",
        )
    what = next(column for column in source.columns if column.key == "what")
    previous = None
    for effect in effects:
        heading = what.shown(effect)
        if heading != previous:
            table.add_row(Text(heading, style="bold"), *[""] * (len(columns) - 1))
            previous = heading
        cells = [Text(("  " if c.key == "arm" else "") + c.shown(effect)) for c in columns]
        style = _style(effect)
        cells[-1].stylize(style)
        table.add_row(*cells)
    return table


def _style(effect: Effect) -> str:
    return "dim" if effect.verdict in EVEN else STYLES.get(effect.verdict, "")


def _foot(comparison: Comparison) -> str:
    text = (
        f"{comparison.blocks} blocks; {100 * comparison.confidence:.4g} % intervals; q is p after "
        f"correction over all tests; practical margin ±{100 * comparison.margin:g} %."
    )
    if any(effect.emulated for effect in comparison.effects):
        text += (
            f" {EMULATED.capitalize()} arms show behaviour and relative instruction cost, not "
            "hardware speed."
        )
    return text


__all__ = ["print_comparison", "render_comparison"]
