"""Whether what a cell told can have been so: its values, and the clock they were taken with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.agent.clocktrust import ClockReading, ClockTrust, judge
from tare.errors import MachineFault
from tare.events.results import IMPOSSIBLE
from tare.platforms.contract import SUBJECT
from tare.probes import Probe
from tare.units import format_number, format_size
from tare.workloads.values import number

if TYPE_CHECKING:
    from tare.agent.client import AgentClient
    from tare.platforms.contract import Machine
    from tare.workloads.contract import DiskClaim, Metric

DRIFT_LIMIT_PPM = 500.0
"""The adjustment an NTP daemon may make to a healthy clock (adjtimex(2), MAXFREQ)."""
MOST_WAIT_S = 20.0
"""How long to wait until slow answers say something of a clock: 100 ms are 1 % of 10 s."""
LOOK_S = 0.2
MOST_APART = 0.1
"""How much more may be told than a disk counted: the two do not begin and end at one moment."""
SMALL_BYTES = 4 << 20
"""So little says nothing: it is one I/O of the largest kind on its way."""


def require_possible(values: Mapping[str, float]) -> None:
    """See that a machine can have had these values, in SI units.

    Raises:
        MachineFault: One is so large that the machine cannot have calculated rightly, so nothing
            more is asked of it. Guests in an emulated host were seen to lose their floating-point
            registers.
    """
    for name, value in values.items():
        if abs(value) >= IMPOSSIBLE:
            raise MachineFault(
                f"{name} is {format_number(value, 6)}, so the machine did not calculate rightly",
                transient=True,
            )


def impossible(metrics: Sequence[Metric], values: Mapping[str, float]) -> str:
    """Return which values no machine can have had, in SI units; empty if there are none."""
    found = (each.impossible(values[each.name]) for each in metrics if each.name in values)
    return "; ".join(filter(None, found))


def all_impossible(
    metrics: Mapping[str, Sequence[Metric]], values: Mapping[str, Mapping[str, float]]
) -> str:
    """Return which values no machine of a cell can have had; empty if there are none.

    Args:
        metrics: What each role tells.
        values: What it told, in SI units.
    """
    found = {role: impossible(metrics[role], told) for role, told in values.items()}
    return "; ".join(
        why if role == SUBJECT else f"{role}: {why}" for role, why in found.items() if why
    )


def unmoved(
    claim: DiskClaim, result: Mapping[str, Any], host: Mapping[str, float], seconds: float
) -> str:
    """Return why a disk cannot have moved what was told; empty if it can, or if nobody counted.

    Args:
        claim: What was told, in bytes.
        result: The agent's result; its ``disk`` says what the machine's own kernel counted.
        host: Bytes that the host counted meanwhile.
        seconds: How long the host counted. A disk that moved more than was told is no reason.
    """
    inside = result.get("disk") or {}
    for what, told, key in (
        ("read", claim.read, "read_bytes_per_s"),
        ("written", claim.written, "write_bytes_per_s"),
    ):
        counts = [host[what]] if what in host else []
        if isinstance(inside, Mapping) and key in inside:
            counts.append(number(inside, key) * number(inside, "seconds"))
        if told is None or not counts:
            continue
        least = min(counts)
        if told > (1 + MOST_APART) * least + SMALL_BYTES:
            told_rate, rate = (f"{format_size(each / seconds)}/s" for each in (told, least))
            hint = f": {claim.instead}" if claim.instead else ""
            return (
                f"it told of {told_rate} {what} and its disk did {rate}, so a cache was measured "
                f"and not the disk{hint}"
            )
    return ""


@dataclass
class Clocks:
    """What is known of machines' clocks, each by its machine's name.

    Args:
        virtual: Whether their time is virtual, so that no clock of this computer can judge theirs.
    """

    virtual: bool = False
    _origins: dict[str, ClockReading] = field(default_factory=dict)
    _last: dict[str, ClockReading] = field(default_factory=dict)

    async def begin(self, machine: str, agent: AgentClient) -> ClockReading:
        """Return a reading to judge the clock from: that of the last cell's end, or a new one.

        Raises:
            MachineFault: The agent is lost.
        """
        first = self._last.pop(machine, None) or await agent.clock(as_often=self.virtual)
        self._origins.setdefault(machine, first)
        return first

    async def end(self, machine: str, agent: AgentClient, first: ClockReading) -> ClockTrust:
        """Judge the clock from a reading until now.

        Where a cell is too short for the time that answers take, the clock is judged over the
        machine's life too, and that is waited for where it is too short itself.

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
    """Judges all clocks that a cell's values are taken with.

    Args:
        clocks: What is known of the machines' clocks.
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
        """Read them.

        Raises:
            MachineFault: An agent is lost.
        """
        read = (self._clocks.begin(each.name, each.agent) for each in self._machines.values())
        self._first = dict(zip(self._machines, await asyncio.gather(*read), strict=True))

    async def close(self) -> None:
        """Read them again; the facts are the subject's drift, the doubt names any wrong clock.

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
        self.facts = {
            "clock_drift_ppm": trusts[SUBJECT].drift_ppm,
            "clock_uncertainty_ppm": trusts[SUBJECT].uncertainty_ppm,
        }
