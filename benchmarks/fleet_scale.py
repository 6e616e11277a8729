"""A thousand hosts and ten thousand cells through a real scheduler: what the controller pays.

The hosts are simulated: each says what a host says of cells that take no time, so that what is left
is the controller, the scheduler and the messages between them. A few workers of Dask's stand for
all hosts; with ``--each`` every host has a worker of its own, as real ones have, and its cells take
a while, so that it is waited for. See `tare help fleet`.
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
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import dask
from distributed import Worker
from rich.console import Console

from benchmarks._processes import cpu_s, peak_mib
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._stub_site import ARMS, CELLS, simulate
from tare.events import Fold, read_fold
from tare.fleet import connections
from tare.fleet.cluster import RESOURCE
from tare.fleet.command import ClusterChoice, run_on_cluster
from tare.fleet.servers import HostWorker, allow_many
from tare.run.catalog import build_catalog
from tare.run.lifecycle.session import study_source
from tare.run.lifecycle.setup import Decision
from tare.study.model.study import Study
from tare.study.reading.load import load_study

PROCESSES = 4
EACH_CELL_S = 10.0
"""Seconds of a cell where every host has a worker of its own."""
PER_BLOCK = len(ARMS) * CELLS
STUDY = """
study: fleet-scale
baseline: bare
spread: split
arms: {{bare: {{platform: bare}}, other: {{platform: bare}}}}
blocks: {{least: {blocks}, most: {blocks}}}
workloads: {{numeric: {{workload: numeric-sort, duration: 0.1}}}}
"""


AT_ONCE = 25
"""Workers of one process that begin together."""
SHARED = {
    **connections.SETTINGS,
    # The workers of all hosts are on one computer here, which need not be watched a thousand times.
    "distributed.admin.system-monitor.interval": "600s",
    "distributed.comm.timeouts.connect": "300s",
}
"""Dask's settings for workers of many hosts on one computer."""


@dataclass(frozen=True)
class Wanted:
    """What is to be simulated.

    Args:
        hosts: How many hosts.
        cells: How many cells, of all hosts together.
        each: Whether every host has a worker of its own.
        cell_s: Seconds that a cell takes.
    """

    hosts: int
    cells: int
    each: bool
    cell_s: float


async def _hosts(address: str, first: int, last: int) -> None:
    """Stand for some simulated hosts by one worker, until the scheduler is gone."""
    resources = {f"{RESOURCE}h{number:04}": 1.0 for number in range(first, last)}
    async with Worker(
        address, nthreads=last - first, resources=resources, memory_limit=0, dashboard_address=None
    ) as worker:
        await worker.finished()


async def _each_host(address: str, first: int, last: int) -> None:
    """Stand for some simulated hosts by a worker each, until the scheduler is gone."""
    async with AsyncExitStack() as held:
        # Workers that share a folder read each other's files at the start; a thousand never would.
        place = Path(held.enter_context(tempfile.TemporaryDirectory()))
        workers: list[Worker] = []
        for begin in range(first, last, AT_ONCE):
            names = [f"h{number:04}" for number in range(begin, min(begin + AT_ONCE, last))]
            fresh = [_worker_of(name, address, place) for name in names]
            await asyncio.gather(*map(held.enter_async_context, fresh))
            workers += fresh
        for worker in workers:
            await worker.finished()


def _worker_of(host: str, address: str, place: Path) -> Worker:
    return HostWorker(
        address,
        name=host,
        nthreads=1,
        resources={RESOURCE + host: 1},
        host="127.0.0.1",
        memory_limit=0,
        dashboard=False,
        local_directory=str(place / host),
        death_timeout=300,
    )


def _until_done(study: Study, fold: Fold, done: int) -> Decision:
    return Decision(done < study.blocks.most, "all blocks are done")


@asynccontextmanager
async def _scheduler(address: str) -> AsyncIterator[int]:
    """Serve a scheduler as a user would; yield its process's number."""
    scheduler = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("tare"),
        "scheduler",
        address,
        stdout=subprocess.PIPE,
        # It has to know what its workers are given.
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert scheduler.stdout is not None
    try:
        if b"listens at" not in await scheduler.stdout.readline():
            raise RuntimeError("the scheduler does not listen")
        yield scheduler.pid
    finally:
        await _ended(scheduler)


@asynccontextmanager
async def _workers(address: str, wanted: Wanted) -> AsyncIterator[None]:
    """Have processes stand for all hosts; yield once the scheduler knows them."""
    step = -(-wanted.hosts // PROCESSES)
    started = []
    try:
        for first in range(0, wanted.hosts, step):
            words = ("--serve", address, str(first), str(min(first + step, wanted.hosts)))
            started.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "benchmarks.fleet_scale", *words,
                    *(("--each",) if wanted.each else ()),
                    env={**os.environ, "TARE_STUB_CELL_S": str(wanted.cell_s)},
                )
            )  # fmt: skip
        await _all_there(address, wanted.hosts)
        yield
    finally:
        for process in started:
            await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


async def _measure(wanted: Wanted, folder: Path) -> Result:
    blocks = wanted.cells // PER_BLOCK
    path = folder / "study.yaml"
    path.write_text(STUDY.format(blocks=blocks))
    address = f"tcp://127.0.0.1:{_free_port()}"
    async with _scheduler(address) as scheduler, _workers(address, wanted):
        used = _Used(cpu_s(scheduler))
        with (folder / "progress").open("w") as progress:
            finished = await run_on_cluster(
                load_study(path, build_catalog()),
                study_source(path),
                folder / "run",
                1,
                _until_done,
                Console(file=progress),
                ClusterChoice(address, task=simulate),
            )
        used.end(cpu_s(scheduler))
        schedulers_mib = peak_mib(scheduler)
    if finished is None or finished.status != "complete":
        raise RuntimeError(f"the run did not end: {finished}")
    return _result(wanted, used, schedulers_mib, folder / "run" / "events.jsonl")


class _Used:
    """What the run took of time, by the clock and of CPUs.

    Args:
        scheduler_s: CPU seconds of the scheduler so far.
    """

    def __init__(self, scheduler_s: float) -> None:
        self.scheduler_s = scheduler_s
        self.cpu_s, self.wall_s = time.process_time(), time.monotonic()

    def end(self, scheduler_s: float) -> None:
        """Note that it is over."""
        self.scheduler_s = scheduler_s - self.scheduler_s
        self.cpu_s = time.process_time() - self.cpu_s
        self.wall_s = time.monotonic() - self.wall_s


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


async def _all_there(address: str, hosts: int) -> None:
    async with connections.connected(address, None) as cluster:
        while len(await cluster.hosts()) < hosts:  # noqa: ASYNC110 - Dask has no event for new workers
            await asyncio.sleep(1)


def _result(wanted: Wanted, used: _Used, schedulers_mib: float, events: Path) -> Result:
    cells = len(read_fold(events).finished)
    lines = sum(1 for _ in events.open("rb"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    about = f"{wanted.hosts} hosts, {cells} cells, {lines} events"
    return Result(
        "fleet_scale_each" if wanted.each else "fleet_scale",
        (
            Goal("controller's CPU time per cell", "a cell of seconds", 20,
                 1e3 * used.cpu_s / cells, "ms", detail=about),
            Goal("controller's memory", "a small machine", 1024, peak / 2**20, "MiB", detail=about),
        ),
        (
            Fact("cells", cells, ""),
            Fact("events per second", lines / used.wall_s, "1/s"),
            Fact("whole run", used.wall_s, "s"),
            Fact("a cell", wanted.cell_s, "s"),
            Fact("workers of Dask's", wanted.hosts if wanted.each else PROCESSES, ""),
            Fact("scheduler's CPU time per cell", 1e3 * used.scheduler_s / cells, "ms"),
            Fact("scheduler's CPU", 100 * used.scheduler_s / used.wall_s, "%"),
            Fact("controller's CPU", 100 * used.cpu_s / used.wall_s, "%"),
            Fact("scheduler's memory", schedulers_mib, "MiB"),
        ),
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Measure, or be some of the hosts."""
    logging.getLogger("distributed").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_scale", description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--each", action="store_true", help="a worker of its own for every host")
    parser.add_argument("--cell", type=float, metavar="SECONDS", help="what a cell takes")
    parser.add_argument("--serve", nargs=3, metavar=("ADDRESS", "FIRST", "LAST"))
    options = parser.parse_args(argv)
    allow_many()
    if options.serve:
        address, first, last = options.serve
        serve = _each_host if options.each else _hosts
        with dask.config.set(SHARED if options.each else {}):
            asyncio.run(serve(address, int(first), int(last)))
        return 0
    machine = machine_facts()
    cell_s = options.cell if options.cell is not None else EACH_CELL_S if options.each else 0.0
    wanted = Wanted(options.hosts, options.cells, options.each, cell_s)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_measure(wanted, Path(folder)))
    return finish(found, machine)


if __name__ == "__main__":
    sys.exit(main())
