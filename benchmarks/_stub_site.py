"""A host's part without a host: says what a real one says, of cells that take no time.

Run as ``python stub_site.py FOLDER``, or used as a task of Dask's by :func:`simulate`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Event,
    Observed,
    Planned,
    PlatformChecked,
    RunStarted,
)
from tare.events.model import SeriesSaved
from tare.fleet.faults import fleet_versions
from tare.fleet.wire import Assignment, Block, Ended, Happened, Hello, Message

ARMS = ("bare", "other")
CELLS = 2


@functools.cache
def _versions() -> dict[str, str]:
    """Return what this process runs; it stands for hundreds of hosts, which each ask once."""
    return fleet_versions()


def arms_of(assignment: Assignment) -> Sequence[str]:
    """Return the arms that a host has: all, or those that say they are on it."""
    if not assignment.bound:
        return ARMS
    arms = assignment.study["arms"]
    return [name for name, arm in arms.items() if arm["on"] == assignment.bound]


def fails(assignment: Assignment, arm: str) -> bool:
    """Return whether an arm's cells fail: ``TARE_STUB_FAILS`` names it, or ``ARM@HOST``."""
    host = (assignment.host or {}).get("ssh", assignment.bound)
    return os.environ.get("TARE_STUB_FAILS", "") in (arm, f"{arm}@{host}")


def opening(assignment: Assignment) -> Iterator[Event]:
    """Yield what goes before the first block."""
    yield RunStarted(
        run=assignment.run,
        study=assignment.study,
        study_path=assignment.source_path,
        study_sha256=assignment.source_sha256,
        seed=assignment.seed,
        host={"kernel": "stub"},
        versions=_versions(),
    )
    arms = arms_of(assignment)
    for arm in arms:
        yield PlatformChecked(arm=arm, platform="bare", options={}, usable=True, reason="a stub")
    yield Planned(
        blocks_most=assignment.study["blocks"]["most"],
        cells_per_block=len(arms) * CELLS,
        expected_block_s=0.1,
    )


def cells(assignment: Assignment, block: Block) -> Iterator[tuple[str, str, int]]:
    """Yield a block's cells that are left to measure: identity, arm and number."""
    for arm in arms_of(assignment):
        for number in range(CELLS):
            cell = f"b{block.number:03}/{arm}/alone/numeric/{number}"
            if cell not in block.settled and arm not in block.ended:
                yield cell, arm, number


def cell_events(
    assignment: Assignment, block: int, cell: str, arm: str, draw: random.Random
) -> Iterator[Event]:
    """Yield what happens in a cell; a host that has arms of its own is faster than all others."""
    yield CellStarted(
        cell=cell, block=block, arm=arm, scenario="alone", workload="numeric", parameters={}
    )
    yield Observed(
        cell=cell,
        metric="iterations-per-second",
        unit="1/s",
        better="higher",
        headline=True,
        value=(5000.0 if assignment.bound == "h2" else 100.0)
        * (0.9 if arm == "other" else 1.0)
        * draw.lognormvariate(0.0, 0.02),
    )
    if fails(assignment, arm):
        yield CellFinished(cell=cell, status="failed", reason="a stub's fault", measured_s=0.01)
    else:
        facts = {"measured_on": assignment.bound}
        yield CellFinished(cell=cell, status="ok", measured_s=0.01, facts=facts)


def _say(message: Happened | Ended) -> None:
    print(message.model_dump_json(), flush=True)


def main(folder: Path) -> None:
    """Act as one host that pauses for ``TARE_STUB_CELL_S`` in each cell; stdin has its part."""
    pause_s = float(os.environ.get("TARE_STUB_CELL_S", "0"))
    assignment = Assignment.model_validate_json(sys.stdin.readline())
    draw = random.Random(assignment.run)
    for event in opening(assignment):
        _say(Happened(event=event))
    (folder / "series").mkdir(parents=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order["kind"] != "block":
            break
        block = Block.model_validate(order)
        _say(Happened(event=BlockStarted(block=block.number, order=())))
        for cell, arm, _ in cells(assignment, block):
            first, *rest, last = cell_events(assignment, block.number, cell, arm, draw)
            for event in (first, *rest):
                _say(Happened(event=event))
            time.sleep(pause_s)
            name = f"series/{cell.replace('/', '-')}.bin"
            (folder / name).write_bytes(os.urandom(100))
            saved = SeriesSaved(cell=cell, name="s", path=name, columns={}, rows=0, sha256="")
            for event in (saved, last):
                _say(Happened(event=event))
        _say(Happened(event=BlockFinished(block=block.number)))
    _say(Ended())


async def simulate(assignment: str, up: str, down: str, program: Sequence[str] = ()) -> None:
    """Stand for :func:`tare.fleet.worker_task.run_part` inside a worker of Dask's.

    It pauses for ``TARE_STUB_CELL_S`` in each cell, and then says each as it ends.
    """
    from distributed import Client, Queue, get_worker

    del program
    pause_s = float(os.environ.get("TARE_STUB_CELL_S", "0"))
    given = Assignment.model_validate_json(assignment)
    draw = random.Random(given.run)
    worker = get_worker()
    address = worker.scheduler.address
    async with Client(address, asynchronous=True, set_as_default=False) as client:
        outbox, orders = await Queue(up, client=client), await Queue(down, client=client)

        async def say(messages: Iterable[Message]) -> None:
            await outbox.put([message.model_dump(mode="json") for message in messages])

        hello = Hello(worker=worker.address, versions=_versions())
        await say([hello, *map(_happened, opening(given))])
        while True:
            order = await orders.get()
            if order["kind"] == "still-there":
                continue
            if order["kind"] != "block":
                break
            block = Block.model_validate(order)
            events: list[Event] = [BlockStarted(block=block.number, order=())]
            for cell, arm, _ in cells(given, block):
                if pause_s:
                    await say(map(_happened, events))
                    events.clear()
                    await asyncio.sleep(pause_s)
                events += cell_events(given, block.number, cell, arm, draw)
            events.append(BlockFinished(block=block.number))
            await say(map(_happened, events))
        await say([Ended()])


def _happened(event: Event) -> Happened:
    return Happened(event=event)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
