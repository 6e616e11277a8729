"""How much the same cell differs from boot to boot when time counts instructions.

Each run boots the guest image afresh with one vCPU under QEMU's instruction counter, as the bare
baseline of `lab: deterministic` does, and asks the agent for the same work in the same order. With
``--kvm`` the same is done for a guest of KVM in a deterministic lab.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from tare.agent.client import AgentClient
from tare.hosts.ledger import Ledger
from tare.images.build import GuestImage, build_guest_image
from tare.images.ship import at_host
from tare.lab.command import CPU_MODEL
from tare.lab.host import lab_up
from tare.lab.options import LabOptions
from tare.platforms.base import Context, MachineSpec, Shape
from tare.platforms.qemu import launch
from tare.platforms.qemu_options import QemuOptions
from tare.run.session import local_context

RUNS = 5
MOST_SPREAD = 0.0
"""Of times and rates, over all boots: docs/lab.md says what was done so that nothing varies."""

READY_S = 300.0
WORK_S = 600.0
MEMORY = 512 << 20
TICK = {"loop_ns": 68_000, "samples": 2000, "raw": False, "allow_untrusted_tsc": True}
KERNELS = ("numeric-sort", "lu")
KERNEL = {"seconds": 0.2}
TIMES = ("duration_min_s", "interval_mean_median_s", "duration_mean_s")
COUNTS = ("gaps", "stolen_share")
"""The tick loop's figures that are looked at."""


async def measure(agent: AgentClient) -> dict[str, float]:
    """Return the figures of one boot: of the tick loop, and each kernel's rate."""
    tick = await agent.run("tick", TICK, deadline_s=WORK_S)
    found = {f"tick {name}": float(tick.value[name]) for name in (*TIMES, *COUNTS)}
    for kernel in KERNELS:
        done = await agent.run(kernel, KERNEL, deadline_s=WORK_S)
        found[kernel] = float(done.value["iterations_per_s"])
    return found


async def one_boot(
    context: Context, options: QemuOptions, image: GuestImage, folder: Path
) -> dict[str, float]:
    """Boot the guest image once and measure."""
    kernel, initramfs = [
        await at_host(context.host, file) for file in (image.boot_kernel, image.initramfs)
    ]
    image = replace(image, boot_kernel=kernel, initramfs=initramfs)
    spec = MachineSpec(folder.name, Shape(1, MEMORY), (), folder, realtime=False)
    machine = await launch(context, options, image, spec)
    try:
        await machine.ready(READY_S)
        return await measure(machine.agent)
    finally:
        await machine.stop()


async def build() -> GuestImage:
    """Return what all boots boot."""
    async with working() as (context, _):
        needs = frozenset({"virtio"})
        return await build_guest_image(
            context.host, "cloud", needs=needs, agent=context.agent, cache=context.cache
        )


@asynccontextmanager
async def working() -> AsyncIterator[tuple[Context, Path]]:
    """Lend a context with a ledger of its own, and a folder."""
    with (
        tempfile.TemporaryDirectory(prefix="tare-repeat-") as folder,
        Ledger(Path(folder) / "ledger.jsonl") as ledger,
    ):
        yield local_context(ledger), Path(folder)


async def direct(image: GuestImage, run: int) -> dict[str, float]:
    """Measure the image booted directly."""
    async with working() as (context, folder):
        options = QemuOptions(accelerator="tcg", cpu=CPU_MODEL, clock="instructions")
        return await one_boot(context, options, image, folder / f"tare-repeat-{run}")


async def in_kvm(image: GuestImage, run: int) -> dict[str, float]:
    """Measure the image as a guest of KVM in a lab that is booted for it."""
    async with working() as (context, folder):
        options = LabOptions("kvm", cpus=1, deterministic=True)
        async with await lab_up(context, options, folder / "tare-lab", timeout_s=900) as lab:
            with Ledger(folder / "inside.jsonl", host=lab.host.name, boot=lab.host.boot_id) as held:
                inside = replace(context, host=lab.host, ledger=held, here=context.host)
                there = Path("/tmp") / f"tare-repeat-{run}"
                return await one_boot(inside, QemuOptions(accelerator="kvm"), image, there)


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
    parser.add_argument("--kvm", action="store_true", help="a guest of KVM too (minutes each)")
    asked = parser.parse_args(argv)
    machine = machine_facts()
    kinds: dict[str, Any] = {"direct": direct, **({"kvm": in_kvm} if asked.kvm else {})}
    image = asyncio.run(build())
    goals: list[Goal] = []
    facts: list[Fact] = []
    samples: dict[str, list[float]] = {}
    for label, boot in kinds.items():
        runs = [asyncio.run(boot(image, run)) for run in range(asked.runs)]
        found = judged(label, runs)
        # What a lab's KVM guest does is told, and not judged: see docs/lab.md.
        goals += found[0] if label == "direct" else []
        facts += found[1]
        samples |= {f"{label}: {name}": [run[name] for run in runs] for name in runs[0]}
    result = Result("deterministic", tuple(goals), tuple(facts), samples)
    return finish(result, machine)


if __name__ == "__main__":
    sys.exit(main())
