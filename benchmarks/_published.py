"""Published results: the table of docs, with the commit and the source that each result is from.

``benchmarks/published/NAME.json`` is in the repository. It holds a result's rows, the commit and
day of measuring, and a digest of the source that the figures depend on. A result whose source has
changed since is stale, and the table says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._results import RESULTS, Goal, in_words
from benchmarks._source import ROOT, source_digest, sources_of

PUBLISHED = ROOT / "benchmarks" / "published"
PAGE = next(ROOT.glob("docs/**/benchmarks.md"))
BEGIN, END = "<!-- published results -->", "<!-- end of published results -->"


def publish(benchmark: str, results: Path = RESULTS, published: Path = PUBLISHED) -> Path:
    """Copy the kept result of a benchmark into the repository, without its samples.

    Raises:
        FileNotFoundError: The benchmark has no kept result.
    """
    kept = json.loads((results / f"{benchmark}.json").read_text())
    rows = []
    for row in kept["goals"]:
        goal = Goal(**{key: value for key, value in row.items() if key != "met"})
        wanted, found, outcome = in_words(goal)
        rows.append(
            {
                "figure": goal.name,
                "peer": goal.peer,
                "goal": wanted,
                "found": found,
                "outcome": outcome,
                "detail": goal.detail,
            }
        )
    machine = kept["machine"]
    result = {
        "benchmark": benchmark,
        "day": time.strftime("%Y-%m-%d", time.gmtime(kept["time"])),
        "commit": machine["commit"],
        "source": kept["source"],
        "computer": computer(machine),
        "rows": rows,
    }
    published.mkdir(exist_ok=True)
    path = published / f"{benchmark}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def computer(machine: Mapping[str, Any]) -> str:
    """Return the computer of a result in one line, from :func:`machine_facts`."""
    memory = machine.get("memory_bytes", 0) / 2**30
    return (
        f"{machine.get('cpu_model', 'unknown CPU')}, {machine.get('cpus', '?')} CPUs, "
        f"{memory:.0f} GiB, Linux {machine.get('kernel', '')}, {machine.get('qemu', '')}"
    )


def state_of(result: Mapping[str, Any]) -> str:
    """Return ``current``, or ``stale`` where the source has changed since it was measured."""
    now = source_digest(sources_of(result["benchmark"]))
    return "current" if result["source"] == now else "stale"


def table() -> str:
    """Return the Markdown table of all published results, and a list of their computers."""
    lines = [
        "| benchmark | figure | peer | goal | found | outcome | measured | state |",
        "|---|---|---|---|---|---|---|---|",
    ]
    computers: dict[str, None] = {}
    for path in sorted(PUBLISHED.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        computers.setdefault(f"- {result['computer']}", None)
        measured = f"{result['day']}, {result['commit']}"
        state = state_of(result)
        for row in result["rows"]:
            cells = (
                result["benchmark"],
                row["figure"],
                row["peer"],
                row["goal"],
                row["found"],
                row["outcome"],
                measured,
                state,
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "Computers:", "", *computers])


def fill(page: str) -> str:
    """Return the text of the benchmarks' page with its table made from the published results.

    Raises:
        ValueError: The page lacks the marks of the table.
    """
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def check(page: Path = PAGE) -> list[str]:
    """Return what is wrong with the page's table, one line for each fault."""
    text = page.read_text(encoding="utf-8")
    if fill(text) == text:
        return []
    shown = {line for line in text.split("\n") if line.startswith("| ")}
    stale = [
        line
        for line in table().split("\n")
        if line.endswith("| stale |") and line.removesuffix("stale |") + "current |" in shown
    ]
    return [
        *(f"{page}: presented as current, but its source has changed: {line}" for line in stale),
        f"{page}: the table differs from benchmarks/published/; run `make docs`",
    ]
