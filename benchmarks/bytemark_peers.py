"""Bytemark's kernels: how well they repeat, and how they grow with threads, next to peers.

Each kernel is repeated natively on one CPU. Then kernels, sysbench's and stress-ng's methods run
with one thread and with one for each CPU, by turns. All run under SCHED_FIFO, so that hardly
anything else on the computer takes their CPUs away. `tare help benchmarks` explains the order.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks._agent import agent_of, agent_parser
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured
from benchmarks._source import AGENT
from benchmarks.tick_loop import no_throttling
from tare.workloads.cpu.bytemark import KERNELS

SOURCES = AGENT

MOST_VARIATION = 0.02
"""The coefficient of variation that kernels are to keep to."""
MOST_APART = 0.1
"""How far a kernel's growth with threads may be outside the range of the peers' methods."""
PRIORITY = 98
SLACK_S = 60.0
METHODS: Mapping[str, str] = {
    "int64": "integer arithmetic in registers, as `fp-emulation` and `idea`",
    "double": "arithmetic with doubles, as `fourier`",
    "trig": "sines, as `fourier`",
    "bitops": "bit by bit, as `bitfield`",
    "prime": "short loops with many branches, as `huffman` and sorting",
    "matrixprod": "a matrix in the caches, as `lu` and `neural-net`",
}
"""Methods of stress-ng's --cpu, and which of Bytemark's kernels do likewise."""


@dataclass(frozen=True)
class Bench:
    """What measures: the agent, the CPU for what is repeated, and for how long each time.

    Args:
        agent: The agent's program.
        cpu: Where kernels are repeated.
        cpus: All CPUs that may be used.
        seconds: How long each kernel or method runs.
    """

    agent: Path
    cpu: int
    cpus: tuple[int, ...]
    seconds: float

    def kernel(self, name: str, threads: int) -> float:
        """Return a kernel's iterations per second, of all threads together."""
        params = json.dumps({"seconds": self.seconds, "threads": threads})
        argv = [str(self.agent), "run", name, params, "--cpus", self._cpus(threads)]
        printed = output([*self._kept(threads), *argv], self.seconds)
        return float(json.loads(printed)["value"]["iterations_per_s"])

    def stress_ng(self, method: str, threads: int) -> float:
        """Return bogo operations per second of a method of stress-ng.

        Raises:
            Unmeasured: It does not know the method.
        """
        argv = ["stress-ng", "--cpu", str(threads), "--cpu-method", method, "--metrics-brief"]
        printed = output(
            [*self._kept(threads), *argv, "--timeout", self._whole() + "s"], self.seconds
        )
        found = re.search(r"\bcpu\s+(\d+)\s+([\d.]+)", printed)
        if found is None or not float(found[1]):
            raise Unmeasured(
                f"stress-ng reported no operations of {method}: {printed.strip()[-200:]}"
            )
        return float(found[1]) / float(found[2])

    def sysbench(self, threads: int) -> float:
        """Return events per second of sysbench's search for primes."""
        argv = ["sysbench", "cpu", f"--threads={threads}", f"--time={self._whole()}", "run"]
        found = re.search(
            r"events per second:\s+([\d.]+)", output([*self._kept(threads), *argv], self.seconds)
        )
        if found is None:
            raise Unmeasured("sysbench reported no rate")
        return float(found[1])

    def _cpus(self, threads: int) -> str:
        # With one thread the CPU that kernels are repeated on.
        return ",".join(map(str, [self.cpu] if threads == 1 else self.cpus[:threads]))

    def _kept(self, threads: int) -> list[str]:
        return ["chrt", "-f", str(PRIORITY), "taskset", "-c", self._cpus(threads)]

    def _whole(self) -> str:
        return str(max(1, round(self.seconds)))


def output(argv: Sequence[str], seconds: float) -> str:
    """Run a command; return what it wrote.

    Raises:
        Unmeasured: It failed; with its last words.
    """
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=seconds + SLACK_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unmeasured(f"{argv[0]}: {error}") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip()[-200:]
        raise Unmeasured(f"{argv[0]} ended with {done.returncode}: {last}")
    # stress-ng prints its figures on standard error.
    return done.stdout + done.stderr if "stress-ng" in argv else done.stdout


def variation(values: Sequence[float]) -> float:
    """Return the coefficient of variation: the sample's standard deviation over its mean."""
    return statistics.stdev(values) / statistics.fmean(values)


def repeat(
    bench: Bench, repeats: int, tell: Callable[[str], None] = print
) -> dict[str, list[float]]:
    """Measure every kernel ``repeats`` times, one round of all kernels after another."""
    rates: dict[str, list[float]] = {kernel.name: [] for kernel in KERNELS}
    for number in range(-1, repeats):
        for name, values in rates.items():
            rate = bench.kernel(name, 1)
            if number >= 0:
                values.append(rate)
        tell(f"round {number + 1}/{repeats}" if number >= 0 else "warm-up")
    return rates


def growth(one: Callable[[int], float], threads: int, pairs: int) -> float:
    """Return the median ratio of a rate with ``threads`` threads to that with one."""
    ratios = []
    for number in range(pairs):
        order = (1, threads) if number % 2 else (threads, 1)
        rates = {count: one(count) for count in order}
        ratios.append(rates[threads] / rates[1])
    return statistics.median(ratios)


def grown(bench: Bench, pairs: int, notes: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Return how kernels, and others' methods, grow from one thread to one for each CPU."""
    threads = len(bench.cpus)
    ours = {
        kernel.name: growth(partial(bench.kernel, kernel.name), threads, pairs)
        for kernel in KERNELS
    }
    methods: dict[str, Callable[[int], float]] = {"sysbench cpu": bench.sysbench}
    for method in METHODS:
        methods[f"stress-ng {method}"] = partial(bench.stress_ng, method)
    theirs: dict[str, float] = {}
    for name, rate in methods.items():
        if not shutil.which(program := name.split()[0]):
            notes.append(
                f"{program} is not here (apt-get install --no-remove {program}): not compared"
            )
            continue
        try:
            theirs[name] = growth(rate, threads, pairs)
        except Unmeasured as reason:
            notes.append(f"not compared with {name}: {reason}")
    return ours, theirs


def outside(value: float, among: Sequence[float]) -> float:
    """Return how far ``value`` is outside the range of ``among``, as a share of its edge."""
    low, high = min(among), max(among)
    return max(0.0, low / value - 1, value / high - 1)


def measure(bench: Bench, repeats: int, pairs: int) -> Result:
    """Measure how well kernels repeat, and how all grow with threads."""
    rates = repeat(bench, repeats)
    spread = {name: variation(values) for name, values in rates.items()}
    goals = [
        Goal(
            f"coefficient of variation of {name}",
            f"itself, {repeats} times",
            MOST_VARIATION,
            value,
            "",
            detail=f"median {statistics.median(rates[name]):,.0f} iterations/s",
        )
        for name, value in spread.items()
    ]
    samples: dict[str, Sequence[float]] = {
        f"{name} iterations/s": values for name, values in rates.items()
    }
    facts: list[Fact] = []
    notes: list[str] = []
    if len(bench.cpus) < 2:
        notes.append("one CPU: growth with threads cannot be seen")
    else:
        ours, theirs = grown(bench, pairs, notes)
        if theirs:
            far = max(ours, key=lambda name: outside(ours[name], list(theirs.values())))
            goals.append(
                Goal(
                    f"growth to {len(bench.cpus)} threads, outside of the peers' range",
                    "sysbench cpu, stress-ng --cpu-method",
                    MOST_APART,
                    outside(ours[far], list(theirs.values())),
                    "",
                    detail=f"farthest is {far}, {ours[far]:.3f} times; peers "
                    f"{min(theirs.values()):.3f} to {max(theirs.values()):.3f}",
                )
            )
        facts += [
            Fact(f"growth of {name}", value, "times") for name, value in {**ours, **theirs}.items()
        ]
    return Result("bytemark_peers", tuple(goals), tuple(facts), samples, tuple(notes))


def main(argv: list[str] | None = None) -> int:
    """Measure; return 0 when every goal was met."""
    parser = agent_parser("bytemark_peers", __doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=3, help="of one thread and all threads")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each kernel")
    options = parser.parse_args(argv)
    machine = machine_facts()
    agent = agent_of(options)
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    with no_throttling() as before:
        bench = Bench(agent, options.cpu, cpus, options.seconds)
        result = measure(bench, options.repeats, options.pairs)
    return finish(result, {**machine, "rt_runtime_us_before": before})


if __name__ == "__main__":
    sys.exit(main())
