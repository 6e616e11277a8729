"""How much the same cell differs from boot to boot when time counts instructions.

Each run boots the guest image with one vCPU under QEMU's instruction counter, as the bare
baseline of `lab: deterministic` does, and asks the agent for the same work in the same order. With
``--lab`` the same is done for guests of KVM and of Xen, each the first one of a deterministic lab.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from tare.agent.client import AgentClient
from tare.errors import MachineFault
from tare.hosts.ledger.ledger import Ledger
from tare.images.guest_image import GuestImage, build_guest_image
from tare.lab.host import lab_up
from tare.lab.options import CPU_MODEL, LabOptions
from tare.platforms.contract import Context, Machine, MachineSpec, Shape
from tare.platforms.qemu import platform as qemu
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.xen import platform as xen
from tare.platforms.xen.options import XenOptions
from tare.run.lifecycle.session import local_context

RUNS = 5
MOST_SPREAD = 0.0
"""The spread of times and rates over all boots. `tare help lab` describes why nothing varies."""

READY_S = 180.0
WORK_S = 600.0
MEMORY = 512 << 20
TICK = {"loop_ns": 68_000, "samples": 2000, "raw": False, "allow_untrusted_tsc": True}
KERNELS = ("numeric-sort", "lu")
KERNEL = {"seconds": 0.2}
TIMES = ("duration_min_s", "interval_mean_median_s", "duration_mean_s")
COUNTS = ("gaps", "stolen_share")
"""The tick loop's figures that are compared."""
LAB_ARMS = ("kvm", "xen-pv", "xen-pvh")

Boot = Callable[[int], Coroutine[Any, Any, dict[str, float]]]


async def measure(agent: AgentClient) -> dict[str, float]:
    """Return the figures of one boot: of the tick loop, and each kernel's rate."""
    tick = await agent.run("tick", TICK, deadline_s=WORK_S)
    found = {f"tick {name}": float(tick.value[name]) for name in (*TIMES, *COUNTS)}
    for kernel in KERNELS:
        done = await agent.run(kernel, KERNEL, deadline_s=WORK_S)
        found[kernel] = float(done.value["iterations_per_s"])
    return found


async def measured(machine: Machine) -> dict[str, float]:
    """Measure on a machine that was started, and stop it."""
    try:
        await machine.ready(READY_S)
        return await measure(machine.agent)
    finally:
        await machine.stop()


def machine_spec(folder: Path) -> MachineSpec:
    """Return what is booted, named after its folder."""
    return MachineSpec(folder.name, Shape(1, MEMORY), (), folder, realtime=False)


async def build(kernel: str, need: str) -> GuestImage:
    """Return what all boots of one kind boot."""
    async with working() as (context, _):
        return await build_guest_image(
            context.host,
            kernel,
            needs=frozenset({need}),
            agent=context.agent,
            cache=context.cache,
        )


@asynccontextmanager
async def working() -> AsyncIterator[tuple[Context, Path]]:
    """Lend a context with a ledger of its own, and a folder."""
    with (
        tempfile.TemporaryDirectory(prefix="tare-repeat-") as folder,
        Ledger(Path(folder) / "ledger.jsonl") as ledger,
    ):
        yield local_context(ledger), Path(folder)


async def direct(run: int) -> dict[str, float]:
    """Measure the image booted directly."""
    image = await build("cloud", "virtio")
    async with working() as (context, folder):
        options = QemuOptions(accelerator="tcg", cpu=CPU_MODEL, clock="instructions")
        spec = machine_spec(folder / f"tare-repeat-{run}")
        return await measured(await qemu.launch(context, options, image, spec))


async def in_lab(arm: str, run: int) -> dict[str, float]:
    """Measure the image as the first guest of a deterministic lab that is booted for it."""
    kvm = arm == "kvm"
    image = await build("generic", "virtio" if kvm else "xen")
    async with working() as (context, folder):
        options = LabOptions("kvm" if kvm else "xen", cpus=1, deterministic=True)
        async with await lab_up(context, options, folder / "tare-lab", timeout_s=900) as lab:
            with Ledger(folder / "inside.jsonl", host=lab.host.name, boot=lab.host.boot_id) as held:
                inside = replace(
                    context, host=lab.host, ledger=held, here=context.host, counted=True
                )
                spec = machine_spec(Path("/tmp") / f"tare-repeat-{run}")
                if kvm:
                    kvm_options = QemuOptions(accelerator="kvm")
                    return await measured(await qemu.launch(inside, kvm_options, image, spec))
                xen_options = XenOptions.model_validate({"type": arm.removeprefix("xen-")})
                return await measured(await xen.launch(inside, xen_options, image, spec))


async def once_more(boot: Boot, run: int) -> dict[str, float]:
    """Return what a boot found; a second one's where the first fell silent (`tare help lab`)."""
    try:
        return await boot(run)
    except MachineFault as fault:
        if not fault.transient:
            raise
        print(f"{fault.message}; once more", file=sys.stderr)
        return await boot(run)


def spread(values: Sequence[float]) -> float:
    """Return the range of some values as a share of their median; 0 when all are equal."""
    low, high = min(values), max(values)
    return (high - low) / (abs(statistics.median(values)) or 1.0) if high > low else 0.0


def judged(label: str, runs: Sequence[Mapping[str, float]]) -> tuple[list[Goal], list[Fact]]:
    """Return the goals and facts of some boots of one kind."""
    spreads = {name: spread([run[name] for run in runs]) for name in runs[0]}
    ticks = max(spreads[f"tick {name}"] for name in TIMES)
    rates = max(spreads[kernel] for kernel in KERNELS)
    others = f"the other {len(runs) - 1} boots"
    most = 100 * MOST_SPREAD
    goals = [
        Goal(f"{label}: spread of the tick loop's times", others, most, 100 * ticks, "%"),
        Goal(f"{label}: spread of a kernel's rate", others, most, 100 * rates, "%"),
    ]
    facts = [Fact(f"{label}: spread of {name}", 1e6 * v, "ppm") for name, v in spreads.items()]
    return goals, facts


def main(argv: list[str] | None = None) -> int:
    """Boot, measure, compare; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deterministic", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"boots, {RUNS} by default")
    parser.add_argument(
        "--lab", action="store_true", help="guests of KVM and Xen too (a minute for each boot)"
    )
    asked = parser.parse_args(argv)
    machine = machine_facts()
    kinds: dict[str, Boot] = {"direct": direct}
    if asked.lab:
        kinds |= {arm: partial(in_lab, arm) for arm in LAB_ARMS}
    goals: list[Goal] = []
    facts: list[Fact] = []
    samples: dict[str, list[float]] = {}
    for label, boot in kinds.items():
        runs = [asyncio.run(once_more(boot, run)) for run in range(asked.runs)]
        found = judged(label, runs)
        # What a lab's guests do is reported, not judged: see `tare help lab`.
        goals += found[0] if label == "direct" else []
        facts += found[1]
        samples |= {f"{label}: {name}": [run[name] for run in runs] for name in runs[0]}
    result = Result("deterministic", tuple(goals), tuple(facts), samples)
    return finish(result, machine)


if __name__ == "__main__":
    sys.exit(main())
