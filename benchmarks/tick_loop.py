"""The tick loop, against a bare chain of counter reads and against oslat (rt-tests).

Three questions, each answered by pairs that alternate on one CPU, in one run: what recording costs
above a bare `lfence; rdtsc` chain; how many samples a second, against oslat; and whether both find
the same gaps when the same SIGSTOP/SIGCONT pattern is injected into each.

Needs root (SCHED_FIFO, and real-time throttling off while it runs), oslat, and two CPUs.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._agent import agent_of, agent_parser
from benchmarks._pairs import Pairs, Side, alternate, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured
from benchmarks._source import AGENT

SOURCES = AGENT

THROTTLING = Path("/proc/sys/kernel/sched_rt_runtime_us")
OSLAT_WARM_UP_S = 1.8
AGENT_WARM_UP_S = 0.8
MOST_RECORDING_NS = 1.0
MOST_DISAGREEMENT = 0.02
GAP_FLOOR_US = 450
"""Injected gaps are longer than this and ordinary interrupts shorter."""
GAP_CEILING_US = 1023
"""What is longer was not injected; oslat's last bin, 1024 us, holds all of that too."""
STOPS_US = (600, 700, 800, 900)
"""What is injected, in turn. The thread sees less: a stop takes some time to reach it."""
STOPS = 300
STOP_EVERY_S = 0.006
WATCH_S = 4
"""How long both watch, so that what nobody injected falls on both alike."""


@dataclass(frozen=True)
class Gaps:
    """Gaps between `GAP_FLOOR_US` and `GAP_CEILING_US`, by number and total time."""

    count: int
    total_us: float

    @classmethod
    def within(cls, durations_us: Iterable[float]) -> Gaps:
        kept = [us for us in durations_us if GAP_FLOOR_US < us <= GAP_CEILING_US]
        return cls(len(kept), sum(kept))


class Bench:
    def __init__(self, agent: Path, cpu: int, scratch: Path) -> None:
        self.agent = agent
        self.cpu = cpu
        self.scratch = scratch
        others = sorted(os.sched_getaffinity(0) - {cpu})
        if not others:
            raise Unmeasured("needs a second CPU, for the program that injects the disturbance")
        os.sched_setaffinity(0, {others[0]})
        self.main_cpu = others[0]

    def agent_command(self, workload: str, params: dict[str, Any], *more: str) -> list[str]:
        # `--cpus` pins the agent's every thread; the main one only sleeps while it measures.
        return [
            str(self.agent),
            "run",
            workload,
            json.dumps(params),
            "--cpus",
            str(self.cpu),
            *more,
        ]

    def agent_result(self, workload: str, params: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(
            self.agent_command(workload, params), check=True, capture_output=True, text=True
        )
        value: dict[str, Any] = json.loads(done.stdout)["value"]
        return value

    def oslat_command(self, seconds: int, report: Path) -> list[str]:
        return [
            "oslat", "--cpu-list", str(self.cpu), "--cpu-main-thread", str(self.main_cpu),
            "--duration", str(seconds), "--rtprio", "99", "--bucket-size", "1024", "--quiet",
            f"--json={report}",
        ]  # fmt: skip

    def oslat_thread(self, report: Path) -> dict[str, Any]:
        thread: dict[str, Any] = json.loads(report.read_text())["thread"]["0"]
        return thread

    # 1. recording against the bare chain

    def recording(self, raw: bool) -> dict[str, float]:
        found = self.agent_result("tsc-loop", {"pairs": 2000, "samples": 10_000, "raw": raw})
        return {
            "bare_ns": found["bare"]["median_ns"],
            "recording_ns": found["recording"]["median_ns"],
            "difference_ns": found["difference"]["median_ns"],
        }

    # 2. samples per second

    def agent_rate(self, seconds: int) -> float:
        found = self.agent_result("tick", {"seconds": seconds, "loop_ns": 0})
        return float(found["samples_per_s"])

    def oslat_rate(self, seconds: int) -> float:
        report = self.scratch / "oslat.json"
        subprocess.run(self.oslat_command(seconds, report), check=True, stdout=subprocess.DEVNULL)
        thread = self.oslat_thread(report)
        return float(sum(thread["histogram"].values()) / thread["duration"])

    # 3. the same disturbance

    def agent_gaps(self) -> tuple[Gaps, Gaps]:
        folder = self.scratch / "series"
        folder.mkdir(exist_ok=True)
        params = {"seconds": WATCH_S, "loop_ns": 0, "log_capacity": 1_000_000}
        command = self.agent_command("tick", params, "--series", str(folder))
        injected = inject(command, AGENT_WARM_UP_S)
        words = array.array("Q")
        words.frombytes((folder / "gaps.bin").read_bytes())
        excess_us = [ns / 1000 for ns in words[len(words) // 2 :]]
        return injected, Gaps.within(excess_us)

    def oslat_gaps(self) -> tuple[Gaps, Gaps]:
        report = self.scratch / "oslat.json"
        injected = inject(self.oslat_command(WATCH_S, report), OSLAT_WARM_UP_S)
        bins = self.oslat_thread(report)["histogram"].items()
        # A bin holds what was rounded up to its whole microsecond: half a one less, on average.
        return injected, Gaps.within(
            int(us) - 0.5 for us, count in bins for _ in range(count if int(us) > 1 else 0)
        )


def inject(command: list[str], warm_up_s: float) -> Gaps:
    """Run `command`, stop and continue it in a known pattern; return what was injected.

    The stop goes to the thread that spins: sent to the process, a sleeping thread on the
    injector's own CPU might take it, and pass it on only once the injector lets it run.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stops_us = []
    try:
        time.sleep(warm_up_s)
        spinning = spinning_thread(process.pid)
        with realtime():
            for number in range(STOPS):
                wanted_ns = STOPS_US[number % len(STOPS_US)] * 1000
                start = time.perf_counter_ns()
                stop_thread(process.pid, spinning)
                while time.perf_counter_ns() - start < wanted_ns:
                    pass
                process.send_signal(signal.SIGCONT)
                stops_us.append((time.perf_counter_ns() - start) / 1000)
                time.sleep(STOP_EVERY_S - wanted_ns * 1e-9)
        if process.wait() != 0:
            raise Unmeasured(f"{command[0]} failed with {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return Gaps.within(stops_us)


def spinning_thread(pid: int) -> int:
    """Return the thread of `pid` that has used the most CPU time so far."""

    def user_ticks(task: Path) -> int:
        return int((task / "stat").read_text().rpartition(")")[2].split()[11])

    return int(max(Path(f"/proc/{pid}/task").iterdir(), key=user_ticks).name)


def stop_thread(pid: int, thread: int) -> None:
    if ctypes.CDLL(None, use_errno=True).tgkill(pid, thread, signal.SIGSTOP) != 0:
        raise Unmeasured(f"cannot stop thread {thread}: {os.strerror(ctypes.get_errno())}")


@contextlib.contextmanager
def realtime() -> Iterator[None]:
    """Keep other programs from taking the CPU between a stop and its end."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextlib.contextmanager
def no_throttling() -> Iterator[str]:
    """Turn real-time throttling off, for both programs alike, and back on."""
    before = THROTTLING.read_text().strip()
    THROTTLING.write_text("-1\n")
    try:
        yield before
    finally:
        THROTTLING.write_text(before + "\n")


def same_gaps(bench: Bench, pairs: int) -> tuple[Pairs, Pairs, dict[str, list[float]]]:
    """Inject into both by turns; return shares found of the injected gaps and of their time."""
    watches = {"tare": bench.agent_gaps, "oslat": bench.oslat_gaps}
    samples: dict[str, list[float]] = {}
    for pair in range(pairs):
        for name in list(watches)[:: 1 if pair % 2 else -1]:
            injected, found = watches[name]()
            samples.setdefault(f"{name} gaps injected", []).append(injected.count)
            samples.setdefault(f"{name} gaps found", []).append(found.count)
            samples.setdefault(f"{name} gap us injected", []).append(injected.total_us)
            samples.setdefault(f"{name} gap us found", []).append(found.total_us)

    def shares(name: str, what: str) -> tuple[float, ...]:
        both = zip(samples[f"{name} {what} found"], samples[f"{name} {what} injected"], strict=True)
        return tuple(found / injected for found, injected in both)

    counts = Pairs("tare", "oslat", shares("tare", "gaps"), shares("oslat", "gaps"))
    times = Pairs("tare", "oslat", shares("tare", "gap us"), shares("oslat", "gap us"))
    return counts, times, samples


def recording_goal(name: str, runs: list[dict[str, float]]) -> Goal:
    extra = [run["difference_ns"] for run in runs]
    interval = median_interval(extra)
    bare = statistics.median(run["bare_ns"] for run in runs)
    return Goal(
        name,
        "a bare lfence; rdtsc chain",
        MOST_RECORDING_NS,
        statistics.median(extra),
        "ns",
        detail=f"{interval.low:.2f} to {interval.high:.2f} ns ({interval.coverage:.0%}), "
        f"each over 2000 alternating pairs; the bare chain takes {bare:.2f} ns a sample",
    )


def agreement_goal(name: str, shares: Pairs) -> Goal:
    return Goal(
        name,
        "oslat, same injection",
        MOST_DISAGREEMENT,
        abs(shares.ratio - 1),
        "",
        detail=f"found of what was injected: tare {statistics.median(shares.a):.4f}, "
        f"oslat {statistics.median(shares.b):.4f}",
    )


def measure(bench: Bench, pairs: int, seconds: int) -> Result:
    plain = [bench.recording(raw=False) for _ in range(pairs)]
    raw = [bench.recording(raw=True) for _ in range(pairs)]
    rates = alternate(
        Side("tare", lambda: bench.agent_rate(seconds)),
        Side("oslat", lambda: bench.oslat_rate(seconds)),
        pairs,
        report=print,
    )
    counts, times, samples = same_gaps(bench, pairs)
    interval = median_interval(rates.ratios)
    goals = (
        recording_goal("recording a sample", plain),
        recording_goal("recording a sample and keeping it raw", raw),
        Goal(
            "samples per second, as a multiple",
            "oslat on the same CPU",
            1.0,
            rates.ratio,
            "",
            "at least",
            detail=f"{interval.low:.3f} to {interval.high:.3f} ({interval.coverage:.0%})",
        ),
        agreement_goal("disagreement on the number of gaps", counts),
        agreement_goal("disagreement on their total time", times),
    )
    facts = (
        Fact("samples per second, tare", statistics.median(rates.a), "1/s"),
        Fact("samples per second, oslat", statistics.median(rates.b), "1/s"),
    )
    samples |= {"tare samples/s": list(rates.a), "oslat samples/s": list(rates.b)}
    for label, runs in (("recording", plain), ("recording raw", raw)):
        for key in runs[0]:
            samples[f"{label} {key}"] = [run[key] for run in runs]
    notes = (f"injected: {STOPS} stops of {', '.join(map(str, STOPS_US))} us in turn",)
    return Result("tick_loop", goals, facts, samples, notes)


def main(argv: list[str] | None = None) -> int:
    """Measure; return 0 when every goal was met."""
    parser = agent_parser("tick_loop", __doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="of each run for samples/s")
    options = parser.parse_args(argv)
    machine = machine_facts()
    agent = agent_of(options)
    if shutil.which("oslat") is None:
        raise Unmeasured("oslat is missing: apt-get install --no-remove rt-tests")
    allowed = os.sched_getaffinity(0)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tare-bench-") as scratch,
            no_throttling() as before,
        ):
            bench = Bench(agent, options.cpu, Path(scratch))
            result = measure(bench, options.pairs, options.seconds)
    finally:
        os.sched_setaffinity(0, allowed)
    return finish(result, {**machine, "rt_runtime_us_before": before})


if __name__ == "__main__":
    sys.exit(main())
