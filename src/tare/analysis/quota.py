"""Tell what a CPU quota took from a thread, even where others used the time meanwhile.

A group that has used up its quota stands still until its next period begins, and the kernel's timer
that begins it is in the recording. So an absence is the quota's up to that timer if the thread had
used about what the quota grants since the timer before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tare.analysis.hosttrack import Cause, Columns, Episode, Track
from tare.events.hostsched import HostEvent

THROTTLED = Cause("host throttling")
SLICE_NS = 5_000_000
"""What a CPU takes from the group's quota at once (sched_cfs_bandwidth_slice_us, 5 ms)."""
USED_SHARE = 0.8
"""The machine's other threads use the same quota."""


@dataclass(frozen=True)
class Quota:
    """What a control group may use in each period, in nanoseconds."""

    quota_ns: int
    period_ns: int


def blame_quota(track: Track, columns: Columns, quota: Quota) -> Track:
    """Return ``track`` with what ``quota`` took from the thread as host throttling.

    Args:
        track: What the host did to the thread.
        columns: The series ``host-sched``, with the timers of all groups that have a quota.
        quota: That of the thread's group.
    """
    timers = columns["kind"] == HostEvent.QUOTA_PERIOD
    absences = _absences(track.episodes)
    best: list[tuple[int, int]] = []
    for mark in np.unique(columns["who"][timers]).tolist():
        times = columns["time_ns"][timers & (columns["who"] == mark)].astype(np.int64)
        found = _stops(absences, times, quota)
        if sum(end - begin for begin, end in found) > sum(end - begin for begin, end in best):
            best = found
    return replace(track, episodes=_relabelled(track.episodes, best))


def _absences(episodes: Sequence[Episode]) -> list[tuple[int, int, bool]]:
    """Return when the thread was off its CPU, and whether it was ready when it left."""
    found: list[tuple[int, int, bool]] = []
    for episode in episodes:
        if "interrupt" in episode.cause.kind:
            continue
        ready = episode.cause.kind != "platform"
        if found and found[-1][1] == episode.begin_ns:
            found[-1] = (found[-1][0], episode.end_ns, found[-1][2])
        else:
            found.append((episode.begin_ns, episode.end_ns, ready))
    return found


def _stops(
    absences: Sequence[tuple[int, int, bool]], times: NDArray[np.int64], quota: Quota
) -> list[tuple[int, int]]:
    if not times.size:
        return []
    marks = [int(times[0]) - quota.period_ns, *times.tolist()]
    enough = USED_SHARE * quota.quota_ns - SLICE_NS
    stops = []
    for before, after in pairwise(marks):
        for begin, end, ready in absences:
            if end <= before or begin >= after:
                continue
            if ready and begin >= before and end > after:
                ran = begin - before - _away(absences, before, begin)
                if ran >= enough:
                    stops.append((begin, after))
    return stops


def _away(absences: Sequence[tuple[int, int, bool]], begin: int, end: int) -> int:
    return sum(
        min(last, end) - max(first, begin)
        for first, last, _ in absences
        if last > begin and first < end
    )


def _relabelled(
    episodes: Sequence[Episode], stops: Sequence[tuple[int, int]]
) -> tuple[Episode, ...]:
    """Return the episodes with those parts that lie in ``stops`` given to the quota."""
    result: list[Episode] = []
    left = list(stops)
    for episode in episodes:
        while left and left[0][1] <= episode.begin_ns:
            left.pop(0)
        if not left or left[0][0] >= episode.end_ns or "interrupt" in episode.cause.kind:
            result.append(episode)
            continue
        end = min(left[0][1], episode.end_ns)
        last = result[-1] if result else None
        if last and last.cause == THROTTLED and last.end_ns == episode.begin_ns:
            result[-1] = replace(last, end_ns=end, unseen_ns=last.unseen_ns + episode.unseen_ns)
        else:
            result.append(Episode(episode.begin_ns, end, THROTTLED, episode.unseen_ns))
        if end < episode.end_ns:
            result.append(Episode(end, episode.end_ns, episode.cause))
    return tuple(result)
