"""A gate over real runs: how often it fails where a tenth was planted, and where nothing was.

A container next to the bare machine, in blocks of short cells; run after run, in turn as it is and
with a tenth of its CPU time taken away by a quota. Each is held against the plain run before it.
See `tare help benchmarks` for the method.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured, carry_out
from tare.analysis import compare_runs, load_run
from tare.analysis.effects.comparison import Comparison
from tare.analysis.runs.gates import Outcome, check, parse_gate, worst

GATE = "numeric-sort rate of box > -3 %"
QUOTA = 1 / 1.1
"""A CPU-bound loop that gets so much of a CPU takes a tenth longer."""
LEAST_FAILED = 0.9
NICE = {"nice": -20}
"""Above whatever else runs here: the show is about gates, not about a busy computer."""


@dataclass(frozen=True)
class Size:
    """How much each run measures: blocks of two cells, and how long a cell is."""

    blocks: int
    cell: str


def study(size: Size, *, planted: bool) -> dict[str, Any]:
    """Return the study of that size, with the tenth planted or without."""
    scheduling = {**NICE, "cap": QUOTA, "period": "10ms"} if planted else {**NICE}
    return {
        "study": "gate",
        "baseline": "bare",
        "blocks": {"least": size.blocks, "most": size.blocks, "position": False},
        "shape": {"vcpus": 1, "memory": "64MiB"},
        "arms": {
            "bare": {"platform": "bare", "scheduling": {**NICE}},
            "box": {"platform": "oci", "scheduling": scheduling},
        },
        "scenarios": {"pinned": {"subject": {"cpus": "pinned"}}},
        "workloads": {"numeric-sort": {"duration": size.cell}},
    }


def measured(number: int, size: Size, *, planted: bool) -> Comparison:
    """Run the study once and return its effects."""
    found: list[Comparison] = []

    def look(folder: Path) -> None:
        found.append(compare_runs(load_run(folder)))

    carry_out(study(size, planted=planted), seed=number, look=look)
    return found[0]


def outcome(before: Comparison, after: Comparison) -> tuple[Outcome, str]:
    """Hold the gate against two runs; return what came of it, and the change in words."""
    checked = check(before, after, [parse_gate(GATE)])
    change = checked[0].change
    return worst(checked), f"{change.change:.3f} ({change.low:.3f} to {change.high:.3f})"


def spread(run: Comparison) -> float:
    """Return how far boots of one arm vary, in per cent, by the blocks' ratios of two."""
    values = [block.value for block in run.effects[0].block_effects]
    return 100 * statistics.stdev(values) / statistics.fmean(values) / 2**0.5


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gates_of_runs", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="pairs of each kind")
    parser.add_argument("--blocks", type=int, default=24, help="blocks of each run")
    parser.add_argument("--cell", default="200ms", help="how long each cell is")
    wanted = parser.parse_args(argv)
    size = Size(wanted.blocks, wanted.cell)
    machine = machine_facts()
    planted: Counter[str] = Counter()
    same: Counter[str] = Counter()
    spreads: list[float] = []
    why = ""
    try:
        before = measured(0, size, planted=False)
        for number in range(1, wanted.pairs + 1):
            slowed = measured(2 * number, size, planted=True)
            after = measured(2 * number + 1, size, planted=False)
            for kind, run, counts in (("planted", slowed, planted), ("same", after, same)):
                found, change = outcome(before, run)
                counts[found] += 1
                spreads.append(spread(run))
                print(f"  {kind}: {found}, {change}, CV {spreads[-1]:.1f} %", flush=True)
            before = after
    except Unmeasured as reason:
        why = str(reason)
    pairs = planted.total()
    goals = (
        Goal(
            name="gates of +3 % that a planted +10 % fails",
            peer=f"all {pairs} pairs of runs",
            limit=100 * LEAST_FAILED,
            found=None if why or not pairs else 100 * planted["fails"] / pairs,
            unit="%",
            sense="at least",
            detail=why or f"{planted['open']} open, {planted['holds']} held",
        ),
        Goal(
            name="gates of +3 % that fail though nothing changed",
            peer=f"all {same.total()} pairs of runs",
            limit=0.0,
            found=None if why or not pairs else 100 * same["fails"] / same.total(),
            unit="%",
            detail=why or f"{same['open']} open, {same['holds']} held",
        ),
    )
    facts = (
        Fact("boots vary by, median of runs", statistics.median(spreads or [0.0]), "%"),
        Fact("blocks of each run", size.blocks, ""),
    )
    return finish(Result("gates_of_runs", goals, facts), machine)


if __name__ == "__main__":
    sys.exit(main())
