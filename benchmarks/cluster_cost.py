"""What a cluster of Hadoop costs beside its jobs: its start, Tare's share, and the monitoring.

See docs/benchmarks.md for the method.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._agent import agent_of, agent_parser
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import CarriedOut, Unmeasured, carry_out, reasons
from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.events import Record

SHARE, CORE = 0.02, 0.01
START_S = {1: 20.0, 4: 45.0}
"""Seconds to a usable cluster, by its slaves."""
WATCH_S = 30.0
HELLO_S = 20.0


def study(slaves: Sequence[int], blocks: int) -> dict[str, Any]:
    """Return a study of one job on clusters of so many slaves."""
    scenarios = {f"slaves-{number}": {"cluster": {"slaves": number}} for number in slaves}
    return {
        "study": "cluster-cost",
        "baseline": "bare",
        "blocks": {"least": blocks, "most": blocks},
        "shape": {"vcpus": 1, "memory": "1GiB", "disk": "2GiB"},
        "arms": {"bare": {"platform": "bare"}, "oci": {"platform": "oci"}},
        "scenarios": scenarios,
        "workloads": {"wordcount": {"copies": 2}},
    }


def starts(records: Sequence[Record]) -> dict[int, list[float]]:
    """Return the seconds from machines that are ready to a usable cluster, by its slaves."""
    found: dict[int, list[float]] = {}
    for record in records:
        if record.event.type == "cluster_ready":
            found.setdefault(int(record.event.facts["slaves"]), []).append(record.event.took_s)
    return found


def shares(records: Sequence[Record]) -> list[float]:
    """Return, of each job's wall time, the share in which none of its steps ran.

    That is asking the history server and the counters, dropping caches and removing files.
    """
    found = []
    for record in records:
        event = record.event
        if event.type == "cell_finished" and event.status == "ok":
            steps = event.facts["job"]["steps"].values()
            worked = sum(float(step["took_s"]) for step in steps)
            found.append((event.measured_s - worked) / event.measured_s)
    return found


async def watching(agent: Path, seconds: float) -> float:
    """Return the share of a core that an agent takes which samples all counters once a second."""
    process = await asyncio.create_subprocess_exec(
        str(agent), "serve", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    client = AgentClient(StreamChannel(process.stdout, process.stdin), name="the sampler")
    try:
        await client.hello(HELLO_S)
        await client.counters_start()
        before, began = cpu_s(process.pid), asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        took = cpu_s(process.pid) - before
        return took / (asyncio.get_running_loop().time() - began)
    finally:
        await client.shutdown()
        await client.close()
        await process.wait()


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, to the nanosecond (schedstat, sched-stats.rst)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


def run_goals(run: CarriedOut) -> list[Goal]:
    """Return the goals that a run of :func:`study` meets or misses."""
    if why := [reason for reason in reasons(run.records) if "skipped" not in reason]:
        raise Unmeasured("; ".join(why))
    found = starts(run.records)
    goals = [
        Goal(
            f"cluster of {slaves} slave{'s' * (slaves > 1)} usable after its machines are ready",
            "itself",
            limit,
            median(found[slaves]) if slaves in found else None,
            "s",
            detail=f"median of {len(found.get(slaves, ()))}",
        )
        for slaves, limit in START_S.items()
    ]
    taken = shares(run.records)
    share = Goal(
        "wall time of a job in which none of its steps runs",
        "the job's whole wall time",
        SHARE * 100,
        median(taken) * 100 if taken else None,
        "%",
        detail=f"median of {len(taken)}",
    )
    return [*goals, share]


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser: argparse.ArgumentParser = agent_parser("cluster_cost", __doc__)
    parser.add_argument("--blocks", type=int, default=2, help="blocks to run, at least 2")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    core: float | None = None
    goals: list[Goal] = []
    detail = f"{WATCH_S:.0f} s on this computer"
    try:
        core = asyncio.run(watching(agent_of(wanted), WATCH_S)) * 100
        goals = run_goals(carry_out(study(tuple(START_S), wanted.blocks)))
    except Unmeasured as why:
        detail = str(why)
        goals = goals or [Goal("a job on a cluster", "itself", 0.0, None, "s", detail=detail)]
    watched = Goal(
        "CPU time of sampling all counters once a second", "a core", CORE * 100, core, "%",
        detail=detail,
    )  # fmt: skip
    facts = (Fact("sampled for", WATCH_S, "s"),)
    return finish(Result("cluster_cost", (watched, *goals), facts), machine)


if __name__ == "__main__":
    sys.exit(main())
