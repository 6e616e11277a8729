"""Placing the vCPUs of one large machine on a large host, next to hwloc doing the same.

The host has 1,792 CPUs: 8 NUMA nodes of 112 cores with two threads each. Tare places 512 pinned
vCPUs, one a core; ``hwloc-distrib`` (Debian: hwloc-nox) spreads 512 processes over the same
topology. hwloc's time includes the start of its process, Tare's does not, so the goal against it is
generous; the goal in seconds is the one that counts.
"""

from __future__ import annotations

import argparse
import subprocess
import time

from benchmarks._pairs import Side, alternate, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from tare.study.model.scenario import Scenario
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.placement import place

SOURCES = ("src/tare/study/planning",)

CORES = 896
NODES = 8
VCPUS = 512
MOST_S = 1.0
MOST_RATIO = 10.0
PEER = ("hwloc-distrib", "-i", f"pack:{NODES} core:{CORES // NODES} pu:2", str(VCPUS))
PINNED = Scenario.model_validate(
    {"subject": {"cpus": "pinned"}, "neighbours": [{"load": "x", "count": "fill", "cpus": "other"}]}
)


def large_host() -> HostCpus:
    """Return the host's CPUs, without anything known of them from an earlier placement."""
    every = range(2 * CORES)
    return HostCpus(
        online=tuple(every),
        siblings={cpu: (cpu % CORES, cpu % CORES + CORES) for cpu in every},
        nodes={cpu: cpu % CORES * NODES // CORES for cpu in every},
    )


def tare_s() -> float:
    """Return the seconds that Tare takes for the subject and as many neighbours as fit."""
    host = large_host()
    began = time.perf_counter()
    placed = place(PINNED, host, VCPUS, True)
    took = time.perf_counter() - began
    if len({host.core(cpu) for cpu in placed.subject}) != VCPUS:
        raise ValueError("vCPUs share cores though there are enough")
    return took


def hwloc_s() -> float:
    """Return the seconds that hwloc takes, the start of its process included."""
    began = time.perf_counter()
    shown = subprocess.run(PEER, capture_output=True, check=True)
    took = time.perf_counter() - began
    if len(shown.stdout.splitlines()) != VCPUS:
        raise ValueError("hwloc did not place all")
    return took


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.placement_scale", description=__doc__
    )
    parser.add_argument("--pairs", type=int, default=15, help="pairs to measure")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    pairs = alternate(Side("Tare", tare_s), Side("hwloc", hwloc_s), wanted.pairs, report=print)
    interval = median_interval(pairs.ratios)
    slowest = max(pairs.a)
    goals = (
        Goal("the slowest placement", "a user who waits", MOST_S, slowest, "s"),
        Goal(
            "ratio of the times",
            "hwloc-distrib",
            MOST_RATIO,
            pairs.ratio,
            "",
            detail=f"{interval.low:.3f} to {interval.high:.3f} ({interval.coverage:.0%})",
        ),
    )
    facts = (Fact("CPUs of the host", 2 * CORES, ""), Fact("vCPUs", VCPUS, ""))
    samples = {"Tare, s": pairs.a, "hwloc, s": pairs.b}
    return finish(Result("placement_scale", goals, facts, samples), machine)


if __name__ == "__main__":
    raise SystemExit(main())
