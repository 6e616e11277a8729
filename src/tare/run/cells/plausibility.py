"""Plausibility of a cell's values, and of the clocks with which they were measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.agent.clocktrust import ClockReading, ClockTrust, judge
from tare.errors import MachineFault
from tare.events.cell_facts import CellFacts
from tare.events.results import IMPOSSIBLE
from tare.platforms.contract import SUBJECT
from tare.probes import Probe
from tare.units import format_number, format_size
from tare.workloads.values import number

if TYPE_CHECKING:
    from tare.agent.client import AgentClient, Hello
    from tare.platforms.contract import Machine
    from tare.workloads.contract import DiskClaim, Metric

DRIFT_LIMIT_PPM = 500.0
"""The adjustment an NTP daemon may make to a healthy clock (adjtimex(2), MAXFREQ)."""
MOST_WAIT_S = 20.0
"""The longest wait for judging a clock by slow answers, in seconds: 100 ms are 1 % of 10 s."""
LOOK_S = 0.2
MOST_APART = 0.1
"""Tolerance between reported and counted bytes of a disk, which are not read at the same moment."""
EARLY = "tsc-early"
SETTLE_LOOK_S = 0.02
SETTLE_MOST_S = 5.0
"""The longest wait for a settled clock, in seconds; then each cell checks its clock by itself.
"""
SMALL_BYTES = 4 << 20
"""A smaller difference means nothing: it is one pending I/O of the largest size."""


def require_possible(values: Mapping[str, float]) -> None:
    """Check that values are possible, in SI units.

    Raises:
        MachineFault: One is so large that the machine miscalculated, so it is not used any more.
            Guests in an emulated host were seen to lose their floating-point registers.
    """
    for name, value in values.items():
        if abs(value) >= IMPOSSIBLE:
            raise MachineFault(
                f"{name} is {format_number(value, 6)}, so the machine miscalculated",
                transient=True,
            )


def impossible(metrics: Sequence[Metric], values: Mapping[str, float]) -> str:
    """Return which values are impossible, in SI units; empty if none is."""
    found = (each.impossible(values[each.name]) for each in metrics if each.name in values)
    return "; ".join(filter(None, found))


def impossible_values(
    metrics: Mapping[str, Sequence[Metric]], values: Mapping[str, Mapping[str, float]]
) -> str:
    """Return which values of a cell's machines are impossible; empty if none is.

    Args:
        metrics: The metrics of each role.
        values: The values of each role, in SI units.
    """
    found = {role: impossible(metrics[role], reported) for role, reported in values.items()}
    return "; ".join(
        why if role == SUBJECT else f"{role}: {why}" for role, why in found.items() if why
    )


@dataclass(frozen=True)
class Unmoved:
    """The reason why a disk did not move the reported bytes; empty if it did."""

    read: str = ""
    written: str = ""

    def __bool__(self) -> bool:
        return bool(self.read or self.written)

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.read, self.written)))


def unmoved(
    claim: DiskClaim, result: Mapping[str, Any], host: Mapping[str, float], seconds: float
) -> Unmoved:
    """Compare the reported bytes with those that a disk moved, as far as these were counted.

    A disk that moved more than was reported is plausible.

    Args:
        claim: The reported bytes.
        result: The agent's result; its ``disk`` has the counts of the machine's own kernel.
        host: Bytes that the host counted meanwhile.
        seconds: How long the host counted.
    """
    inside, found = result.get("disk") or {}, {}
    for what, reported, key in (
        ("read", claim.read, "read_bytes_per_s"),
        ("written", claim.written, "write_bytes_per_s"),
    ):
        counts = [host[what]] if what in host else []
        if isinstance(inside, Mapping) and key in inside:
            counts.append(number(inside, key) * number(inside, "seconds"))
        if reported is None or not counts:
            continue
        least = min(counts)
        if reported > (1 + MOST_APART) * least + SMALL_BYTES:
            own_rate, rate = (f"{format_size(each / seconds)}/s" for each in (reported, least))
            hint = f": {claim.instead}" if claim.instead else ""
            found[what] = (
                f"it reported {own_rate} {what}, but its disk moved {rate}, so a cache was "
                f"measured and not the disk{hint}"
            )
    return Unmoved(**found)


def without_unmoved(
    claim: DiskClaim,
    found: Unmoved,
    values: Mapping[str, float],
    headlines: Iterable[str],
) -> tuple[Mapping[str, float], str]:
    """Leave out the values that a cache may have answered, if others are left.

    Args:
        claim: The reported bytes, and the metrics that follow from them.
        found: Which of them the disk did not move.
        values: All values, by metric.
        headlines: The headline metrics; without any of them, a cell has no result.

    Returns:
        The values that count, and which are left out and why. All values count, without such a
        sentence, if the cell as a whole must be withheld.
    """
    doubted: set[str] = set()
    for why, metrics in ((found.read, claim.from_reads), (found.written, claim.from_writes)):
        if why and not metrics:
            return values, ""
        doubted |= metrics if why else set()
    left = {name: value for name, value in values.items() if name not in doubted}
    if len(left) == len(values) or not any(name in left for name in headlines):
        return values, ""
    names = ", ".join(name for name in values if name in doubted)
    return left, f"without {names}: {found}"


@dataclass
class Clocks:
    """Readings of machines' clocks, by the machine's name.

    Args:
        virtual: Whether their time is virtual, so that this computer's clock cannot judge theirs.
    """

    virtual: bool = False
    _origins: dict[str, ClockReading] = field(default_factory=dict)
    _last: dict[str, ClockReading] = field(default_factory=dict)

    async def begin(self, machine: str, agent: AgentClient) -> ClockReading:
        """Return the first reading for a judgement: that of the last cell's end, or a new one.

        Raises:
            MachineFault: The agent is lost.
        """
        first = self._last.pop(machine, None) or await agent.clock(as_often=self.virtual)
        self._origins.setdefault(machine, first)
        return first

    async def end(self, machine: str, agent: AgentClient, first: ClockReading) -> ClockTrust:
        """Judge the clock from a reading until now.

        If a cell is too short compared with the time that answers take, the clock is judged over
        the machine's life, and this waits if that is too short, too.

        Raises:
            MachineFault: The agent is lost.
        """
        last = await agent.clock(as_often=self.virtual)
        trust = judge(first, last, DRIFT_LIMIT_PPM)
        if not self.virtual and trust.plausible and not trust.certain:
            whole, give_up = trust, time.monotonic() + MOST_WAIT_S
            while True:
                whole = judge(self._origins[machine], last, DRIFT_LIMIT_PPM)
                if whole.certain or time.monotonic() >= give_up:
                    break
                await asyncio.sleep(LOOK_S)
                last = await agent.clock()
            trust = whole
        self._last[machine] = last
        return trust

    def doubt(self, trust: ClockTrust, whose: str = "the machine's clock") -> str:
        """Return why a clock is not to be trusted; empty if it is."""
        if self.virtual or trust.trusted:
            return ""
        why = "" if trust.certain else ", which is too uncertain: its answers are too slow"
        return f"{whose} is not to be trusted: {trust}{why}"


class CellClocks(Probe):
    """Judges all clocks with which a cell's values are measured.

    Args:
        clocks: The readings of the machines' clocks.
        machines: The machines with these clocks, by role.
    """

    def __init__(self, clocks: Clocks, machines: Mapping[str, Machine]) -> None:
        self._clocks = clocks
        only = {SUBJECT: machines[SUBJECT]}
        self._machines = only if clocks.virtual else machines
        self._first: dict[str, ClockReading] = {}

    def reading(self) -> ClockReading:
        """Return a reading of the subject's clock from before the cell."""
        return self._first[SUBJECT]

    async def open(self) -> None:
        """Read the clocks.

        Raises:
            MachineFault: An agent is lost.
        """
        read = (self._clocks.begin(each.name, each.agent) for each in self._machines.values())
        self._first = dict(zip(self._machines, await asyncio.gather(*read), strict=True))

    async def close(self) -> None:
        """Read the clocks again; the facts are the subject's drift, the doubt names wrong clocks.

        Raises:
            MachineFault: An agent is lost.
        """
        judged = (
            self._clocks.end(each.name, each.agent, self._first[role])
            for role, each in self._machines.items()
        )
        trusts = dict(zip(self._machines, await asyncio.gather(*judged), strict=True))
        doubts = (
            self._clocks.doubt(
                trust, "the machine's clock" if role == SUBJECT else f"the clock of the {role}"
            )
            for role, trust in trusts.items()
        )
        self.doubt = "; ".join(filter(None, doubts))
        self.facts = CellFacts(
            clock_drift_ppm=trusts[SUBJECT].drift_ppm,
            clock_uncertainty_ppm=trusts[SUBJECT].uncertainty_ppm,
        )


async def wait_for_settled_clock(agent: AgentClient, hello: Hello) -> Hello:
    """Wait until a machine that has just booted knows the rate of its clock; return its hello.

    Linux first estimates the rate of the time-stamp counter from a short reading of another timer,
    and calls that clock ``tsc-early``. About a second after its start it has measured the rate
    properly and changes to ``tsc``. Under TCG on a busy host the first rate was up to 1000 ppm off,
    more than a trusted clock may be, so results from before the change are withheld. Source: Linux,
    arch/x86/kernel/tsc.c (``clocksource_tsc_early``, ``tsc_refine_calibration_work``).

    Until then the kernel has no timers of high resolution either, because ``tsc-early`` lacks
    ``CLOCK_SOURCE_VALID_FOR_HRES``. The rate on the command line (``tsc_early_khz``) does not end
    the wait: Linux leaves it out only where a processor or hypervisor reports the rate
    (``X86_FEATURE_TSC_KNOWN_FREQ``). KVM does so, TCG does not.

    Args:
        agent: The machine's agent.
        hello: Its hello when it was ready; it is requested again until its clock has changed.

    Raises:
        MachineFault: The agent is lost.
    """
    give_up = time.monotonic() + SETTLE_MOST_S
    while _clock(hello) == EARLY and time.monotonic() < give_up:
        await asyncio.sleep(SETTLE_LOOK_S)
        hello = await agent.hello_again()
    return hello


def _clock(hello: Hello) -> object:
    source = hello.proof.get("clocksource")
    return source.get("current") if isinstance(source, Mapping) else None
