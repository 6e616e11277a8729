"""How much memory many runs and many samples need, more than a computer holds at once.

`tare history` and `tare compare` of a thousand runs, and `tare report` of runs with very many raw
samples, alike and all different, each as a whole command. The runs are synthetic, written as
`analysis_speed` writes them.
The runs' peer is the same with ten runs: the additional need is reported per additional run.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks.analysis_speed import BLOCKS, COMMAND, many_samples, many_values, timed

RUNS = 1000
FEW = 10
SAMPLES = 1_000_000_000
VALUES = 1500
"""Observations of a run: a cell of ten metrics in each boot of five arms and thirty blocks."""
MOST_GB = 0.5
MOST_S = 20.0
"""The seconds that a report of a thousand million samples may take."""
"""What any of the commands may take, however many there are."""
CHAIN = re.compile(r',"chain":"[0-9a-f]{64}"\}')


def many_runs(folder: Path, runs: int) -> list[str]:
    """Write as many runs, each the same except for its identity; return their folders."""
    first = folder / "first"
    many_values(first, VALUES)
    # Without the hashes of lines, which would be other ones in each copy: as streams of before.
    events = CHAIN.sub("}", (first / "events.jsonl").read_text())
    found = []
    for number in range(runs):
        one = folder / f"run-{number:04}"
        one.mkdir()
        text = events.replace('"run":"values"', f'"run":"values-{number}"')
        (one / "events.jsonl").write_text(text)
        found.append(str(one))
    shutil.rmtree(first)
    return found


def _peak(name: str, peak: int) -> Goal:
    return Goal(f"{name}: peak memory", "the limit set", MOST_GB, peak / 1e9, "GB")


def main(argv: list[str] | None = None) -> int:
    """Write, read, and return 1 when a command took more memory than is stated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.analysis_memory")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--runs", type=int, default=RUNS)
    asked = parser.parse_args(argv)
    machine = machine_facts()
    goals, facts = [], []
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as temporary:
        runs = many_runs(Path(temporary), asked.runs)
        for command in ("history", "compare"):
            few = timed(["-c", COMMAND, command, *runs[:FEW]])
            many = timed(["-c", COMMAND, command, *runs])
            each = (many.peak - few.peak) / (len(runs) - FEW)
            name = f"{command} of {len(runs):,} runs with {VALUES:,} observations each"
            goals.append(_peak(name, many.peak))
            facts += [
                Fact(f"{name}: CPU time", many.cpu_s, "s"),
                Fact(f"{command}: memory for each run more", each / 1e3, "kB"),
            ]
        for spread in (False, True):
            long = Path(temporary, "samples")
            many_samples(long, asked.samples, spread=spread)
            took = timed(["-c", COMMAND, "report", str(long)])
            shutil.rmtree(long)
            name = f"report of {asked.samples:,} raw samples in {2 * BLOCKS['samples']} series"
            name += ", spread up to 1 ms" if spread else ""
            goals.append(_peak(name, took.peak))
            goals.append(Goal(f"{name}: wall time", "the limit set", MOST_S, took.seconds, "s"))
            facts.append(Fact(f"{name}: CPU time", took.cpu_s, "s"))
    return finish(Result("analysis_memory", tuple(goals), tuple(facts)), machine)


if __name__ == "__main__":
    sys.exit(main())
