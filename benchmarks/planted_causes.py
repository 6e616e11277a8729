"""Whether causes of an added time that are planted in a guest are found, and how exactly.

A guest of KVM in a deterministic lab works alternately without and with a planted cause. Its exits
and its cost are recorded as in a run, and Tare's own analysis decomposes the added time. Nothing
but the cause differs, so all of the added time is to be in the part that the cause belongs to.

The lab's time counts instructions, so other programs on this computer do not change the result. The
times themselves are not those of hardware.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tare.agent.client import Outcome
from tare.analysis import load_run
from tare.analysis.effects.compare import compare
from tare.analysis.topics.exits import (
    DELAY,
    POLLING,
    WAITING,
    Decomposition,
    arm_exits,
    decompositions,
)
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
from tare.hosts.trace.exits import exit_recorder
from tare.lab.host import lab_up
from tare.lab.options import GIB, LabOptions
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.qemu.machine import QemuMachine
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu, launch
from tare.probes import ProbedCell
from tare.run.lifecycle.session import local_context
from tare.run.probes.cost import WALL, CellCost
from tare.run.probes.exits import ExitCost, ExitsProbe, measure_exit_cost

BLOCKS = 4
WITHIN = 0.03
READY_S = 600.0
WORK_S = 300.0
CPU = 0
"""The only CPU of a deterministic lab."""
READ_S, THROTTLED_S = 1.0, 20.0
"""Durations of reading by the guest's clock. Its preparation is recorded as well."""
MEMORY, SIZE = 256 << 20, 64 << 20
CPUIDS, QUERIES, HOGGED = 40_000, 10_000, 200_000
PLAIN, PLANTED = "plain", "planted"


Work = tuple[float, float, Outcome]
"""A work's rate, its duration in seconds, and its result."""


@asynccontextmanager
async def hog(host: Host, machine: QemuMachine) -> AsyncIterator[None]:
    """Keep the CPU of the vCPU busy with a program that never ends."""
    process = await host.start(["sh", "-c", "while :; do :; done"], cpus=[CPU])
    try:
        yield
    finally:
        await process.kill()
        await process.wait()


@asynccontextmanager
async def throttle(host: Host, machine: QemuMachine) -> AsyncIterator[None]:
    """Let the thread of the guest's disk have the CPU for half a percent of the time.

    A group of its own limits the thread (the kernel's Documentation/admin-guide/cgroup-v2.rst,
    "Threads" and "CPU Interface Files"). Moving the thread back removes the limit.
    """
    monitor = machine._monitor
    assert monitor is not None
    (disk,) = await monitor.execute("query-iothreads")
    thread = int(disk["thread-id"])
    await shell(
        host,
        "mkdir -p /tmp/groups && mount -t cgroup2 none /tmp/groups && cd /tmp/groups && "
        "mkdir planted && echo threaded >planted/cgroup.type && echo +cpu >cgroup.subtree_control "
        f"&& echo '1000 200000' >planted/cpu.max && echo {thread} >planted/cgroup.threads",
    )
    try:
        yield
    finally:
        back = f"echo {thread} >/tmp/groups/cgroup.threads && rmdir /tmp/groups/planted"
        await shell(host, f"{back} && umount /tmp/groups")


async def shell(host: Host, script: str) -> None:
    """Run a script in the lab.

    Raises:
        RuntimeError: It failed.
    """
    done = await host.run(["sh", "-c", script], timeout_s=READY_S)
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr.decode(errors='replace')}")


@dataclass(frozen=True)
class Cause:
    """A planted cause.

    Args:
        name: What it is.
        parts: The parts of the decomposition that it belongs to.
        work: Does some work, with or without the cause if it is in the work itself.
        planted: Holds the cause, if it is outside the work.
    """

    name: str
    parts: tuple[str, ...]
    work: Callable[[QemuMachine, bool], Awaitable[Work]]
    planted: Callable[[Host, QemuMachine], AbstractAsyncContextManager[None]] = (
        lambda _host, _machine: contextlib.nullcontext()
    )


async def queries(machine: QemuMachine, planted: bool) -> Work:
    """Execute CPUID, and in addition access a register of an emulated disk controller.

    The register is in memory: a port would need a system call for each access.
    """
    asked = {"cpuid": CPUIDS, **({"mmio_writes": QUERIES} if planted else {})}
    done = await machine.agent.run("exits", asked, deadline_s=WORK_S)
    seconds = sum(done.value["seconds"].values())
    return CPUIDS / seconds, seconds, done


async def computing(machine: QemuMachine, planted: bool) -> Work:
    """Execute CPUID, which needs the CPU alone; all of its time is measured."""
    done = await machine.agent.run("exits", {"cpuid": HOGGED}, deadline_s=WORK_S)
    seconds = done.value["seconds"]["cpuid"]
    return HOGGED / seconds, seconds, done


async def reading(machine: QemuMachine, planted: bool) -> Work:
    """Read from the guest's disk, past its cache."""
    seconds = THROTTLED_S if planted else READ_S
    asked = {
        "work": "random-read",
        "seconds": seconds,
        "total_bytes": SIZE // 4,
        "direct": True,
        "cached": False,
    }
    done = await machine.agent.run("filebench", asked, deadline_s=WORK_S)
    return float(done.value["operations_per_s"]), seconds, done


CAUSES = {
    "device": Cause("an emulated device is queried 10,000 times", ("exits NPF",), queries),
    "hog": Cause("a program that never ends on the vCPU's CPU", (DELAY,), computing, hog),
    "iothread": Cause(
        "the disk's thread may work 0.5 % of the time", (WAITING, POLLING), reading, throttle
    ),
}


async def measured(
    context: Context,
    machine: QemuMachine,
    cause: Cause,
    planted: bool,
    costs: dict[str, ExitCost | str],
) -> tuple[float, dict[str, Any]]:
    """Return the rate of one cell, and its facts, by the probes of a run."""
    unused: Any = SimpleNamespace()
    # Exits are recorded all of the time: a part would be chosen by this computer's clock.
    cell = ProbedCell(unused, unused, context, {SUBJECT: machine}, may_ask=False)
    exits, cost = ExitsProbe(cell, costs), CellCost([machine], looks=False)
    await exits.open()
    await cost.open()
    async with cause.planted(context.host, machine) if planted else contextlib.nullcontext():
        await exits.begin()
        await cost.begin()
        rate, seconds, done = await cause.work(machine, planted)
        await cost.end(done)
        await exits.end(done)
    await cost.close()
    await exits.close()
    facts: dict[str, Any] = {**dict(cost.facts), "probes": {"exits": dict(exits.facts)}}
    # The wall time is that of this computer, whose clock has nothing to do with the lab's.
    facts["host_cost"] = {**facts["host_cost"], WALL: seconds}
    return rate, facts


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
                host={"cpus": 1}, versions={},
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
        options = LabOptions("kvm", cpus=1, memory=2 * GIB, deterministic=True)
        async with await lab_up(context, options, folder / "tare-lab", timeout_s=READY_S) as lab:
            with Ledger(folder / "inside.jsonl", host=lab.host.name, boot=lab.host.boot_id) as held:
                inside = replace(
                    context, host=lab.host, ledger=held, here=context.host, kernel="generic"
                )
                asked = QemuOptions.model_validate(
                    {"accelerator": "kvm", "iothread": True, "disk_cache": "writeback"}
                )
                shape = Shape(1, MEMORY, SIZE)
                needing = replace(inside, needs=frozenset({"disk"}))
                made = await Qemu().prepare(needing, asked, shape, realtime=False)
                spec = MachineSpec(
                    "tare-planted", shape, (CPU,), Path("/tmp/tare-planted"), False, SUBJECT
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
    async with guest(folder) as (context, machine):
        threads = await machine.vcpu_threads()
        async with exit_recorder(context.host, context.ledger) as recorder:
            known = await measure_exit_cost(machine.agent, recorder, threads)
        print(f"recording an exit {known.recording_s:.3g} s, switch {known.switch_s:.3g} s")
        costs: dict[str, ExitCost | str] = {machine.name: known}
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
        share = sum(parts.get(part, 0.0) for part in cause.parts)
        named = " and ".join(part.partition(":")[0] for part in cause.parts)
        lines.append(
            f"| {cause.name} | {named} | {100 * share:.1f} % | "
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
