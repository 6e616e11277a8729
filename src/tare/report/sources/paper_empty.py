"""Reasons why a part of a paper's page is empty: a whole table, or one arm in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Key
from tare.references.measured import measured_keys
from tare.references.missing_values import why_no_value
from tare.references.pairing import PairedTable, describe_column
from tare.references.scenarios import skipped_in
from tare.report.page.words import joined


def why_unfilled(comparison: Comparison, one: PairedTable) -> str:
    """Return why a table of the source has no row of the run; empty if it has one."""
    if one.has_own:
        return ""
    reason = f"this run has no {one.table.workload} "
    if not one.table.scenario:
        return f"{reason}to compare with it: it belongs to no scenario of the source"
    if one.matched and measured_keys(
        comparison, one.table.workload, one.table.metric, one.matched, {}
    ):
        wanted = joined([describe_column(column) for column in one.table.columns])
        return f"{reason}with {wanted} in {one.matched}"
    reason += f"in a scenario like {one.table.scenario}"
    why = skipped_in(comparison.runs, one.matched) if one.matched else ""
    return f"{reason}; {one.matched}: {why}" if why else reason


def arms_without(
    comparison: Comparison, keys: Iterable[Key], among: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return sentences on arms that lack values other arms have, one for each reason.

    Arms without any measurement are listed with the source's arms.

    Args:
        comparison: The runs' comparison.
        keys: Keys for which some arm has a value.
        among: The arms to check, in order; by default all.
    """
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    wanted = list(dict.fromkeys(keys))
    having = {(summary.key, summary.arm) for summary in comparison.summaries}
    for arm in comparison.arms if among is None else among:
        lacking = [key for key in wanted if (key, arm) not in having]
        for why, labels in _reasons(comparison, arm, lacking):
            whole = len(lacking) == len(wanted) and len(labels) == len({k.workload for k in wanted})
            found.setdefault((why, () if whole else labels), []).append(arm)
    return tuple(
        f"No value of {joined(arms)}{f' for {joined(labels)}' if labels else ''}: {why}."
        for (why, labels), arms in found.items()
    )


def arms_undrawn(
    comparison: Comparison, key: Key, drawn: Collection[str], wanted: Sequence[str]
) -> tuple[str, ...]:
    """Return sentences on arms without a panel in a figure of samples, one for each reason.

    Args:
        comparison: The runs' comparison.
        key: The key of the drawn metric.
        drawn: The arms that the figure shows.
        wanted: The arms that the figure should show, in order.
    """
    having = {summary.arm for summary in comparison.summaries if summary.key == key}
    kept = [arm for arm in wanted if arm in having and arm not in drawn]
    note = f"{joined(kept)} kept no samples over time of {key.workload}."
    return (*([note] if kept else []), *arms_without(comparison, [key], wanted))


def _reasons(
    comparison: Comparison, arm: str, lacking: Iterable[Key]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each reason with the workloads that it applies to."""
    places = dict.fromkeys((key.scenario, key.workload) for key in lacking)
    found: dict[str, dict[str, None]] = {}
    for scenario, workload in places:
        if why := why_no_value(comparison.runs, arm, scenario, (workload,)):
            found.setdefault(why.rstrip("."), {})[workload] = None
    return ((why, tuple(labels)) for why, labels in found.items())
