"""The table that a torture ends with."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torture.judging import Verdict

MARKS = ("<!-- torture -->", "<!-- end -->")
HEAD = (
    "| fault | tries | cells spoilt, with the reason | cells lost | left behind | "
    "reported rightly |"
)


def table(verdicts: Sequence[Verdict], seed: int, took_s: float) -> str:
    """Return one row for each fault, and a sentence that says how it was made."""
    kinds = list(dict.fromkeys(verdict.fault for verdict in verdicts))
    rows = [_row(fault, [each for each in verdicts if each.fault == fault]) for fault in kinds]
    rows.append(_row("all", verdicts))
    minutes = took_s / 60
    summary = f"{len(verdicts)} faults in {minutes:.0f} minutes, seed {seed}."
    return "\n".join([HEAD, "|---|---|---|---|---|---|", *rows, "", summary])


def _row(fault: str, verdicts: Sequence[Verdict]) -> str:
    rightly = sum(not verdict.wrong for verdict in verdicts)
    counts = (sum(len(getattr(v, what)) for v in verdicts) for what in ("spoilt", "lost", "left"))
    return (
        f"| {fault} | {len(verdicts)} | {' | '.join(map(str, counts))} "
        f"| {rightly} of {len(verdicts)} |"
    )


def between_marks(page: str, text: str) -> str:
    """Return a page with a text between its marks.

    Raises:
        ValueError: It has no such marks.
    """
    begin, end = MARKS
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no {begin} … {end}")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page, count=1)
