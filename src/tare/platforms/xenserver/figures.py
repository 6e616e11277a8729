"""Xen's run states of a VM, as XenAPI's round-robin databases have them: five seconds a row."""

from __future__ import annotations

import math
from typing import Any

from tare.events.hypervisor import HypervisorFigure, HypervisorFigures

STEP_S = 5
SOURCE = "Xen's run states by XenAPI (rrd_updates), averages of all the VM's vCPUs together"
STATES = {
    "runstate_fullrun": "all vCPUs ran",
    "runstate_full_contention": "all vCPUs waited for a CPU",
    "runstate_concurrency_hazard": "some vCPUs ran while some waited for a CPU",
    "runstate_blocked": "all vCPUs were idle",
    "runstate_partial_run": "some vCPUs ran, the others were idle",
    "runstate_partial_contention": "some vCPUs waited for a CPU, the others were idle",
}
"""Each state, and what it is: parts of the time of a whole VM (xen-api's rrdp_cpu.ml)."""


def rows_within(told: Any, uuid: str, begun: float, ended: float) -> HypervisorFigures | None:
    """Return what the rows tell that lie wholly in a while; None: none does.

    A row's time is one end of its five seconds: both sides of it have to lie within.

    Args:
        told: What ``rrd_updates`` says, as JSON.
        uuid: The VM's.
        begun: Unix time in seconds.
        ended: The same.

    Raises:
        ValueError, LookupError, TypeError: It is none of that form.
    """
    meta = told["meta"]
    step = int(meta["step"])
    if step != STEP_S:
        # A coarser archive: averages of other lengths are not what was asked.
        return None
    columns: dict[str, int] = {}
    for number, name in enumerate(meta["legend"]):
        how, kind, whose, source = str(name).split(":", 3)
        if (how, kind, whose) == ("AVERAGE", "vm", uuid) and source in STATES:
            columns[source] = number
    rows = sorted(
        (
            (float(row["t"]), row["values"])
            for row in told["data"]
            if begun <= float(row["t"]) - step and float(row["t"]) + step <= ended
        ),
        key=lambda row: row[0],
    )
    figures = []
    for state, words in STATES.items():
        if state not in columns:
            continue
        values = [(at, float(row[columns[state]])) for at, row in rows]
        # What is not known is told as NaN, and not shown.
        if known := [(at, value) for at, value in values if math.isfinite(value)]:
            ends, parts = zip(*known, strict=True)
            figures.append(HypervisorFigure(state.replace("_", "-"), words, "1", parts, ends))
    return HypervisorFigures(SOURCE, step, "interval", tuple(figures)) if figures else None
