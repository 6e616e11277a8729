"""The cost of a cluster of Hadoop beyond its jobs: start, Tare's share, monitoring, memory.

See `tare help benchmarks` for the method.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._agent import agent_of, agent_parser
from benchmarks._processes import cpu_s
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import CarriedOut, Unmeasured, carry_out, reasons
from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.events import Record

SHARE, CORE = 0.02, 0.01
START_S = {1: 20.0, 4: 45.0}
"""Seconds to a usable cluster, by its slaves."""
GIB = 1 << 30
MEMORY = 8 * GIB
"""Bytes that a study of clusters of up to four slaves of 1 GiB may take, its master's included."""
WATCH_S = 30.0
LOOK_S = 0.5
HELLO_S = 20.0
_LEFT = re.compile(r"^(?:MemAvailable|SwapFree):\s+(\d+) kB$", re.MULTILINE)


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


@dataclass(frozen=True)
class Spent:
    """Where the time of one cell with a job went; seconds.

    Args:
        whole: From the record of its start to that of its end.
        clients: The measured programs, as their user would run and await them.
        scripts: Putting input to HDFS before them, and verifying output after them.
        caches: Dropping the page caches before each measured step.
    """

    whole: float
    clients: float
    scripts: float
    caches: float

    @property
    def tares(self) -> float:
        """In which neither a client nor a script ran: Tare's own."""
        return self.whole - self.clients - self.scripts

    @property
    def share(self) -> float:
        """The seconds of the whole cell."""
        return self.tares / self.whole


def spent(records: Sequence[Record]) -> list[Spent]:
    """Return where the time of each finished cell went."""
    found, began = [], 0.0
    for record in records:
        event = record.event
        if event.type == "cell_started":
            began = record.time
        elif event.type == "cell_finished" and event.status == "ok":
            job = event.facts["job"]
            # Preparing and verifying are scripts; caches are dropped for clients only.
            clients = sum(_took(step) for step in job["steps"].values() if "caches" in step)
            scripts = sum(_took(step) for step in job["steps"].values()) - clients
            caches = float(job["spent_s"].get("caches", 0.0))
            found.append(Spent(record.time - began, clients, scripts, caches))
    return found


def _took(step: Mapping[str, Any]) -> float:
    return float(step["took_s"])


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


@dataclass
class Taken:
    """How much memory was taken at most since it was first looked at; bytes.

    Args:
        before: What was available then.
        least: The least that was available since.
    """

    before: int
    least: int

    @property
    def most(self) -> int:
        """What everything on this computer took together, beyond what it had then."""
        return self.before - self.least


def available(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes of memory and swap space that programs can still have (proc_meminfo(5)).

    Page cache counts as available where it can be given up; what is in a tmpfs does not, nor what
    was swapped out.

    Raises:
        Unmeasured: The kernel does not report it.
    """
    found = _LEFT.findall(meminfo.read_text())
    if len(found) != 2:
        raise Unmeasured(f"{meminfo} lacks MemAvailable or SwapFree")
    return sum(int(kib) << 10 for kib in found)


@contextmanager
def taking(look: Callable[[], int] = available, every_s: float = LOOK_S) -> Iterator[Taken]:
    """Sample the available memory in the background; yield the samples."""
    first = look()
    taken, ended = Taken(first, first), threading.Event()

    def watch() -> None:
        while not ended.wait(every_s):
            taken.least = min(taken.least, look())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield taken
    finally:
        ended.set()
        watcher.join()


def memory_goal(taken: Taken) -> Goal:
    """Return the goal of what a whole run took of memory."""
    return Goal(
        "memory that a study of clusters of up to 4 slaves of 1 GiB takes",
        "what was available before",
        MEMORY / GIB,
        taken.most / GIB,
        "GiB",
        detail=f"the least that was available, of looks every {LOOK_S:g} s",
    )


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
    shares = [each.share for each in spent(run.records)]
    share = Goal(
        "wall time of a job in which none of its steps runs",
        "the whole time of its cell",
        SHARE * 100,
        median(shares) * 100 if shares else None,
        "%",
        detail=f"median of {len(shares)}",
    )
    return [*goals, share]


def facts_of(run: CarriedOut) -> tuple[Fact, ...]:
    """Return the parts of the time of a job's cell, as medians over all cells."""
    cells = spent(run.records)
    if not cells:
        return ()
    own = median(each.tares for each in cells)
    return (
        Fact("a job's cell", median(each.whole for each in cells), "s"),
        Fact("of that its measured client", median(each.clients for each in cells), "s"),
        Fact("input and verification", median(each.scripts for each in cells), "s"),
        Fact("Tare's own, with what follows", own, "s"),
        Fact("dropping page caches", median(each.caches for each in cells), "s"),
        Fact("from how long a cell on that is at most 2 %", own / SHARE, "s"),
    )


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser: argparse.ArgumentParser = agent_parser("cluster_cost", __doc__)
    parser.add_argument("--blocks", type=int, default=2, help="blocks to run, at least 2")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    core: float | None = None
    goals: list[Goal] = []
    facts: tuple[Fact, ...] = (Fact("sampled for", WATCH_S, "s"),)
    detail = f"{WATCH_S:.0f} s on this computer"
    try:
        core = asyncio.run(watching(agent_of(wanted), WATCH_S)) * 100
        with taking() as taken:
            run = carry_out(study(tuple(START_S), wanted.blocks))
        goals = [*run_goals(run), memory_goal(taken)]
        facts += (*facts_of(run), Fact("memory available before", taken.before / GIB, "GiB"))
    except Unmeasured as why:
        detail = str(why)
        goals = goals or [Goal("a job on a cluster", "itself", 0.0, None, "s", detail=detail)]
    watched = Goal(
        "CPU time of sampling all counters once a second", "a core", CORE * 100, core, "%",
        detail=detail,
    )  # fmt: skip
    return finish(Result("cluster_cost", (watched, *goals), facts), machine)


if __name__ == "__main__":
    sys.exit(main())
