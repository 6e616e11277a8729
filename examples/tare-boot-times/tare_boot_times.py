"""A section of Tare's report: how long the machines of each arm took to boot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tare.report.page.data import ReportData
from tare.report.page.tables import Column, Table
from tare.report.page.words import marked
from tare.report.sections.contract import Section, SectionData
from tare.units import format_duration


@dataclass(frozen=True)
class Boots:
    """The boots of one arm's machines."""

    arm: str
    emulated: bool
    seconds: Sequence[float]


class BootTimes(Section):
    """From the start of a machine until its agent answers."""

    name, title = "boot-times", "How long machines took to boot"

    def data(self, report: ReportData) -> SectionData | None:
        """Return the boot times of each arm; None if no machine booted."""
        found: dict[str, list[float]] = {}
        for run in report.runs:
            for machine in run.machines:
                if machine.boot_s is not None:
                    found.setdefault(machine.arm, []).append(machine.boot_s)
        rows = tuple(Boots(arm, arm in report.emulated, found[arm]) for arm in found)
        return SectionData(tables=(boots_table(rows),)) if rows else None


def boots_table(rows: Sequence[Boots]) -> Table[Boots]:
    """Return one row for each arm."""
    columns: tuple[Column[Boots], ...] = (
        Column("arm", lambda b: b.arm, "Arm", lambda b: marked(b.arm, b.emulated)),
        Column("boots", lambda b: len(b.seconds), "Boots", numeric=True),
        _duration("median_s", "Median", median),
        _duration("longest_s", "Longest", max),
    )
    caption = "From a machine's start until its agent answers"
    return Table("boot-times", caption, columns, tuple(rows))


def _duration(key: str, title: str, of: Callable[[Sequence[float]], float]) -> Column[Boots]:
    return Column(
        key,
        lambda boots: of(boots.seconds),
        title,
        lambda boots: format_duration(of(boots.seconds)),
        numeric=True,
    )
