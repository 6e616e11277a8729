"""What recording the host's side costs the subject: the same arm with and without, in one study.

See `tare help spikes` for the method.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._pairs import Pairs, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import CarriedOut, Unmeasured, carry_out, reasons

SLOWDOWN = 0.005
ARMS: Mapping[str, Mapping[str, Any]] = {
    "bare": {"platform": "bare"},
    "oci": {"platform": "oci"},
    "qemu": {"platform": "qemu", "accelerator": "tcg", "devices": "paravirtual"},
}
METRICS = (("slowdown", ""), ("duration-p99.9", "µs"), ("stolen-share", "%"))
SCALE = {"": 1.0, "µs": 1e6, "%": 100.0}


def study(platform: str, blocks: int, samples: int) -> dict[str, Any]:
    """Return a study of one platform, recorded, not recorded, and not recorded once more."""
    options = dict(ARMS[platform])
    return {
        "study": f"trace-cost-{platform}",
        "baseline": "off",
        "blocks": {"least": blocks, "most": blocks},
        "shape": {"vcpus": 1, "memory": "256MiB"},
        "arms": {
            "off": {**options, "host-trace": False},
            "off-again": {"twin-of": "off"},
            "on": {**options, "host-trace": True},
        },
        "scenarios": {"pinned": {"subject": {"cpus": "pinned"}}},
        "workloads": {"tick": {"samples": samples}},
    }


def values(run: CarriedOut, arm: str, metric: str) -> list[float]:
    """Return the metric's value of an arm in each block, in order of blocks."""
    cells = {
        record.event.cell: record.event.block
        for record in run.records
        if record.event.type == "cell_started" and record.event.arm == arm
    }
    found = {
        cells[record.event.cell]: record.event.value
        for record in run.records
        if record.event.type == "observation"
        and record.event.cell in cells
        and record.event.metric == metric
    }
    return [found[block] for block in sorted(found)]


def pairs_of(run: CarriedOut, arm: str, metric: str) -> Pairs:
    """Return an arm's values next to those of ``off``, block by block.

    Raises:
        Unmeasured: A cell is missing, so blocks cannot be paired.
    """
    a, b = values(run, arm, metric), values(run, "off", metric)
    if len(a) != len(b) or not a:
        raise Unmeasured("; ".join(reasons(run.records)) or f"{arm} lacks blocks")
    return Pairs(arm, "off", tuple(a), tuple(b))


def events_per_s(run: CarriedOut) -> float:
    """Return how many events were recorded in a second of measuring, over all blocks."""
    rates: list[float] = []
    for record in run.records:
        if record.event.type == "cell_finished":
            trace = record.event.facts.get("host_trace", {})
            if trace.get("recorded"):
                rates.append(trace["events"] / ((trace["ended_ns"] - trace["began_ns"]) / 1e9))
    if not rates:
        raise Unmeasured("nothing was recorded")
    return float(statistics.median(rates))


def judged(platform: str, run: CarriedOut) -> tuple[Goal, list[Fact]]:
    """Return the goal of one platform, and the other figures."""
    facts = [Fact(f"{platform}: recorded events", events_per_s(run), "1/s")]
    detail, cost, limit = "", math.nan, SLOWDOWN
    for metric, unit in METRICS:
        on, again = pairs_of(run, "on", metric), pairs_of(run, "off-again", metric)
        scale = SCALE[unit]
        facts += [
            Fact(f"{platform}: {metric} without", statistics.median(on.b) * scale, unit),
            Fact(f"{platform}: {metric} more with it", on.difference * scale, unit),
            Fact(f"{platform}: {metric} more without it (A/A)", again.difference * scale, unit),
        ]
        if metric == "slowdown":
            cost = on.difference
            inside = median_interval(on.differences)
            floor = median_interval(again.differences)
            # A cost below the difference of two equal arms cannot be detected.
            limit = max(SLOWDOWN, abs(floor.low), abs(floor.high))
            detail = (
                f"interval {inside.low * 100:+.3f} to {inside.high * 100:+.3f} % "
                f"({inside.coverage:.0%}); A/A {floor.low * 100:+.3f} to {floor.high * 100:+.3f} %"
            )
    goal = Goal(
        name=f"{platform}: time that recording takes from the subject",
        peer="the same arm without",
        limit=limit * 100,
        found=cost * 100,
        unit="%",
        detail=detail,
    )
    return goal, facts


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trace_cost", description=__doc__)
    parser.add_argument("--blocks", type=int, default=8, help="blocks of each study, at least 2")
    parser.add_argument("--samples", type=int, default=20_000, help="samples of each cell")
    parser.add_argument("--platform", action="append", choices=list(ARMS), help="only these")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    goals: list[Goal] = []
    facts: list[Fact] = []
    for platform in wanted.platform or ARMS:
        print(f"  {platform}: {wanted.blocks} blocks of {wanted.samples} samples", flush=True)
        try:
            run = carry_out(study(platform, wanted.blocks, wanted.samples))
            goal, found = judged(platform, run)
            goals.append(goal)
            facts += found
        except Unmeasured as why:
            goals.append(
                Goal(
                    f"{platform}: time that recording takes from the subject",
                    "the same arm without",
                    SLOWDOWN * 100,
                    None,
                    "%",
                    detail=str(why),
                )
            )
    return finish(Result("trace_cost", tuple(goals), tuple(facts)), machine)


if __name__ == "__main__":
    sys.exit(main())
