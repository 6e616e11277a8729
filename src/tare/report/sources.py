"""The sources that a run is set beside; loaded only where there are any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tare.analysis.model import Comparison
from tare.references.pairing import set_beside
from tare.references.published import Reference
from tare.report.drawing import Drawn
from tare.report.figures.frame import Figure
from tare.report.paper import RunFindings, figures_of, paper_drafts, paper_items
from tare.report.published import write_beside
from tare.report.reference_section import ReferenceSection, reference_section


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
        self._papers = [paper_drafts(side, findings) for side in self._sides]

    def figures(self) -> Iterator[Figure]:
        """Yield the figures that are theirs alone."""
        for paper in self._papers:
            yield from figures_of(paper)

    def write(self, folder: Path) -> list[str]:
        """Write their tables into ``folder`` and return the names of the files."""
        return [name for side in self._sides for name in write_beside(side, folder)]

    def sections(self, drawn: Mapping[str, Drawn]) -> list[ReferenceSection]:
        """Return what the page says of each, with its figures as ``drawn``."""
        return [
            reference_section(side, paper_items(side, paper, drawn))
            for side, paper in zip(self._sides, self._papers, strict=True)
        ]
