"""The sections of a report: the protocol that each follows, and the one list of them.

A section keeps a topic together: its data, figures, tables and text. To add one, write its module
and its template, and add a line to `SECTIONS`. A package of its own names its section by an entry
point of the group ``tare.sections`` instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from tare.report.figures.frame import Captioned
from tare.report.page.data import (
    COUNTERS,
    HARDWARE,
    HOST_TRACE,
    HYPERVISOR,
    JOB,
    PROBES,
    PROXY,
    RESPONSES,
    ReportData,
)
from tare.report.page.tables import Table

if TYPE_CHECKING:
    from tare.report.figures.drawing import Drawn

GROUP = "tare.sections"
"""The group of entry points."""


class Answer(NamedTuple):
    """A section's answer at the top of the page, with the text of its link to the section."""

    text: str
    link: str


@dataclass(frozen=True, kw_only=True)
class SectionData:
    """The content of a section. Each section adds fields for its own template.

    Args:
        figures: The figures, each with the text below it. Their names must be unique in a report.
        tables: The tables. Each is written as CSV and LaTeX; the template chooses which to show.
        answer: One sentence for the top of the page.
    """

    figures: tuple[Captioned, ...] = ()
    tables: tuple[Table[Any], ...] = ()
    answer: Answer | None = None


class Section(Protocol):
    """One topic of the page.

    Attributes:
        name: The section's id in links.
        title: The heading.
        template: The Jinja template, which gets ``section``, a `ShownSection`. By default it shows
            all figures and tables.
        folder: The folder of the template. Default: the folder of Tare's own templates.
        open: Whether the section is open when the page is loaded.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    template: ClassVar[str] = "section.html.j2"
    folder: ClassVar[Path | None] = None
    open: ClassVar[bool] = False

    @abstractmethod
    def data(self, report: ReportData) -> SectionData | None:
        """Return the section's content; None if the runs have nothing to show."""


@dataclass(frozen=True)
class SectionEntry:
    """An entry of the list of sections.

    Args:
        where: The section's class, as ``module:class``.
        applies: Returns whether the section can apply to a report. Its module is loaded only then.
        package: The distribution that contains the section; empty for Tare's own.
    """

    where: str
    applies: Callable[[ReportData], bool] = lambda _: True
    package: str = ""

    def load(self) -> Section:
        """Return the section."""
        section: Section = EntryPoint(self.where, self.where, GROUP).load()()
        return section


def recorded(*names: str) -> Callable[[ReportData], bool]:
    """Return a check that the runs have any of these facts or series."""
    return lambda report: not report.recorded.isdisjoint(names)


def has_neighbours(report: ReportData) -> bool:
    """Return whether any machine had neighbours."""
    return report.has_neighbours


def has_matrices(report: ReportData) -> bool:
    """Return whether the study makes arms from matrices of settings."""
    return any(run.study.get("designs") for run in report.runs)


def has_noise(report: ReportData) -> bool:
    """Return whether any host's noise was measured."""
    return any(event.firmware or event.system for run in report.runs for event in run.noise)


SECTIONS = (
    SectionEntry("tare.report.sections.overview:Overview"),
    SectionEntry("tare.report.page.explorer:Explorer"),
    SectionEntry("tare.report.sections.workloads:Workloads"),
    SectionEntry("tare.report.sections.pairs:Pairs"),
    SectionEntry("tare.report.sections.over_sessions:BySession"),
    SectionEntry("tare.report.sections.over_hosts:ByHost"),
    SectionEntry("tare.report.sections.tuning:TuningSection", has_matrices),
    SectionEntry("tare.report.sections.interference:Interference", has_neighbours),
    SectionEntry("tare.report.sections.machine_losses:MachineLosses", has_neighbours),
    SectionEntry(
        "tare.report.sections.memory_bus:MemoryBus",
        lambda report: report.has_neighbours or HARDWARE in report.recorded,
    ),
    SectionEntry("tare.report.sections.load_balancer:LoadBalancer", recorded(PROXY)),
    SectionEntry("tare.report.sections.response_times:ResponseTimes", recorded(RESPONSES)),
    SectionEntry("tare.report.sections.mapreduce:MapReduce", recorded(JOB)),
    SectionEntry("tare.report.sections.spikes:Spikes", recorded(HOST_TRACE)),
    SectionEntry("tare.report.sections.noise:NoiseSection", has_noise),
    SectionEntry("tare.report.sections.exits:ExitReasons", recorded(PROBES)),
    SectionEntry("tare.report.sections.energy:Energy", recorded(PROBES)),
    SectionEntry("tare.report.sections.monitoring:Monitoring", recorded(COUNTERS)),
    SectionEntry("tare.report.sections.hypervisors:Hypervisors", recorded(HYPERVISOR)),
    SectionEntry("tare.report.sources.section:Sources", lambda report: bool(report.references)),
    SectionEntry("tare.report.sections.uncounted:Uncounted"),
    SectionEntry("tare.report.sections.provenance:Provenance"),
    SectionEntry("tare.report.sections.environment:Environment"),
    SectionEntry("tare.report.sections.method:Method"),
    SectionEntry("tare.report.sections.reproduction:Reproduction"),
)
"""All of Tare's own sections, in the order of the page."""

PLUGINS_BEFORE = "tare.report.sections.uncounted:Uncounted"
"""Sections of other packages come before this one."""


@dataclass(frozen=True)
class ShownSection:
    """A section as its template gets it.

    Args:
        section: The section.
        data: The section's content.
        drawn: The drawn figures, by name.
    """

    section: Section
    data: SectionData
    drawn: Mapping[str, Drawn]

    @property
    def name(self) -> str:
        """The section's id in links."""
        return self.section.name

    @property
    def title(self) -> str:
        """The section's heading."""
        return self.section.title

    @property
    def template(self) -> str:
        """The section's template."""
        return self.section.template

    @property
    def open(self) -> bool:
        """Whether the section is open when the page is loaded."""
        return self.section.open

    @property
    def figures(self) -> tuple[tuple[Drawn, str], ...]:
        """The section's drawn figures, each with the text below it."""
        return tuple((self.drawn[figure.name], note) for figure, note in self.data.figures)


def entries() -> tuple[SectionEntry, ...]:
    """Return all sections in the order of the page, Tare's own and those of other packages."""
    own = [entry.where for entry in SECTIONS]
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    others = [
        SectionEntry(point.value, package=point.dist.name if point.dist else "an unknown package")
        for point in found
    ]
    at = own.index(PLUGINS_BEFORE)
    return (*SECTIONS[:at], *others, *SECTIONS[at:])


def make_sections(
    report: ReportData,
) -> tuple[list[tuple[Section, SectionData]], list[str]]:
    """Return the sections that apply, with their content, and the reasons for left-out plug-ins.

    Args:
        report: The data of the report.
    """
    made: list[tuple[Section, SectionData]] = []
    problems: list[str] = []
    for entry in entries():
        if not entry.applies(report):
            continue
        try:
            section = entry.load()
            data = section.data(report)
        except (Exception, SystemExit) as error:
            if not entry.package:
                raise
            problems.append(
                f"The section {entry.where} of {entry.package} is left out: "
                f"{type(error).__name__}: {error}."
            )
            continue
        if data is not None:
            made.append((section, data))
    return made, problems
