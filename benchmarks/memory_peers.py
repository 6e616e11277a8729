"""Memory bandwidth next to STREAM's method, and to stress-ng's and sysbench's.

Judged are the triad, against the same loop in C, and all four loops together, which is the one
figure that stress-ng reports. `tare help benchmarks` explains what differs.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._agent import agent_of, agent_parser
from benchmarks._pairs import Pairs, Side, alternate, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured
from benchmarks._source import AGENT

SOURCES = AGENT

LOOPS = Path(__file__).with_name("stream_loops.c")
MOST_APART = 0.05
ARRAYS_MOVED: Mapping[str, int] = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
"""Arrays that each loop reads and writes, as STREAM counts (McCalpin 1995)."""
MIB = 1 << 20
SLACK_S = 60.0
STREAM_S = 6
"""In less, stress-ng finds its run too short to tell a rate."""


def output(argv: Sequence[str], cpu: int, limit_s: float = SLACK_S) -> str:
    """Run a command on one CPU; return what it wrote, its standard error with it.

    Raises:
        Unmeasured: It cannot be run, failed or took too long; with its last words.
    """
    try:
        done = subprocess.run(
            ["chrt", "-f", "50", "taskset", "-c", str(cpu), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unmeasured(f"{argv[0]}: {error}") from error
    if done.returncode:
        raise Unmeasured(f"{argv[0]} ended with {done.returncode}: {done.stdout.strip()[-200:]}")
    return done.stdout


def together(rates: Mapping[str, float]) -> float:
    """Return the bandwidth of the four loops one after another, in the unit of ``rates``."""
    times = (ARRAYS_MOVED[name] / rates[name] for name in ARRAYS_MOVED)
    return sum(ARRAYS_MOVED.values()) / sum(times)


class Bench:
    def __init__(self, agent: Path, cpu: int, scratch: Path, array: int, seconds: float) -> None:
        self.agent = agent
        self.cpu = cpu
        self.scratch = scratch
        self.array = array
        self.seconds = seconds

    def tare(self, kind: str = "f64") -> dict[str, float]:
        """Return Tare's four bandwidths: the medians, in bytes per second."""
        params = {"seconds": self.seconds / 8, "array_bytes": self.array, "threads": 1}
        argv = [str(self.agent), "run", "memory-bandwidth", json.dumps(params)]
        printed = output([*argv, "--cpus", str(self.cpu)], self.cpu)
        found: dict[str, Any] = json.loads(printed[printed.index("{") :])["value"]["bandwidth"]
        return {name: found[f"{name}-{kind}"]["median_bytes_per_s"] for name in ARRAYS_MOVED}

    def loops(self, which: str = "median") -> dict[str, float]:
        """Return the four bandwidths of the loops in C.

        Raises:
            Unmeasured: They cannot be compiled here.
        """
        program = self.scratch / "stream_loops"
        if not program.exists():
            output(["gcc", "-O3", "-std=gnu11", "-o", str(program), str(LOOPS)], self.cpu)
        found = json.loads(output([str(program), str(self.array), str(self.seconds)], self.cpu))
        return {name: found[name][which] for name in ARRAYS_MOVED}

    def stress_ng(self) -> float:
        """Return what stress-ng's stream read and wrote per second, in bytes."""
        # Its arrays are four times the cache size that it is given.
        argv = ["stress-ng", "--stream", "1", "--stream-l3-size", str(self.array // 4)]
        printed = output([*argv, "--timeout", f"{max(STREAM_S, round(self.seconds))}s"], self.cpu)
        return stream_rate(printed)

    def sysbench(self, operation: str) -> float:
        """Return the bytes per second that sysbench reads or writes in one buffer."""
        argv = [
            *("sysbench", "memory", "--memory-block-size=64M", "--memory-total-size=10T"),
            *(f"--memory-oper={operation}", f"--time={max(1, round(self.seconds))}", "run"),
        ]
        found = re.search(r"\(([\d.]+) MiB/sec\)", output(argv, self.cpu))
        if found is None:
            raise Unmeasured("sysbench reported no bandwidth")
        return float(found[1]) * MIB


def stream_rate(printed: str) -> float:
    """Return bytes read and written per second in what stress-ng says of its stream.

    Raises:
        Unmeasured: They are missing.
    """
    found = re.search(r"memory rate: ([\d.]+) MB read/sec, ([\d.]+) MB write/sec", printed)
    if found is not None:
        return (float(found[1]) + float(found[2])) * 1e6
    found = re.search(r"memory rate: ([\d.]+) MB/sec", printed)
    if found is None:
        raise Unmeasured(f"stress-ng reported no memory rate: {printed.strip()[-200:]}")
    return float(found[1]) * 1e6


def goal(name: str, peer: str, pairs: Pairs) -> Goal:
    """Return how far Tare is from a peer, as a share of the peer's."""
    interval = median_interval(pairs.ratios)
    return Goal(
        name,
        peer,
        MOST_APART,
        abs(pairs.ratio - 1.0),
        "",
        detail=f"Tare {statistics.median(pairs.a) / 1e9:.2f} GB/s, peer "
        f"{statistics.median(pairs.b) / 1e9:.2f} GB/s; ratio {pairs.ratio:.3f}, "
        f"{interval.low:.3f} to {interval.high:.3f} ({interval.coverage:.0%})",
    )


def measure(bench: Bench, pairs: int) -> Result:
    """Measure Tare and each peer by turns."""
    goals: list[Goal] = []
    facts: list[Fact] = []
    notes: list[str] = []
    samples: dict[str, Sequence[float]] = {}
    taken = alternate(
        Side("tare", lambda: bench.tare()["triad"]),
        Side("C", lambda: bench.loops()["triad"]),
        pairs,
        report=print,
    )
    goals.append(goal("triad of doubles", "STREAM's loop in C, gcc -O3", taken))
    samples["tare triad B/s"], samples["C triad B/s"] = taken.a, taken.b
    ours, theirs = bench.tare(), bench.loops()
    facts += [
        Fact(f"{name} of doubles, as a multiple of the loop in C", ours[name] / theirs[name], "")
        for name in ARRAYS_MOVED
    ]
    others: dict[str, Callable[[], float]] = {
        "stress-ng --stream, all four loops": bench.stress_ng,
        "sysbench memory, reading": partial(bench.sysbench, "read"),
        "sysbench memory, writing": partial(bench.sysbench, "write"),
    }
    for name, peer in others.items():
        program = name.split()[0]
        if not shutil.which(program):
            notes.append(
                f"{program} is not here (apt-get install --no-remove {program}): not compared"
            )
            continue
        try:
            taken = alternate(
                Side("tare, all four", lambda: together(bench.tare())),
                Side(name, peer),
                pairs,
                report=print,
            )
        except Unmeasured as reason:
            notes.append(f"not compared with {name}: {reason}")
            continue
        samples[f"tare next to {name}"], samples[name] = taken.a, taken.b
        if peer == bench.stress_ng:
            goals.append(goal("copy, scale, add and triad together", name, taken))
        facts.append(Fact(f"{name}, as a multiple of Tare's four loops", 1 / taken.ratio, ""))
    best = [bench.loops("best")["triad"] for _ in range(3)]
    facts.append(
        Fact("triad in C, the best of a run, as STREAM reports it", max(best) / 1e9, "GB/s")
    )
    facts.append(Fact("size of each array", bench.array / MIB, "MiB"))
    return Result("memory_peers", tuple(goals), tuple(facts), samples, tuple(notes))


def main(argv: list[str] | None = None) -> int:
    """Measure; return 0 when every goal was met."""
    parser = agent_parser("memory_peers", __doc__)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--array", type=int, default=128, help="MiB of each array")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    options = parser.parse_args(argv)
    machine = machine_facts()
    agent = agent_of(options)
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as scratch:
        bench = Bench(
            agent,
            options.cpu,
            Path(scratch),
            options.array * MIB,
            options.seconds,
        )
        result = measure(bench, options.pairs)
    return finish(result, machine)


if __name__ == "__main__":
    sys.exit(main())
