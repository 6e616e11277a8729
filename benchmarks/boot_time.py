"""From `tare run` to the first sample in a guest, against plain QEMU and against virtme-ng.

See `tare help benchmarks` for the method.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import _peers
from benchmarks._pairs import Pairs, Side, alternate, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import CarriedOut, Unmeasured, carry_out
from benchmarks._source import RUN

SOURCES = RUN

SLOWER_THAN_QEMU_S = 0.3
BOOT_SLOWER_THAN_QEMU_S = 0.1
STARTED_S = 0.4
RATIO_TO_VIRTME = 1.0
STAGES = ("run_started", "machine_starting", "machine_ready", "cell_started", "observation")


def study(kernel: str) -> dict[str, Any]:
    """Return the smallest study there is: one arm, one workload, a hundred samples."""
    return {
        "study": "boot-time",
        "baseline": "guest",
        "blocks": {"least": 2, "most": 2},
        "shape": {"vcpus": 1, "memory": f"{_peers.MEMORY_MIB}MiB"},
        "kernel": kernel,
        "arms": {
            "guest": {"platform": "qemu", "accelerator": "tcg", "devices": "paravirtual"},
        },
        "workloads": {"tick": {"samples": 100}},
    }


def first_sample_s(run: CarriedOut) -> float:
    """Return the seconds from the spawn of ``tare run`` to the first sample, from above.

    The first observation is written after the last of the hundred samples was taken, sent and
    evaluated, so the first sample was certainly taken before.
    """
    return run.first("observation") - run.spawned


def stages(run: CarriedOut) -> dict[str, float]:
    """Return how the time to the first sample divides: seconds up to each event."""
    before = run.spawned
    found = {}
    for kind in STAGES:
        found[kind] = run.first(kind) - before
        before = run.first(kind)
    return found


class Watched:
    """Tare as one side of pairs; remembers the stages of every run."""

    def __init__(self, kernel: str) -> None:
        self.study = study(kernel)
        self.stages: list[dict[str, float]] = []

    def measure(self) -> float:
        """Run the study once; return the seconds to the first sample."""
        run = carry_out(self.study)
        self.stages.append(stages(run))
        return first_sample_s(run)

    def facts(self, label: str) -> tuple[Fact, ...]:
        """Return the median of each stage, without the warm-up."""
        counted = self.stages[1:] or self.stages
        return tuple(
            Fact(f"{label}: up to {kind}", statistics.median(row[kind] for row in counted), "s")
            for kind in STAGES
        )


def against(
    kernel: str, peer: Side, pairs: int
) -> tuple[Pairs, tuple[Fact, ...], tuple[Mapping[str, float], ...]]:
    """Alternate Tare and ``peer`` on the same kernel; return also where Tare's time went."""
    tare = Watched(kernel)
    print(f"{kernel}: tare against {peer.name}, {pairs} pairs", flush=True)
    found = alternate(
        Side("tare", tare.measure), peer, pairs, report=lambda line: print(f"  {line}", flush=True)
    )
    return found, tare.facts(f"{kernel} next to {peer.name}"), tuple(tare.stages[-pairs:])


def stage_goals(kernel: str, pairs: Pairs, rows: Sequence[Mapping[str, float]]) -> tuple[Goal, ...]:
    """Judge the time to ``run_started``, and a boot inside the run against plain QEMU's.

    The boot includes the wait for the clock on which the guest's kernel settles.

    Args:
        kernel: What both boot.
        pairs: Tare, and plain QEMU in the same minute.
        rows: The stages of Tare's run of each pair.
    """
    started = median_interval([row["run_started"] for row in rows])
    boots = [row["machine_ready"] - peer for row, peer in zip(rows, pairs.b, strict=True)]
    boot = median_interval(boots)
    return (
        Goal(
            f"from tare run to run_started, kernel {kernel}",
            "the limit set",
            STARTED_S,
            statistics.median(row["run_started"] for row in rows),
            "s",
            detail=f"{started.low:.2f} to {started.high:.2f} s ({started.coverage:.0%})",
        ),
        Goal(
            f"one boot inside a run, kernel {kernel}, above the peer's userland",
            pairs.b_name,
            BOOT_SLOWER_THAN_QEMU_S,
            statistics.median(boots),
            "s",
            detail=f"{boot.low:.2f} to {boot.high:.2f} s ({boot.coverage:.0%})",
        ),
    )


@dataclass(frozen=True)
class Comparison:
    """One peer on one kernel, and the figure to reach.

    Args:
        kernel: What both boot.
        peer: The peer's name.
        side: Makes the peer ready, given the kernel and a folder for what it needs.
        limit: The figure to reach, at most.
        unit: Seconds more than the peer, or nothing for a share of the peer's time.
    """

    kernel: str
    peer: str
    side: Callable[[str, Path], Side]
    limit: float
    unit: str

    @property
    def name(self) -> str:
        """What the goal is called."""
        return f"from tare run to the first sample, kernel {self.kernel}, " + (
            "above the peer's userland" if self.unit else "as a share of the peer's userland"
        )

    def judge(self, pairs: Pairs) -> Goal:
        """Judge by the median within pairs: of the differences, or of the ratios."""
        values = pairs.differences if self.unit else pairs.ratios
        interval = median_interval(values)
        detail = (
            f"tare {statistics.median(pairs.a):.2f} s, peer {statistics.median(pairs.b):.2f} s; "
            f"the median within pairs is between {interval.low:.2f} and {interval.high:.2f} "
            f"with {interval.coverage:.0%} confidence"
        )
        found = statistics.median(values)
        return Goal(self.name, self.peer, self.limit, found, self.unit, detail=detail)

    def unmeasured(self, why: Unmeasured) -> Goal:
        """Say that the goal is missed because nothing could be measured."""
        return Goal(self.name, self.peer, self.limit, None, self.unit, detail=str(why))


def _plain_qemu(kernel: str, folder: Path) -> Side:
    file = _peers.unpacked_kernel(kernel).file
    initramfs = _peers.busybox_initramfs(folder)
    return Side("plain QEMU", lambda: _peers.plain_qemu_s(file, initramfs))


def _virtme(kernel: str, folder: Path) -> Side:
    file = _peers.unpacked_kernel(kernel).file
    root = _peers.virtme_root(folder)
    return Side(_peers.virtme_version(), lambda: _peers.virtme_s(file, root))


COMPARISONS = {
    "cloud": Comparison("cloud", "plain QEMU", _plain_qemu, SLOWER_THAN_QEMU_S, "s"),
    "rt": Comparison("rt", "plain QEMU", _plain_qemu, SLOWER_THAN_QEMU_S, "s"),
    "virtme-ng": Comparison("rt", "virtme-ng", _virtme, RATIO_TO_VIRTME, ""),
}


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.boot_time", description=__doc__)
    parser.add_argument("--pairs", type=int, default=6, help="pairs that count, for each peer")
    parser.add_argument(
        "--only", choices=sorted(COMPARISONS), action="append", help="one comparison"
    )
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    goals: list[Goal] = []
    facts: list[Fact] = []
    samples: dict[str, tuple[float, ...]] = {}
    for name in wanted.only or COMPARISONS:
        comparison = COMPARISONS[name]
        with tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
            try:
                side = comparison.side(comparison.kernel, Path(folder))
                pairs, found, rows = against(comparison.kernel, side, wanted.pairs)
            except Unmeasured as why:
                goals.append(comparison.unmeasured(why))
                continue
        goals.append(comparison.judge(pairs))
        if comparison.unit:
            goals += stage_goals(comparison.kernel, pairs, rows)
        facts.extend(found)
        samples[f"{name}: tare, s"] = pairs.a
        samples[f"{name}: {pairs.b_name}, s"] = pairs.b
    return finish(Result("boot_time", tuple(goals), tuple(facts), samples), machine)


if __name__ == "__main__":
    sys.exit(main())
