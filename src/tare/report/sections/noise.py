"""The section on noise: the time that firmware and other causes took from the hosts' CPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tare.analysis.model import CpuNoise, NoiseMeasured
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, Table
from tare.report.page.words import marked
from tare.report.sections.contract import Section, SectionData
from tare.units import format_duration, format_percent

_FIRMWARE, _SYSTEM = "firmware", "everything"


@dataclass(frozen=True)
class NoiseRow:
    """One CPU of a host in one of the two measurements of noise."""

    event: NoiseMeasured
    measured: str
    found: CpuNoise

    @property
    def tone(self) -> str:
        """``emulated`` for an emulated host; ``bad`` if firmware took too long for the study."""
        if self.event.emulated:
            return "emulated"
        too_long = self.found.longest_s > self.event.limit_s
        return "bad" if too_long and self.measured == _FIRMWARE else ""


class NoiseSection(Section):
    """Noise of the hosts, measured before the first block of a real-time study."""

    name, title = "noise", "What firmware took from the hosts"

    def data(self, report: ReportData) -> SectionData | None:
        """Return the noise by CPU; None if it was not measured."""
        rows = [
            NoiseRow(event, measured, found)
            for run in report.runs
            for event in run.noise
            for measured, cpus in ((_FIRMWARE, event.firmware), (_SYSTEM, event.system))
            for found in cpus
        ]
        return SectionData(tables=(noise_table(rows),)) if rows else None


def noise_table(rows: Sequence[NoiseRow]) -> Table[NoiseRow]:
    """Return one row for each host, measurement and CPU."""
    limits = sorted({format_duration(row.event.limit_s) for row in rows})
    least = any(row.event.by == "hwlat" for row in rows)
    below = any(row.event.virtual for row in rows)
    caption = (
        "Time taken from each CPU before the first block: by firmware alone, with interrupts off, "
        "and by everything but the measuring thread. "
        f"Firmware may take {', '.join(limits)} at once"
    )
    if below:
        caption += "; on a virtual host, its figures include the hypervisor below"
    if least:
        caption += "; the tracer hwlat shows a lower bound of firmware's time"
    columns: tuple[Column[NoiseRow], ...] = (
        Column("host", lambda r: r.event.host),
        Column(
            "cpu",
            lambda r: r.found.cpu,
            "CPU",
            lambda r: marked(f"{r.event.host} {r.found.cpu}".strip(), r.event.emulated),
        ),
        Column("measured", lambda r: r.measured, "Taken by"),
        Column("by", lambda r: r.event.by if r.measured == _FIRMWARE else "osnoise"),
        Column("emulated", lambda r: r.event.emulated),
        _duration("watched_s", "Watched", lambda r: r.found.watched_s),
        _duration("taken_s", "Time taken", lambda r: r.found.taken_s),
        Column("share", lambda r: r.found.share, "Share", lambda r: format_percent(r.found.share)),
        _duration("longest_s", "Longest", lambda r: r.found.longest_s),
        _count("hardware", "Without a known cause", lambda r: r.found.hardware),
        _count("nmis", "NMIs", lambda r: r.found.nmis),
        _count("irqs", "Interrupts", lambda r: r.found.irqs),
        _count("softirqs", "Softirqs", lambda r: r.found.softirqs),
        _count("threads", "Threads", lambda r: r.found.threads),
    )
    return Table("noise", caption, columns, tuple(rows), tone=lambda r: r.tone)


def _duration(key: str, title: str, of: Callable[[NoiseRow], float]) -> Column[NoiseRow]:
    return Column(key, of, title, lambda row: format_duration(of(row)), numeric=True)


def _count(key: str, title: str, of: Callable[[NoiseRow], int]) -> Column[NoiseRow]:
    return Column(key, of, title, numeric=True)
