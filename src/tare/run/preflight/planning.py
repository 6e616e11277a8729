"""``tare plan``: the plan of a study, from remembered, assumed or probed facts of its hosts."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from tare.events.metric import Kind
from tare.hosts.local import LocalHost
from tare.registry import installed
from tare.run.hosts.assumed import AssumedHost, ExpectedVerdict, assumed_host, expected_verdict
from tare.run.lifecycle.cell_counts import NOTHING_COMPARED, nothing_compared
from tare.run.lifecycle.session import agent_path, inspection_setup
from tare.run.lifecycle.setup import AssumedGrounds, Grounds
from tare.run.preflight.capacity import assumed_memory, found_memory, require_room
from tare.run.preflight.checking import (
    arranged_cpus,
    check_arms,
    described,
    facts_of,
    plan_study,
    with_possible_baseline,
)
from tare.run.preflight.host_access import lines_for_plan, require_allowed
from tare.run.preflight.toolbox import require_additions, study_needs
from tare.run.sessions.agenda_text import session_lines
from tare.run.sessions.boot_state import boots_by_itself, look
from tare.skips import LeftOut, lines_of
from tare.study.model.sessions import part_of
from tare.study.planning.cells import Batch, Cell, cell_label, work_words
from tare.study.planning.cpu_choice import numbers_in
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import Plan, Skip
from tare.units import format_duration

if TYPE_CHECKING:
    from tare.run.lifecycle.setup import StudySource
    from tare.study.model.study import Study

BLOCKS_SHOWN = 3
FOUND_OUT = "checked now"
UNASKED = (
    "the hypervisor of {arms} was never asked: its computer is assumed to have the CPUs of the "
    "arm's host; `tare plan --probe` asks it"
)


@dataclass(frozen=True)
class Outlook:
    """A plan with the sources of its facts.

    Args:
        plan: The plan.
        verdicts: The verdict on each arm that the plan uses, and its source.
        descriptions: Each arm as a phrase.
        assumed: Assumptions on the hosts themselves, as sentences.
        host_access: The programs, files and arguments that the study passes to its hosts, as
            sentences.
        probed: Whether all arms were checked for the plan.
    """

    plan: Plan
    verdicts: Mapping[str, ExpectedVerdict]
    descriptions: Mapping[str, str]
    assumed: tuple[str, ...] = ()
    host_access: tuple[str, ...] = ()
    probed: bool = False


async def plan_here(
    study: Study,
    source: StudySource,
    seed: int | None,
    *,
    probe: bool = False,
    host_access: bool = False,
) -> Outlook:
    """Plan a study.

    Without ``probe`` this starts nothing and contacts no host; with it, every arm is checked as at
    the start of a run.

    Args:
        study: The study.
        source: The origin of the study.
        seed: Overrides the study's own seed; without either, a random seed is drawn.
        probe: Whether to check every arm on its host.
        host_access: Whether the command line allows raw arguments that may act on hosts.

    Raises:
        InputError: The baseline cannot run, or machines need more than a host has; with ``probe``
            also: a host cannot be used, or the study needs host access that is not allowed.
        MachineFault: With ``probe``: a host cannot be reached.
    """
    if probe:
        require_allowed(study, Path(source.path), allowed=host_access)
        if study.sessions is not None:
            return await _probed_in_sessions(study, source, seed)
        async with inspection_setup(study) as setup:
            await require_additions(setup, setup.context.builder, study, Path(source.path))
            verdicts = await check_arms(setup, study)
            checked = {
                name: ExpectedVerdict(verdict, FOUND_OUT) for name, verdict in verdicts.items()
            }
            outlook = _outlook(setup, study, source, seed, checked)
            planned = outlook.plan.study
            found = found_memory(planned, setup)
            await require_room(planned, outlook.plan, setup, found, setup.context.builder)
            return replace(outlook, probed=True)
    return await _plan_from_known(study, source, seed, {})


async def _plan_from_known(
    study: Study, source: StudySource, seed: int | None, checked: Mapping[str, ExpectedVerdict]
) -> Outlook:
    """Plan a study from remembered and assumed facts, except for arms that were checked."""
    # The CPUs of this computer are read from files; that starts nothing.
    here = LocalHost(agent_path())
    parts = installed()
    cpus = here.topology()
    hosts = {
        name: _with_cpus(assumed_host(spec, study.lab, parts.platforms, cpus), study, name)
        for name, spec in study.computers.items()
    }
    grounds = AssumedGrounds(hosts, parts.workloads)
    await require_additions(grounds, None, study, Path(source.path))
    network = "network" in study_needs(grounds, study)
    remembered = {
        name: checked.get(name)
        or expected_verdict(hosts[study.host_of(name)], study, name, network)
        for name in study.arms
    }
    assumed = tuple(host.assumed for host in hosts.values() if host.assumed)
    unasked = [
        name
        for name in study.arms
        if remembered[name].verdict.usable and _carrier_is_unknown(hosts, study, name, remembered)
    ]
    if unasked:
        assumed += (UNASKED.format(arms=", ".join(unasked)),)
    outlook = _outlook(grounds, study, source, seed, remembered)
    planned = outlook.plan.study
    await require_room(planned, outlook.plan, grounds, assumed_memory(planned), here)
    return replace(outlook, assumed=assumed)


def _carrier_is_unknown(
    hosts: Mapping[str, AssumedHost],
    study: Study,
    arm: str,
    remembered: Mapping[str, ExpectedVerdict],
) -> bool:
    """Return whether an arm's machines run on another computer, whose CPUs are not known."""
    asked = study.arms[arm]
    stated = hosts[study.host_of(arm)].platforms[asked.platform].stated(asked.options)
    creates = stated.elsewhere and not stated.only_measures and not stated.is_host
    return creates and remembered[arm].verdict.carrier is None


def _with_cpus(host: AssumedHost, study: Study, name: str) -> AssumedHost:
    """Return a host with the CPUs that the study chooses, as far as its CPUs are known."""
    if not host.assumed:
        return replace(host, cpus=arranged_cpus(study, name, host.cpus))
    named = numbers_in(study.choice_of(name))
    return replace(host, cpus=HostCpus(online=named)) if named else host


async def _probed_in_sessions(study: Study, source: StudySource, seed: int | None) -> Outlook:
    """Plan a study in sessions; only the boot that is up can be checked."""
    assert study.sessions is not None
    checked: dict[str, ExpectedVerdict] = {}
    for boot in study.sessions.boots:
        part = part_of(study, boot)
        if (await look(study, boot)).up:
            async with inspection_setup(part) as setup:
                verdicts = await check_arms(setup, part)
            checked |= {
                name: ExpectedVerdict(verdict, FOUND_OUT) for name, verdict in verdicts.items()
            }
    outlook = await _plan_from_known(study, source, seed, checked)
    return replace(outlook, probed=checked.keys() == study.arms.keys())


def _outlook(
    grounds: Grounds,
    study: Study,
    source: StudySource,
    seed: int | None,
    found: Mapping[str, ExpectedVerdict],
) -> Outlook:
    chosen = seed if seed is not None else study.seed
    verdicts = {name: each.verdict for name, each in found.items()}
    study = with_possible_baseline(grounds, study, verdicts)
    plan = plan_study(
        grounds,
        study,
        secrets.randbits(32) if chosen is None else chosen,
        facts_of(grounds, study, verdicts),
    )
    descriptions = {name: described(grounds, study, name) for name in study.arms}
    return Outlook(plan, found, descriptions, host_access=lines_for_plan(study, Path(source.path)))


def show_plan(outlook: Outlook, console: Console) -> None:
    """Print arms, skips, the sequence of the first blocks, cells and the time estimate."""
    plan = outlook.plan
    study = plan.study
    console.print(Text(study.title, "bold"))
    for warning in study.warnings:
        console.print(Text(f"  ! {warning}", "yellow"))
    for sentence in outlook.assumed:
        console.print(Text(f"  ! {sentence}", "yellow"))
    for sentence in outlook.host_access:
        console.print(Text(f"  ! {sentence}", "yellow"))
    for note in plan.notes:
        console.print(Text(f"  {note}"))
    for name, design in study.designs.items():
        for sentence in design.lines(name):
            console.print(Text(f"  {sentence}"))
    for name in plan.arms:
        expected = outlook.verdicts[name]
        host = f" on {study.host_of(name)}" if study.hosts else ""
        console.print(Text(f"  {name}: {outlook.descriptions[name]}{host} ({expected.source})"))
        if expected.verdict.mark:
            console.print(Text(f"    ! {marked(study, name, expected.verdict.mark)}", "yellow"))
    for line in _skips(outlook):
        console.print(line)
    twins = {name: arm.twin_of for name, arm in study.arms.items()}
    left_out = {skip.arm for skip in plan.skipped} - set(plan.arms)
    if left_out and nothing_compared(twins, study.baseline, plan.arms):
        console.print(Text(f"  ! {NOTHING_COMPARED}", "yellow"))
    _show_cells(plan, console)
    if not outlook.probed:
        console.print(
            Text("nothing was started for this plan; with --probe every arm is checked", "dim")
        )


def plan_json(outlook: Outlook) -> dict[str, Any]:
    """Return a plan as plain values; keys are only ever added, or `version` is raised.

    Durations are in seconds.
    """
    plan, study = outlook.plan, outlook.plan.study
    shown = range(1, min(BLOCKS_SHOWN, study.blocks.most) + 1)
    return {
        "version": 1,
        "study": study.study,
        "title": study.title,
        "seed": plan.seed,
        "baseline": study.baseline,
        "probed": outlook.probed,
        "blocks": {"least": study.blocks.least, "most": study.blocks.most},
        "seconds": {
            "noise": plan.noise_s,
            "block": plan.block_s,
            "least": plan.least_s,
            "most": plan.most_s,
        },
        "warnings": list(study.warnings),
        "assumed": list(outlook.assumed),
        "notes": list(plan.notes),
        "designs": {name: design.model_dump(mode="json") for name, design in study.designs.items()},
        "arms": [
            {
                "arm": name,
                "platform": study.arms[name].platform,
                "description": outlook.descriptions[name],
                "host": study.host_of(name),
                "emulated": outlook.verdicts[name].verdict.emulated,
                "mark": outlook.verdicts[name].verdict.mark,
                "source": outlook.verdicts[name].source,
            }
            for name in plan.arms
        ],
        "skipped": [
            {
                "arm": part.arm,
                "scenario": part.scenario,
                "workload": part.workload,
                "reason": part.reason,
                "hint": part.hint,
            }
            for part in (_part(outlook, skip) for skip in plan.skipped)
        ],
        "cells": [
            {
                "arm": cell.arm,
                "scenario": cell.scenario,
                "workload": cell.workload,
                "kind": cell.kind,
                "parameters": dict(cell.parameters),
                "repeat": cell.repeat,
                "seconds": cell.expected_s,
            }
            for batch in plan.batches
            for cell in batch.cells
        ],
        "order": [
            [{"arm": batch.arm, "scenario": batch.scenario} for batch in plan.block(number)]
            for number in shown
        ],
    }


def _skips(outlook: Outlook) -> Iterator[Text]:
    """Yield one line for each reason, with the parts of the study that are skipped for it."""
    for line in lines_of(_part(outlook, skip) for skip in outlook.plan.skipped):
        yield Text(f"  – {line.what} skipped: {line.reason}", "yellow")
        if line.hint:
            yield Text(f"    {line.hint}")


def _part(outlook: Outlook, skip: Skip) -> LeftOut:
    expected = outlook.verdicts.get(skip.arm)
    # The reason for skipping a usable arm is in the study itself.
    unusable = None if expected is None or expected.verdict.usable else expected
    running = skip.arm in outlook.plan.arms
    source = "" if unusable is None or running else f" ({unusable.source})"
    hint = skip.hint if unusable is None else unusable.verdict.hint
    return LeftOut(skip.arm, skip.scenario, skip.workload, f"{skip.reason}{source}", hint)


def headlines_of(plan: Plan) -> Mapping[Kind, int]:
    """Return the number of headline metrics by kind, for the arm that has the most."""
    kinds = installed().workloads
    counts: dict[str, Counter[Kind]] = {}
    for batch in plan.batches:
        for cell in batch.cells:
            if cell.repeat == 1:
                kind = kinds[cell.kind]
                parameters = kind.parameters.model_validate(dict(cell.parameters))
                found = [m.kind for m in kind.metrics_for(parameters) if m.headline]
                counts.setdefault(batch.arm, Counter()).update(found)
    return max(counts.values(), key=Counter.total, default=Counter())


def marked(study: Study, arm: str, mark: str) -> str:
    """Return a sentence on where an arm runs instead of where it belongs."""
    what = f"the baseline {arm}" if arm == study.baseline else arm
    ratios = ", and all ratios are to that" if arm == study.baseline else ""
    return f"{what} runs {mark}{ratios}"


def _show_cells(plan: Plan, console: Console) -> None:
    study = plan.study
    for arms, batch in _alike(plan):
        console.print(Text(f"{batch.scenario} on {', '.join(arms)}:", "bold"))
        names = _names(batch.cells)
        for cell in batch.cells:
            console.print(Text(f"  {names[cell.id]}: {format_duration(cell.expected_s)}"))
    if study.sessions is not None:
        for line in session_lines(study, plan, partial(boots_by_itself, study)):
            console.print(Text(line, "bold" if line.startswith("swap") else "dim"), soft_wrap=True)
    else:
        for number in range(1, min(BLOCKS_SHOWN, study.blocks.most) + 1):
            console.print(Text(f"block {number}: {_order(plan.block(number))}", "dim"))
    blocks = _range(str(study.blocks.least), str(study.blocks.most))
    if plan.noise_s:
        measured = f"before block 1: noise of the hosts, {format_duration(plan.noise_s)}"
        console.print(Text(measured, "dim"))
    whole = _range(format_duration(plan.least_s), format_duration(plan.most_s))
    cells = sum(len(batch.cells) for batch in plan.batches)
    # For sessions, the total with the swaps is printed above.
    in_all = f", {whole} in all" if study.sessions is None else ""
    console.print(
        f"{blocks} blocks of {cells} cells; about {format_duration(plan.block_s)} each{in_all}; "
        f"seed {plan.seed}"
    )


def _names(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the name of each cell; equal names get a number."""
    names = {c.id: work_words(c.workload, c.parameters, c.repeat) for c in cells}
    often, seen = Counter(names.values()), Counter[str]()
    for cell, name in names.items():
        if often[name] > 1:
            seen[name] += 1
            names[cell] = f"{name} no. {seen[name]}"
    return names


def _order(batches: Iterable[Batch]) -> str:
    """Return the sequence in which a block's machines boot; consecutive scenarios are grouped."""
    runs = groupby(batches, lambda batch: batch.scenario)
    return "; ".join(f"{name} on {', '.join(each.arm for each in run)}" for name, run in runs)


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _alike(plan: Plan) -> list[tuple[list[str], Batch]]:
    """Group the batches that measure the same cells, in their sequence."""
    groups: dict[tuple[str, ...], tuple[list[str], Batch]] = {}
    for batch in plan.batches:
        cells = (batch.scenario, *(cell_label(cell.id) for cell in batch.cells))
        groups.setdefault(cells, ([], batch))[0].append(batch.arm)
    return list(groups.values())
