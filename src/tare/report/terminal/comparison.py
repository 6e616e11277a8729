"""A comparison, or every pair of arms, as a table in the terminal, for ``tare compare``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from tare.analysis.model import Comparison, Effect
from tare.analysis.topics.interference import interference
from tare.analysis.topics.kernels import different_kernels
from tare.analysis.words import arms_ended, family_note, unfit_words, unlike_machines
from tare.report.figures.svg import legible
from tare.report.page.arrange import arrange
from tare.report.page.tables import Table
from tare.report.page.verdicts import answer_lines, failure_notes, finding_notes
from tare.report.page.words import EMULATED, counted, metric_name
from tare.report.sections.interference import neighbours_answer
from tare.report.sections.pairs import PAIR_COLUMNS, describe_pairs, pairs_table, ranking_table
from tare.report.sections.results import ABOUT_COST, ABOUT_PAIRED, effects_table

COLUMNS = (
    "what",
    "arm",
    "baseline_value",
    "value",
    "estimate",
    "low",
    "not_excluded",
    "adjusted_p",
    "verdict",
)
"""The table's columns, in order; narrower terminals lose some, see :data:`SPARE`."""

SPARE = (("baseline_value", 128), ("value", 116), ("not_excluded", 104), ("adjusted_p", 96))
"""Optional columns, each with the terminal width, in characters, below which it is left out."""

STACKED = 84
"""Below this width, in characters, an effect is shown as lines of text instead of a table row."""

PLAIN_WIDTH = 180
"""The width, in characters, without a terminal: it fits all columns without wrapped lines."""

STYLES = {"worse": "bold red", "better": "bold green", "differs": "bold yellow"}


def render_comparison(comparison: Comparison, console: Console, *, every: bool = False) -> None:
    """Print ``comparison``: the verdict in words, then a table of effects.

    Args:
        comparison: The comparison.
        console: The console to print to. Without a terminal behind it, the text is plain and wide.
        every: Whether to show all metrics, not only the headline ones.
    """
    if not console.is_terminal:
        console = Console(file=console.file, width=PLAIN_WIDTH, no_color=True, highlight=False)
    width = console.width
    plain = not console.is_terminal
    console.print(comparison_view(comparison, width=width, every=every, plain=plain))


def comparison_view(
    comparison: Comparison, *, width: int = 120, every: bool = False, plain: bool = False
) -> RenderableType:
    """Return ``comparison`` as an object that rich can print in ``width`` characters."""
    comparison = arrange(comparison)
    effects = comparison.effects if every or not comparison.headlines else comparison.headlines
    parts: list[RenderableType] = [Text(legible(comparison.title), style="bold")]
    parts += [Text(line) for line in answer_lines(comparison)]
    changed = (
        *family_note(comparison),
        *unlike_machines(comparison.runs),
        *arms_ended(comparison.runs),
    )
    parts += [Text(legible(text), style="yellow") for text in changed]
    effects_of_neighbours = interference(comparison.runs, comparison.arms, comparison.confidence)
    if effects_of_neighbours:
        parts.append(Text(neighbours_answer(effects_of_neighbours)))
    findings = (*failure_notes(comparison), *finding_notes(comparison))
    parts += [Text(finding, style="yellow") for finding in findings]
    unfit = [words for run in comparison.runs if (words := unfit_words(run))]
    notes = [f"The host was not fit for measuring: {words}." for words in unfit]
    notes += comparison.notes
    parts += [Text(f"Note: {legible(note)}", style="yellow") for note in notes]
    if effects:
        source = effects_table(comparison, "terminal", effects)
        body = _lines(source) if width < STACKED else _table(source, width, plain)
        parts += [Padding(body, (1, 0)), Text(_foot(comparison), style="dim")]
    return Group(*parts)


def _effect_text(effect: Effect, source: Table[Effect]) -> str:
    what = next(column for column in source.columns if column.key == "what")
    return f"{what.shown(effect)} · {metric_name(effect.key.metric)}"


def _table(source: Table[Effect], width: int, plain: bool) -> RichTable:
    missing = {key for key, least in SPARE if width < least}
    keys = [key for key in COLUMNS if key not in missing]
    columns = [next(c for c in source.columns if c.key == key) for key in keys]
    table = RichTable(box=box.ASCII2 if plain else box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        wraps = column.key in {"what", "arm"}
        table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            no_wrap=not wraps,
            overflow="fold",
        )
    previous = ""
    for effect in source.rows:
        heading = _effect_text(effect, source)
        first = heading if heading != previous or plain else ""
        if first and previous and not plain:
            table.add_section()
        previous = heading
        cells = [Text(first), *(Text(column.shown(effect)) for column in columns[1:])]
        cells[-1].stylize(_style(effect))
        table.add_row(*cells)
    return table


def _lines(source: Table[Effect]) -> RenderableType:
    lines: list[RenderableType] = []
    previous = ""
    shown = {column.key: column for column in source.columns}
    for effect in source.rows:
        heading = _effect_text(effect, source)
        if heading != previous:
            lines.append(Text(heading, style="bold"))
        previous = heading
        numbers = f"{shown['estimate'].shown(effect)} ({shown['low'].shown(effect)})"
        line = Text(f"  {shown['arm'].shown(effect)}: {numbers}, ")
        lines.append(line.append(effect.verdict, style=_style(effect)))
    return Group(*lines)


def _style(effect: Effect) -> str:
    return STYLES.get(effect.verdict, "dim")


def _foot(comparison: Comparison) -> str:
    text = (
        f"{counted(comparison.blocks, 'block')}; {100 * comparison.confidence:.4g} % intervals; p "
        f"is corrected over each arm's metrics; practical margin ±{100 * comparison.margin:g} %."
    )
    if comparison.baseline != comparison.runs[0].baseline:
        text += (
            f" {legible(comparison.baseline)} is not the study's baseline. If you chose it after "
            "seeing results, use --pairs."
        )
    if any(effect.scale == "ratio" for effect in comparison.effects):
        text += f" {ABOUT_COST}"
    if any(not effect.follows for effect in comparison.effects):
        text += f" {ABOUT_PAIRED}."
    if any(effect.scale == "difference" for effect in comparison.headlines):
        text += (
            " With a sign: a difference, arm − baseline, where a value is 0 and there is no ratio."
        )
    kernels = dict.fromkeys(each for run in comparison.runs for each in different_kernels(run))
    text += "".join(f" {legible(each)}" for each in kernels)
    if any(effect.emulated for effect in comparison.effects):
        text += (
            f" {EMULATED.capitalize()} arms show behaviour and relative instruction cost, not "
            "hardware speed."
        )
    return text


def render_pairs(comparison: Comparison, console: Console) -> None:
    """Print every pair of arms and the possible ranks of each arm.

    Args:
        comparison: A comparison with all pairs.
        console: The console to print to.
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
        console.print(Text("= equivalent, ? no difference shown.", style="dim"))


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
