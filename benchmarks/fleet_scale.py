"""A thousand hosts and ten thousand cells through a real scheduler: what the controller pays.

The hosts are simulated: each says what a host says of cells that take no time, so that what is left
is the controller, the scheduler and the messages between them. See docs/fleet.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from distributed import Worker
from rich.console import Console

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._stub_site import ARMS, CELLS, simulate
from tare.events import Fold, read_fold
from tare.fleet import connecting
from tare.fleet.cluster import RESOURCE
from tare.fleet.command import ClusterChoice, carry_out
from tare.run.catalog import build_catalog
from tare.run.session import study_source
from tare.run.setup import Decision
from tare.study.load import load_study
from tare.study.model import Study

PROCESSES = 4
PER_BLOCK = len(ARMS) * CELLS
STUDY = """
study: fleet-scale
baseline: bare
spread: split
arms: {{bare: {{platform: bare}}, other: {{platform: bare}}}}
blocks: {{least: {blocks}, most: {blocks}}}
workloads: {{numeric: {{workload: numeric-sort, duration: 0.1}}}}
"""


async def _hosts(address: str, first: int, last: int) -> None:
    """Stand for some simulated hosts, until the scheduler is gone."""
    resources = {f"{RESOURCE}h{number:04}": 1.0 for number in range(first, last)}
    async with Worker(
        address, nthreads=last - first, resources=resources, memory_limit=0, dashboard_address=None
    ) as worker:
        await worker.finished()


def _until_done(study: Study, fold: Fold, done: int) -> Decision:
    return Decision(done < study.blocks.most, "all blocks are done")


async def _measure(hosts: int, cells: int, folder: Path) -> Result:
    blocks = cells // PER_BLOCK
    path = folder / "study.yaml"
    path.write_text(STUDY.format(blocks=blocks))
    address = f"tcp://127.0.0.1:{_free_port()}"
    scheduler = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("tare"),
        "scheduler",
        address,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    started = []
    try:
        await asyncio.sleep(3)
        step = hosts // PROCESSES
        for first in range(0, hosts, step):
            words = ("--serve", address, str(first), str(min(first + step, hosts)))
            started.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "benchmarks.fleet_scale", *words
                )
            )
        await _all_there(address, hosts)
        cpu, wall = time.process_time(), time.monotonic()
        with (folder / "progress").open("w") as progress:
            finished = await carry_out(
                load_study(path, build_catalog()),
                study_source(path),
                folder / "run",
                1,
                _until_done,
                Console(file=progress),
                ClusterChoice(address, task=simulate),
            )
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    finally:
        for process in (*started, scheduler):
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
    if finished is None or finished.status != "complete":
        raise RuntimeError(f"the run did not end: {finished}")
    return _result(hosts, cpu, wall, folder / "run" / "events.jsonl")


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


async def _all_there(address: str, hosts: int) -> None:
    async with connecting.connected(address, None) as cluster:
        while len(await cluster.hosts()) < hosts:  # noqa: ASYNC110 - nobody tells of new workers
            await asyncio.sleep(0.2)


def _result(hosts: int, cpu_s: float, wall_s: float, events: Path) -> Result:
    cells = len(read_fold(events).finished)
    lines = sum(1 for _ in events.open("rb"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    about = f"{hosts} hosts, {cells} cells, {lines} events"
    return Result(
        "fleet_scale",
        (
            Goal("controller's CPU time per cell", "a cell of seconds", 20, 1e3 * cpu_s / cells,
                 "ms", detail=about),
            Goal("controller's memory", "a small machine", 1024, peak / 2**20, "MiB", detail=about),
        ),
        (
            Fact("cells", cells, ""),
            Fact("events per second", lines / wall_s, "1/s"),
            Fact("whole run", wall_s, "s"),
        ),
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Measure, or be some of the hosts."""
    logging.getLogger("distributed").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--serve", nargs=3, metavar=("ADDRESS", "FIRST", "LAST"))
    wanted = parser.parse_args(argv)
    if wanted.serve:
        address, first, last = wanted.serve
        asyncio.run(_hosts(address, int(first), int(last)))
        return 0
    machine = machine_facts()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_measure(wanted.hosts, wanted.cells, Path(folder)))
    return finish(found, machine)


if __name__ == "__main__":
    sys.exit(main())
