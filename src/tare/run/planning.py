"""Show what a study would do here, and start nothing of it."""

from __future__ import annotations

import secrets
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tare.platforms import PLATFORMS
from tare.run.catalog import build_catalog
from tare.run.checking import check_arms, facts_of, plan_study
from tare.run.session import inspection_bench
from tare.study.load import load_study
from tare.study.plan import Plan, Visit, cell_label
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
    async with inspection_bench(study) as bench:
        facts = facts_of(bench, study, await check_arms(bench, study))
        return plan_study(bench, study, secrets.randbits(32) if chosen is None else chosen, facts)


def show_plan(plan: Plan, console: Console) -> None:
    """Print arms, skips, the order of the first blocks, cells and the time estimate."""
    study = plan.study
    console.print(Text(study.title, "bold"))
    for warning in study.warnings:
        console.print(Text(f"  ! {warning}", "yellow"))
    for note in plan.notes:
        console.print(Text(f"  {note}"))
    for name in plan.arms:
        arm = study.arms[name]
        console.print(Text(f"  {name}: {PLATFORMS[arm.platform].describe(arm.options)}"))
    for skip in plan.skipped:
        what = "/".join(part for part in (skip.arm, skip.scenario, skip.workload) if part)
        console.print(Text(f"  – {what} skipped: {skip.reason}", "yellow"))
    for arms, visit in _alike(plan):
        console.print(Text(f"{visit.scenario} on {', '.join(arms)}:", "bold"))
        for cell in visit.cells:
            console.print(Text(f"  {cell_label(cell.id)}: {format_duration(cell.expected_s)}"))
    for number in range(1, min(BLOCKS_SHOWN, study.blocks.most) + 1):
        order = ", ".join(f"{visit.arm}/{visit.scenario}" for visit in plan.block(number))
        console.print(Text(f"block {number}: {order}", "dim"))
    blocks = _range(str(study.blocks.least), str(study.blocks.most))
    whole = _range(format_duration(plan.least_s), format_duration(plan.most_s))
    cells = sum(len(visit.cells) for visit in plan.visits)
    console.print(
        f"{blocks} blocks of {cells} cells; about {format_duration(plan.block_s)} each, "
        f"{whole} in all; seed {plan.seed}"
    )


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _alike(plan: Plan) -> list[tuple[list[str], Visit]]:
    """Group the visits that measure the same cells, in order."""
    groups: dict[tuple[str, ...], tuple[list[str], Visit]] = {}
    for visit in plan.visits:
        cells = (visit.scenario, *(cell_label(cell.id) for cell in visit.cells))
        groups.setdefault(cells, ([], visit))[0].append(visit.arm)
    return list(groups.values())
