"""The figures of a part's long series, where it has any."""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis.model import Comparison
from tare.report.figures.frame import Figure
from tare.report.palette import Look
from tare.report.words import Part


def series_figures(
    comparison: Comparison, looks: Mapping[str, Look], part: Part, name: str, stem: str
) -> list[tuple[Figure, str]]:
    """Return scatter and tails of ``part`` with their captions; none without series."""
    return []
