"""The last words of a run: what became of its cells, and why some do not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.events import RunFinished

MOST_REASONS = 10
WORDS = {
    "ok": "ok",
    "failed": "failed",
    "withheld": "withheld",
    "skipped": "skipped with their arm",
    "left": "not begun",
}


def closing(finished: RunFinished) -> list[tuple[str, str]]:
    """Return the lines that end a run, each with its style; the last one is its sum."""
    lines = [
        (f"  {count} × {reason}", "red")
        for reason, count in list(finished.reasons.items())[:MOST_REASONS]
    ]
    if (more := len(finished.reasons) - MOST_REASONS) > 0:
        lines.append((f"  and {more} more reasons: they are in the report", "red"))
    counts = finished.cells
    parts = [f"{counts[name]} {words}" for name, words in WORDS.items() if counts.get(name)]
    said = f"{finished.status}: {counts.get('planned', 0)} cells planned, {', '.join(parts)}"
    if finished.status != "complete" and finished.reason:
        said += f" ({finished.reason})"
    whole = finished.status == "complete" and counts.get("ok") == counts.get("planned")
    return [*lines, (said, "green" if whole else "bold red")]
