"""How long commands that measure nothing take, each next to Python that does nothing.

A user types these between measurements, so they must answer at once. Each is run as a user runs it:
a new process, from its start to its end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks._pairs import Side, alternate, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured
from benchmarks._source import ROOT
from benchmarks.analysis_speed import many_values

SOURCES = ("src/tare",)
TARE = str(Path(sys.executable).with_name("tare"))
PYTHON = (sys.executable, "-I", "-c", "pass")
MOST_S = {
    "--version": 0.1,
    "studies": 0.15,
    "workloads": 0.3,
    "platforms": 0.3,
    "plan quick": 0.4,
}
"""The commands, and the seconds that each may take."""
COMPARE_S = 0.4
VALUES = 200
"""Observations of each run that ``tare compare`` reads: as many as a short study has."""


def took_s(argv: Sequence[str]) -> float:
    """Return the seconds from the start of a command to its end.

    Raises:
        Unmeasured: The command failed.
    """
    begun = time.perf_counter()
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - begun
    if done.returncode != 0:
        raise Unmeasured(f"{' '.join(argv)} failed: {done.stderr.strip()[-300:]}")
    return elapsed


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.command_start", description=__doc__)
    parser.add_argument("--pairs", type=int, default=9, help="pairs that count, for each command")
    options = parser.parse_args(argv)
    machine = machine_facts()
    goals: list[Goal] = []
    facts: list[Fact] = []
    samples: dict[str, tuple[float, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        runs = [Path(folder, name) for name in ("before", "after")]
        for run in runs:
            many_values(run, VALUES)
        commands = {name: ((TARE, *name.split()), most) for name, most in MOST_S.items()}
        compare = (TARE, "compare", *map(str, runs))
        commands["compare of two small runs"] = (compare, COMPARE_S)
        for name, (command, most) in commands.items():
            tare = Side(f"tare {name}", lambda command=command: took_s(command))  # type: ignore[misc]
            try:
                pairs = alternate(tare, Side("python", lambda: took_s(PYTHON)), options.pairs)
            except Unmeasured as why:
                goals.append(Goal(name, "the limit set", most, None, "s", detail=str(why)))
                continue
            median = median_interval(pairs.a)
            seconds = sorted(pairs.a)[len(pairs.a) // 2]
            detail = f"{median.low:.2f} to {median.high:.2f} s ({median.coverage:.0%})"
            goals.append(Goal(name, "the limit set", most, seconds, "s", detail=detail))
            facts.append(Fact(f"{name}, as a multiple of an idle Python", pairs.ratio, "times"))
            samples[f"tare {name}, s"] = pairs.a
            samples[f"python, next to {name}, s"] = pairs.b
    return finish(Result("command_start", tuple(goals), tuple(facts), samples), machine)


if __name__ == "__main__":
    sys.exit(main())
