"""What ESXi counts of a virtual machine: every 20 seconds, and told for whole intervals only.

The counters are those of the vSphere performance reference: ``cpu.ready`` is the time that a
virtual machine was ready but not scheduled, ``cpu.costop`` that it waited for its other vCPUs, both
in ms of an interval, summed over vCPUs.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

RESOLUTION_S = 20
"""The interval of real-time statistics, "PerfProviderSummary.refreshRate"."""
COUNTERS = {
    ("cpu", "ready", "summation"): "ready_s",
    ("cpu", "costop", "summation"): "costop_s",
    ("cpu", "used", "summation"): "used_s",
}


def figures_of(
    client: Any, machine: Any, vim: Any, begun: float, ended: float
) -> Mapping[str, Any]:
    """Return what ESXi counted in the intervals that lie wholly within a while.

    Args:
        client: The service instance.
        machine: The virtual machine.
        vim: The API's types.
        begun: The while's begin, by this computer's clock (s, Unix time).
        ended: Its end.
    """
    ahead = client.CurrentTime().timestamp() - datetime.datetime.now(datetime.UTC).timestamp()
    manager = client.content.perfManager
    wanted = {
        counter.key: COUNTERS[name]
        for counter in manager.perfCounter
        if (name := _name_of(counter)) in COUNTERS
    }
    if not wanted or ended - begun < RESOLUTION_S:
        return {}
    query = vim.PerformanceManager.QuerySpec(
        entity=machine,
        metricId=[
            vim.PerformanceManager.MetricId(counterId=key, instance="") for key in sorted(wanted)
        ],
        intervalId=RESOLUTION_S,
        startTime=_moment(begun + ahead),
        endTime=_moment(ended + ahead),
    )
    told = manager.QueryPerf([query])
    return whole(told[0], wanted, begun + ahead, ended + ahead) if told else {}


def whole(told: Any, wanted: Mapping[int, str], begun: float, ended: float) -> Mapping[str, Any]:
    """Return the intervals of an answer that lie wholly within a while, oldest first.

    Args:
        told: ``sampleInfo`` and ``value`` as the API has them (``PerfEntityMetric``).
        wanted: The counters' keys, and what they are called here; their values are ms.
        begun: The while's begin, by the server's clock (s, Unix time).
        ended: Its end.
    """
    intervals: dict[float, dict[str, float]] = {}
    for place, sample in enumerate(told.sampleInfo or ()):
        last = sample.timestamp.timestamp()
        if last - sample.interval < begun or last > ended:
            continue
        row = intervals.setdefault(last, {"seconds": float(sample.interval)})
        for series in told.value or ():
            name = wanted.get(series.id.counterId)
            # A negative value stands for one that is not there.
            if name is not None and place < len(series.value) and series.value[place] >= 0:
                row[name] = series.value[place] / 1000
    rows = [{"ended": last, **intervals[last]} for last in sorted(intervals)]
    rows = [row for row in rows if len(row) > 2]
    return {"resolution_s": RESOLUTION_S, "intervals": rows} if rows else {}


def _name_of(counter: Any) -> tuple[str, str, str]:
    return counter.groupInfo.key, counter.nameInfo.key, str(counter.rollupType)


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
