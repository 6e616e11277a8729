"""The section on the environment: the host's state, and differences between the arms' machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.analysis.model import (
    CheckResult,
    Comparison,
    EnvironmentChange,
    ProofDifference,
    RunData,
)
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, counted, marked, short
from tare.report.sections.contract import Section, SectionData


@dataclass(frozen=True)
class EnvironmentData(SectionData):
    """The content of the section on the environment."""

    checks: ShownTable | None
    changes: ShownTable | None
    explaining: ShownTable | None
    all_differences: ShownTable | None
    warnings: tuple[str, ...]


class Environment(Section):
    """Pre-flight checks, and differences between the arms that could explain a result."""

    name, title, template = "environment", "The environment", "environment.html.j2"

    def data(self, report: ReportData) -> EnvironmentData:
        """Return checks, changes, differences and warnings."""
        comparison, emulated = report.comparison, report.emulated
        proofs = proof_table(comparison, emulated)
        changes = environment_changes_table(comparison, emulated)
        checks = checks_table(report.runs)
        explaining = any(difference.explains for difference in comparison.proof_differences)
        return EnvironmentData(
            checks=checks.shown() if checks.rows else None,
            changes=changes.shown() if changes.rows else None,
            explaining=proof_groups_table(comparison, emulated).shown() if explaining else None,
            all_differences=proofs.shown() if proofs.rows else None,
            warnings=_warnings(report.runs),
            tables=(proofs, changes),
        )


def checks_table(runs: Iterable[RunData]) -> Table[CheckResult]:
    """Return the pre-flight checks, each once, failed ones first."""
    order = {"bad": 0, "warn": 1, "ok": 2}
    found = dict.fromkeys(check for run in runs for check in run.checks)
    rows = tuple(sorted(found, key=lambda check: order[check.level]))
    columns: tuple[Column[CheckResult], ...] = (
        Column("name", lambda c: c.name, "Pre-flight check"),
        Column("level", lambda c: c.level, "State"),
        Column("found", lambda c: c.found, "Found"),
        Column("hint", lambda c: c.hint, "What to do"),
    )
    return Table("checks", "The host before the first block", columns, rows, tone=lambda c: c.level)


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
    """Return changes in the environment of arms from one block to a later one."""
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
    """Differences, over all arms, that could explain a result in the same way."""

    why: str
    arms: tuple[str, ...]
    differences: tuple[str, ...]


SHOWN_DIFFERENCES = 3
"""The number of differences shown of each group. Others are counted; the full table lists them."""


def proof_groups_table(comparison: Comparison, emulated: frozenset[str]) -> Table[ProofGroup]:
    """Return the differences that could explain a result, one row for each kind."""
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


def _warnings(runs: Sequence[RunData]) -> tuple[str, ...]:
    counts: dict[tuple[int, str, str], int] = {}
    for run in runs:
        places = {arm: place for place, arm in enumerate(run.arms)}
        for cell in run.cells:
            who = marked(cell.arm, cell.arm in run.emulated_arms)
            for warning in cell.warnings:
                known = (places.get(cell.arm, len(places)), who, warning)
                counts[known] = counts.get(known, 0) + 1
    return tuple(
        legible(f"{who}: {warning} ({counted(count, 'cell')})")
        for (_, who, warning), count in sorted(counts.items())
    )
