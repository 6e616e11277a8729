"""ESXi's counters of a virtual machine, read for whole intervals of 20 seconds.

The counters are described in the vSphere performance reference. ``cpu.ready`` is the time during
which a virtual machine was ready but not scheduled. ``cpu.costop`` is the time during which it
waited for its other vCPUs. Both are in ms of an interval, summed over vCPUs.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, NamedTuple

from tare.events.hypervisor import HypervisorFigure, HypervisorFigures

RESOLUTION_S = 20
"""The interval of real-time statistics in seconds ("PerfProviderSummary.refreshRate")."""
SOURCE = "ESXi's real-time statistics, summed over vCPUs"


class Counter(NamedTuple):
    """The name and the description of the figure that one of ESXi's counters gives."""

    name: str
    words: str


COUNTERS = {
    ("cpu", "ready", "summation"): Counter(
        "cpu-ready", "ready: wanted a CPU and had none, per second"
    ),
    ("cpu", "costop", "summation"): Counter(
        "cpu-costop", "co-stop: vCPUs held back for the others, per second"
    ),
    ("cpu", "used", "summation"): Counter("cpu-used", "used CPU time, per second"),
}


def figures_of(
    client: Any, machine: Any, vim: Any, begun: float, ended: float
) -> HypervisorFigures | None:
    """Return ESXi's counters for the intervals that are entirely within a period; None: nothing.

    Args:
        client: The service instance.
        machine: The virtual machine.
        vim: The API's types.
        begun: The period's start, by this computer's clock (s, Unix time).
        ended: The period's end, by the same clock.
    """
    ahead = client.CurrentTime().timestamp() - datetime.datetime.now(datetime.UTC).timestamp()
    manager = client.content.perfManager
    wanted = {
        counter.key: COUNTERS[name]
        for counter in manager.perfCounter
        if (name := _name_of(counter)) in COUNTERS
    }
    if not wanted or ended - begun < RESOLUTION_S:
        return None
    query = vim.PerformanceManager.QuerySpec(
        entity=machine,
        metricId=[
            vim.PerformanceManager.MetricId(counterId=key, instance="") for key in sorted(wanted)
        ],
        intervalId=RESOLUTION_S,
        startTime=_moment(begun + ahead),
        endTime=_moment(ended + ahead),
    )
    answer = manager.QueryPerf([query])
    return intervals_within(answer[0], wanted, begun + ahead, ended + ahead) if answer else None


def intervals_within(
    answer: Any, wanted: Mapping[int, Counter], begun: float, ended: float
) -> HypervisorFigures | None:
    """Return the intervals of an answer that are entirely in a period, oldest first; None: none.

    Args:
        answer: ``sampleInfo`` and ``value`` in the API's types (``PerfEntityMetric``).
        wanted: The counters by their keys; the API's values are ms of an interval.
        begun: The period's start, by the server's clock (s, Unix time).
        ended: The period's end, by the same clock.
    """
    samples = [
        (sample.timestamp.timestamp(), float(sample.interval)) for sample in answer.sampleInfo or ()
    ]
    figures = []
    for series in answer.value or ():
        counter = wanted.get(series.id.counterId)
        # A negative value means that there is no value for the interval.
        kept = sorted(
            (last, seconds, value / 1000)
            for (last, seconds), value in zip(samples, series.value, strict=False)
            if value >= 0 and seconds > 0 and last - seconds >= begun and last <= ended
        )
        if counter is None or not kept:
            continue
        ends, lengths, spent = zip(*kept, strict=True)
        rates = tuple(s / seconds for s, seconds in zip(spent, lengths, strict=True))
        figures.append(
            HypervisorFigure(counter.name, counter.words, "s/s", rates, tuple(ends), tuple(lengths))
        )
    if not figures:
        return None
    return HypervisorFigures(SOURCE, RESOLUTION_S, "interval", tuple(figures))


def _name_of(counter: Any) -> tuple[str, str, str]:
    return counter.groupInfo.key, counter.nameInfo.key, str(counter.rollupType)


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
