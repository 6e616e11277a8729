"""Disturb a machine by a known pattern while it measures, and let Tare find it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._quota import QuotaAccount
from benchmarks._runs import Unmeasured
from tare.agent.barrier import Barrier
from tare.agent.client import Outcome
from tare.analysis.topics.spike_cells import SpikeCell, match_cell
from tare.errors import TareError
from tare.events.host_schedule import FACTS
from tare.platforms.contract import Context, Machine, MachineSpec, Prepared, Shape
from tare.registry import installed
from tare.run.probes.host_trace import HostTrace, HostTracing
from tare.workloads import WORKLOADS, MachineFacts, fitted

MEMORY = 256 << 20
BOOT_S = 120.0
HOG_PRIORITY = 98
SUBJECT_PRIORITY = 50
DEADLINE_S = 300.0


@dataclass(frozen=True)
class Subject:
    """A kind of machine that is disturbed: what it is called, its platform and options."""

    name: str
    platform: str
    options: Mapping[str, Any]
    emulated: bool = False


SUBJECTS = (
    Subject("process", "bare", {}),
    Subject("container", "oci", {"runtime": "runc"}),
    Subject("qemu-tcg", "qemu", {"accelerator": "tcg", "devices": "paravirtual"}, emulated=True),
)


@dataclass(frozen=True)
class Hog:
    """A hog of this period and length, in seconds, that runs so often."""

    period_s: float
    length_s: float
    count: int

    @property
    def seconds(self) -> float:
        """How long the subject must measure to see all of it."""
        return self.period_s * (self.count + 3)

    def __str__(self) -> str:
        return f"hog of {self.length_s * 1e3:g} ms every {self.period_s * 1e3:g} ms"


@dataclass(frozen=True)
class Quota:
    """A control group's quota: the share of a CPU that it grants, in a period of seconds."""

    share: float
    period_s: float
    seconds: float

    def __str__(self) -> str:
        return f"quota of {self.share:.0%} in {self.period_s * 1e3:g} ms"


@dataclass(frozen=True)
class Injection:
    """One disturbance; times in ns.

    Args:
        begin_ns: A moment that is surely within it (the host's CLOCK_MONOTONIC_RAW).
        end_ns: A later one.
        least_ns: How long the CPU was taken, at the least.
        most_ns: How long, at the most.
    """

    begin_ns: int
    end_ns: int
    least_ns: int
    most_ns: int

    @classmethod
    def stop(cls, begin_ns: int, end_ns: int) -> Injection:
        """Return a stop by a quota, whose exact length the kernel accounts."""
        return cls(begin_ns, end_ns, end_ns - begin_ns, end_ns - begin_ns)

    @classmethod
    def run(cls, begin_ns: int, end_ns: int, charged_ns: int) -> Injection:
        """Return a run of a hog, as two independent clocks measured it.

        Its own stamps leave out the switches to it and back. What the kernel charged it holds them,
        and what the kernel does at a wake-up; but less than the stamps, where the hypervisor below
        stole time.
        """
        both = (end_ns - begin_ns, charged_ns)
        return cls(begin_ns, end_ns, min(both), max(both))

    @property
    def middle_ns(self) -> int:
        """A moment that is surely within it."""
        return (self.begin_ns + self.end_ns) // 2

    def error_ns(self, found_ns: float) -> float:
        """Return how far what was found is from all that can be true; 0 within."""
        return found_ns - min(max(found_ns, self.least_ns), self.most_ns)


@dataclass(frozen=True)
class Disturbed:
    """What one disturbed measurement gave.

    Args:
        cell: The gaps with their causes, as Tare sees them.
        value: The tick's result.
        facts: The recorder's facts.
        injected: Each disturbance.
        cut: Those that the beginning or the end of the measurement cuts in two.
    """

    cell: SpikeCell
    value: Mapping[str, Any]
    facts: Mapping[str, Any]
    injected: tuple[Injection, ...]
    cut: tuple[Injection, ...]


async def disturb(
    context: Context, tracing: HostTracing, subject: Subject, pattern: Hog | Quota, cpu: int
) -> Disturbed:
    """Measure ``subject`` on ``cpu`` under ``pattern``.

    Raises:
        Unmeasured: The machine cannot run here, or nothing could be recorded.
    """
    options = dict(subject.options)
    if isinstance(pattern, Quota):
        options["scheduling"] = {"cap": pattern.share, "period": pattern.period_s}
    try:
        async with _machine(context, subject.platform, options, (cpu,), "subject") as machine:
            if isinstance(pattern, Quota):
                # The kernel adds up what it withholds on each CPU, so there must be only one.
                for thread in await machine.threads():
                    os.sched_setaffinity(thread, {cpu})
                return await _measure(tracing, subject, machine, pattern.seconds, None, cpu)
            # Its agent must answer while the CPU is taken, so only its hog runs there.
            anywhere = context.host.topology().online
            async with _machine(context, "bare", {}, anywhere, "neighbour-1") as hog:
                return await _measure(
                    tracing, subject, machine, pattern.seconds, (hog, pattern), cpu
                )
    except TareError as error:
        raise Unmeasured(f"{subject.name}: {error}") from error


@asynccontextmanager
async def _machine(
    context: Context, name: str, options: Mapping[str, Any], cpus: tuple[int, ...], role: str
) -> AsyncIterator[Machine]:
    platform = installed().platforms[name]
    chosen = platform.options.model_validate(dict(options))
    shape = Shape(vcpus=max(1, len(cpus)) if role != "subject" else 1, memory=MEMORY)
    verdict = await platform.check(context, chosen)
    if not verdict.usable:
        raise Unmeasured(verdict.reason)
    prepared: Prepared = await platform.prepare(context, chosen, shape, True)
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        title = f"tare-bench-{secrets.token_hex(3)}-{role}"
        spec = MachineSpec(title, shape, cpus, Path(folder) / title, True, role)
        machine = await platform.start(context, chosen, prepared, spec)
        try:
            await machine.ready(BOOT_S)
            yield machine
        finally:
            await machine.stop()


async def _measure(
    tracing: HostTracing,
    subject: Subject,
    machine: Machine,
    seconds: float,
    disturber: tuple[Machine, Hog] | None,
    cpu: int,
) -> Disturbed:
    others = {"hog": disturber[0]} if disturber else {}
    side = HostTrace(tracing, machine, others)
    await side.open()
    account = QuotaAccount()

    async def begin() -> None:
        await side.begin()
        if disturber is None:
            await account.begin(tracing.host, (await machine.measuring_threads())[0])

    barrier = Barrier(1 + len(others), begin)
    facts = MachineFacts(
        emulated=subject.emulated, memory=MEMORY, last_level_cache=1 << 20, caches=1 << 20
    )
    tick = WORKLOADS["tick"]
    parameters = tick.parameters.model_validate(
        {"duration": seconds, "priority": SUBJECT_PRIORITY, "log": 1_000_000}
    )
    running = [
        machine.agent.run(
            "tick",
            fitted(tick, tick.request(parameters), facts),
            barrier=barrier,
            deadline_s=DEADLINE_S,
        )
    ]
    if disturber is not None:
        hog, pattern = disturber
        running.append(
            hog.agent.run(
                "hog",
                {
                    "period_ns": round(pattern.period_s * 1e9),
                    "length_ns": round(pattern.length_s * 1e9),
                    "count": pattern.count,
                    "priority": HOG_PRIORITY,
                    "cpu": cpu,
                },
                barrier=barrier,
                deadline_s=DEADLINE_S,
            )
        )
    try:
        outcomes: list[Outcome] = await asyncio.gather(*running)
        await side.end(outcomes[0])
    except BaseException:
        await side.abandon(DEADLINE_S)
        raise
    finally:
        stops = account.end()
    trace = side.facts[FACTS]
    if not side.series:
        raise Unmeasured(f"nothing was recorded: {trace['reason']}")
    ((_, series),) = side.series
    logged = next((s.columns for s in outcomes[0].series if s.name == "gaps"), None)
    whose = dict.fromkeys(("run", "cell", "arm", "scenario", "workload", "parameters"), "")
    # As it would come back from the event stream.
    kept = json.loads(json.dumps(trace))
    cell = match_cell(
        {**whose, "block": 1, "emulated": subject.emulated}, kept, series.columns, logged
    )
    if cell.matched is None:
        raise Unmeasured(cell.reason)
    last_ns = cell.first_ns + round(float(outcomes[0].value["seconds"]) * 1e9)
    if disturber is None:
        times = tuple(Injection.stop(*stop) for stop in stops)
    else:
        columns = next(s.columns for s in outcomes[1].series if s.name == "runs")
        if "charged_ns" not in columns:
            raise Unmeasured("the kernel keeps no account of the hog, or the hog missed its time")
        runs = zip(
            *(columns[name].tolist() for name in ("begin_ns", "end_ns", "charged_ns")), strict=True
        )
        times = tuple(Injection.run(*run) for run in runs)
    met = [each for each in times if each.end_ns > cell.first_ns and each.begin_ns < last_ns]
    whole = tuple(each for each in met if each.begin_ns > cell.first_ns and each.end_ns < last_ns)
    cut = tuple(each for each in met if each not in whole)
    return Disturbed(cell, outcomes[0].value, kept, whole, cut)
