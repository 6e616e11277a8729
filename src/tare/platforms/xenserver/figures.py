"""Xen's run states of a VM, as XenAPI's round-robin databases have them: five seconds a row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

STEP_S = 5
STATES = (
    *("runstate_fullrun", "runstate_full_contention", "runstate_concurrency_hazard"),
    *("runstate_blocked", "runstate_partial_run", "runstate_partial_contention"),
)
"""Of all of a VM's vCPUs together, as parts of a whole (xen-api's rrdp_cpu.ml)."""


def rows_within(told: Any, uuid: str, begun: float, ended: float) -> Mapping[str, Any]:
    """Return the rows that lie wholly in a while.

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
        return {}
    columns: dict[int, str] = {}
    for number, name in enumerate(meta["legend"]):
        how, kind, whose, source = str(name).split(":", 3)
        if (how, kind, whose) == ("AVERAGE", "vm", uuid) and source in STATES:
            columns[number] = source
    rows = []
    for row in told["data"]:
        at = float(row["t"])
        if at - step < begun or at + step > ended:
            continue
        values = {name: float(row["values"][number]) for number, name in columns.items()}
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        if finite:
            rows.append({"time": at, **finite})
    if not rows:
        return {}
    rows.sort(key=lambda row: row["time"])
    return {
        "source": "XenAPI rrd_updates, averages of all the VM's vCPUs together",
        "resolution_s": step,
        "rows": rows,
    }
