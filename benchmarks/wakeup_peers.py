"""The wakeup workload, next to cyclictest: on the bare machine and in a guest of QEMU.

Both sleep to the same absolute times under SCHED_FIFO, in the same machine right after one another
and in a random order in each block. See `tare help benchmarks` for the method.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._pairs import Pairs, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured, carry_out
from benchmarks._source import AGENT
from tare.events import Record

SOURCES = AGENT

MEDIAN_WITHIN = 0.05
MEDIAN_WITHIN_S = 1e-6
TAIL_WITHIN = 0.20
INTERVAL_US = 1000
MOST_US = 50_000
"""The last bucket of cyclictest's histogram."""
FIGURES = {"median": "latency-median", "p99": "latency-p99", "p99.9": "latency-p99.9"}
"""What is compared: cyclictest's name here, and the workload's."""
# A bucket holds what is at least so many whole microseconds, so its middle is half a one higher.
QUANTILES = """
/^[0-9]/ { bucket[++rows] = $1; count[rows] = $2; total += $2 }
/^# Max Latencies/ { most = $4 }
END {
    if (total == 0) exit 1
    split("0.5 0.99 0.999", share, " "); split("median p99 p99.9", name, " ")
    for (row = 1; row <= rows; row++) {
        seen += count[row]
        for (i = 1; i <= 3; i++)
            if (!(i in printed) && seen >= share[i] * total) {
                printed[i] = 1; print name[i], bucket[row] + 0.5
            }
    }
    print "max", most + 0
}
"""


ARMS: Mapping[str, Mapping[str, Any]] = {
    "bare": {"platform": "bare"},
    "qemu": {"platform": "qemu", "accelerator": "tcg"},
}


def study(blocks: int, seconds: float, arms: Sequence[str] = tuple(ARMS)) -> dict[str, Any]:
    """Return the study that measures both on the named arms, the first as its baseline."""
    asked = ["cyclictest", "--quiet", "--mlockall", "--priority=99", "--threads=1"]
    asked += [f"--interval={INTERVAL_US}", f"--loops={round(seconds * 1e6 / INTERVAL_US)}"]
    asked += [f"--histogram={MOST_US}"]
    script = f"{' '.join(asked)} >/tmp/cyclictest && mawk '{QUANTILES}' /tmp/cyclictest"
    metric = {"unit": "s", "better": "lower", "scale": 1e-6}
    return {
        "study": "wakeup-peers",
        "baseline": arms[0],
        "blocks": {"least": blocks, "most": blocks},
        "shape": {"vcpus": 1, "memory": "384MiB"},
        "arms": {arm: dict(ARMS[arm]) for arm in arms},
        "scenarios": {"pinned": {"subject": {"cpus": "pinned"}}},
        "workloads": {
            "wakeup": {"interval": f"{INTERVAL_US}us", "duration": f"{seconds}s"},
            "cyclictest": {
                "workload": "command",
                "argv": ["sh", "-c", script],
                "expect": f"{seconds}s",
                "toolbox": {"packages": ["rt-tests", "mawk"]},
                "metrics": {
                    name: {**metric, "regex": rf"^{name.replace('.', '[.]')} ([0-9.]+)$"}
                    for name in (*FIGURES, "max")
                },
            },
        },
    }


def values(records: Sequence[Record]) -> Mapping[tuple[str, str, str], tuple[float, ...]]:
    """Return each figure by arm, workload and metric, in seconds, in the order of blocks."""
    cells: dict[str, tuple[str, str]] = {}
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for record in records:
        event = record.event
        if event.type == "cell_started":
            cells[event.cell] = (event.arm, event.workload)
        elif event.type == "observation" and event.role == "subject":
            found[*cells[event.cell], event.metric].append(event.value)
    return {key: tuple(each) for key, each in found.items()}


def goal(arm: str, name: str, pairs: Pairs) -> Goal | None:
    """Return how far apart the two are, as a multiple of what is allowed; None: it is only shown.

    A median may differ by 5 % or by a microsecond, whichever is more; the tail by 20 %.
    """
    if name == "p99":
        return None
    peer = statistics.median(pairs.b)
    ratio, interval = pairs.ratio, median_interval(pairs.ratios)
    allowed = TAIL_WITHIN if name == "p99.9" else max(MEDIAN_WITHIN, MEDIAN_WITHIN_S / peer)
    return Goal(
        f"{arm}, {name}: differs by",
        "cyclictest",
        allowed * 100,
        abs(ratio - 1) * 100,
        "%",
        detail=f"wakeup {statistics.median(pairs.a) * 1e6:.2f} us, cyclictest {peer * 1e6:.2f} us; "
        f"ratio {ratio:.3f}, {interval.low:.3f} to {interval.high:.3f} ({interval.coverage:.0%})",
    )


def result(
    found: Mapping[tuple[str, str, str], tuple[float, ...]], arms: Sequence[str] = tuple(ARMS)
) -> Result:
    """Return what the two reported on each arm, and how they differ.

    Raises:
        Unmeasured: A figure is missing.
    """
    goals: list[Goal] = []
    facts: list[Fact] = []
    samples: dict[str, Sequence[float]] = {}
    for arm in arms:
        for name, metric in {**FIGURES, "max": "latency-max"}.items():
            own, peer = found.get((arm, "wakeup", metric)), found.get((arm, "cyclictest", name))
            if not own or not peer:
                raise Unmeasured(f"no value of {name} on {arm}")
            pairs = Pairs("wakeup", "cyclictest", own, peer)
            samples[f"{arm}, {name}: wakeup us"] = [value * 1e6 for value in own]
            samples[f"{arm}, {name}: cyclictest us"] = [value * 1e6 for value in peer]
            facts.append(Fact(f"{arm}, {name}: wakeup", statistics.median(own) * 1e6, "us"))
            facts.append(Fact(f"{arm}, {name}: cyclictest", statistics.median(peer) * 1e6, "us"))
            judged = goal(arm, name, pairs) if name != "max" else None
            goals += [judged] if judged else []
    return Result("wakeup_peers", tuple(goals), tuple(facts), samples)


def main(argv: list[str] | None = None) -> int:
    """Measure; return 0 when every goal was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wakeup_peers", description=__doc__)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--arm", action="append", choices=list(ARMS), help="only these")
    options = parser.parse_args(argv)
    arms = tuple(options.arm or ARMS)
    machine = machine_facts()
    run = carry_out(study(options.blocks, options.seconds, arms))
    return finish(result(values(run.records), arms), machine)


if __name__ == "__main__":
    sys.exit(main())
