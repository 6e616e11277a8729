"""A cluster of real schedulers and workers, and studies that hosts of it share."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import _stub_site
from tare.cli.ending import decide_on
from tare.events import RunFinished, read_fold
from tare.fleet import connections
from tare.fleet.command import ClusterChoice, run_on_cluster
from tare.fleet.servers import WorkersHost
from tare.run.catalog import build_catalog
from tare.run.lifecycle.session import study_source
from tare.study.reading.load import load_study

STUB = (sys.executable, _stub_site.__file__)
STUDY = """
study: shared
baseline: bare
{more}
arms:
  bare: {{platform: bare}}
  other: {{platform: bare}}
blocks: {{least: {most}, most: {most}}}
workloads:
  numeric: {{workload: numeric-sort, duration: 0.1}}
"""
BOUND = """
study: bound
baseline: bare
hosts: {{h1: local, h2: local}}
arms:
  bare: {{platform: bare, on: h1}}
  other: {{platform: bare, on: h2, host-trace: false}}
blocks: {{least: {most}, most: {most}}}
workloads:
  numeric: {{workload: numeric-sort, duration: 0.1}}
"""


@asynccontextmanager
async def cluster(
    *hosts: str, specs: Mapping[str, Mapping[str, Any]] | None = None
) -> AsyncIterator[tuple[str, dict[str, AsyncExitStack]]]:
    """Serve a scheduler and one worker a host; yield its address and how to end each worker."""
    async with connections.scheduler("tcp://127.0.0.1:0") as serving, AsyncExitStack() as all_held:
        held = {}
        for host in hosts:
            held[host] = await all_held.enter_async_context(AsyncExitStack())
            spec = WorkersHost((specs or {}).get(host))
            standing = connections.worker(serving.address, host, spec)
            await held[host].enter_async_context(standing)
        yield serving.address, held


def study_file(folder: Path, most: int, more: str = "spread: split", study: str = STUDY) -> Path:
    """Write a study of two arms."""
    path = folder / "shared.yaml"
    path.write_text(study.format(most=most, more=more))
    return path


async def run(
    path: Path,
    address: str,
    out: Path,
    console: Console,
    program: Sequence[str] = STUB,
    *,
    strict: bool = False,
) -> RunFinished | None:
    """Carry the study in a file out."""
    study = load_study(path, build_catalog())
    choice = ClusterChoice(address, program=program)
    return await run_on_cluster(
        study, study_source(path), out, 7, decide_on, console, choice, strict=strict
    )


async def begun(
    path: Path,
    address: str,
    out: Path,
    host: str,
    console: Console | None = None,
    program: Sequence[str] = STUB,
) -> asyncio.Task[RunFinished | None]:
    """Begin a run, and return it once a host has finished a cell of it, or it ended before."""
    running = asyncio.create_task(run(path, address, out, console or Console(), program))
    while not running.done() and not _some_cells_of(out, host):
        await asyncio.sleep(0.05)
    return running


@asynccontextmanager
async def worker_process(address: str, host: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run ``tare worker`` for a host as a process that can be killed; yield once it is up."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("tare"), "worker", "--name", host, address, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        assert b"offers" in await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _some_cells_of(out: Path, host: str) -> list[str]:
    """Return the cells that a host finished so far."""
    if not (out / "events.jsonl").exists() or not (out / "events.jsonl").stat().st_size:
        return []
    fold = read_fold(out / "events.jsonl")
    return [
        cell
        for cell, done in fold.finished.items()
        if fold.block.hosts.get(done.result.block) == host
    ]
