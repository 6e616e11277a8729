"""Show what a study would do here, and start nothing of it."""

from __future__ import annotations

import secrets
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tare.run.catalog import build_catalog
from tare.run.checking import check_arms, facts_of, plan_study
from tare.run.session import inspection_bench
from tare.study.load import load_study
from tare.study.plan import Plan
from tare.study.quantities import format_duration

BLOCKS_SHOWN = 3


async def plan_here(study_path: Path, seed: int | None) -> Plan:
    """Plan the study at ``study_path`` for this host; only usability is tried out.

    Args:
        study_path: A study as YAML.
        seed: Overrides the study's own; a fresh one is drawn where neither is given.

    Raises:
        InputError: The study cannot be used, or its baseline cannot run here.
    """
    study = load_study(study_path, build_catalog())
    chosen = seed if seed is not None else study.seed
    with inspection_bench() as bench:
        facts = facts_of(study, await check_arms(bench, study))
        return plan_study(bench, study, secrets.randbits(32) if chosen is None else chosen, facts)


def show_plan(plan: Plan, console: Console) -> None:
    """Print arms, skips, the order of the first blocks, cells and the time estimate."""
    study = plan.study
    console.print(Text(study.title, "bold"))
    for warning in study.warnings:
        console.print(Text(f"  ! {warning}", "yellow"))
    for note in plan.notes:
        console.print(Text(f"  {note}"))
    for skip in plan.skipped:
        what = "/".join(part for part in (skip.arm, skip.scenario, skip.workload) if part)
        console.print(Text(f"  – {what} skipped: {skip.reason}", "yellow"))
    console.print(_cells(plan))
    for number in range(1, min(BLOCKS_SHOWN, study.blocks.most) + 1):
        order = ", ".join(f"{visit.arm}/{visit.scenario}" for visit in plan.block(number))
        console.print(Text(f"block {number}: {order}", "dim"))
    console.print(
        f"{study.blocks.least} to {study.blocks.most} blocks of "
        f"{sum(len(visit.cells) for visit in plan.visits)} cells; about "
        f"{format_duration(plan.block_s)} each, {format_duration(plan.least_s)} to "
        f"{format_duration(plan.most_s)} in all; seed {plan.seed}"
    )


def _cells(plan: Plan) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("arm", "scenario", "workload", "expected"):
        table.add_column(title, justify="right" if title == "expected" else "left")
    for visit in plan.visits:
        table.add_row(visit.arm, visit.scenario, "boot", format_duration(visit.boot_s))
        for cell in visit.cells:
            table.add_row("", "", cell.id.split("/", 3)[-1], format_duration(cell.expected_s))
    return table
