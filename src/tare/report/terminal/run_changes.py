"""The comparison of runs in the terminal: changes of effects, and pooled effects of many runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tare.analysis.effects.verdict import LEVEL
from tare.analysis.model import Comparison, Effect, Key, as_cost, cost_ends
from tare.analysis.runs.change_verdicts import changed
from tare.analysis.runs.run_changes import (
    Change,
    pooled,
    require_same_baseline,
    two_runs_caveat,
)
from tare.analysis.statistics.maxt import least_blocks
from tare.errors import InputError
from tare.report.compare.answer import change_heading, change_lines
from tare.report.compare.run_doubts import doubts_of, studies_of, why_not_comparable
from tare.report.figures.svg import legible
from tare.report.page.arrange import arrange
from tare.report.page.words import (
    NONE,
    Names,
    Part,
    counted,
    marked,
    metric_name,
    percent,
    ratio,
    ratio_interval,
)
from tare.units import format_number

PLAIN_WIDTH = 180
FEW = f"Each run needs {least_blocks(LEVEL)} blocks at least"


def render_changes(before: Comparison, after: Comparison, console: Console) -> None:
    """Print how the headline effects of the second run differ from those of the first.

    Args:
        before: The first run's comparison.
        after: The second run's comparison.
        console: The console to print to.

    Raises:
        InputError: The runs have no headline effect in common, or different baselines.
    """
    require_same_baseline([before, after])
    before = arrange(before)
    base = before.baseline
    found_all = changed({base: before}, {base: after}, base)
    found = [one for one in found_all if one.change.before.headline]
    if not found:
        raise InputError(*why_not_comparable(before, after))
    names = Names((Part.of(one.change.key) for one in found), before.shown_as, short=True)
    table = table_of(
        "What",
        "Arm",
        "Cost before",
        "Cost after",
        "After ÷ before",
        "Interval",
        "Verdict",
        plain=console,
    )
    for one in found:
        change = one.change
        table.add_row(
            *_effect_cells(names, change.before), _estimate(change.before), _estimate(change.after),
            *_change(change), one.verdict,
        )  # fmt: skip
    caveat = two_runs_caveat(before, after)
    short = any(not math.isfinite(one.change.high) for one in found)
    runs = [legible(comparison.runs[0].run) for comparison in (before, after)]
    for doubt in doubts_of(before, after):
        console.print(Text(f"Note: {doubt}", "yellow"), soft_wrap=True)
    console.print(Text(f"{change_heading(before, after)}:", style="bold"), soft_wrap=True)
    for line in change_lines(found, before, after):
        console.print(Text(f"{legible(line.arm)}: {line.sentence}"), soft_wrap=True)
    print_table(
        console,
        f"{runs[1]} against {runs[0]}: how each effect against {base} changed",
        table,
        f"{100 * before.confidence:.4g} % intervals, each by itself; verdicts hold for all "
        f"headline effects of an arm together, practical margin ±{100 * before.margin:g} %. Only "
        "effects are compared, never values of different runs. With --gate all gates are one "
        "family. Costs: above 1 is worse, for rates too; After ÷ before above 1: the cost grew."
        + (f" {caveat}." if caveat else "")
        + (f" {FEW}, so shorter ones have no interval." if short else ""),
    )
    for one in found:
        if one.reason:
            what, arm = _effect_cells(names, one.change.before)
            console.print(Text(f"{what}, {arm}: {legible(one.reason)}"), soft_wrap=True)


def render_pooled(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print the pooled effects of several runs, with a term for the run.

    Args:
        comparisons: The comparisons of the runs, two or more.
        console: The console to print to.
    """
    first = arrange(comparisons[0])
    every = [first, *comparisons[1:]]
    found = [p for p in pooled(every, first.confidence) if p.effects[0].headline]
    names = Names((Part.of(each.key) for each in found), first.shown_as, short=True)
    table = table_of(
        "What", "Arm", "Runs", "Cost factor", "Interval", "Between runs", "I²", plain=console
    )
    for each in found:
        mean = each.together
        better = each.effects[0].better
        ends = math.exp(max(mean.low, -700.0)), math.exp(min(mean.high, 700.0))
        table.add_row(
            *_effect_cells(names, each.effects[0]),
            str(len(each.effects)),
            ratio(as_cost(math.exp(mean.effect), better)),
            ratio_interval(cost_ends(*ends, better)),
            f"± {percent(math.expm1(mean.between))}",
            percent(mean.inconsistency),
        )
    for difference in studies_of([comparison.runs[0] for comparison in every]):
        console.print(Text(f"Note: {difference}", "yellow"), soft_wrap=True)
    print_table(
        console,
        f"{len(comparisons)} runs together, each effect against {first.baseline}",
        table,
        f"Random effects: {100 * first.confidence:.4g} % intervals cover the typical run, with "
        "what differs between runs in them; I² is the share of that which is more than chance."
        + _left_out(every, {(p.key, p.effects[0].arm) for p in found}),
    )


def _left_out(comparisons: Sequence[Comparison], shown: Set[tuple[Key, str]]) -> str:
    """Return a note on headline effects of several runs that have no pooled mean; empty if none."""
    runs_with = Counter(
        (effect.key, effect.arm)
        for comparison in comparisons
        for effect in comparison.effects
        if effect.headline
    )
    left = sum(runs > 1 and what not in shown for what, runs in runs_with.items())
    if not left:
        return ""
    return (
        f" Left out: {counted(left, 'headline effect')} without a typical ratio (tails, maxima, "
        "differences); tare compare of two runs has them."
    )


def table_of(*titles: str, plain: Console) -> Table:
    """Return an empty table of these columns, with borders that the console can show."""
    style = box.SIMPLE_HEAD if plain.is_terminal else box.ASCII2
    table = Table(box=style, pad_edge=False)
    for title in titles:
        left = title in ("What", "Arm", "Over time", "Changed at", "Verdict")
        table.add_column(title, justify="left" if left else "right", overflow="fold")
    return table


def _effect_cells(names: Names, effect: Effect) -> tuple[Text, Text]:
    what = f"{names.name(Part.of(effect.key))} · {metric_name(effect.key.metric)}"
    return Text(what), Text(marked(effect.arm, effect.emulated))


def _estimate(effect: Effect) -> str:
    if effect.scale == "difference":
        return format_number(effect.estimate)
    return ratio(as_cost(effect.estimate, effect.better))


def _change(change: Change) -> tuple[str, str]:
    bounded = math.isfinite(change.high)
    if change.ratio:
        better = change.before.better
        ends = ratio_interval(cost_ends(change.low, change.high, better)) if bounded else NONE
        return ratio(as_cost(change.change, better)), ends
    ends = f"{format_number(change.low)} to {format_number(change.high)}"
    return format_number(change.change, sign=True), ends if bounded else NONE


def print_table(console: Console, title: str, table: Table, foot: str) -> None:
    """Print a table between its title and its notes."""
    if not console.is_terminal:
        console = Console(file=console.file, width=PLAIN_WIDTH, no_color=True, highlight=False)
    console.print(Text(title, style="bold"))
    console.print(table)
    console.print(Text(foot, style="dim"))
