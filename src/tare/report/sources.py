"""The section on sources that the run is compared with; loaded only if there are any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tare.references.arms import Like, alike
from tare.references.pairing import SideBySide, set_beside
from tare.references.published import Reference
from tare.references.stated import Stated, stated
from tare.report.data import ReportData
from tare.report.glance import Glance, arms_table, glance_table
from tare.report.paper import PaperDraft, RunFindings, paper_drafts, paper_items
from tare.report.published import published_values
from tare.report.reference_section import ReferenceSection, reference_section
from tare.report.sections import Section, SectionData
from tare.report.stated import stated_table
from tare.report.tables import Table


@dataclass(frozen=True)
class SourcesData(SectionData):
    """What the page shows of each source."""

    sources: tuple[ReferenceSection, ...]


class Sources(Section):
    """Published values next to the run's own, source by source."""

    name, title, template = "published", "Beside published values", "sources.html.j2"

    def data(self, report: ReportData) -> SourcesData:
        """Return each source's tables and figures with what the runs have for them."""
        findings = RunFindings(
            report.comparison,
            report.looks,
            report.series,
            report.phases,
            report.monitors,
            report.leads,
            report.proxied,
        )
        each = [_Source.of(reference, findings) for reference in report.references]
        return SourcesData(
            tuple(one.section() for one in each),
            figures=tuple(
                (draft.figure, draft.note) for one in each for draft in one.drafts if draft.figure
            ),
            tables=tuple(table for one in each for table in one.tables()),
        )


@dataclass(frozen=True)
class _Source:
    """One source, paired with the run."""

    side: SideBySide
    facts: Table[Stated] | None
    drafts: Sequence[PaperDraft]
    glance: Table[Glance] | None
    arms: Table[Like]

    @staticmethod
    def of(reference: Reference, findings: RunFindings) -> _Source:
        comparison = findings.comparison
        side, facts = set_beside(comparison, reference), stated(comparison, reference)
        likes = alike(comparison, reference)
        drafts = paper_drafts(side, findings, facts)
        return _Source(
            side,
            stated_table(side.reference, facts) if facts else None,
            drafts,
            glance_table(side, drafts, likes) if drafts else None,
            arms_table(side.reference.reference, likes),
        )

    def tables(self) -> Iterator[Table[Any]]:
        """Yield the tables that are written."""
        yield published_values(self.side)
        yield from (draft.whole for draft in self.drafts if draft.whole is not None)
        if self.facts is not None:
            yield self.facts
        if self.glance is not None:
            yield self.glance
            yield self.arms

    def section(self) -> ReferenceSection:
        """Return what the page says of it."""
        return reference_section(
            self.side,
            paper_items(self.side, self.drafts),
            facts=self.facts,
            arms=self.arms,
            glance=self.glance,
        )
