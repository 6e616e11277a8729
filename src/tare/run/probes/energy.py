"""Energy that the host uses during a cell: its processors by RAPL, the whole computer by its BMC.

Source: the kernel's Documentation/power/powercap/powercap.rst. A counter is in microjoules and
starts again from 0 above ``max_energy_range_uj``. It covers everything that its part of the
computer does, not only the measured machine.

The processor updates a counter at intervals, so each of the two readings may lack the energy used
within one interval. The step between two different readings shows that amount.

A BMC reports power, which is read once a second and integrated. It updates its reading every few
seconds and does not say when, so short cells get no value.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.errors import TareError
from tare.events.parts import SUBJECT
from tare.hosts import Host
from tare.probes import Probe, ProbedCell, ProbeKind
from tare.run.probes.bmc import Power, PowerMeter, meter_of
from tare.study.reading.hosting import BmcSpec

if TYPE_CHECKING:
    from tare.agent.client import Outcome

POWERCAP = "/sys/class/powercap"
READINGS = 20
"""Number of readings that determine the step; over SSH they are further apart, and it is larger.
"""
IDLE_S = 2.0
"""Seconds for which a host's idle power is measured, once for each machine booted there.
"""
LOOK_S = 1.0
LEAST_BMC_S = 30.0
"""The shortest cell, in seconds, for which a BMC's readings count."""
LAG_S = 10.0
"""Seconds by which a BMC's reading may be late. No BMC states this; some average over seconds.
"""


@dataclass(frozen=True)
class Domain:
    """One counter: its name, its file, and the value above which it starts again."""

    name: str
    counter: str
    most_uj: int


async def domains_of(host: Host) -> tuple[Domain, ...]:
    """Return the counters of a host that can be read.

    The parts of a package are listed as well. They are included in the package, except for memory
    on servers.

    Args:
        host: The host.

    Raises:
        TareError: No counter can be read.
    """
    names = await host.first_lines([f"{POWERCAP}/*rapl:*/name"])
    if not names:
        raise TareError("the host has no energy counter (RAPL) that its kernel shows")
    files = ("energy_uj", "max_energy_range_uj")
    values = await host.first_lines([f"{POWERCAP}/*rapl:*/{file}" for file in files])
    found = []
    labels = {path.rpartition("/")[0]: name for path, name in names.items()}
    for folder, name in sorted(labels.items()):
        counter, most = (values.get(f"{folder}/{file}", "") for file in files)
        if counter.isdecimal() and most.isdecimal():
            parent = labels.get(folder.rpartition(":")[0])
            found.append(
                Domain(f"{parent}/{name}" if parent else name, f"{folder}/energy_uj", int(most))
            )
    if not found:
        raise TareError("the host's energy counters (RAPL) cannot be read", "run as root")
    return tuple(found)


class EnergyProbe(Probe):
    """Reads a host's energy counters before and after the work, and its BMC during it.

    Args:
        host: The host.
        meter: Its power meter; None if the study names none.
        may_ask: Whether the host may be read while the work is under way.
        idle: The idle power that was measured with this machine, in watts by counter; filled here.
    """

    def __init__(
        self,
        host: Host,
        meter: PowerMeter | None = None,
        *,
        may_ask: bool = True,
        idle: dict[str, float] | None = None,
    ) -> None:
        self._host, self._meter, self._may_ask = host, meter, may_ask
        self._idle = {} if idle is None else idle
        self._domains: tuple[Domain, ...] = ()
        self._missing = ""
        self._steps: dict[str, int] = {}
        self._before: Mapping[str, int] = {}
        self._began = 0.0
        self._powers: list[tuple[float, Power]] = []
        self._no_power = ""
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find counters and meter, the step of each counter, and the host's idle power."""
        if self._meter is not None:
            try:
                await self._meter.open()
            except TareError as error:
                self._no_power, self._meter = error.message, None
        try:
            self._domains = await domains_of(self._host)
        except TareError as error:
            if self._meter is None:
                raise TareError("; ".join(filter(None, (error.message, self._no_power)))) from None
            self._missing = error.message
            return
        began, first = time.monotonic(), await self._read()
        before = first
        for _ in range(READINGS):
            after = await self._read()
            for domain in self._domains:
                step = moved(before[domain.name], after[domain.name], domain.most_uj)
                if step:
                    known = self._steps.get(domain.name, step)
                    self._steps[domain.name] = min(step, known)
            before = after
        if not self._idle and self._may_ask:
            await asyncio.sleep(IDLE_S)
            after, seconds = await self._read(), time.monotonic() - began
            for each in self._domains:
                used = moved(first[each.name], after[each.name], each.most_uj)
                self._idle[each.name] = used / 1e6 / seconds

    async def begin(self) -> None:
        """Read the counters, and begin to read the meter."""
        if self._meter is not None:
            await self._look()
            if self._may_ask:
                self._looking = asyncio.create_task(self._keep_looking())
        self._before = await self._read()
        self._began = time.monotonic()

    async def end(self, outcome: Outcome) -> None:
        """Read counters and meter again.

        Args:
            outcome: The result of the work.
        """
        after = await self._read()
        seconds = time.monotonic() - self._began
        await self._stop_looking()
        facts: dict[str, Any] = {
            "seconds": seconds,
            "domains": {
                domain.name: self._facts(domain, after[domain.name]) for domain in self._domains
            },
        }
        if self._missing:
            facts["no_counters"] = self._missing
        if self._idle:
            facts["idle_w"] = dict(self._idle)
        if self._meter is not None:
            await self._look()
            facts["bmc"] = power_facts(self._meter.source, self._powers, self._no_power)
        elif self._no_power:
            facts["bmc"] = {"missing": self._no_power}
        self.facts = facts

    async def abandon(self, limit_s: float) -> None:
        """Stop reading the meter."""
        await self._stop_looking()

    def _facts(self, domain: Domain, after: int) -> dict[str, float]:
        joules = moved(self._before[domain.name], after, domain.most_uj) / 1e6
        step = self._steps.get(domain.name)
        # A counter that did not move while it was watched has an unknown resolution.
        if step is None:
            return {"joules": joules}
        return {"joules": joules, "resolution_j": step / 1e6, "uncertainty_j": 2 * step / 1e6}

    async def _read(self) -> dict[str, int]:
        return {domain.name: int(await self._host.read(domain.counter)) for domain in self._domains}

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        if self._meter is None:
            return
        began = time.monotonic()
        try:
            power = await self._meter.read()
        except (TareError, OSError) as error:
            self._no_power = error.message if isinstance(error, TareError) else str(error)
        else:
            self._powers.append(((began + time.monotonic()) / 2, power))

    async def _stop_looking(self) -> None:
        task, self._looking = self._looking, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def power_facts(
    source: str, powers: Sequence[tuple[float, Power]], failed: str = ""
) -> dict[str, Any]:
    """Return the energy from a BMC's readings of power, with its uncertainty.

    The uncertainty has three parts. Each reading is rounded by up to half a step. It may be late
    by :data:`LAG_S`, at the beginning and at the end. And the meter has the accuracy that the BMC
    states, if it does.

    Args:
        source: The resource that was read.
        powers: Times in seconds, and readings.
        failed: Why a reading failed, if one did.
    """
    seconds = powers[-1][0] - powers[0][0] if powers else 0.0
    if seconds < LEAST_BMC_S:
        short = f"the cell took less than {LEAST_BMC_S:g} s, and a BMC's readings are seconds late"
        return {"missing": failed or short}
    watts = [power.watts for _, power in powers]
    if max(b[0] - a[0] for a, b in itertools.pairwise(powers)) > LAG_S:
        return {"missing": failed or f"the BMC did not answer for more than {LAG_S:g} s"}
    joules = sum(
        (later - earlier) * (one.watts + other.watts) / 2
        for (earlier, one), (later, other) in itertools.pairwise(powers)
    )
    levels = sorted(set(watts))
    steps = [high - low for low, high in itertools.pairwise(levels)]
    # Whole watts are usual. A reading that never changed shows no step of its own.
    step = min(steps) if steps else 1.0
    stated = [power.accuracy_w for _, power in powers if power.accuracy_w is not None]
    accuracy = max(stated) if len(stated) == len(powers) else None
    uncertainty = step / 2 * seconds + 2 * LAG_S * (levels[-1] - levels[0])
    facts: dict[str, Any] = {
        "source": source,
        "seconds": seconds,
        "joules": joules,
        "readings": len(powers),
        "resolution_w": step,
        "uncertainty_j": uncertainty + (accuracy or 0.0) * seconds,
    }
    return facts if accuracy is None else {**facts, "accuracy_w": accuracy}


def moved(before: int, after: int, most: int) -> int:
    """Return the increase of a counter, which may have started again from 0 once."""
    return after - before if after >= before else after + most - before


class EnergyKind(ProbeKind):
    """Records the energy that the subject's host uses, with its resolution.

    Args:
        meters: The BMC of each arm's host, for those that have one.
        elsewhere: The arms whose machines run on another computer than the one that drives them.
    """

    name = "energy"
    on_request = True

    def __init__(
        self, meters: Mapping[str, BmcSpec] | None = None, elsewhere: Iterable[str] = ()
    ) -> None:
        self._meters, self._elsewhere = meters or {}, frozenset(elsewhere)
        self._idle: dict[str, dict[str, float]] = {}

    def probe(self, cell: ProbedCell) -> Probe | None:
        """Return the probe of a cell.

        Raises:
            TareError: The machine runs on a computer whose energy cannot be read.
        """
        arm, context = cell.cell.arm, cell.context
        if arm in self._elsewhere:
            raise TareError("the machine runs on another computer, whose energy Tare does not read")
        spec = self._meters.get(arm)
        meter = None if spec is None else meter_of(spec, context.host, context.builder)
        idle = self._idle.setdefault(cell.machines[SUBJECT].name, {})
        return EnergyProbe(context.host, meter, may_ask=cell.may_ask, idle=idle)
