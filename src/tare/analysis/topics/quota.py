"""Find the time that a CPU quota took from a thread, even if other threads used it meanwhile.

A group that has used up its quota is stopped until its next period begins. The recording contains
the kernel's timer that begins the period. So an absence up to that timer comes from the quota if
the thread had used about the whole quota since the timer before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tare.analysis.topics.host_track import IDLE_READY, WAKE_UP, Cause, Columns, Episode, Track
from tare.events.host_schedule import HostEvent

THROTTLED = Cause("host throttling")
SLICE_NS = 5_000_000
"""The time that a CPU takes from the group's quota at once (sched_cfs_bandwidth_slice_us, 5 ms)."""
USED_SHARE = 0.8
"""The least share of the quota that the thread must have used; others in the group use it too."""


@dataclass(frozen=True)
class Quota:
    """The time that a control group may use in each period, in nanoseconds."""

    quota_ns: int
    period_ns: int


def blame_quota(track: Track, columns: Columns, quota: Quota) -> Track:
    """Return ``track`` with the absences that ``quota`` caused relabelled as host throttling.

    Args:
        track: The episodes in which the host kept the thread from running.
        columns: The series ``host-sched``, with the timers of all groups that have a quota.
        quota: The quota of the thread's control group.
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


@dataclass(frozen=True)
class _Absence:
    """A time in which the thread was off its CPU, with its certain and its latest possible end."""

    begin_ns: int
    end_ns: int
    perhaps_ns: int
    ready: bool


def _absences(episodes: Sequence[Episode]) -> list[_Absence]:
    found: list[_Absence] = []
    for episode in episodes:
        if "interrupt" in episode.cause.kind:
            continue
        begin, ready = episode.begin_ns, episode.cause.wanted_to_run
        if found and found[-1].end_ns == begin:
            begin, ready = found[-1].begin_ns, found[-1].ready
            found.pop()
        found.append(_Absence(begin, episode.end_ns, _latest_end_ns(episode), ready))
    return found


def _latest_end_ns(episode: Episode) -> int:
    return episode.end_ns + episode.after_ns


def _stops(
    absences: Sequence[_Absence], times: NDArray[np.int64], quota: Quota
) -> list[tuple[int, int]]:
    if not times.size:
        return []
    marks = [int(times[0]) - quota.period_ns, *times.tolist()]
    enough = USED_SHARE * quota.quota_ns - SLICE_NS
    stops = []
    for before, after in pairwise(marks):
        for each in absences:
            if each.ready and before <= each.begin_ns < after < each.perhaps_ns:
                ran = each.begin_ns - before - _absent_ns(absences, before, each.begin_ns)
                if ran >= enough:
                    stops.append((each.begin_ns, after))
    return stops


def _absent_ns(absences: Sequence[_Absence], begin: int, end: int) -> int:
    return sum(
        min(each.end_ns, end) - max(each.begin_ns, begin)
        for each in absences
        if each.end_ns > begin and each.begin_ns < end
    )


def _relabelled(
    episodes: Sequence[Episode], stops: Sequence[tuple[int, int]]
) -> tuple[Episode, ...]:
    """Return the episodes, with their parts within ``stops`` attributed to the quota."""
    result: list[Episode] = []
    left = list(stops)
    for episode in episodes:
        while left and left[0][1] <= episode.begin_ns:
            left.pop(0)
        if not left or left[0][0] >= _latest_end_ns(episode) or "interrupt" in episode.cause.kind:
            result.append(episode)
            continue
        end = min(left[0][1], _latest_end_ns(episode))
        last = result[-1] if result else None
        if last and last.cause == THROTTLED and last.end_ns == episode.begin_ns:
            result[-1] = replace(last, end_ns=end)
        else:
            result.append(Episode(episode.begin_ns, end, THROTTLED, episode.before_ns))
        if end < _latest_end_ns(episode):
            # The period's timer released the thread, so an idle CPU was on its way back to it.
            cause = WAKE_UP if episode.cause == IDLE_READY else episode.cause
            until = max(end, episode.end_ns)
            result.append(Episode(end, until, cause, after_ns=_latest_end_ns(episode) - until))
    return tuple(result)
