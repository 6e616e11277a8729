"""Goals with the figures that were found: printed in the terminal, and kept as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks._source import source_digest, sources_of
from tare.run.lifecycle.session import host_facts
from tare.run.lifecycle.versions import tare_version

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Goal:
    """A figure to reach, and what was found.

    Args:
        name: What is measured, in a few words.
        peer: What it is measured against.
        limit: The figure to reach.
        found: The figure found; None where it could not be measured, which misses the goal.
        unit: The unit of both figures.
        sense: Whether ``found`` must be ``at most`` or ``at least`` the limit.
        detail: How sure, or why it could not be measured.
    """

    name: str
    peer: str
    limit: float
    found: float | None
    unit: str
    sense: Literal["at most", "at least"] = "at most"
    detail: str = ""

    @property
    def met(self) -> bool:
        """Whether the goal was reached."""
        if self.found is None:
            return False
        return self.found <= self.limit if self.sense == "at most" else self.found >= self.limit


@dataclass(frozen=True)
class Fact:
    """A figure without a goal, that helps to read the others."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Result:
    """What one benchmark found."""

    benchmark: str
    goals: tuple[Goal, ...]
    facts: tuple[Fact, ...] = ()
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def number(value: float) -> str:
    """Return a figure with three significant digits, without an exponent."""
    if value == 0:
        return "0"
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, 3 - whole)}f}" if abs(value) >= 1 else f"{value:.3g}"


def in_words(goal: Goal) -> tuple[str, str, str]:
    """Return a goal's limit, the figure found and the outcome in words."""
    found = "not measured" if goal.found is None else f"{number(goal.found)} {goal.unit}".strip()
    wanted = f"{goal.sense} {number(goal.limit)} {goal.unit}".strip()
    return wanted, found, "met" if goal.met else "MISSED"


def kept_goals(benchmark: str, since: float, folder: Path = RESULTS) -> tuple[str, ...]:
    """Return a line for each goal of a benchmark's kept result; nothing for an older result.

    Args:
        benchmark: Its name.
        since: Results that were kept earlier do not count, in seconds since the epoch.
        folder: Where results are kept.
    """
    path = folder / f"{benchmark}.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"time": 0.0}
    if kept["time"] < since:
        return ()
    lines = []
    for row in kept["goals"]:
        goal = Goal(**{key: value for key, value in row.items() if key != "met"})
        wanted, found, outcome = in_words(goal)
        lines.append(f"{outcome:6}  {goal.name}: goal {wanted}, found {found}")
    return tuple(lines)


def machine_facts() -> dict[str, Any]:
    """Return what a reader must know of the computer to place the figures."""
    return {
        **host_facts(),
        "python": platform.python_version(),
        "qemu": _first_line(["qemu-system-x86_64", "--version"]),
        "tare": tare_version(),
        "commit": _first_line(["git", "-C", str(RESULTS.parent), "rev-parse", "--short", "HEAD"]),
        "load_1min": os.getloadavg()[0],
    }


def _first_line(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return ""
    return next(iter(done.stdout.splitlines()), "")


def finish(result: Result, machine: Mapping[str, Any], folder: Path = RESULTS) -> int:
    """Print a result, keep it as ``NAME.json``, and return the exit status: 1 for a missed goal.

    The file also holds the digest of the source that the figures depend on.

    Args:
        result: What was found.
        machine: The facts from :func:`machine_facts`, taken before measuring.
        folder: Where the JSON is kept.
    """
    print(f"\n{result.benchmark}")
    for goal in result.goals:
        wanted, found, outcome = in_words(goal)
        print(f"  {outcome:6}  {goal.name}, against {goal.peer}: goal {wanted}, found {found}")
        if goal.detail:
            print(f"          {goal.detail}")
    for fact in result.facts:
        print(f"          {fact.name}: {number(fact.value)} {fact.unit}")
    for note in result.notes:
        print(f"  note: {note}")
    folder.mkdir(exist_ok=True)
    kept = {
        "time": time.time(),
        "machine": dict(machine),
        "source": source_digest(sources_of(result.benchmark)),
        **asdict(result),
    }
    for goal, row in zip(result.goals, kept["goals"], strict=True):
        row["met"] = goal.met
    path = folder / f"{result.benchmark}.json"
    path.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"  kept in {path}")
    return 0 if all(goal.met for goal in result.goals) else 1
