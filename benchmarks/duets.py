"""A real A/A, one arm after the other and in duets: what duets gain or cost on this computer.

The bare machine against itself, in runs of either kind by turns. See `tare help benchmarks`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured, carry_out
from tare.analysis import compare_runs, load_run
from tare.analysis.effects.duets import overlaps

NICE = {"nice": -20}
"""Above whatever else runs here, as in `gates_of_runs`."""
KINDS = {"in turn": False, "duets": True}
WORKLOADS = {
    "numeric-sort": {"duration": "300ms"},
    "memory-bandwidth": {"duration": "300ms"},
}


def study(*, duet: bool) -> dict[str, Any]:
    """Return the study: the bare machine and its twin, at once or one after the other."""
    return {
        "study": "duets",
        "baseline": "bare",
        "blocks": {"least": 12, "most": 12, "position": False, "duet": duet},
        "shape": {"vcpus": 1, "memory": "256MiB"},
        "arms": {
            "bare": {"platform": "bare", "scheduling": {**NICE}},
            "bare-again": {"twin-of": "bare"},
        },
        "scenarios": {"pinned": {"subject": {"cpus": "pinned"}}},
        "workloads": dict(WORKLOADS),
    }


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.duets", description=__doc__)
    parser.add_argument("--runs", type=int, default=6, help="runs of each kind")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    widths: dict[tuple[str, str], list[float]] = defaultdict(list)
    declared: dict[str, int] = defaultdict(int)
    alone: list[float] = []
    took: dict[str, list[float]] = defaultdict(list)
    why = ""

    def look(kind: str, folder: Path) -> None:
        run = load_run(folder)
        alone.extend(1 - share for share in overlaps([run]).values())
        took[kind].append(run.wall_s)
        for effect in compare_runs(run).aa:
            if effect.headline and effect.half_width is not None:
                widths[kind, f"{effect.key.workload} {effect.key.metric}"].append(effect.half_width)
                declared[kind] += effect.verdict in ("better", "worse", "differs")

    try:
        for number in range(wanted.runs):
            for kind, duet in KINDS.items():
                carry_out(study(duet=duet), seed=number, look=partial(look, kind))
    except Unmeasured as reason:
        why = str(reason)
    different, asked = sum(declared.values()), sum(map(len, widths.values()))
    goals = (
        Goal(
            name="A/A pairs declared different, of either kind",
            peer=f"all {asked} headline metrics of {wanted.runs} runs each",
            limit=2.0,
            found=None if why else different,
            unit="",
            detail=why,
        ),
        Goal(
            name="time of a duet's cells without the other arm, at most",
            peer="all cells",
            limit=5.0,
            found=None if why or not alone else 100 * max(alone),
            unit="%",
            detail=why,
        ),
    )
    facts = tuple(
        Fact(f"half-width of {metric}'s ratio, {kind}", 100 * statistics.median(found), "%")
        for (kind, metric), found in sorted(widths.items(), key=lambda each: each[0][::-1])
    )
    facts += tuple(
        Fact(f"seconds of a run, {kind}", statistics.median(each), "s")
        for kind, each in took.items()
    )
    return finish(Result("duets", goals, facts), machine)


if __name__ == "__main__":
    sys.exit(main())
