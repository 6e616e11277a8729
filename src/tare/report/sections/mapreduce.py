"""The section on Hadoop jobs: their phases, their limits, and the amounts they wrote."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.model import ArmSummary, Comparison, Effect
from tare.analysis.topics.job_phases import JobCell, Limit, PhaseUse, job_cells, phase_uses
from tare.references.scenarios import mapping
from tare.report.figures.axes import linear_ticks
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import ARMS, AXIS, RULE, SOFT, TEXT, TIE, Ink
from tare.report.page.data import ReportData
from tare.report.page.links import Links
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import (
    NONE,
    Names,
    Part,
    counted,
    first_names,
    joined,
    marked,
    ratio,
    short,
)
from tare.report.sections.contract import Section, SectionData
from tare.units import format_quantity, format_size

WIDE, NARROW = 720.0, 360.0
ROW, BAR, HEAD, FOOT = 26.0, 14.0, 44.0, 30.0
LABELS = 190.0
INKS = {"map": ARMS[0], "shuffle": ARMS[1], "sort": ARMS[2], "reduce": ARMS[3]}


@dataclass(frozen=True)
class PhaseBar:
    """The bar of one arm's job in one scenario.

    Args:
        name: The step with its parameters and scenario.
        arm: The arm.
        emulated: Whether the arm is emulated.
        seconds: The name and mean time of each phase over the blocks, in the phases' order.
        whole: The mean time of the whole step, in seconds.
        ends: The interval of ``whole``; None without one.
        to: The link target on the page.
    """

    name: str
    arm: str
    emulated: bool
    seconds: tuple[tuple[str, float], ...]
    whole: float
    ends: tuple[float, float] | None
    to: str = ""


def phases_figure(bars: Sequence[PhaseBar], *, name: str, title: str) -> Figure:
    """Return the bars as a figure. Time outside of all phases is the start and end of the job."""
    return Figure(
        name=name,
        title=title,
        description="; ".join(map(_describe_bar, bars)),
        spec=_drawn(bars, WIDE),
        narrow=_drawn(bars, NARROW),
        emulated=any(bar.emulated for bar in bars),
    )


def _describe_bar(bar: PhaseBar) -> str:
    phases = ", ".join(f"{phase} {_s(seconds)}" for phase, seconds in bar.seconds)
    return f"{bar.name}, {marked(bar.arm, bar.emulated)}: {phases} of {_s(bar.whole)}"


def _s(seconds: float) -> str:
    return format_quantity(seconds, "s")


def _drawn(bars: Sequence[PhaseBar], width: float) -> Spec:
    canvas = Canvas(width)
    has_margin = width > NARROW
    left = LABELS if has_margin else 8.0
    most = max((max(bar.whole, (bar.ends or (0, 0))[1]) for bar in bars), default=0.0) or 1.0
    scale = (width - left - 16.0) / most
    _legend(canvas, bars)
    top, before = HEAD, ""
    for bar in bars:
        if bar.name != before:
            canvas.text(0, top + 4, short(bar.name, 60 if has_margin else 44), size=11, bold=True)
            top, before = top + 18, bar.name
        label = marked(bar.arm, bar.emulated)
        if has_margin:
            canvas.text(left - 8, top + BAR / 2, short(label, 30), ink=SOFT, align="right", size=11)
        else:
            canvas.text(left, top + 2, short(label, 40), ink=SOFT, size=10)
            top += 12
        _draw_bar(canvas, bar, left, top, scale)
        canvas.area(0 if has_margin else left, top, width, top + BAR, bar.to)
        top += ROW
    _axis(canvas, left, top, most, scale)
    return canvas.spec(top + FOOT)


def _legend(canvas: Canvas, bars: Sequence[PhaseBar]) -> None:
    there = {phase for bar in bars for phase, seconds in bar.seconds if seconds > 0}
    x = 0.0
    inks: dict[str, Ink] = {phase: ink for phase, ink in INKS.items() if phase in there}
    for word, ink in {**inks, "start and end": TIE}.items():
        canvas.rect(x, 8, x + 12, 18, ink)
        canvas.text(x + 17, 13, word, size=11, ink=SOFT)
        x += 30 + 6.4 * len(word)


def _draw_bar(canvas: Canvas, bar: PhaseBar, left: float, top: float, scale: float) -> None:
    x = left
    inside = sum(seconds for _, seconds in bar.seconds)
    parts = [*bar.seconds, ("", max(0.0, bar.whole - inside))]
    for phase, seconds in parts:
        end = x + seconds * scale
        if end - x > 0.3:
            canvas.rect(x, top, end, top + BAR, INKS.get(phase, TIE))
        x = end
    if bar.ends is not None:
        low, high = (left + max(0.0, end) * scale for end in bar.ends)
        canvas.rule(low, top + BAR / 2, high, top + BAR / 2, TEXT, size=1.5)
        for place in (low, high):
            canvas.rule(place, top + 3, place, top + BAR - 3, TEXT, size=1.5)


def _axis(canvas: Canvas, left: float, top: float, most: float, scale: float) -> None:
    canvas.rule(left, top, left + most * scale, top, AXIS)
    for tick in linear_ticks(0.0, most, 5):
        x = left + tick * scale
        canvas.rule(x, top, x, top + 4, RULE)
        canvas.text(x, top + 12, _s(tick) if tick else "0 s", size=10, ink=SOFT, align="center")


CROSS_CHECKS = {"write": ("written", "write-throughput"), "read": ("read", "read-throughput")}
"""The names of a rate, by direction: Filebench's metric and TestDFSIO's."""
PHASES = ("map", "shuffle", "sort", "reduce")
NOTE = (
    "Mean over the blocks. A phase ends with the last task that is in it; what is in none is the "
    "start and the end of the job. The line is the interval of the whole time. li2013 has such "
    "bars for TeraSort in its figure 6(c)."
)
FEW_BLOCKS = 8
MOST_BARS = 40
MOST_NAMED = 6
"""The most scenarios or works that a finding names for one limit of one phase."""
Blocks = dict[int, Counter[Limit]]
"""The counts of limits over each block's cells."""
TOO_FEW = " (too few blocks agree to establish it)"


@dataclass(frozen=True)
class MapReduceData(SectionData):
    """The content of the section on jobs: the limit of each arm by phase, and all means."""

    lead: str
    uses: ShownTable | None


class MapReduce(Section):
    """Hadoop jobs: their phases, their limits, and the amounts they wrote."""

    name, title, template = "jobs", "Jobs of Hadoop, phase by phase", "mapreduce.html.j2"

    def data(self, report: ReportData) -> MapReduceData | None:
        """Return the jobs' phases; None if no cell was a job on a cluster."""
        cells = job_cells(report.runs)
        if not cells:
            return None
        uses = phase_uses(report.runs)
        table = uses_table(uses, cells)
        figures = phase_figures(report.comparison, report.links)
        return MapReduceData(
            _lead(uses, cells, report.comparison),
            table.shown() if uses else None,
            figures=tuple((figure, NOTE) for figure in figures),
            tables=(table,),
        )


def phase_figures(comparison: Comparison, links: Links | None = None) -> tuple[Figure, ...]:
    """Return one figure for each step that has phases and a time of its own.

    Args:
        comparison: The comparison.
        links: Finds the link target of a bar: the effect on the whole time.
    """
    names = Names(Part.of(summary.key) for summary in comparison.summaries)
    found: dict[tuple[str, str], dict[tuple[Part, str], dict[str, ArmSummary]]] = {}
    for summary in comparison.summaries:
        step, _, what = summary.key.metric.rpartition("-")
        if what in (*PHASES, "time") and step:
            place = found.setdefault((summary.key.workload, step), {})
            place.setdefault((Part.of(summary.key), summary.arm), {})[what] = summary
    figures: list[Figure] = []
    for (workload, step), members in found.items():
        bars = [
            _bar(names.name(part), arm, parts, links)
            for (part, arm), parts in members.items()
            if "time" in parts and any(phase in parts for phase in PHASES)
        ]
        if bars:
            bars.sort(key=lambda bar: bar.name)
            figures.append(
                phases_figure(
                    bars[:MOST_BARS],
                    name=f"phases-{len(figures) + 1}",
                    title=f"{workload}: {step}, phase by phase{_first_of(bars)}",
                )
            )
    return tuple(figures)


def _first_of(bars: Sequence[PhaseBar]) -> str:
    """Return a note that a figure shows only the first bars; empty if it shows all."""
    return f", the first {MOST_BARS} of {len(bars)} bars" if len(bars) > MOST_BARS else ""


def _bar(name: str, arm: str, parts: Mapping[str, ArmSummary], links: Links | None) -> PhaseBar:
    whole = parts["time"]
    ends = whole.interval
    return PhaseBar(
        name=name,
        arm=arm,
        emulated=whole.emulated,
        seconds=tuple((phase, parts[phase].mean) for phase in PHASES if phase in parts),
        whole=whole.mean,
        ends=None if ends is None else (ends.low, ends.high),
        to=links.effect(whole.key, arm) if links else "",
    )


def _lead(uses: Sequence[PhaseUse], cells: Sequence[JobCell], comparison: Comparison) -> str:
    parts = [finding(uses)] if uses else ["No counters were sampled, so nothing says what limits."]
    parts += [*_copies(cells), *_caches(cells), *cross_checks(comparison.effects)]
    if comparison.blocks < FEW_BLOCKS:
        parts.append(
            f"{counted(comparison.blocks, 'block')} are few: all this is preliminary."
            if comparison.blocks > 1
            else "One block is few: all this is preliminary."
        )
    return " ".join(part for part in parts if part)


def finding(uses: Sequence[PhaseUse]) -> str:
    """Return sentences on the resource that limits each arm in each phase in most of its blocks.

    A phase close to a limit is beyond it in half of all blocks. The words *is limited* therefore
    require more agreeing blocks than expected by chance (an exact sign test, one family for each
    arm).
    Otherwise the phase only *seems* to be limited.

    If the limit differs between scenarios or works, the sentences name these. For example, a phase
    may
    have another limit with one slave than with four.
    """
    cells: dict[tuple[str, bool, str, str], dict[tuple[str, str], Blocks]] = {}
    for use in uses:
        if use.limit:
            places = cells.setdefault((use.arm, use.emulated, use.step, use.phase), {})
            blocks = places.setdefault((_work(use), use.scenario), {})
            blocks.setdefault(use.block, Counter())[use.limit] += 1
    family = Counter({arm: 0 for arm, *_ in cells})
    for (arm, *_), places in cells.items():
        family[arm] += len(places)
    by_limit: dict[tuple[str, bool, bool], dict[str, list[str]]] = {}
    for (arm, emulated, step, phase), places in cells.items():
        votes = {
            place: Counter(_decided(counts) for counts in blocks.values())
            for place, blocks in places.items()
        }
        decided = {place: _decided(counts) for place, counts in votes.items()}
        shown = all(
            _established(votes[place][limit], votes[place].total(), family[arm])
            for place, limit in decided.items()
            if limit
        )
        for limit, where in _works_by_limit(decided).items():
            if limit:
                limits_of = by_limit.setdefault((arm, emulated, shown), {})
                limits_of.setdefault(limit, []).append(f"{step} {phase}{where}")
    sentences = []
    for (arm, emulated, shown), limits in by_limit.items():
        limited = [
            f"{joined(phases)} by {limit}"
            for limit, phases in limits.items()
            if limit != "nothing of these"
        ]
        others = limits.get("nothing of these", [])
        if limited:
            sentences.append(
                f"{marked(arm, emulated)} {'is' if shown else 'seems'} limited in "
                f"{'; '.join(limited)}{'' if shown else TOO_FEW}."
            )
        if others:
            sentences.append(
                f"Neither CPU nor disk {'limits' if shown else 'seems to limit'} "
                f"{marked(arm, emulated)} in {joined(others)}: it waits for something else"
                f"{'' if shown else TOO_FEW}."
            )
    return " ".join(sentences) or "No phase was long enough for its counters to say what limits it."


def _work(use: PhaseUse) -> str:
    engine = mapping(json.loads(use.parameters or "{}")).get("engine")
    return f"{use.workload} by {engine}" if engine else use.workload


def _established(agreeing: int, blocks: int, family: int) -> bool:
    """Return whether this many blocks agree by chance in at most 5 % of an arm's findings."""
    chance = sum(math.comb(blocks, n) for n in range(agreeing, blocks + 1)) / (1 << blocks)
    return chance <= LEVEL / family


def _decided(counts: Counter[Limit]) -> Limit:
    """Return the limit of most cells or blocks; empty unless more than half agree."""
    limit, most = counts.most_common(1)[0]
    return limit if 2 * most > counts.total() else ""


def _works_by_limit(decided: Mapping[tuple[str, str], Limit]) -> dict[Limit, str]:
    """Return by limit the scenarios or works that it applies to, in words; empty: all.

    Args:
        decided: The limit of a phase, by work and scenario.
    """
    if len(set(decided.values())) == 1:
        return dict.fromkeys(decided.values(), "")
    names: Sequence[str] = [f"{work} in {scenario}" for work, scenario in decided]
    # Use names of scenarios alone or of works alone if these identify the limit.
    for few in ([work for work, _ in decided], [scenario for _, scenario in decided]):
        if len(set(zip(few, decided.values(), strict=True))) == len(set(few)):
            names = few
    found: dict[Limit, list[str]] = {}
    for name, limit in zip(names, decided.values(), strict=True):
        known = found.setdefault(limit, [])
        if name not in known:
            known.append(name)
    return {limit: f" ({first_names(names, MOST_NAMED)})" for limit, names in found.items()}


def cross_checks(effects: Sequence[Effect]) -> list[str]:
    """Return a sentence for each arm on its disk rates without Hadoop and in TestDFSIO.

    If both lose alike, the cause is the path to the disk. If TestDFSIO loses more, the cause is
    Hadoop's own work or its network. This is the method of li2013, which compares Filebench with
    TestDFSIO.
    """
    found: dict[tuple[str, bool], dict[str, dict[str, list[Effect]]]] = {}
    for effect in effects:
        for way, (alone, within) in CROSS_CHECKS.items():
            side = {alone: "alone", within: "within"}.get(effect.key.metric)
            # Jobs use the same metric name for the amount they wrote, which is not a rate.
            if side is not None and effect.scale == "ratio" and effect.unit == "B/s":
                sides_of = found.setdefault((effect.arm, effect.emulated), {}).setdefault(way, {})
                sides_of.setdefault(side, []).append(effect)
    sentences = []
    for (arm, emulated), ways in found.items():
        for way, sides in ways.items():
            if {"alone", "within"} <= set(sides):
                own, job = (_middle(sides[side]) for side in ("alone", "within"))
                sentences.append(
                    f"{marked(arm, emulated)} {way}s at {ratio(own)} the baseline’s rate without "
                    f"Hadoop (Filebench, one machine alone), and at {ratio(job)} in TestDFSIO."
                )
    return sentences


def _middle(effects: Sequence[Effect]) -> float:
    return median(effect.estimate for effect in effects)


def _copies(cells: Sequence[JobCell]) -> list[str]:
    """Return a sentence for each work whose scenarios wrote different numbers of copies."""
    by_work: dict[tuple[str, str], dict[str, list[JobCell]]] = {}
    for cell in cells:
        work = by_work.setdefault((cell.workload, cell.parameters), {})
        work.setdefault(cell.scenario, []).append(cell)
    sentences = []
    for (workload, _), scenarios in by_work.items():
        copies = {name: members[0].copies for name, members in scenarios.items()}
        if len(set(copies.values())) > 1:
            amounts = [
                f"{'one copy' if copies[name] == 1 else f'{copies[name]} copies'} and "
                f"{format_size(fmean(cell.written_bytes for cell in members))} in {name}"
                for name, members in scenarios.items()
            ]
            sentences.append(
                f"{workload} did not write the same everywhere: {joined(amounts)}; "
                "times of these compare with that in mind only."
            )
    return sentences


def _caches(cells: Sequence[JobCell]) -> list[str]:
    """Return sentences on page caches dropped before measured steps, and on failures to do so."""
    cold = list(dict.fromkeys(f"{cell.workload} {step}" for cell in cells for step in cell.cold))
    warm = list(dict.fromkeys(f"{cell.workload} {step}" for cell in cells for step in cell.warm))
    sentences = []
    if cold:
        when = joined(cold) if warm else "each measured step"
        sentences.append(f"Page caches of the machines and their hosts were dropped before {when}.")
    if warm:
        steps = [f"{step} in some cells" if step in cold else step for step in warm]
        sentences.append(
            f"Page caches were kept before {joined(steps)}: data that is read there may "
            "come from memory."
        )
    by_arm: dict[str, dict[str, None]] = {}
    for cell in cells:
        by_arm.setdefault(cell.arm, {}).update(dict.fromkeys(cell.undropped))
    sentences += [
        f"On {arm} some could not be dropped: {'; '.join(reasons)}."
        for arm, reasons in by_arm.items()
        if reasons
    ]
    return sentences


def uses_table(uses: Sequence[PhaseUse], cells: Sequence[JobCell] = ()) -> Table[PhaseUse]:
    """Return every phase of every cell: its time, and the slaves' counters in it.

    Args:
        uses: The phases.
        cells: The amounts that each cell wrote, and its number of copies.
    """
    jobs = {cell.cell: cell for cell in cells}
    names = Names(Part(u.scenario, u.workload, u.parameters, SUBJECT) for u in uses)
    columns: tuple[Column[PhaseUse], ...] = (
        Column(
            "what",
            lambda u: names.name(Part(u.scenario, u.workload, u.parameters, SUBJECT)),
            "What",
        ),
        Column("workload", lambda u: u.workload),
        Column("parameters", lambda u: u.parameters),
        Column("scenario", lambda u: u.scenario),
        Column("arm", lambda u: u.arm, "Arm", lambda u: marked(u.arm, u.emulated)),
        Column("emulated", lambda u: u.emulated),
        Column("block", lambda u: u.block, "Block", numeric=True),
        Column(
            "copies",
            lambda u: jobs[u.cell].copies if u.cell in jobs else None,
            "Copies",
            numeric=True,
        ),
        Column(
            "written_bytes",
            lambda u: jobs[u.cell].written_bytes if u.cell in jobs else None,
            "Written",
            lambda u: format_size(jobs[u.cell].written_bytes) if u.cell in jobs else NONE,
            numeric=True,
        ),
        Column("phase", lambda u: f"{u.step} {u.phase}", "Phase"),
        Column(
            "seconds",
            lambda u: u.seconds,
            "Time",
            lambda u: format_quantity(u.seconds, "s"),
            numeric=True,
        ),
        Column("busy", lambda u: u.busy, "CPU used", lambda u: _share(u.busy), numeric=True),
        Column("steal", lambda u: u.steal, "Stolen", lambda u: _share(u.steal), numeric=True),
        Column(
            "iowait",
            lambda u: u.iowait,
            "Idle, waiting for I/O",
            lambda u: _share(u.iowait),
            numeric=True,
        ),
        Column("disk", lambda u: u.disk, "Disk busy", lambda u: _share(u.disk), numeric=True),
        Column("limit", lambda u: u.limit, "Limited by", lambda u: u.limit or NONE),
    )
    tone = lambda u: "emulated" if u.emulated else ""  # noqa: E731
    return Table("job-phases", "What slaves were busy with in each phase", columns, tuple(uses),
                 tone=tone)  # fmt: skip


def _share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f} %"
