"""The sources that a run is set beside; loaded only where there are any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.analysis.model import Comparison
from tare.outputs import put
from tare.references.arms import Like, alike
from tare.references.pairing import SideBySide, set_beside
from tare.references.published import Reference
from tare.references.stated import Stated, stated
from tare.report.drawing import Drawn
from tare.report.figures.frame import Figure
from tare.report.glance import arms_table, glance_table
from tare.report.paper import PaperDraft, RunFindings, figures_of, paper_drafts, paper_items
from tare.report.published import write_published
from tare.report.reference_section import ReferenceSection, reference_section
from tare.report.stated import stated_table
from tare.report.tables import Table


class Sources:
    """Sources set beside a run.

    Args:
        comparison: The run's values.
        references: The sources.
        findings: What else of the run they can be filled from.
    """

    def __init__(
        self, comparison: Comparison, references: Sequence[Reference], findings: RunFindings
    ) -> None:
        self._sides = [set_beside(comparison, reference) for reference in references]
        self._told = [stated(comparison, reference) for reference in references]
        self._likes = [alike(comparison, reference) for reference in references]
        self._papers = [
            paper_drafts(side, findings, told)
            for side, told in zip(self._sides, self._told, strict=True)
        ]

    def figures(self) -> Iterator[Figure]:
        """Yield the figures that are theirs alone."""
        for paper in self._papers:
            yield from figures_of(paper)

    def write(self, folder: Path) -> list[str]:
        """Write their tables into ``folder`` and return the names of the files."""
        files = [name for side in self._sides for name in write_published(side, folder)]
        for table in self._tables():
            put(folder / f"{table.name}.csv", table.csv())
            put(folder / f"{table.name}.tex", table.latex())
            files += [f"tables/{table.name}.{extension}" for extension in ("csv", "tex")]
        return files

    def _tables(self) -> Iterator[Table[Any]]:
        """Yield the tables that are theirs alone."""
        for side, told, likes, paper in self._each():
            yield from (draft.whole for draft in paper if draft.whole is not None)
            if told:
                yield stated_table(side.reference, told)
            if paper:
                yield glance_table(side, paper, likes)
                yield arms_table(side.reference.reference, likes)

    def _each(
        self,
    ) -> Iterator[tuple[SideBySide, Sequence[Stated], Sequence[Like], Sequence[PaperDraft]]]:
        return zip(self._sides, self._told, self._likes, self._papers, strict=True)

    def sections(self, drawn: Mapping[str, Drawn]) -> list[ReferenceSection]:
        """Return what the page says of each, with its figures as ``drawn``."""
        return [
            reference_section(
                side,
                paper_items(side, paper, drawn),
                facts=stated_table(side.reference, told) if told else None,
                arms=arms_table(side.reference.reference, likes),
                glance=glance_table(side, paper, likes) if paper else None,
            )
            for side, told, likes, paper in self._each()
        ]
