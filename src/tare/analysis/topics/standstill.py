"""Explain why nothing ran: the thread was ready, and its CPU idle or silent.

An idle CPU next to a thread that is ready is the sign of a limit, but only where one is in
force. A host that is a virtual machine itself loses time without any event; its kernel's account
of *steal* says how much, though not when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tare.analysis.topics.host_track import IDLE_READY, WAKE_UP, Cause, Episode, Track, joined
from tare.analysis.topics.spikes import Matched, Spike

STOLEN = Cause("host's own steal")
LONGEST_WAKE_NS = 1_000_000
"""No idle state takes longer to leave (the exit latencies in Linux's intel_idle end at 890 us)."""
STEAL_COUNT_NS = 10_000_000
"""The unit of /proc/stat: USER_HZ is 100 on all architectures that matter here; see proc(5)."""
LEAST_STEAL_NS = 500_000
"""What is shorter is left unexplained: hypervisors' schedulers take a CPU away for longer."""


def settle_idle(track: Track, limit: Cause | None) -> Track:
    """Return ``track`` with the idle stretches of its CPU called what they are.

    Args:
        track: What the host did to the thread.
        limit: The limit that was in force and leaves a CPU idle; None where there was none.
    """
    episodes = [_settled(episode, limit) for episode in track.episodes]
    return replace(track, episodes=tuple(joined(episodes)))


def _settled(episode: Episode, limit: Cause | None) -> Episode:
    cause = episode.cause
    if cause == WAKE_UP and episode.length_ns > LONGEST_WAKE_NS:
        cause = IDLE_READY
    if cause == IDLE_READY and limit is not None:
        cause = limit
    return episode if cause is episode.cause else replace(episode, cause=cause)


def blame_steal(matched: Matched, stolen_ns: int, cpus: int) -> Matched:
    """Return ``matched`` with what the hypervisor below the host took, if it counted so much.

    What nothing explains is given to it, the longest first, while the sum stays within the account.

    Args:
        matched: The gaps with their causes.
        stolen_ns: By how much the account of steal advanced on the watched CPUs.
        cpus: Number of these CPUs: each one's account can be short by one count.
    """
    if stolen_ns <= 0:
        return matched
    left = stolen_ns + STEAL_COUNT_NS * max(1, cpus)
    silent = [(_silent_ns(spike.parts), number) for number, spike in enumerate(matched.spikes)]
    stolen: set[int] = set()
    for length, number in sorted(silent, key=lambda each: (-each[0], each[1])):
        if LEAST_STEAL_NS <= length <= left:
            stolen.add(number)
            left -= length
    spikes = tuple(
        _stolen(spike) if number in stolen else spike for number, spike in enumerate(matched.spikes)
    )
    return replace(matched, spikes=spikes)


def _silent_ns(parts: Sequence[tuple[Cause, int]]) -> int:
    return sum(taken for cause, taken in parts if not cause.explains)


def _stolen(spike: Spike) -> Spike:
    parts = [part for part in spike.parts if part[0].explains]
    parts.append((STOLEN, _silent_ns(spike.parts)))
    return replace(spike, parts=tuple(sorted(parts, key=lambda part: (-part[1], part[0]))))
