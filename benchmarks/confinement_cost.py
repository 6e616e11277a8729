"""What QEMU's own user and filter of system calls cost: guests with and without, by turns.

See `tare help benchmarks` for the method.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import stats

from benchmarks._pairs import Pairs
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured
from tare.errors import TareError
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context, Machine, Shape
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.platforms.scheduling import Scheduling
from tare.run.lifecycle.session import agent_path
from tare.testing.machines import Machines, RunningMachine
from tare.workloads import WORKLOADS, MachineFacts, fitted

Accelerator = Literal["tcg", "kvm"]
MIB = 1 << 20
MARGIN = 0.02
LEVEL = 0.05
"""The level of each one-sided test: arms are equivalent if the 1 - 2 × LEVEL interval is within."""
FIGURES: Mapping[str, tuple[str, str]] = {
    "numeric-sort": ("rate", "calculating, which makes no system call of QEMU's"),
    "memory-bandwidth": ("triad-f64", "memory"),
    "filebench": ("operations", "a disk: system calls of QEMU's for each operation"),
}
"""Workload to its metric, and what it stands for."""
ARMS: Mapping[str, bool] = {"open": False, "open-again": False, "confined": True}
"""Whether QEMU is confined."""
SHAPE = Shape(1, 256 * MIB, 128 * MIB)
# As nice as can be, so that it does not ask for an idle computer.
NICE = Scheduling(nice=-20)
PATIENCE_S = 120.0
WARM_UP = 6
"""Rounds that do not count: for two to four turns a fresh guest's triad is at 0.6 of its later
rate, and which guest had fewer of them decided the ratio."""
GUEST = MachineFacts(emulated=True, memory=SHAPE.memory, vcpus=SHAPE.vcpus)


def works(seconds: float) -> dict[str, dict[str, Any]]:
    """Return what each guest does in its turn, with the parameters that a study gives.

    Args:
        seconds: The length of one turn.
    """
    read = {"work": "random-read", "io_size": "4KiB", "total": "16MiB"}
    return {
        "numeric-sort": {"duration": seconds},
        "memory-bandwidth": {"array": "8MiB", "duration": seconds / 4},
        "filebench": {**read, "duration": seconds},
    }


async def turn(machine: Machine, name: str, given: Mapping[str, Any]) -> float:
    """Let a guest work once; return what it did a second."""
    workload = WORKLOADS[name]
    asked = workload.parameters.model_validate(dict(given))
    request = fitted(workload, workload.request(asked), GUEST)
    outcome = await machine.agent.run(workload.agent_name, request, deadline_s=PATIENCE_S)
    return float(workload.observe(asked, outcome.value)[FIGURES[name][0]])


@asynccontextmanager
async def guests(
    context: Context, accelerator: Accelerator
) -> AsyncIterator[Mapping[str, RunningMachine]]:
    """Hold a freshly booted guest of each arm, all on the last CPU: who is not asked is idle.

    Raises:
        Unmeasured: The confined one is not.
    """
    cpus = context.host.topology().online[-1:]
    held: list[Machines] = []
    booted: dict[str, RunningMachine] = {}
    try:
        for arm, confined in ARMS.items():
            options = QemuOptions(accelerator=accelerator, confined=confined, scheduling=NICE)
            machines = Machines(
                Qemu(), options, context, shape=SHAPE, cpus=cpus, patience_s=PATIENCE_S
            )
            held.append(machines)
            booted[arm] = await machines.subject()
        require_confined(booted["confined"].machine.applied)
        yield booted
    finally:
        for machines in held:
            await machines.close()


def require_confined(applied: Mapping[str, Any]) -> None:
    """Raise Unmeasured where a guest's QEMU has neither a filter nor a user of its own."""
    runs_as = applied.get("runs_as", {})
    if not (runs_as.get("sandbox") and runs_as.get("uid")):
        raise Unmeasured(f"QEMU could not be confined: {runs_as.get('reason') or runs_as}")


def order(block: int, number: int) -> tuple[str, ...]:
    """Return the arms in the order of one round: each is first, second and last as often."""
    arms = tuple(ARMS)
    first = (block + number) % len(arms)
    turned = arms[first:] + arms[:first]
    return turned if number // len(arms) % 2 else turned[::-1]


async def by_turns(
    booted: Mapping[str, RunningMachine], block: int, rounds: int, seconds: float
) -> dict[tuple[str, str], float]:
    """Return each work's figure by arm: the geometric mean over rounds, after those of warm-up.

    Args:
        booted: The guests.
        block: Its number, which decides who begins.
        rounds: How often each guest has its turn at each work.
        seconds: The length of one turn.
    """
    logs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, given in works(seconds).items():
        for number in range(-WARM_UP, rounds):
            for arm in order(block, number):
                value = await turn(booted[arm].machine, name, given)
                if number >= 0:
                    logs[name, arm].append(math.log(value))
    return {key: math.exp(statistics.fmean(each)) for key, each in logs.items()}


async def measured(
    blocks: int, rounds: int, seconds: float, accelerator: Accelerator
) -> dict[tuple[str, str], tuple[float, ...]]:
    """Boot new guests for each block, and return each figure by work and arm."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    agent = agent_path()
    with (
        tempfile.TemporaryDirectory(prefix="tare-bench-") as folder,
        Ledger(Path(folder) / "ledger") as ledger,
    ):
        context = Context(LocalHost(agent), ledger, default_cache(), agent)
        for block in range(blocks):
            async with guests(context, accelerator) as booted:
                rates = await by_turns(booted, block, rounds, seconds)
            for key, value in rates.items():
                found[key].append(value)
            cost = {
                name: f"{rates[name, 'confined'] / rates[name, 'open']:.3f}" for name in FIGURES
            }
            print(f"  block {block + 1}/{blocks}: {cost}", flush=True)
    return {key: tuple(values) for key, values in found.items()}


@dataclass(frozen=True)
class Ratio:
    """The geometric mean of the ratios within blocks, and its interval by Student's t."""

    mean: float
    low: float
    high: float

    @property
    def farthest(self) -> float:
        """How far from 1 the ratio may be, as a share."""
        return max(abs(self.low - 1), abs(self.high - 1))


def ratio(pairs: Pairs) -> Ratio:
    """Return the ratio within pairs, with the interval of two one-sided tests.

    Raises:
        Unmeasured: There are fewer than two pairs.
    """
    logs = np.log(pairs.ratios)
    if logs.size < 2:
        raise Unmeasured("one pair does not show how far others would differ")
    half = stats.t.ppf(1 - LEVEL, logs.size - 1) * logs.std(ddof=1) / math.sqrt(logs.size)
    middle = logs.mean()
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def result(found: Mapping[tuple[str, str], tuple[float, ...]], accelerator: str) -> Result:
    """Return what both arms measured, and whether they are equivalent.

    Raises:
        Unmeasured: A figure is missing.
    """
    goals, facts = [], []
    samples: dict[str, Sequence[float]] = {}
    for workload, (metric, what) in FIGURES.items():
        sides = {arm: found.get((workload, arm), ()) for arm in ARMS}
        if not sides["open"] or len({len(side) for side in sides.values()}) != 1:
            raise Unmeasured(f"{workload} lacks blocks")
        cost = ratio(Pairs("confined", "open", sides["confined"], sides["open"]))
        floor = ratio(Pairs("open-again", "open", sides["open-again"], sides["open"]))
        goals.append(
            Goal(
                f"{accelerator}, {workload} {metric}: confined differs by at most",
                f"the same guest with all rights ({what})",
                MARGIN * 100,
                cost.farthest * 100,
                "%",
                detail=f"ratio {cost.mean:.4f}, {1 - 2 * LEVEL:.0%} interval {cost.low:.4f} to "
                f"{cost.high:.4f}; A/A {floor.mean:.4f}, {floor.low:.4f} to {floor.high:.4f}",
            )
        )
        facts.append(Fact(f"{workload}: confined ÷ open", cost.mean, ""))
        facts.append(Fact(f"{workload}: open ÷ open again, farthest", floor.farthest * 100, "%"))
        for arm, side in sides.items():
            samples[f"{workload}, {arm}"] = side
    return Result("confinement_cost", tuple(goals), tuple(facts), samples)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.confinement_cost", description=__doc__
    )
    parser.add_argument("--blocks", type=int, default=16, help="fresh boots; at least 2")
    parser.add_argument("--rounds", type=int, default=12, help="turns at each work in a boot")
    parser.add_argument("--seconds", type=float, default=0.2, help="of a turn")
    parser.add_argument("--accelerator", choices=("tcg", "kvm"), default="tcg")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    asked = (wanted.blocks, wanted.rounds, wanted.seconds, wanted.accelerator)
    try:
        found = result(asyncio.run(measured(*asked)), wanted.accelerator)
    except (Unmeasured, TareError) as why:
        peer = "the same guest with all rights"
        missed = Goal("confined differs by", peer, MARGIN * 100, None, "%", detail=str(why))
        found = Result("confinement_cost", (missed,), ())
    return finish(found, machine)


if __name__ == "__main__":
    sys.exit(main())
