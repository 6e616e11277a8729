"""The switch workload, next to what others measure when one thread hands the CPU to another.

None of them measures the same: `switch` yields, the others wake each other up through a pipe, a
lock, a queue or a signal. What they have in common is one switch between two tasks on one CPU
under SCHED_FIFO, so they must be of one order, and the differences must be those of the system
calls in between. `tare help benchmarks` explains each.

Needs root (SCHED_FIFO, and real-time throttling off while it runs). Peers that are not installed
are left out, and named.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._agent import agent_of, agent_parser
from benchmarks._pairs import Pairs, Side, alternate, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured
from benchmarks._source import AGENT
from benchmarks.tick_loop import no_throttling

SOURCES = AGENT

PRIORITY = 90
MOST_APART = 5.0
"""One order of magnitude, half of it to either side."""
RING = Path(__file__).with_name("pipe_ring.rs")
SWITCHES = 200_000
LOOPS = 500
ROUNDS = 9
"""The tools keep no median, and one interruption of 50 ms spoils an average of thousands: so the
median is that of the averages of some short rounds."""
RT_TESTS = {
    "ptsematest": "a mutex released by one thread, until the other has it",
    "svsematest": "a System V semaphore released, until the other has it",
    "pmqtest": "a message put into a POSIX queue, until the other has it",
    "signaltest": "a signal passed round a ring of threads; per thread",
}
"""Tools of rt-tests, and what they time. They sleep between two times, so caches are cold."""


@dataclass(frozen=True)
class Peer:
    """Another way to measure a switch.

    Args:
        name: What is measured, in a few words.
        measure: Measures once; returns microseconds for one way, from one task to the next.
        judged: Whether it must be of one order with `switch`; else it is only shown.
        threads: How many threads `switch` has.
    """

    name: str
    measure: Callable[[], float]
    judged: bool = True
    threads: int = 2


def run(command: Sequence[str], *, cpu: int | None = None) -> str:
    """Run a command, on one CPU and under SCHED_FIFO where a CPU is given; return its output.

    Raises:
        Unmeasured: It failed; with its last words.
    """
    around = [] if cpu is None else ["chrt", "-f", str(PRIORITY), "taskset", "-c", str(cpu)]
    done = subprocess.run(
        [*around, *command], capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unmeasured(f"{command[0]} ended with {done.returncode}: {' '.join(last)}")
    return done.stdout


class Bench:
    def __init__(self, agent: Path, cpu: int, scratch: Path) -> None:
        self.agent = agent
        self.cpu = cpu
        self.scratch = scratch

    def switch(self, threads: int) -> dict[str, Any]:
        """Return the agent's result of `switch`."""
        params = json.dumps({"threads": threads, "samples": SWITCHES})
        printed = run([str(self.agent), "run", "switch", params, "--cpus", str(self.cpu)])
        value: dict[str, Any] = json.loads(printed)["value"]
        return value

    def median_us(self, threads: int) -> float:
        return float(self.switch(threads)["switch"]["median_s"]) * 1e6

    # perf bench

    def perf_pipe(self, *more: str) -> float:
        """Return half of a round trip of one byte between two tasks through pipes."""
        printed = run(
            ["perf", "bench", "sched", "pipe", "--loop", str(SWITCHES // 4), *more], cpu=self.cpu
        )
        return per_operation_us(printed) / 2

    def perf_messaging(self) -> float:
        """Return the time per message among twenty senders and twenty receivers."""
        loops = 50
        printed = run(
            [
                *("perf", "bench", "-f", "simple", "sched", "messaging", "--pipe", "--thread"),
                *("--group", "1", "--nr_loops", str(loops)),
            ],
            cpu=self.cpu,
        )
        return float(printed.split()[-1]) * 1e6 / (20 * 20 * loops)

    # rt-tests

    def rt_test(self, tool: str) -> float:
        """Return the time from one thread to the other, as the tool's averages give it."""
        report = self.scratch / f"{tool}.json"
        command = [tool, "--quiet", "-a", str(self.cpu), "-p", str(PRIORITY), "-l", str(LOOPS)]
        # It times a signal's way through all its threads: with 4 it takes twice as long.
        ways = 2 if tool == "signaltest" else 1
        command += ["-t", "2"] if tool == "signaltest" else ["-t", "1", "-i", "200"]
        averages = []
        for _ in range(ROUNDS):
            run([*command, f"--json={report}"])
            averages.append(average_us(json.loads(report.read_text()), tool))
        return statistics.median(averages) / ways

    # lmbench's method

    def ring_program(self) -> Path:
        """Return the pipe ring, compiled.

        Raises:
            Unmeasured: It cannot be compiled here.
        """
        program = self.scratch / "pipe_ring"
        if not program.exists():
            run(["rustc", "--edition", "2021", "-O", "-o", str(program), str(RING)])
        return program

    def ring(self, kind: str, count: int) -> dict[str, float]:
        hops = max(SWITCHES // 4, 300 * count)
        printed = run([str(self.ring_program()), kind, str(count), str(hops)], cpu=self.cpu)
        found: dict[str, float] = json.loads(printed)
        return found

    def ring_us(self, kind: str, count: int) -> float:
        """Return what lmbench calls a context switch: a hop less what the pipe itself takes."""
        found = self.ring(kind, count)
        return (found["hop"] - found["overhead"]) / 1000


def per_operation_us(printed: str) -> float:
    """Return the microseconds an operation took, as `perf bench` prints them.

    Raises:
        Unmeasured: The words are none of perf's.
    """
    found = re.search(r"([\d.]+)\s+usecs/op", printed)
    if found is None:
        raise Unmeasured(f"perf bench reported no time: {printed.strip()[-200:]}")
    return float(found[1])


def average_us(report: dict[str, Any], tool: str) -> float:
    """Return the average time in microseconds out of a report of rt-tests.

    The tools with a sender and a receiver keep it with the receiver. With several threads, the one
    counts that was disturbed least: they keep no median.

    Raises:
        Unmeasured: The report has no average.
    """
    threads = report.get("thread", {}).values()
    averages = [thread.get("receiver", thread).get("avg") for thread in threads]
    known = [float(average) for average in averages if average]
    if not known:
        raise Unmeasured(f"{tool} reported no average")
    return min(known)


def peers(bench: Bench) -> tuple[list[Peer], list[str]]:
    """Return the peers that are here, and a sentence for each that is not."""
    found: list[Peer] = []
    lacking: list[str] = []
    if shutil.which("perf"):
        found += [
            Peer("perf bench sched pipe, threads", partial(bench.perf_pipe, "--threaded")),
            Peer("perf bench sched pipe, processes", bench.perf_pipe),
            Peer("perf bench sched messaging, a message", bench.perf_messaging, judged=False),
        ]
    else:
        lacking.append(
            "perf is not here (apt-get install --no-remove linux-perf): not compared with it"
        )
    for tool in RT_TESTS:
        if shutil.which(tool):
            found.append(Peer(f"{tool} (rt-tests)", partial(bench.rt_test, tool)))
        else:
            lacking.append(
                f"{tool} is not here (apt-get install --no-remove rt-tests): not compared with it"
            )
    try:
        bench.ring_program()
    except (Unmeasured, OSError) as reason:
        lacking.append(f"the pipe ring cannot be compiled, so lmbench's method is out: {reason}")
        return found, lacking
    for kind, count in (("threads", 2), ("processes", 2), ("threads", 10), ("threads", 100)):
        found.append(
            Peer(
                f"lmbench's method, {count} {kind}",
                partial(bench.ring_us, kind, count),
                threads=count,
            )
        )
    return found, lacking


def goal(peer: Peer, pairs: Pairs) -> Goal:
    """Return how far apart `switch` and a peer are, as a factor of at least 1."""
    ratio = pairs.ratio
    interval = median_interval(pairs.ratios)
    return Goal(
        f"factor between switch threads={peer.threads} and the peer",
        peer.name,
        MOST_APART,
        max(ratio, 1 / ratio) if ratio > 0 else None,
        "",
        detail=f"switch {statistics.median(pairs.a):.3f} us, peer {statistics.median(pairs.b):.3f} "
        f"us; ratio {ratio:.3f}, {interval.low:.3f} to {interval.high:.3f} "
        f"({interval.coverage:.0%})",
    )


def measure(bench: Bench, pairs: int) -> Result:
    """Measure `switch` and each peer by turns, and compare them."""
    here, notes = peers(bench)
    if not here:
        raise Unmeasured("no peer is here: apt-get install --no-remove rt-tests linux-perf")
    goals: list[Goal] = []
    facts: list[Fact] = []
    samples: dict[str, Sequence[float]] = {}
    for peer in here:
        try:
            taken = alternate(
                Side(f"switch {peer.threads}", partial(bench.median_us, peer.threads)),
                Side(peer.name, peer.measure),
                pairs,
                report=print,
            )
        except Unmeasured as reason:
            notes.append(f"not compared with {peer.name}: {reason}")
            continue
        samples[f"{peer.name}: switch us"] = taken.a
        samples[f"{peer.name}: peer us"] = taken.b
        facts.append(Fact(peer.name, statistics.median(taken.b), "us"))
        if peer.judged:
            goals.append(goal(peer, taken))
    own = [bench.switch(threads) for threads in (1, 2, 10, 100)]
    facts += [
        Fact(f"switch threads={each['threads']}, median", each["switch"]["median_s"] * 1e6, "us")
        for each in own
    ]
    facts.append(Fact("switch threads=2, shortest", own[1]["switch_min_s"] * 1e6, "us"))
    if not any("pipe ring" in note for note in notes):
        both = [bench.ring("threads", 2) for _ in range(pairs)]
        pipe = statistics.median(each["overhead"] for each in both) / 1000
        facts.append(Fact("a write and a read of a pipe, without a switch", pipe, "us"))
    return Result("switch_peers", tuple(goals), tuple(facts), samples, tuple(notes))


def main(argv: list[str] | None = None) -> int:
    """Measure; return 0 when every goal was met."""
    parser = agent_parser("switch_peers", __doc__)
    parser.add_argument("--pairs", type=int, default=7)
    options = parser.parse_args(argv)
    machine = machine_facts()
    agent = agent_of(options)
    with (
        tempfile.TemporaryDirectory(prefix="tare-bench-") as scratch,
        no_throttling() as before,
    ):
        bench = Bench(agent, options.cpu, Path(scratch))
        result = measure(bench, options.pairs)
    return finish(result, {**machine, "rt_runtime_us_before": before})


if __name__ == "__main__":
    sys.exit(main())
