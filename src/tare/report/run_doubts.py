"""What of two runs speaks against comparing them, or against one of them, in sentences."""

from __future__ import annotations

from tare.analysis.model import RunData
from tare.report.svg import legible


def doubts_of(before: RunData, after: RunData) -> tuple[str, ...]:
    """Return what a reader of the comparison has to know first; empty where there is nothing."""
    found = []
    if before.study_sha256 != after.study_sha256:
        found.append("The runs are of different versions of the study, or of different studies.")
    for when, run in (("first", before), ("second", after)):
        if not run.complete:
            found.append(f"The {when} run is not complete.")
        found += [f"The {when} run: {legible(doubt)}" for doubt in run.doubts]
    return tuple(found)
