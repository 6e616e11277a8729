"""The section on exits: reasons for exits to the hypervisor, and the time they add to work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.topics.exits import (
    OFF,
    POLLING,
    WAITING,
    ArmExits,
    Bucket,
    Decomposition,
    ReasonCost,
    arm_exits,
    decompositions,
)
from tare.report.figures.frame import Captioned
from tare.report.figures.svg import legible
from tare.report.figures.time_spent import BarPart, TimeBar, time_figures
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, joined, marked, metric_name, percent
from tare.report.sections.contract import Section, SectionData
from tare.units import format_number, format_quantity

MOST_COST = 0.02
HELPER_SHARE = 0.5
"""A thread is named if it waited for a CPU for this share of the vCPU's idle time or more."""
NOTE = (
    "The time of a vCPU from each exit until the guest ran again, by reason. A wait for the CPU "
    "that the host gave to another thread meanwhile is part of it."
)
ADDED = (
    "The time that an arm adds to one unit of work against the baseline, and what was measured of "
    "it. With several vCPUs it is the time in which these ran or were ready to run, of all of them "
    "together. Parts below 0 are in the table only."
)
UNEXPLAINED = "unexplained"
UNTIMED = (
    "In {} hypercalls and traps are part of what is unexplained: Xen does not record how long "
    "those of PV guests take."
)


@dataclass(frozen=True)
class ExitsData(SectionData):
    """The content of the section: sentences, exits by reason, and the parts of the added time."""

    lead: tuple[str, ...]
    reasons: ShownTable | None
    parts: ShownTable | None


@dataclass(frozen=True)
class _Row:
    exits: ArmExits
    cost: ReasonCost


@dataclass(frozen=True)
class _PartRow:
    whole: Decomposition
    part: Bucket


class ExitReasons(Section):
    """Exits by reason, per arm and workload, and the decomposition of each arm's added time."""

    name, title, template = "exits", "Why guests left for their hypervisor", "exits.html.j2"

    def data(self, report: ReportData) -> ExitsData | None:
        """Return the exits; None if no cell was observed."""
        found = arm_exits(report.runs)
        if not found:
            return None
        parts, refused = decompositions(report.runs, report.comparison.effects, found)
        rows = [_Row(each, cost) for each in found for cost in each.reasons]
        reasons = reasons_table(rows) if rows else None
        added = parts_table(parts) if parts else None
        untimed = [each.effect.arm for each in parts if each.untimed]
        if untimed:
            refused = (*refused, UNTIMED.format(joined(list(dict.fromkeys(untimed)))))
        lead = (*map(sentence_of, parts), *refused, *_caveats(found))
        return ExitsData(
            tuple(map(legible, lead)),
            reasons.shown() if reasons else None,
            added.shown() if added else None,
            figures=(*_exit_figures(found), *_added_figures(parts)),
            tables=tuple(table for table in (reasons, added) if table is not None),
        )


def sentence_of(found: Decomposition) -> str:
    """Return a sentence on the largest part of an arm's added time."""
    effect = found.effect
    where = f"{effect.key.workload} in {marked(effect.arm, effect.emulated)}"
    if found.added_s <= 0:
        if found.vcpus > 1:
            return f"{where}: a unit of work took no more time of the vCPUs than in the baseline."
        return f"{where}: a unit of work took no longer than in the baseline."
    time = f" of the {found.vcpus} vCPUs’ time" if found.vcpus > 1 else ""
    added = f"{format_quantity(found.added_s, 's')}{time} that {where} adds to a unit of work"
    if not found.decided:
        added += " (whether that differs from none is not decided)"
    rest = f"{percent(found.share(found.unexplained_s))} is unexplained"
    if not found.buckets or found.buckets[0].seconds <= 0:
        return f"Nothing was measured of the {added}: {rest}."
    most = found.buckets[0]
    found_most = f"{percent(found.share(most.seconds))} of the {added} is {most.name}; {rest}."
    return " ".join((found_most, *_waiting_helper(found)))


def _waiting_helper(found: Decomposition) -> tuple[str, ...]:
    """Return a sentence on a host thread that waited for a CPU in most of the vCPU's idle time."""
    idle = sum(each.seconds for each in found.buckets if each.name in (WAITING, POLLING, OFF))
    if not found.helpers or idle <= 0 or found.helpers[0].waited_s < HELPER_SHARE * idle:
        return ()
    helper = found.helpers[0]
    return (
        f"For {format_quantity(helper.waited_s, 's')} of each unit, the host’s thread "
        f"{helper.name}, which works for the machine, waited for a CPU.",
    )


def _caveats(found: Sequence[ArmExits]) -> list[str]:
    missing: dict[str, list[str]] = {}
    for each in found:
        if each.missing:
            missing.setdefault(each.missing, []).append(each.arm)
    lines = [
        f"In {joined(list(dict.fromkeys(arms)))} exits were not recorded by reason: {why}."
        for why, arms in missing.items()
    ]
    for each in found:
        where = f"{each.workload} in {marked(each.arm, each.emulated)}"
        if each.counters and each.missing:
            total = each.counters.get("exits", 0.0)
            lines.append(
                f"{where}: the kernel counted {format_number(total)} exits a second, without "
                "their time."
            )
        if each.dropped:
            lines.append(f"{where}: {each.dropped} exits found no room in the kernel's histogram.")
        if each.trace_cost is not None and each.trace_cost > MOST_COST:
            lines.append(
                f"{where}: recording took {percent(each.trace_cost)} of the vCPU's time, more than "
                f"{percent(MOST_COST)}."
            )
        if not each.missing and each.recorded < 0.99:
            lines.append(
                f"{where}: {percent(each.recorded)} of the time was recorded, because recording "
                "all of it would take too much."
            )
    costs = [each.trace_cost for each in found if each.trace_cost is not None]
    if costs:
        lines.append(
            f"Recording took at most {percent(max(costs))} of a vCPU's time, estimated from pairs "
            "of CPUID with and without it."
        )
    switches = [each.switch_s for each in found if each.switch_s is not None]
    if switches:
        lines.append(
            "The parts of exits above contain the switch to the host and back, which their mean "
            f"time does not: up to {format_quantity(max(0.0, *switches), 's')} each, measured with "
            "CPUID."
        )
    agreed = [each.agreement for each in found if each.agreement is not None]
    if agreed:
        worst = max(agreed, key=lambda share: abs(share - 1))
        lines.append(
            f"The sums differ from the kernel's own counters by at most {percent(abs(worst - 1))}."
        )
    return lines


def reasons_table(rows: Sequence[_Row]) -> Table[_Row]:
    """Return every reason of every arm and workload."""

    def number(value: float | None) -> str:
        return NONE if value is None else format_number(value)

    columns: tuple[Column[_Row], ...] = (
        Column(
            "arm", lambda r: r.exits.arm, "Arm", lambda r: marked(r.exits.arm, r.exits.emulated)
        ),
        Column("emulated", lambda r: r.exits.emulated),
        Column("scenario", lambda r: r.exits.scenario, "Scenario"),
        Column("workload", lambda r: r.exits.workload, "Workload"),
        Column("parameters", lambda r: r.exits.parameters),
        Column("reason", lambda r: r.cost.reason.name, "Reason"),
        Column(
            "per_s",
            lambda r: r.cost.per_s,
            "Exits per second of a vCPU",
            lambda r: number(r.cost.per_s),
            numeric=True,
        ),
        Column(
            "per_unit",
            lambda r: r.cost.per_unit,
            "Per unit of work",
            lambda r: number(r.cost.per_unit),
            numeric=True,
        ),
        Column("work", lambda r: r.exits.work),
        Column(
            "each_s",
            lambda r: r.cost.each_s,
            "Mean time",
            lambda r: NONE if r.cost.each_s is None else format_quantity(r.cost.each_s, "s"),
            numeric=True,
        ),
        Column(
            "share",
            lambda r: r.cost.share,
            "Share of the vCPU's time",
            lambda r: NONE if r.cost.each_s is None else percent(r.cost.share),
            numeric=True,
        ),
        Column("meaning", lambda r: r.cost.reason.sentence, "Meaning"),
        Column("vcpus", lambda r: r.exits.vcpus),
        Column("cells", lambda r: r.exits.cells),
        Column("recorded", lambda r: r.exits.recorded),
        Column("trace_cost", lambda r: r.exits.trace_cost),
        Column("agreement", lambda r: r.exits.agreement),
    )
    tone = lambda r: "emulated" if r.exits.emulated else ""  # noqa: E731
    return Table("exit-reasons", "Exits by reason, over all cells", columns, tuple(rows), tone=tone)


def parts_table(found: Sequence[Decomposition]) -> Table[_PartRow]:
    """Return every part of every arm's added time, including the unexplained rest."""
    rows = [
        _PartRow(each, part)
        for each in found
        for part in (*each.buckets, Bucket(UNEXPLAINED, each.unexplained_s))
    ]

    def share(row: _PartRow) -> float | None:
        return row.whole.share(row.part.seconds) if row.whole.added_s > 0 else None

    columns: tuple[Column[_PartRow], ...] = (
        Column(
            "arm",
            lambda r: r.whole.effect.arm,
            "Arm",
            lambda r: marked(r.whole.effect.arm, r.whole.effect.emulated),
        ),
        Column("emulated", lambda r: r.whole.effect.emulated),
        Column("baseline", lambda r: r.whole.effect.baseline),
        Column("scenario", lambda r: r.whole.effect.key.scenario, "Scenario"),
        Column("workload", lambda r: r.whole.effect.key.workload, "Workload"),
        Column("parameters", lambda r: r.whole.effect.key.parameters),
        Column(
            "metric",
            lambda r: r.whole.effect.key.metric,
            "Unit of work",
            lambda r: metric_name(r.whole.effect.key.metric),
        ),
        Column("part", lambda r: r.part.name, "Part"),
        Column(
            "seconds",
            lambda r: r.part.seconds,
            "Time per unit of work",
            lambda r: format_quantity(r.part.seconds, "s"),
            numeric=True,
        ),
        Column(
            "share",
            share,
            "Share of the added time",
            lambda r: NONE if (part := share(r)) is None else percent(part),
            numeric=True,
        ),
        Column(
            "host_threads_s",
            lambda r: r.whole.host_threads_s,
            "Other threads on the host, at the same time",
            lambda r: (
                NONE
                if r.whole.host_threads_s is None
                else format_quantity(r.whole.host_threads_s, "s")
            ),
            numeric=True,
        ),
        Column(
            "helpers_waited_s",
            lambda r: sum(each.waited_s for each in r.whole.helpers) if r.whole.helpers else None,
            "Their wait for a CPU",
            _waits,
            numeric=True,
        ),
        Column("added_s", lambda r: r.whole.added_s),
        Column("vcpus", lambda r: r.whole.vcpus),
        Column("decided", lambda r: r.whole.decided),
    )
    tone = lambda r: "emulated" if r.whole.effect.emulated else ""  # noqa: E731
    caption = "Where the time goes that each arm adds to a unit of work"
    return Table("added-time", caption, columns, tuple(rows), tone=tone)


def _waits(row: _PartRow) -> str:
    """Return how long the machine's other threads waited for a CPU, and the main one's name."""
    helpers = row.whole.helpers
    waited_s = sum(each.waited_s for each in helpers)
    if not waited_s:
        return NONE
    return f"{format_quantity(waited_s, 's')}, mostly {helpers[0].name}"


def _exit_figures(found: Sequence[ArmExits]) -> tuple[Captioned, ...]:
    timed = [each for each in found if any(cost.each_s is not None for cost in each.reasons)]
    bars = [[_exit_bar(each)] for each in timed]
    if not bars:
        return ()
    title = "Where the time of the vCPUs goes"
    return tuple((each, NOTE) for each in time_figures("exit-reasons", bars, title=title))


def _exit_bar(found: ArmExits) -> TimeBar:
    guest = max(0.0, 1 - found.host_share - found.idle_share)
    parts = [BarPart("guest", guest, label=f"{percent(guest)}: the guest's own code")]
    for each in found.reasons:
        if each.idle:
            continue
        name, mean = each.reason.name, format_quantity(each.each_s or 0.0, "s")
        label = f"{percent(each.share)}: {name}, {format_number(each.per_s)} a second of {mean}"
        parts.append(BarPart(name, each.share, label=label))
    idle = found.idle_share
    parts.append(BarPart("idle", idle, label=f"{percent(idle)}: the guest had nothing to do"))
    arm = marked(found.arm, found.emulated)
    return TimeBar(f"{arm}: {found.workload}, {found.scenario}", found.emulated, tuple(parts))


def _added_figures(found: Sequence[Decomposition]) -> tuple[Captioned, ...]:
    bars = [[_added_bar(each)] for each in found if each.added_s > 0]
    if not bars:
        return ()
    title = "Where the time goes that arms add"
    return tuple((each, ADDED) for each in time_figures("added-time", bars, title=title))


def _added_bar(found: Decomposition) -> TimeBar:
    effect = found.effect
    parts = (*found.buckets, Bucket(UNEXPLAINED, found.unexplained_s))
    above = [part for part in parts if part.seconds > 0]
    whole = max(found.added_s, sum(part.seconds for part in above))
    return TimeBar(
        f"{marked(effect.arm, effect.emulated)}: {effect.key.workload}, {effect.key.scenario}",
        effect.emulated,
        tuple(
            BarPart(
                "unowned" if part.name == UNEXPLAINED else part.name,
                part.seconds / whole,
                label=f"{percent(found.share(part.seconds))}, "
                f"{format_quantity(part.seconds, 's')}: {part.name}",
            )
            for part in above
        ),
    )
