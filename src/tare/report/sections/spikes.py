"""The section on causes of the gaps: tables of causes, and the worst gaps as timelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.data.rundata import RunData
from tare.analysis.topics.host_track import Cause
from tare.analysis.topics.recording_cost import RecordingCost, recording_costs
from tare.analysis.topics.spike_cells import (
    LONG_NS,
    SpikeCell,
    causes,
    explained,
    spike_cells,
    summed,
)
from tare.analysis.topics.stacks import SAME_KERNEL, Holder, merged
from tare.report.figures.spikes import timeline_figure, worst_spikes
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import (
    NONE,
    counted,
    marked,
    metric_name,
    percent,
    ratio,
    ratio_interval,
)
from tare.report.sections.contract import Section, SectionData
from tare.units import format_duration, format_quantity

FIGURE = "spikes-timeline"
MOST_STACKS, FRAMES_SHOWN = 8, 4
"""The most rows of stacks on the page for each group of cells, and the most functions of each.

The table's files have all.
"""
LEAST_SHOWN = 0.01
"""Causes of less than this share of the lost time are only in the table's files."""
NOTE = (
    "Above, each time: the sample that took too long, as the machine saw it; below: what its host "
    "thread did, as the host recorded it."
)


@dataclass(frozen=True)
class Group:
    """The recorded cells of one arm, scenario and workload, over all blocks."""

    arm: str
    emulated: bool
    scenario: str
    workload: str
    parameters: str
    cells: tuple[SpikeCell, ...]


@dataclass(frozen=True)
class CauseLine:
    """The time that one cause took from one group."""

    group: Group
    cause: Cause
    count: int
    total_s: float
    longest_s: float
    share: float | None


@dataclass(frozen=True)
class HolderLine:
    """A thread and kernel stack seen on the CPU in the gaps of one group."""

    group: Group
    holder: Holder


@dataclass(frozen=True)
class SpikesData(SectionData):
    """The content of the section on causes.

    Args:
        lead: The share of the gaps' time that has a cause, in one sentence.
        explained: The explained shares of each arm and scenario.
        causes: The time that each cause took.
        notes: Warnings: parts that were not recorded or were lost, and the reasons.
        cost: The cost of recording to the subject; None if the run does not show it.
        stacks: The kernel stacks seen in the gaps; None if none were recorded.
    """

    lead: str
    explained: ShownTable | None
    causes: ShownTable | None
    notes: tuple[str, ...]
    cost: ShownTable | None
    stacks: ShownTable | None


class Spikes(Section):
    """Causes of the gaps: tables of causes, and the worst gaps as timelines."""

    name, title, template = "causes", "What caused the gaps", "spikes.html.j2"

    def data(self, report: ReportData) -> SpikesData | None:
        """Return the causes of all gaps; None if the study did not record the host's side."""
        cells = tuple(map(summed, spike_cells(report.runs)))
        if not cells:
            return None
        costs = recording_costs(report.runs, report.comparison)
        groups = _groups([cell for cell in cells if cell.matched is not None], report.runs)
        whole, parts = explained_table(groups), causes_table(groups)
        worst = worst_spikes([cell for group in groups for cell in group.cells])
        shown = [row for row in parts.rows if _counts(row)]
        cost = recording_cost_table(costs)
        held = stacks_table(groups)
        figures = [timeline_figure(worst, name=FIGURE, links=report.links)] if worst else []
        return SpikesData(
            lead=_lead(cells),
            explained=whole.shown() if groups else None,
            causes=parts.shown(rows=shown) if shown else None,
            notes=(*_notes(cells), *([] if costs or not groups else [UNKNOWN])),
            cost=cost.shown() if costs else None,
            stacks=held.shown(rows=_first_of_each(held.rows)) if held.rows else None,
            figures=tuple((figure, NOTE) for figure in figures),
            tables=(
                *((whole, parts) if groups else ()),
                *((cost,) if costs else ()),
                *((held,) if held.rows else ()),
            ),
        )


def _counts(line: CauseLine) -> bool:
    return line.share is not None and line.share >= LEAST_SHOWN


def _groups(cells: Sequence[SpikeCell], runs: Sequence[RunData] = ()) -> tuple[Group, ...]:
    """Return the cells by arm, scenario and workload, in the order of the runs' studies."""
    found: dict[tuple[str, bool, str, str, str], list[SpikeCell]] = {}
    for cell in cells:
        key = (cell.arm, cell.emulated, cell.scenario, cell.workload, cell.parameters)
        found.setdefault(key, []).append(cell)
    arms = list(dict.fromkeys(arm for run in runs for arm in run.arms))
    scenarios = list(dict.fromkeys(name for run in runs for name in run.study.get("scenarios", ())))

    def place(key: tuple[str, bool, str, str, str]) -> tuple[int, str, str, str, int]:
        arm, _, scenario, *rest = key
        workload, parameters = rest
        return _place(scenarios, scenario), scenario, workload, parameters, _place(arms, arm)

    return tuple(Group(*key, tuple(found[key])) for key in sorted(found, key=place))


def _place(known: Sequence[str], name: str) -> int:
    return known.index(name) if name in known else len(known)


def _lead(cells: Sequence[SpikeCell]) -> str:
    read = [cell for cell in cells if cell.matched is not None]
    whole = explained(read)
    if not read:
        return "The host’s side could not be recorded, so gaps have no causes here."
    if whole.share_of_gaps is None or whole.share_of_time is None:
        return f"No gap was seen in {counted(len(read), 'recorded cell')}."
    text = (
        f"In {counted(len(read), 'recorded cell')} the machines saw {counted(whole.gaps, 'gap')}, "
        f"which took {format_duration(whole.lost_ns / 1e9)} in all. What the host did explains "
        f"{whole.share_of_time:.1%} of that time"
    )
    if whole.share_of_long is None:
        return f"{text}; all gaps were shorter than {format_duration(LONG_NS / 1e9)}."
    least = f"{counted(whole.long, 'gap')} of {format_duration(LONG_NS / 1e9)} and more"
    return f"{text}, and {whole.share_of_long:.1%} of the {least}."


def _notes(cells: Sequence[SpikeCell]) -> tuple[str, ...]:
    notes: dict[str, int] = {}
    for cell in cells:
        if cell.matched is None:
            text = f"not recorded: {cell.reason}"
            notes[text] = notes.get(text, 0) + 1
    sentences = [f"{counted(count, 'cell')} {text}." for text, count in notes.items()]
    lost = sum(cell.lost_events for cell in cells)
    if lost:
        sentences.append(f"The recorder lost {counted(lost, 'event')}: some causes may be missing.")
    left = sum(cell.not_logged for cell in cells)
    if left:
        sentences.append(f"{counted(left, 'gap')} did not fit into the machines’ logs.")
    unknown = sum(cell.matched is not None and cell.steal_s is None for cell in cells)
    if unknown:
        sentences.append(
            f"In {counted(unknown, 'cell')} it is not known whether a hypervisor below the host "
            "took time; time that it took there counts as unexplained."
        )
    stolen = sum(cell.steal_s or 0.0 for cell in cells)
    if stolen > 0:
        sentences.append(
            f"A hypervisor below this host took {format_duration(stolen)} from the watched CPUs "
            "meanwhile. When, the host cannot see: the longest of what it shows nothing for is "
            "called the host’s own steal, up to as much as was counted in that cell."
        )
    return (*sentences, *_notes_of_stacks(cells))


def _notes_of_stacks(cells: Sequence[SpikeCell]) -> list[str]:
    recorded = [cell.stacks for cell in cells if cell.stacks is not None]
    reasons = {
        f"No kernel stacks of the {side}: {why}."
        for stacks in recorded
        for side, why in (stacks.missing or {}).items()
        if why != SAME_KERNEL
    }
    sentences = sorted(reasons)
    if lost := sum(stacks.lost for stacks in recorded):
        sentences.append(f"{counted(lost, 'kernel stack')} found no room in the tracers’ buffers.")
    costs = [stacks.trace_cost for stacks in recorded if stacks.trace_cost is not None]
    if costs:
        sentences.append(
            f"Recording kernel stacks took at most {percent(max(costs))} of the watched CPUs’ time "
            "on the host: their number times the cost of one, which was measured there."
        )
    return sentences


def explained_table(groups: Sequence[Group]) -> Table[Group]:
    """Return the share of each arm's lost time that has a cause, and the clocks' precision."""
    columns: tuple[Column[Group], ...] = (
        Column("scenario", lambda g: g.scenario, "Scenario"),
        Column("arm", lambda g: g.arm, "Arm", lambda g: marked(g.arm, g.emulated)),
        Column("emulated", lambda g: g.emulated),
        Column("workload", lambda g: g.workload, "Workload"),
        Column("parameters", lambda g: g.parameters),
        Column("blocks", lambda g: len(g.cells), "Cells", numeric=True),
        Column("gaps", lambda g: explained(g.cells).gaps, "Gaps", numeric=True),
        Column(
            "lost_s",
            lambda g: explained(g.cells).lost_ns / 1e9,
            "Time lost",
            lambda g: format_duration(explained(g.cells).lost_ns / 1e9),
            numeric=True,
        ),
        Column("share_of_gaps", lambda g: explained(g.cells).share_of_gaps),
        Column(
            "long_gaps",
            lambda g: explained(g.cells).long,
            f"From {format_duration(LONG_NS / 1e9)}",
            numeric=True,
        ),
        Column(
            "share_of_long_gaps",
            lambda g: explained(g.cells).share_of_long,
            "Explained",
            lambda g: _share(explained(g.cells).share_of_long),
            numeric=True,
        ),
        Column(
            "share_of_time",
            lambda g: explained(g.cells).share_of_time,
            "Time explained",
            lambda g: _share(explained(g.cells).share_of_time),
            numeric=True,
        ),
        Column(
            "clock_error_s",
            lambda g: max(cell.clock_error_ns for cell in g.cells) / 1e9,
            "Clock error",
            lambda g: format_duration(max(_error(cell) for cell in g.cells) / 1e9),
            numeric=True,
        ),
        Column("aligned_error_s", lambda g: max(_error(cell) for cell in g.cells) / 1e9),
        Column("lost_events", lambda g: sum(cell.lost_events for cell in g.cells)),
    )
    caption = "How much of the time that gaps took has a cause"
    tone = lambda g: "emulated" if g.emulated else ""  # noqa: E731
    return Table("spikes-explained", caption, columns, tuple(groups), tone=tone)


def causes_table(groups: Sequence[Group]) -> Table[CauseLine]:
    """Return the time that each cause took from each arm."""
    rows = tuple(line for group in groups for line in _lines(group))
    columns: tuple[Column[CauseLine], ...] = (
        Column("scenario", lambda c: c.group.scenario, "Scenario"),
        Column(
            "arm", lambda c: c.group.arm, "Arm", lambda c: marked(c.group.arm, c.group.emulated)
        ),
        Column("emulated", lambda c: c.group.emulated),
        Column("workload", lambda c: c.group.workload, "Workload"),
        Column("parameters", lambda c: c.group.parameters),
        Column("kind", lambda c: c.cause.kind),
        Column("who", lambda c: c.cause.who),
        Column("cause", lambda c: str(c.cause), "Cause"),
        Column("count", lambda c: c.count, "Gaps", numeric=True),
        Column(
            "total_s", lambda c: c.total_s, "Time taken", lambda c: format_duration(c.total_s), True
        ),
        Column(
            "share", lambda c: c.share, "Share of the time lost", lambda c: _share(c.share), True
        ),
        Column(
            "longest_s",
            lambda c: c.longest_s,
            "Longest",
            lambda c: format_duration(c.longest_s),
            True,
        ),
    )
    caption = "What took the time: each gap counts for the cause that took most of it"
    tone = lambda c: "emulated" if c.group.emulated else ""  # noqa: E731
    return Table("spikes-causes", caption, columns, rows, tone=tone)


def _lines(group: Group) -> list[CauseLine]:
    lost = explained(group.cells).lost_ns
    return [
        CauseLine(
            group,
            row.cause,
            row.count,
            row.total_ns / 1e9,
            row.longest_ns / 1e9,
            row.total_ns / lost if lost else None,
        )
        for row in causes(group.cells)
    ]


def _error(cell: SpikeCell) -> int:
    return cell.matched.error_ns if cell.matched else cell.clock_error_ns


def _share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def _first_of_each(lines: Sequence[HolderLine]) -> list[HolderLine]:
    shown: dict[int, int] = {}
    chosen = []
    for line in lines:
        shown[id(line.group)] = shown.get(id(line.group), 0) + 1
        if shown[id(line.group)] <= MOST_STACKS:
            chosen.append(line)
    return chosen


def stacks_table(groups: Sequence[Group]) -> Table[HolderLine]:
    """Return the kernel stacks seen in the gaps, that of the longest gap first."""
    lines = [
        HolderLine(group, holder)
        for group in groups
        for holder in merged(cell.stacks for cell in group.cells if cell.stacks is not None)
    ]
    columns: tuple[Column[HolderLine], ...] = (
        Column("scenario", lambda h: h.group.scenario, "Scenario"),
        Column(
            "arm", lambda h: h.group.arm, "Arm", lambda h: marked(h.group.arm, h.group.emulated)
        ),
        Column("emulated", lambda h: h.group.emulated),
        Column("workload", lambda h: h.group.workload),
        Column("parameters", lambda h: h.group.parameters),
        Column("side", lambda h: h.holder.side, "Kernel"),
        Column("comm", lambda h: h.holder.comm, "Thread"),
        Column("what", lambda h: h.holder.what, "Event"),
        Column(
            "stack",
            lambda h: " < ".join(h.holder.frames),
            "In the kernel",
            lambda h: " < ".join(h.holder.frames[:FRAMES_SHOWN]) or "not in the kernel",
        ),
        Column("gaps", lambda h: h.holder.gaps, "Gaps", numeric=True),
        Column("seen", lambda h: h.holder.seen, "Seen", numeric=True),
        Column(
            "longest_s",
            lambda h: h.holder.longest_ns / 1e9,
            "Longest gap",
            lambda h: format_duration(h.holder.longest_ns / 1e9),
            True,
        ),
        Column("cause", lambda h: str(h.holder.cause), "Cause of that gap"),
    )
    caption = (
        f"What was on the CPU in gaps of {format_duration(LONG_NS / 1e9)} and more, by kernel "
        "stacks, the innermost function first"
    )
    tone = lambda h: "emulated" if h.group.emulated else ""  # noqa: E731
    return Table("spikes-stacks", caption, columns, tuple(lines), tone=tone)


UNKNOWN = (
    "This run does not show what recording itself cost the subject: no arm like a recorded one "
    "was left unrecorded (`host-trace: false`). `python -m benchmarks trace_cost` measures it."
)


def recording_cost_table(costs: Sequence[RecordingCost]) -> Table[RecordingCost]:
    """Return one row for each pair of arms, scenario and metric."""
    columns: tuple[Column[RecordingCost], ...] = (
        Column("scenario", lambda c: c.key.scenario, "Scenario"),
        Column("arm", lambda c: c.recorded, "Arm", lambda c: marked(c.recorded, c.emulated)),
        Column("without", lambda c: c.without, "Not recorded", lambda c: legible(c.without)),
        Column("emulated", lambda c: c.emulated),
        Column("workload", lambda c: c.key.workload, "Workload"),
        Column("parameters", lambda c: c.key.parameters),
        Column("metric", lambda c: c.key.metric, "Metric", lambda c: metric_name(c.key.metric)),
        Column("blocks", lambda c: c.blocks),
        Column("with_value", lambda c: c.with_it, "With", lambda c: _value(c.with_it), True),
        Column(
            "without_value", lambda c: c.without_it, "Without", lambda c: _value(c.without_it), True
        ),
        Column("ratio", lambda c: c.ratio, "With ÷ without", lambda c: ratio(c.ratio), True),
        Column(
            "low", lambda c: c.interval.low if c.interval else None, "Interval", _interval, True
        ),
        Column("high", lambda c: c.interval.high if c.interval else None),
        Column(
            "noise_floor",
            lambda c: c.noise_floor,
            "A/A pair within",
            lambda c: NONE if c.noise_floor is None else percent(c.noise_floor),
            True,
        ),
    )
    caption = "What recording the host’s side cost the subject: the same arm with and without"
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    return Table("recording-cost", caption, columns, tuple(costs), tone=tone)


def _interval(cost: RecordingCost) -> str:
    ends = cost.interval
    return ratio_interval(None if ends is None else (ends.low, ends.high))


def _value(value: float) -> str:
    return format_quantity(value, "1", digits=4)
