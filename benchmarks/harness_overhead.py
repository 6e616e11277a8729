"""The share of a run's wall time that is neither booting nor measuring, and where it goes.

See `tare help benchmarks` for the method.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import CarriedOut, Unmeasured, carry_out, reasons
from benchmarks._source import RUN
from tare.events import Record

SOURCES = RUN

STUDY = Path(__file__).parent.parent / "studies" / "quick.yaml"
SHARE = 0.01
LEAST_SHOWN_S = 0.05


def cut(study: dict[str, Any], blocks: int) -> dict[str, Any]:
    """Return ``study`` with exactly ``blocks`` blocks, and otherwise unchanged."""
    kept = {**study.get("blocks", {}), "least": blocks, "most": blocks}
    kept.pop("budget", None)
    return {**study, "blocks": kept}


def warm_up(study: dict[str, Any]) -> dict[str, Any]:
    """Return a study with the same arms and next to no work: it fills the caches."""
    scenario = dict(list(study.get("scenarios", {}).items())[:1])
    scenarios = {"scenarios": scenario} if scenario else {}
    return {**cut(study, 2), **scenarios, "workloads": {"tick": {"samples": 100}}}


def remainder(records: Sequence[Record]) -> dict[str, float]:
    """Divide what is neither booting nor measuring by what came before and after it.

    Booting is ``boot_s`` of every machine_ready and is right before it; measuring is
    ``measured_s`` of every cell_finished and is right after the cell's cell_started. All other
    time between two events goes by the names of the two, and the arm of a cell that starts.

    Args:
        records: A run's events in order, from run_started to run_finished.

    Returns:
        Seconds by ``earlier → later``, the longest first; their sum is the remainder.
    """
    # A cell that is measured again finishes again, so its ends are taken in order.
    ends = [record.event for record in records if record.event.type == "cell_finished"]
    measured = iter([end.measured_s for end in ends])
    found: dict[str, float] = defaultdict(float)
    # Calibration runs while the first machine boots.
    in_turn = [record for record in records if record.event.type != "calibrated"]
    for before, after in pairwise(in_turn):
        took = after.time - before.time
        if after.event.type == "machine_ready":
            took -= after.event.boot_s
        name = f"{before.event.type} → {after.event.type}"
        if before.event.type == "cell_started":
            took -= next(measured, 0.0)
            name += f" in {before.event.arm}"
        found[name] += took
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def share(run: CarriedOut) -> float:
    """Return the share of the run's wall time that is neither booting nor measuring.

    Raises:
        Unmeasured: The run did not finish, or a cell of it did not.
    """
    if why := [reason for reason in reasons(run.records) if "skipped" not in reason]:
        raise Unmeasured("; ".join(why))
    last = run.records[-1].event
    if last.type != "run_finished" or last.wall_s <= 0:
        raise Unmeasured("the run did not finish")
    return (last.wall_s - last.booting_s - last.measuring_s) / last.wall_s


def facts_of(run: CarriedOut) -> tuple[Fact, ...]:
    """Return the parts of the run's time, and of the time before and after it."""
    last = run.records[-1].event
    assert last.type == "run_finished"
    whole = run.ended - run.spawned
    used = last.booting_s + last.measuring_s
    rest = remainder(run.records)
    return (
        Fact("wall time of the run", last.wall_s, "s"),
        Fact("booting", last.booting_s, "s"),
        Fact("measuring", last.measuring_s, "s"),
        Fact("before: from the command to the first event", run.records[0].time - run.spawned, "s"),
        Fact(
            "after: from the last event to the command's end, with the report",
            run.ended - run.records[-1].time,
            "s",
        ),
        Fact("share of the whole command that is neither", (whole - used) / whole * 100, "%"),
        *(
            Fact(f"remainder: {name}", seconds, "s")
            for name, seconds in rest.items()
            if seconds >= LEAST_SHOWN_S
        ),
        Fact("remainder: all the rest", sum(s for s in rest.values() if s < LEAST_SHOWN_S), "s"),
    )


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when the goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.harness_overhead", description=__doc__
    )
    parser.add_argument("--study", type=Path, default=STUDY, help="a study")
    parser.add_argument("--blocks", type=int, default=8, help="blocks to run of it, at least 2")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    study = cut(yaml.safe_load(wanted.study.read_text()), wanted.blocks)
    facts: tuple[Fact, ...] = ()
    found: float | None = None
    detail = f"{wanted.study.name}, {wanted.blocks} blocks"
    try:
        print("  warm-up: the same arms, hardly any work", flush=True)
        carry_out(warm_up(study))
        print(f"  {detail}", flush=True)
        run = carry_out(study)
        found = share(run) * 100
        facts = facts_of(run)
    except Unmeasured as why:
        detail = str(why)
    goal = Goal(
        name="wall time that is neither booting nor measuring",
        peer="the run's whole wall time",
        limit=SHARE * 100,
        found=found,
        unit="%",
        detail=detail,
    )
    return finish(Result("harness_overhead", (goal,), facts), machine)


if __name__ == "__main__":
    sys.exit(main())
