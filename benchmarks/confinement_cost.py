"""What QEMU's own user and filter of system calls cost: the same guest with and without, in pairs.

See docs/benchmarks.md for the method.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from benchmarks._pairs import Pairs
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured, carry_out
from tare.events import Record

MARGIN = 0.02
LEVEL = 0.05
"""Of each of the two one-sided tests: equivalence is the interval of 1 - 2 × LEVEL within."""
FIGURES: Mapping[str, tuple[str, str]] = {
    "numeric-sort": ("rate", "calculating, which makes no system call of QEMU's"),
    "memory-bandwidth": ("triad-f64", "memory"),
    "random-read": ("operations", "a disk: system calls of QEMU's for each operation"),
}
"""Workload to its metric, and what it stands for."""


def study(blocks: int, repeats: int, seconds: float, accelerator: str) -> dict[str, Any]:
    """Return the study: a guest as it comes, one with all rights, and that one once more."""

    def guest(**more: Any) -> dict[str, Any]:
        # As nice as can be, so that it does not ask for an idle computer.
        nice = {"scheduling": {"nice": -20}}
        return {"platform": "qemu", "accelerator": accelerator, **nice, **more}

    duration = f"{seconds}s"
    read = {"work": "random-read", "io-size": "4KiB", "total": "16MiB", "duration": duration}
    return {
        "study": "confinement-cost",
        "baseline": "open",
        "blocks": {"least": blocks, "most": blocks},
        "shape": {"vcpus": 1, "memory": "256MiB", "disk": "128MiB"},
        "arms": {
            "open": guest(confined=False),
            "open-again": {"twin-of": "open"},
            "confined": guest(),
        },
        "scenarios": {"pinned": {"subject": {"cpus": "pinned"}}},
        "workloads": {
            "numeric-sort": {"duration": duration, "repeats": repeats},
            "memory-bandwidth": {
                "array": "8MiB",
                "duration": f"{seconds / 8}s",
                "repeats": repeats,
            },
            "random-read": {"workload": "filebench", **read, "repeats": repeats},
        },
    }


def values(records: Sequence[Record]) -> Mapping[tuple[str, str], tuple[float, ...]]:
    """Return each workload's figure by arm: the geometric mean of a block's repeats, in order.

    Raises:
        Unmeasured: A machine of the confined arm was not.
    """
    cells: dict[str, tuple[str, str, int]] = {}
    arms: dict[str, str] = {}
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        event = record.event
        if event.type == "machine_starting":
            arms[event.machine] = event.arm
        elif event.type == "machine_ready" and arms[event.machine] == "confined":
            runs_as = event.placement.get("runs_as", {})
            if not (runs_as.get("sandbox") and runs_as.get("uid")):
                raise Unmeasured(f"QEMU could not be confined: {runs_as.get('reason') or runs_as}")
        elif event.type == "cell_started":
            cells[event.cell] = (event.workload, event.arm, event.block)
        elif event.type == "observation" and event.role == "subject":
            workload, arm, block = cells[event.cell]
            if event.metric == FIGURES[workload][0]:
                found[workload, arm][block].append(math.log(event.value))
    return {
        key: tuple(math.exp(statistics.fmean(blocks[block])) for block in sorted(blocks))
        for key, blocks in found.items()
    }


@dataclass(frozen=True)
class Ratio:
    """The geometric mean of the ratios within blocks, and its interval by Student's t."""

    mean: float
    low: float
    high: float

    @property
    def farthest(self) -> float:
        """How far from 1 the ratio may be, as a share."""
        return max(abs(self.low - 1), abs(self.high - 1))


def ratio(pairs: Pairs) -> Ratio:
    """Return the ratio within pairs, with the interval of two one-sided tests.

    Raises:
        Unmeasured: There are fewer than two pairs.
    """
    logs = np.log(pairs.ratios)
    if logs.size < 2:
        raise Unmeasured("one pair tells nothing of how far others would be apart")
    half = stats.t.ppf(1 - LEVEL, logs.size - 1) * logs.std(ddof=1) / math.sqrt(logs.size)
    middle = logs.mean()
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def result(found: Mapping[tuple[str, str], tuple[float, ...]], accelerator: str) -> Result:
    """Return what both arms told, and whether they are equivalent.

    Raises:
        Unmeasured: A figure is missing.
    """
    goals, facts = [], []
    samples: dict[str, Sequence[float]] = {}
    for workload, (metric, what) in FIGURES.items():
        sides = {arm: found.get((workload, arm), ()) for arm in ("open", "open-again", "confined")}
        if not sides["open"] or len({len(side) for side in sides.values()}) != 1:
            raise Unmeasured(f"{workload} lacks blocks")
        cost = ratio(Pairs("confined", "open", sides["confined"], sides["open"]))
        floor = ratio(Pairs("open-again", "open", sides["open-again"], sides["open"]))
        goals.append(
            Goal(
                f"{accelerator}, {workload} {metric}: confined differs by at most",
                f"the same guest with all rights ({what})",
                MARGIN * 100,
                cost.farthest * 100,
                "%",
                detail=f"ratio {cost.mean:.4f}, {1 - 2 * LEVEL:.0%} interval {cost.low:.4f} to "
                f"{cost.high:.4f}; A/A {floor.mean:.4f}, {floor.low:.4f} to {floor.high:.4f}",
            )
        )
        facts.append(Fact(f"{workload}: confined ÷ open", cost.mean, ""))
        facts.append(Fact(f"{workload}: open ÷ open again, farthest", floor.farthest * 100, "%"))
        for arm, side in sides.items():
            samples[f"{workload}, {arm}"] = side
    return Result("confinement_cost", tuple(goals), tuple(facts), samples)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.confinement_cost", description=__doc__
    )
    parser.add_argument("--blocks", type=int, default=16, help="at least 2")
    parser.add_argument("--repeats", type=int, default=4, help="of each cell in a boot")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each cell")
    parser.add_argument("--accelerator", choices=("tcg", "kvm"), default="tcg")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    asked = study(wanted.blocks, wanted.repeats, wanted.seconds, wanted.accelerator)
    try:
        told = result(values(carry_out(asked).records), wanted.accelerator)
    except Unmeasured as why:
        peer = "the same guest with all rights"
        missed = Goal("confined differs by", peer, MARGIN * 100, None, "%", detail=str(why))
        told = Result("confinement_cost", (missed,), ())
    return finish(told, machine)


if __name__ == "__main__":
    sys.exit(main())
