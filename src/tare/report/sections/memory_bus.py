"""The section on caches and memory bus: counters, and the cost of neighbours that copy memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.analysis.topics.hardware import CellHardware, counted
from tare.analysis.topics.interference import NeighbourEffect, memory_bus
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, joined, marked, metric_name, percent, ratio
from tare.report.page.words import counted as plural
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.interference import slowdowns_table
from tare.units import format_quantity

CHECK = (
    "Neighbours that copy memory are compared with neighbours that calculate, on the same CPUs: "
    "both keep their CPUs busy, but only the former need caches and memory bus."
)
SLOWDOWNS = (
    "How many times worse each metric is with neighbours that copy memory than with neighbours "
    "that calculate"
)


@dataclass(frozen=True)
class MemoryBusData(SectionData):
    """The content of the section: sentences, counters, and the cost of neighbours."""

    lead: tuple[str, ...]
    counted: ShownTable | None
    slowdowns: ShownTable | None


class MemoryBus(Section):
    """Processors' counters of caches and memory, and the cost of neighbours that copy memory."""

    name, title, template = "bus", "What caches and memory bus took", "memory_bus.html.j2"

    def data(self, report: ReportData) -> MemoryBusData | None:
        """Return counters and costs; None without counters and without scenarios to compare."""
        rows = counted(report.runs)
        effects = memory_bus(report.runs, report.comparison.arms, report.comparison.confidence)
        if not rows and not effects:
            return None
        counters = counted_table(rows) if any(_is_counted(each) for each in rows) else None
        slowdowns = slowdowns_table(effects, "memory-bus", SLOWDOWNS) if effects else None
        lead = [*_not_counted(rows), *([f"{CHECK} {_worst(effects)}"] if effects else [])]
        return MemoryBusData(
            tuple(map(legible, lead)),
            counters.shown() if counters else None,
            slowdowns.shown(hide=["neighbours"]) if slowdowns else None,
            tables=tuple(table for table in (counters, slowdowns) if table is not None),
        )


def _is_counted(one: CellHardware) -> bool:
    found = (one.misses_per_s, one.miss_share, one.per_cycle, one.of_host, one.by_host, one.others)
    return any(value is not None for value in found)


def _not_counted(rows: Sequence[CellHardware]) -> list[str]:
    """Return a sentence for each reason why counters are missing, with the arms it applies to."""
    if not rows:
        return [
            "The processor’s counters were not asked for (`counters: true` of tick and "
            "memory-bandwidth), so accesses to memory are not counted here."
        ]
    inside = _lacking((one.missing, one.arm) for one in rows)
    outside = _lacking((one.host_missing, one.arm) for one in rows)
    by_host = _lacking((one.by_host_missing, one.arm) for one in rows)
    return [
        *(
            f"In {joined(arms)} the processor’s counters could not be read ({why}), so accesses to "
            "memory are not counted there."
            for why, arms in inside.items()
        ),
        *(
            f"The traffic of the host’s memory during {joined(arms)} is not counted: {why}."
            for why, arms in outside.items()
        ),
        *(
            f"The host’s processor counted nothing for the machines of {joined(arms)}: {why}."
            for why, arms in by_host.items()
        ),
    ]


def _lacking(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return by reason the arms it applies to, each once. Empty reasons are skipped."""
    found: dict[str, dict[str, None]] = {}
    for why, arm in reasons:
        if why:
            found.setdefault(why, {})[arm] = None
    return {why: list(arms) for why, arms in found.items()}


def _worst(effects: Sequence[NeighbourEffect]) -> str:
    sure = [effect for effect in effects if effect.decided and effect.slowdown > 1]
    if not sure:
        return f"No cost is shown in {plural(len(effects), 'comparison')}."
    worst = max(sure, key=lambda effect: effect.slowdown)
    return (
        f"It costs most in {marked(worst.arm, worst.emulated)}: {worst.key.workload} "
        f"({metric_name(worst.key.metric)}) in {worst.key.scenario} is {ratio(worst.slowdown)} of "
        f"its value in {worst.quiet}."
    )


def counted_table(rows: Sequence[CellHardware]) -> Table[CellHardware]:
    """Return the processors' counters, arm by arm."""

    def quantity(value: float | None, unit: str) -> str:
        return NONE if value is None else format_quantity(value, unit)

    columns: tuple[Column[CellHardware], ...] = (
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("emulated", lambda c: c.emulated),
        Column("scenario", lambda c: c.scenario, "Scenario"),
        Column("workload", lambda c: c.workload, "Workload"),
        Column("parameters", lambda c: c.parameters),
        Column(
            "misses_per_s",
            lambda c: c.misses_per_s,
            "Last-level misses",
            lambda c: quantity(c.misses_per_s, "1/s"),
            numeric=True,
        ),
        Column(
            "bandwidth",
            lambda c: c.bandwidth,
            "From memory",
            lambda c: quantity(c.bandwidth, "B/s"),
            numeric=True,
        ),
        Column(
            "miss_share",
            lambda c: c.miss_share,
            "Share of accesses",
            lambda c: NONE if c.miss_share is None else percent(c.miss_share),
            numeric=True,
        ),
        Column(
            "misses_by_host",
            lambda c: c.by_host,
            "Last-level misses, by the host",
            lambda c: quantity(c.by_host, "1/s"),
            numeric=True,
        ),
        Column(
            "neighbours_by_host",
            lambda c: c.others,
            "Those of its neighbours",
            lambda c: quantity(c.others, "1/s"),
            numeric=True,
        ),
        Column(
            "host_bandwidth",
            lambda c: c.of_host,
            "The host’s memory",
            lambda c: quantity(c.of_host, "B/s"),
            numeric=True,
        ),
        Column(
            "per_cycle",
            lambda c: c.per_cycle,
            "Instructions a cycle",
            lambda c: NONE if c.per_cycle is None else f"{c.per_cycle:.2f}",
            numeric=True,
        ),
        Column("cells", lambda c: c.cells, "Cells", numeric=True),
        Column("missing", lambda c: c.missing),
        Column("host_missing", lambda c: c.host_missing),
        Column("by_host_missing", lambda c: c.by_host_missing),
    )
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    caption = (
        "What the processor counted inside the machines, what it counted on the host for their "
        "vCPUs or processes, and what the host’s memory moved meanwhile for all that ran there, "
        "per second"
    )
    return Table("counters", caption, columns, tuple(rows), tone=tone)
