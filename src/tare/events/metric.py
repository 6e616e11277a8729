"""The description of a metric, declared by its workload and used everywhere up to the report."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from tare.units import format_number, with_unit

Better = Literal["higher", "lower", "neither"]
Kind = Literal["typical", "tail", "maximum"]
Resource = Literal["cpu", "memory", "disk", "network", "latency", "application"]
"""The resource that a metric is mainly about; reports sum up the metrics of each resource."""

LEAST: Mapping[str, float] = MappingProxyType(
    {"s": 1e-12, "1/s": 1e-7, "B/s": 1e-6, "B": 1e-6, "1": 1e-18}
)
"""The smallest value above 0 that a machine can have had, by unit.

A picosecond is less than a hundredth of any processor's cycle. A cell lasts at most 1e6 s, so a
rate is at least one event, or one byte, in that time. The limits for bytes and ratios are smaller,
because averages of them can be.
"""


class Metric(NamedTuple):
    """One measured quantity.

    Args:
        name: Short kebab-case name, unique within the workload.
        unit: SI unit (``s``, ``B``, ``B/s``, ``1/s``, ``1``).
        better: The direction that is an improvement.
        summary: Its meaning, in one sentence; events do not hold it.
        kind: ``typical`` values get t-intervals on log-ratios; ``tail`` and ``maximum`` get
            order-statistic or boot-level bootstrap intervals only.
        headline: Whether the report's first screen shows it for the workload.
        may_be_zero: Whether 0 is a possible value. It is True for counts and shares of failures,
            whose best value is 0; False for times and amounts of work. None: 0 is possible unless
            more is better. Events do not hold it.
        may_be_negative: Whether it can be below zero, as only a study's own figures are. Events do
            not hold it.
        resource: The resource that it is mainly about; None: its workload's resource. Runs recorded
            before workloads declared this have None.
    """

    name: str
    unit: str
    better: Better
    summary: str = ""
    kind: Kind = "typical"
    headline: bool = False
    may_be_zero: bool | None = None
    may_be_negative: bool = False
    resource: Resource | None = None

    def impossible(self, value: float) -> str:
        """Return why no machine can have had this value, in SI units; empty if it can."""
        if self.may_be_negative and value:
            return ""
        least = LEAST.get(self.unit, 0.0)
        if 0 < value < least:
            found, bound = (with_unit(f"{each:g}", self.unit) for each in (value, least))
            return f"{self.name} is {found}, and cannot be above 0 and below {bound}"
        if value > 0:
            return ""
        zero = self.may_be_zero
        if zero is None:
            zero = self.better != "higher"
        if value == 0 and zero:
            return ""
        found = with_unit(format_number(value, 6), self.unit)
        return f"{self.name} is {found}, and cannot be {'0 or ' * (not zero)}less"
