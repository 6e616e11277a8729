"""What the page says, gathered from runs and comparison; how it looks is the template's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tare.analysis.model import Comparison, RunData
from tare.analysis.words import unfit_words
from tare.report.again import Again, again
from tare.report.drawing import Drawn, Noted
from tare.report.kernels import kernels_table
from tare.report.method import method_of
from tare.report.over_sessions import SessionsSection
from tare.report.pairs import PairsSection
from tare.report.palette import Look
from tare.report.provenance import (
    calibration_table,
    checks_table,
    clocks_table,
    existing_table,
    images_table,
    places_table,
    platforms_table,
    run_facts,
)
from tare.report.results import (
    effects_table,
    environment_changes_table,
    host_cost_table,
    lost_cells_table,
    lost_groups_table,
    proof_groups_table,
    proof_table,
    skipped_groups_table,
)
from tare.report.svg import legible
from tare.report.tables import Shown
from tare.report.verdicts import ArmLine, arm_lines, lead
from tare.report.words import EMULATED, counted, joined, marked
from tare.units import format_duration

if TYPE_CHECKING:
    from tare.report.bus import BusSection
    from tare.report.course import CourseSection
    from tare.report.fates import FatesSection
    from tare.report.hypervisors import HypervisorSection
    from tare.report.interference import InterferenceSection
    from tare.report.load_balancer import LoadBalancerSection
    from tare.report.mapreduce import MapReduceSection
    from tare.report.monitoring import MonitoringSection
    from tare.report.reference_section import ReferenceSection
    from tare.report.spikes import SpikesSection


@dataclass(frozen=True)
class Section:
    """One workload's part of the page."""

    id: str
    name: str
    about: str
    subject: bool = True
    scenario: str = ""
    workload: str = ""
    flags: tuple[str, ...] = ()
    figures: tuple[Noted, ...] = ()
    effects: Shown | None = None
    costs: Shown | None = None
    more: Shown | None = None
    values: Shown | None = None
    tails: Shown | None = None
    far: tuple[Shown, ...] = ()


@dataclass(frozen=True)
class Lines:
    """Outside text, line by line, under a name."""

    name: str
    lines: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class Page:
    """Everything the template needs."""

    title: str
    subtitle: str
    description: str
    adapted: tuple[str, ...]
    alerts: tuple[str, ...]
    lead: str
    arms: tuple[ArmLine, ...]
    emulated_note: str
    overhead: Drawn | None
    overhead_note: str
    sections: tuple[Section, ...]
    lost_words: str
    lost: Shown | None
    lost_logs: tuple[Lines, ...]
    skipped: Shown | None
    ends: tuple[Lines, ...]
    platforms: Shown
    existing: Shown | None
    images: Shown | None
    kernels: Shown | None
    costs: Shown | None
    places: Shown | None
    clocks: Shown | None
    facts: tuple[tuple[str, str], ...]
    checks: Shown | None
    explaining: Shown | None
    all_differences: Shown | None
    environment_changes: Shown | None
    warnings: tuple[str, ...]
    method: tuple[str, ...]
    calibration: Shown | None
    aa: Shown | None
    aa_words: str
    again: tuple[Again, ...]
    files: tuple[str, ...]
    footer: str = field(default="")
    pairs: PairsSection | None = None
    shared: Shown | None = None
    in_sessions: SessionsSection | None = None
    explorer: str = ""
    references: tuple[ReferenceSection, ...] = ()
    spikes: SpikesSection | None = None
    spikes_figure: Noted | None = None
    monitoring: MonitoringSection | None = None
    monitoring_figures: tuple[Noted, ...] = ()
    hypervisors: HypervisorSection | None = None
    interference: InterferenceSection | None = None
    interference_figure: Noted | None = None
    fates: FatesSection | None = None
    bus: BusSection | None = None
    balancer: LoadBalancerSection | None = None
    balancer_figures: tuple[Noted, ...] = ()
    course: CourseSection | None = None
    course_figures: tuple[Noted, ...] = ()
    mapreduce: MapReduceSection | None = None
    mapreduce_figures: tuple[Noted, ...] = ()


def make_page(
    comparison: Comparison,
    looks: dict[str, Look],
    *,
    overhead: Drawn | None,
    overhead_note: str,
    sections: Sequence[Section],
    files: Sequence[str],
    pairs: PairsSection | None = None,
    shared: Shown | None = None,
    in_sessions: SessionsSection | None = None,
    explorer: str = "",
    references: Sequence[ReferenceSection] = (),
    spikes: SpikesSection | None = None,
    spikes_figure: Noted | None = None,
    monitoring: MonitoringSection | None = None,
    monitoring_figures: Sequence[Noted] = (),
    hypervisors: HypervisorSection | None = None,
    interference: InterferenceSection | None = None,
    interference_figure: Noted | None = None,
    fates: FatesSection | None = None,
    bus: BusSection | None = None,
    balancer: LoadBalancerSection | None = None,
    balancer_figures: Sequence[Noted] = (),
    course: CourseSection | None = None,
    course_figures: Sequence[Noted] = (),
    mapreduce: MapReduceSection | None = None,
    mapreduce_figures: Sequence[Noted] = (),
) -> Page:
    """Return the page's content."""
    runs = comparison.runs
    emulated = frozenset().union(*(run.emulated_arms for run in runs))
    costs = host_cost_table(comparison)
    proofs = proof_table(comparison, emulated)
    changes = environment_changes_table(comparison, emulated)
    explaining = any(difference.explains for difference in comparison.proof_differences)
    lost, skipped = lost_cells_table(runs), skipped_groups_table(runs)
    checks, calibration = checks_table(runs), calibration_table(runs)
    images, existing = images_table(runs), existing_table(runs)
    places, clocks = places_table(runs), clocks_table(runs)
    of_kernels = kernels_table(runs)
    return Page(
        title=legible(comparison.title) or "A comparison",
        subtitle=_subtitle(comparison),
        description=legible(str(runs[0].study.get("description") or "")),
        adapted=tuple(dict.fromkeys(legible(note) for run in runs for note in run.adapted)),
        alerts=_alerts(comparison),
        lead=lead(comparison) or _no_lead(comparison),
        arms=arm_lines(comparison, looks),
        emulated_note=_emulated_note(comparison, emulated),
        overhead=overhead,
        overhead_note=overhead_note,
        sections=tuple(sections),
        lost_words=_lost_words(runs),
        lost=lost_groups_table(runs).shown() if lost.rows else None,
        lost_logs=tuple(
            Lines(legible(cell.cell), tuple(legible(line) for line in cell.logs))
            for cell in lost.rows
            if cell.logs
        )[:40],
        skipped=skipped.shown() if skipped.rows else None,
        ends=_ends(runs),
        platforms=platforms_table(runs).shown(),
        existing=existing.shown() if existing.rows else None,
        images=images.shown() if images.rows else None,
        kernels=of_kernels.shown() if of_kernels.rows else None,
        costs=costs.shown() if costs.rows else None,
        places=places.shown() if places.rows else None,
        clocks=clocks.shown() if clocks.rows else None,
        facts=run_facts(runs),
        checks=checks.shown() if checks.rows else None,
        explaining=proof_groups_table(comparison, emulated).shown() if explaining else None,
        all_differences=proofs.shown() if proofs.rows else None,
        environment_changes=changes.shown() if changes.rows else None,
        warnings=_warnings(runs),
        method=method_of(comparison),
        calibration=calibration.shown() if calibration.rows else None,
        aa=effects_table(comparison, "aa", comparison.aa).shown(hide=["noise_floor"])
        if comparison.aa
        else None,
        aa_words=_aa_words(comparison),
        again=tuple(again(run) for run in runs),
        files=tuple(files),
        footer=_footer(runs),
        pairs=pairs,
        shared=shared,
        in_sessions=in_sessions,
        explorer=explorer,
        references=tuple(references),
        spikes=spikes,
        spikes_figure=spikes_figure,
        monitoring=monitoring,
        monitoring_figures=tuple(monitoring_figures),
        hypervisors=hypervisors,
        interference=interference,
        interference_figure=interference_figure,
        fates=fates,
        bus=bus,
        balancer=balancer,
        balancer_figures=tuple(balancer_figures),
        course=course,
        course_figures=tuple(course_figures),
        mapreduce=mapreduce,
        mapreduce_figures=tuple(mapreduce_figures),
    )


def _subtitle(comparison: Comparison) -> str:
    started = [run.started_at for run in comparison.runs]
    when = datetime.fromtimestamp(min(started), UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    names = joined([run.run for run in comparison.runs])
    blocks = counted(comparison.blocks, "block")
    return legible(f"{when} · {blocks} · baseline {comparison.baseline} · {names}")


def _alerts(comparison: Comparison) -> tuple[str, ...]:
    partial = [_partial(run) for run in comparison.runs if not run.complete]
    partial += [text for run in comparison.runs if (text := _unfit(run))]
    partial += [text for run in comparison.runs if (text := _doubtful(run))]
    # What the mark means is said beside the verdicts; in a warning on every page it would wear out.
    notes = [note for note in comparison.notes if not note.lower().startswith(EMULATED)]
    return tuple(legible(text) for text in (*partial, *notes))


def _partial(run: RunData) -> str:
    done = len(run.blocks_finished)
    blocks = run.study.get("blocks")
    most = blocks.get("most") if isinstance(blocks, Mapping) else None
    of = f" of at most {most}" if most else ""
    return f"Partial: {done}{of} blocks of run {run.run} are finished; what follows is from these."


def _unfit(run: RunData) -> str:
    words = unfit_words(run)
    return f"The host was not fit for measuring: {words}." if words else ""


def _doubtful(run: RunData) -> str:
    if not run.doubts:
        return ""
    more = f", and {len(run.doubts) - 1} more" if len(run.doubts) > 1 else ""
    return f"Run {run.run} is not as it was written: {run.doubts[0]}{more} (see `tare verify`)."


def _no_lead(comparison: Comparison) -> str:
    if not comparison.summaries:
        return "Nothing was measured: no cell ended well."
    if comparison.baseline not in {summary.arm for summary in comparison.summaries}:
        return (
            f"No comparison: the baseline {legible(comparison.baseline)} has no values; each arm’s "
            "own values are below."
        )
    return "No comparison: only the baseline has values."


def _emulated_note(comparison: Comparison, emulated: frozenset[str]) -> str:
    arms = [legible(arm) for arm in comparison.arms if arm in emulated]
    if not arms:
        return ""
    return (
        f"{EMULATED.capitalize()} here: {joined(arms)}. They execute the guest’s instructions in "
        "software, so their figures show behaviour and relative instruction cost, not the speed "
        "of the hardware under a hypervisor."
    )


def _lost_words(runs: Sequence[RunData]) -> str:
    lost = sum(cell.status != "ok" for run in runs for cell in run.cells)
    text = "Nothing here entered any estimate."
    if lost:
        text = f"{counted(lost, 'cell')} did not count. {text}"
    return text


def _ends(runs: Sequence[RunData]) -> tuple[Lines, ...]:
    return tuple(
        Lines(
            legible(machine.machine),
            tuple(legible(line) for line in machine.console_tail) or ("(no console output)",),
            legible(machine.reason),
        )
        for run in runs
        for machine in run.machines
        if machine.expected is False
    )[:40]


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


def _aa_words(comparison: Comparison) -> str:
    """Return which arms are the same: of each host a pair."""
    pairs = dict.fromkeys((effect.baseline, effect.arm) for effect in comparison.aa)
    return legible("; ".join(map(joined, pairs)))


def _footer(runs: Sequence[RunData]) -> str:
    versions = sorted({str(run.versions.get("tare", "")) for run in runs} - {""})
    wall = sum(run.wall_s for run in runs)
    busy = sum(run.booting_s + run.measuring_s for run in runs)
    text = f"Made by Tare {joined(versions)}".strip() + " from the runs’ events alone."
    if wall > 0:
        text += (
            f" The measurement took {format_duration(wall)}, of which "
            f"{100 * min(1.0, busy / wall):.3g} % was booting and measuring."
        )
    return legible(text)
