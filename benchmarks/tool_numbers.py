"""The numbers of fio, Bonnie++ and iperf3: what they wrote, next to what Tare reports of the run.

A study is run as a user does it. Then every file that the programs wrote is read here, by
code of its own, and compared with the run's observations. fio is also held to what the kernel
counted at the disk meanwhile, which neither fio nor Tare has a hand in.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import CarriedOut, Unmeasured, carry_out

MOST_APART = 1e-9
"""Numbers are the same except for the rounding of their conversion."""
MOST_FROM_COUNTERS = 0.02
"""The file system writes a little of its own."""

STUDY: Mapping[str, Any] = {
    "study": "tool-numbers",
    "baseline": "bare",
    "blocks": {"least": 2, "most": 2},
    "shape": {"vcpus": 1, "memory": "512MiB", "disk": "512MiB"},
    "arms": {"bare": {"platform": "bare"}},
    "workloads": {
        "fio": {
            "mode": ["random-read", "random-write", "random-mixed", "sequential-read"],
            "duration": "2s",
        },
        "fio-deep": {"workload": "fio", "mode": "random-read", "depth": 16, "duration": "2s"},
        "bonnie": {"size": "256MiB", "chars": False},
        "net-stream": {"direction": ["to-machine", "from-machine"], "duration": "2s"},
    },
}


def numbers_of_fio(text: str) -> Iterator[tuple[str, float]]:
    """Yield metric and value of what fio wrote, in SI units."""
    job = json.loads(text)["jobs"][0]
    done = [name for name in ("read", "write") if job[name]["total_ios"]]
    yield "rate", sum(job[name]["bw_bytes"] for name in done)
    yield "operations", sum(job[name]["iops"] for name in done)
    for name in done:
        times = job[name]["clat_ns"]
        yield f"{name}-rate", job[name]["bw_bytes"]
        yield f"{name}-operations", job[name]["iops"]
        yield f"{name}-latency-mean", times["mean"] / 1e9
        yield f"{name}-latency-median", times["percentile"]["50.000000"] / 1e9
        yield f"{name}-latency-p99", times["percentile"]["99.000000"] / 1e9
        yield f"{name}-latency-maximum", times["max"] / 1e9
    yield "cpu", (job["usr_cpu"] + job["sys_cpu"]) / 100


def numbers_of_iperf3(text: str) -> Iterator[tuple[str, float]]:
    """Yield metric and value of what iperf3 wrote, in SI units."""
    end = json.loads(text)["end"]
    yield "bandwidth", end["sum_received"]["bits_per_second"] / 8
    yield "retransmits", end["sum_sent"]["retransmits"]
    yield "machine-cpu", end["cpu_utilization_percent"]["remote_total"] / 100


def numbers_of_bonnie(text: str) -> Iterator[tuple[str, float]]:
    """Yield metric and value of the rates in Bonnie++'s CSV (bon_csv2html(1)), in SI units."""
    fields = next(line for line in text.splitlines() if line.startswith("1.98,")).split(",")
    places = {"put-block": 11, "rewrite": 13, "get-block": 17, "seeks": 19}
    for name, place in places.items():
        # Plus signs stand for a phase that was too quick to be rated.
        if fields[place] and "+" not in fields[place]:
            yield name, float(fields[place]) * (1 if name == "seeks" else 1024)


READERS: Mapping[str, Callable[[str], Iterator[tuple[str, float]]]] = {
    "fio": numbers_of_fio,
    "fio-deep": numbers_of_fio,
    "bonnie": numbers_of_bonnie,
    "net-stream": numbers_of_iperf3,
}


def apart(one: float, other: float) -> float:
    """Return how far two numbers are apart, as a share of the larger; 0 for two zeros."""
    largest = max(abs(one), abs(other))
    return abs(one - other) / largest if largest else 0.0


def compared(run: CarriedOut, outputs: Mapping[str, str]) -> dict[str, list[float]]:
    """Return by workload how far each number is from what its program wrote.

    Args:
        run: The run.
        outputs: What programs wrote, by the path that the cells' events name.

    Raises:
        Unmeasured: A cell has no output, or lacks an observation of what the program wrote.
    """
    observed: dict[str, dict[str, float]] = {}
    found: dict[str, list[float]] = {}
    for record in run.records:
        event = record.event
        if event.type == "observation":
            observed.setdefault(event.cell, {})[event.metric] = event.value
        elif event.type == "cell_finished":
            workload = event.cell.split("/")[3].partition("[")[0].partition("#")[0]
            written = [outputs[path] for path in event.logs if path in outputs]
            if not written:
                raise Unmeasured(f"the run kept no output of {event.cell}")
            for metric, value in READERS[workload](written[0]):
                if metric not in observed[event.cell]:
                    raise Unmeasured(f"{event.cell} has no {metric}")
                found.setdefault(workload.partition("-deep")[0], []).append(
                    apart(value, observed[event.cell][metric])
                )
    return found


def from_counters(run: CarriedOut, outputs: Mapping[str, str]) -> list[float]:
    """Return how far fio's bytes are from what the kernel counted at the disk, cell by cell."""
    found = []
    for record in run.records:
        event = record.event
        if event.type != "cell_finished" or "/fio" not in event.cell:
            continue
        disk = event.facts["files"]["disk"]
        written = next(outputs[path] for path in event.logs if path in outputs)
        job = json.loads(written)["jobs"][0]
        counted = (disk["read_bytes_per_s"] + disk["write_bytes_per_s"]) * disk["seconds"]
        found.append(apart(counted, job["read"]["io_bytes"] + job["write"]["io_bytes"]))
    return found


def goals_of(run: CarriedOut, outputs: Mapping[str, str]) -> tuple[tuple[Goal, ...], list[Fact]]:
    """Return whether Tare's numbers are the programs', and how far fio is from the kernel."""
    found = compared(run, outputs)
    names = {"fio": "fio", "bonnie": "Bonnie++", "net-stream": "iperf3"}
    goals = [
        Goal(
            f"difference between what Tare reports and what {names[workload]} wrote",
            f"{len(shares)} numbers of the same run",
            MOST_APART,
            max(shares),
            "",
        )
        for workload, shares in found.items()
    ]
    counted = from_counters(run, outputs)
    if counted:
        goals.append(
            Goal(
                "fio's bytes, away from the kernel's count at the disk",
                f"/proc/diskstats, in {len(counted)} cells",
                MOST_FROM_COUNTERS,
                sorted(counted)[len(counted) // 2],
                "",
                detail=f"largest {max(counted):.4f}",
            )
        )
    return tuple(goals), [Fact("numbers compared", sum(map(len, found.values())), "")]


def main(argv: list[str] | None = None) -> int:
    """Measure; return 0 when every goal was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tool_numbers", description=__doc__)
    parser.parse_args(argv)
    machine = machine_facts()
    outputs: dict[str, str] = {}

    def keep(folder: Path) -> None:
        for path in sorted((folder / "outputs").glob("*")):
            outputs[str(path.relative_to(folder))] = path.read_text()

    run = carry_out(STUDY, look=keep)
    goals, facts = goals_of(run, outputs)
    samples: dict[str, Sequence[float]] = {"fio from counters": from_counters(run, outputs)}
    return finish(Result("tool_numbers", goals, tuple(facts), samples), machine)


if __name__ == "__main__":
    sys.exit(main())
