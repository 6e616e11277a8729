"""Whether causes of an added time that are planted in a guest are found, and how exactly.

A guest of KVM in a lab works alternately without and with a planted cause. Its exits and its cost
are recorded as in a run, and Tare's own analysis decomposes the added time. Nothing but the cause
differs, so all of the added time is to be in the part that the cause belongs to.

The lab's processor is emulated: an exit costs other amounts than on hardware.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tare.agent.client import Outcome
from tare.analysis import load_run
from tare.analysis.effects.compare import compare
from tare.analysis.topics.exits import DELAY, WAITING, Decomposition, arm_exits, decompositions
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    EventLog,
    Observed,
    PlatformChecked,
    RunFinished,
    RunStarted,
)
from tare.events.parts import SUBJECT
from tare.hosts import Host
from tare.hosts.ledger.ledger import Ledger
from tare.lab.host import lab_up
from tare.lab.options import GIB, LabOptions
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.qemu.machine import QemuMachine
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu, launch
from tare.probes import ProbedCell
from tare.run.lifecycle.session import local_context
from tare.run.probes.cost import CellCost
from tare.run.probes.exits import ExitsProbe

BLOCKS = 4
WITHIN = 0.03
READY_S = 600.0
WORK_S = 300.0
VCPU, DISK = 1, 2
"""The lab's CPUs of the guest's vCPU, and of the thread of its disk."""
MEMORY, SIZE = 256 << 20, 64 << 20
CPUIDS, QUERIES = 40_000, 10_000
PLAIN, PLANTED = "plain", "planted"


@dataclass(frozen=True)
class Cause:
    """A planted cause.

    Args:
        name: What it is.
        part: The part of the decomposition that it belongs to.
        work: Does some work, with or without the cause if it is in the work itself; returns the
            work's rate and its result.
        hog: The lab's CPU on which a program without end takes the time; None: no hog.
    """

    name: str
    part: str
    work: Callable[[QemuMachine, bool], Awaitable[tuple[float, Outcome]]]
    hog: int | None = None


async def queries(machine: QemuMachine, planted: bool) -> tuple[float, Outcome]:
    """Execute CPUID, and in addition write to a port of an emulated device."""
    asked = {"cpuid": CPUIDS, **({"port_writes": QUERIES} if planted else {})}
    done = await machine.agent.run("exits", asked, deadline_s=WORK_S)
    return CPUIDS / sum(done.value["seconds"].values()), done


async def sorting(machine: QemuMachine, planted: bool) -> tuple[float, Outcome]:
    """Sort numbers, which needs the CPU alone."""
    done = await machine.agent.run("numeric-sort", {"seconds": 3.0}, deadline_s=WORK_S)
    return float(done.value["iterations_per_s"]), done


async def reading(machine: QemuMachine, planted: bool) -> tuple[float, Outcome]:
    """Read from the guest's disk, past its cache."""
    asked = {
        "work": "random-read",
        "seconds": 3.0,
        "total_bytes": SIZE // 4,
        "direct": True,
        "cached": False,
    }
    done = await machine.agent.run("filebench", asked, deadline_s=WORK_S)
    return float(done.value["operations_per_s"]), done


CAUSES = {
    "device": Cause("an emulated device is queried 10,000 times", "exits IOIO", queries),
    "hog": Cause("a hog on the vCPU's CPU", DELAY, sorting, VCPU),
    "iothread": Cause("a hog on the CPU of the disk's thread", WAITING, reading, DISK),
}


@asynccontextmanager
async def hogged(host: Host, cpu: int | None) -> AsyncIterator[None]:
    """Keep a CPU of the lab busy."""
    if cpu is None:
        yield
        return
    process = await host.start(["sh", "-c", "while :; do :; done"], cpus=[cpu])
    try:
        yield
    finally:
        await process.kill()
        await process.wait()


async def measured(
    context: Context, machine: QemuMachine, cause: Cause, planted: bool, costs: dict[str, Any]
) -> tuple[float, dict[str, Any]]:
    """Return the rate of one cell, and its facts, by the probes of a run."""
    nothing: Any = SimpleNamespace()
    cell = ProbedCell(nothing, nothing, context, {SUBJECT: machine}, may_ask=True)
    exits, cost = ExitsProbe(cell, costs), CellCost([machine], looks=False)
    await exits.open()
    await cost.open()
    async with hogged(context.host, cause.hog if planted else None):
        await exits.begin()
        await cost.begin()
        rate, done = await cause.work(machine, planted)
        await cost.end(done)
        await exits.end(done)
    await cost.close()
    await exits.close()
    return rate, {**dict(cost.facts), "probes": {"exits": dict(exits.facts)}}


Cells = Mapping[str, Sequence[tuple[float, Mapping[str, Any]]]]


def written(folder: Path, cells: Cells) -> Path:
    """Write the cells of both arms as a run's events, and return their folder."""
    folder.mkdir()
    study = {
        "study": "planted-causes",
        "title": "Planted causes",
        "baseline": PLAIN,
        "blocks": {"least": 1, "most": 1000},
        "margin": 0.02,
        "confidence": 0.95,
        "arms": {arm: {"platform": "qemu"} for arm in cells},
        "scenarios": {"alone": {}},
        "workloads": {"work": {"workload": "work"}},
    }
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="planted-1", study=study, study_path="", study_sha256="0" * 64, seed=1,
                host={"cpus": 3}, versions={},
            )
        )  # fmt: skip
        for arm in cells:
            log.append(PlatformChecked(arm=arm, platform="qemu", options={}, usable=True))
        for number, block in enumerate(zip(*cells.values(), strict=True), 1):
            log.append(BlockStarted(block=number, order=()))
            for arm, (rate, facts) in zip(cells, block, strict=True):
                name = f"b{number:03d}/{arm}/alone/work"
                log.append(
                    CellStarted(
                        cell=name, block=number, arm=arm, scenario="alone", workload="work",
                        parameters={},
                    )
                )  # fmt: skip
                log.append(
                    Observed(
                        cell=name, metric="rate", unit="1/s", better="higher", headline=True,
                        value=rate,
                    )
                )  # fmt: skip
                log.append(CellFinished(cell=name, status="ok", facts=dict(facts)))
            log.append(BlockFinished(block=number))
        log.append(RunFinished(status="complete", wall_s=1.0))
    return folder


def decomposed(folder: Path) -> Decomposition:
    """Return what Tare's analysis makes of a run."""
    run = load_run(folder)
    made, refused = decompositions([run], compare([run]).effects, arm_exits([run]))
    if not made:
        raise RuntimeError(f"nothing was decomposed: {refused}")
    return made[0]


@asynccontextmanager
async def guest(folder: Path) -> AsyncIterator[tuple[Context, QemuMachine]]:
    """Lend a guest of KVM in a lab of its own."""
    with Ledger(folder / "ledger.jsonl") as ledger:
        context = local_context(ledger)
        options = LabOptions("kvm", cpus=3, memory=2 * GIB)
        async with await lab_up(context, options, folder / "tare-lab", timeout_s=READY_S) as lab:
            with Ledger(folder / "inside.jsonl", host=lab.host.name, boot=lab.host.boot_id) as held:
                inside = replace(
                    context, host=lab.host, ledger=held, here=context.host, kernel="generic"
                )
                asked = QemuOptions.model_validate(
                    {"accelerator": "kvm", "iothread": True, "iothread_cpus": (DISK,)}
                )
                shape = Shape(1, MEMORY, SIZE)
                needing = replace(inside, needs=frozenset({"disk"}))
                made = await Qemu().prepare(needing, asked, shape, realtime=False)
                spec = MachineSpec(
                    "tare-planted", shape, (VCPU,), Path("/tmp/tare-planted"), False, SUBJECT
                )
                machine = await launch(
                    needing, asked, made.extra["image"], spec, program=made.extra["program"]
                )
                try:
                    await machine.ready(READY_S)
                    yield inside, machine
                finally:
                    await machine.stop()


async def plant(names: Sequence[str], blocks: int, folder: Path) -> dict[str, Decomposition]:
    """Measure each cause in one guest, and decompose what it adds."""
    found = {}
    costs: dict[str, Any] = {}
    async with guest(folder) as (context, machine):
        for name in names:
            cells: dict[str, list[tuple[float, dict[str, Any]]]] = {PLAIN: [], PLANTED: []}
            for _, (arm, kept) in itertools.product(range(blocks), cells.items()):
                cause = CAUSES[name]
                kept.append(await measured(context, machine, cause, arm == PLANTED, costs))
                print(f"{name}, {arm}: {kept[-1][0]:.4g} a second", file=sys.stderr)
            found[name] = decomposed(written(folder / name, cast("Cells", cells)))
    return found


def table(found: Mapping[str, Decomposition]) -> str:
    """Return the causes and how much of the added time was found in their part, as Markdown."""
    lines = ["| planted | part | found | unexplained | within 3 points |", "|---|---|---|---|---|"]
    for name, whole in found.items():
        cause = CAUSES[name]
        parts = {each.name: whole.share(each.seconds) for each in whole.buckets}
        share = parts.get(cause.part, 0.0)
        part = cause.part.partition(":")[0]
        lines.append(
            f"| {cause.name} | {part} | {100 * share:.1f} % | "
            f"{100 * whole.share(whole.unexplained_s):.1f} % | "
            f"{'yes' if abs(share - 1) <= WITHIN else 'no'} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Plant causes in a lab and print the table; return 1 if one was not found within 3 points."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planted_causes", description=__doc__
    )
    parser.add_argument("--cause", action="append", choices=sorted(CAUSES), help="only this one")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help=f"{BLOCKS} by default")
    asked = parser.parse_args(argv)
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="tare-planted-")))
        found = asyncio.run(plant(asked.cause or tuple(CAUSES), asked.blocks, folder))
    shown = table(found)
    print(shown)
    return 1 if "| no |" in shown else 0


if __name__ == "__main__":
    sys.exit(main())
