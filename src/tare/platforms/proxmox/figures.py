"""What Proxmox keeps of a VM: averages over minutes, of the last hour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tare.events.hypervisor import HypervisorFigure, HypervisorFigures

RRD_S = 60
"""Seconds between two points of the hour's figures (PVE/RRD.pm)."""
SOURCE = "Proxmox's rrddata, averages"
FIGURES = {
    "cpu": ("cpu-used", "used of its vCPUs' time, as a share of all of them", "1"),
    "mem": ("memory-used", "used of its memory", "B"),
    "netin": ("net-in", "received over the network", "B/s"),
    "netout": ("net-out", "sent over the network", "B/s"),
    "diskread": ("disk-read", "read from its disks", "B/s"),
    "diskwrite": ("disk-written", "written to its disks", "B/s"),
}
"""Each figure by Proxmox's name: what it is called here, what it is, and in which unit."""


def minutes_within(
    points: Sequence[Mapping[str, Any]], begun: float, ended: float
) -> HypervisorFigures | None:
    """Return the averages of the minutes that lie wholly within a while; None: none does.

    A point's time is one end of its minute, and Proxmox does not say which: both minutes beside it
    have to lie within.

    Args:
        points: As ``rrddata`` returns them.
        begun: Unix time in seconds.
        ended: The same.
    """
    kept = [
        (float(point["time"]), point)
        for point in points
        if begun <= float(point["time"]) - RRD_S and float(point["time"]) + RRD_S <= ended
    ]
    figures = []
    for key, (name, words, unit) in FIGURES.items():
        told = [(at, point.get(key)) for at, point in kept]
        known = [
            (at, float(value))
            for at, value in told
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        if known:
            ends, values = zip(*known, strict=True)
            figures.append(HypervisorFigure(name, words, unit, values, ends))
    return HypervisorFigures(SOURCE, RRD_S, "interval", tuple(figures)) if figures else None
