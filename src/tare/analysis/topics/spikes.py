"""Explain each gap that a machine saw by the host's events at that time.

A gap is one sample of the tick loop that took longer than it should. Samples follow one another
without a gap in between, so whatever delayed the thread is within exactly one sample. The alignment
of the clocks and the matching both rely on that.

If a thread was ready while its CPU was idle, a limit may be the cause, but only if one is in force.
A host that is itself a virtual machine loses time without any event. Its kernel counts this time as
*steal*, in total but not when.
Rules and limits: `tare help spikes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tare.analysis.topics.host_track import IDLE_READY, WAKE_UP, Cause, Episode, Track, joined

Ints = NDArray[np.int64]

SWITCH_SLACK_NS = 6_000
"""The cost of a switch away and back that the host's events do not show, in ns: the interrupt that
causes it, and caches that are cold afterwards."""
INTERRUPT_SLACK_NS = 4_000
"""The same for an interrupt."""
TICK_RATES_HZ = (100, 250, 300, 1000)
"""The rates that Linux can be built with (kernel/Kconfig.hz)."""
LEAST_TICKS = 20
SURE_SIGMAS = 6.0
LEAST_COVERED = 0.3
MOST_TIMES_TYPICAL = 5.0
FEWEST_TO_ALIGN = 5
MOST_TO_ALIGN = 2_000
UNEXPLAINED = Cause("unexplained")
OWN_TICK = Cause("guest's own tick")


@dataclass(frozen=True)
class Gaps:
    """The gaps of one cell on the host's clock, in order.

    Args:
        begin_ns: The beginning of each gap's sample.
        excess_ns: The time by which each sample was longer than an undisturbed one.
        undisturbed_ns: The length of an undisturbed sample.
        error_ns: The largest error of ``begin_ns``, which is the same for all gaps.
    """

    begin_ns: Ints
    excess_ns: Ints
    undisturbed_ns: int
    error_ns: int

    @property
    def end_ns(self) -> Ints:
        """When the sample ended."""
        return self.begin_ns + self.excess_ns + self.undisturbed_ns

    def shifted(self, by_ns: int, error_ns: int) -> Gaps:
        """Return the same gaps ``by_ns`` later, with another error."""
        return Gaps(self.begin_ns + by_ns, self.excess_ns, self.undisturbed_ns, error_ns)


@dataclass(frozen=True)
class Spike:
    """One gap with its causes.

    Args:
        number: Its place among the gaps.
        begin_ns: When its sample began, by the host's clock.
        end_ns: When its sample ended.
        excess_ns: The time it lost.
        parts: The causes, each with the nanoseconds that it took, the greatest first. Together they
            are the excess; time that nothing explains is a part too.
    """

    number: int
    begin_ns: int
    end_ns: int
    excess_ns: int
    parts: tuple[tuple[Cause, int], ...]

    @property
    def cause(self) -> Cause:
        """The cause that took most of it."""
        return self.parts[0][0] if self.parts else UNEXPLAINED

    @property
    def unexplained_ns(self) -> int:
        """The part of it that nothing explains, in ns."""
        return sum(taken for cause, taken in self.parts if not cause.explains)


@dataclass(frozen=True)
class Matched:
    """All gaps of one cell with their causes.

    Args:
        spikes: The gaps, in order.
        shift_ns: How far the gaps were moved to fit the host's episodes.
        error_ns: The largest error of times after that.
        unmatched_ns: Time of the host's episodes that no gap shows, because they are too short.
        tick_hz: Rate of the machine's own tick as seen in the gaps; None if it is not seen.
    """

    spikes: tuple[Spike, ...]
    shift_ns: int
    error_ns: int
    unmatched_ns: int
    tick_hz: int | None


def match(gaps: Gaps, episodes: Sequence[Episode], *, own_tick: bool) -> Matched:
    """Find the causes of each gap.

    Args:
        gaps: The gaps.
        episodes: The periods in which the host kept the thread from running, in order.
        own_tick: Whether the machine has a kernel, and so a tick, of its own.
    """
    shift_ns, error_ns = align(gaps, episodes)
    placed = gaps.shifted(shift_ns, error_ns)
    owners = assign(placed, episodes)
    of_gap: dict[int, list[Episode]] = {}
    unmatched_ns = 0
    for episode, owner in zip(episodes, owners, strict=True):
        if owner is None:
            unmatched_ns += episode.length_ns
        else:
            of_gap.setdefault(owner, []).append(episode)
    shares = [
        divide(int(excess), of_gap.get(number, ()))
        for number, excess in enumerate(placed.excess_ns.tolist())
    ]
    tick_hz, due = None, np.zeros(len(shares), dtype=bool)
    if own_tick:
        left = np.array([share.get(UNEXPLAINED, 0) for share in shares], dtype=np.int64)
        tick_hz, due = own_ticks(placed, left > 0)
        due = plausible(left, due)
    spikes = []
    for number, share in enumerate(shares):
        if due[number] and UNEXPLAINED in share:
            share[OWN_TICK] = share.pop(UNEXPLAINED)
        spikes.append(
            Spike(
                number=number,
                begin_ns=int(placed.begin_ns[number]),
                end_ns=int(placed.end_ns[number]),
                excess_ns=int(placed.excess_ns[number]),
                parts=tuple(sorted(share.items(), key=lambda part: (-part[1], part[0]))),
            )
        )
    return Matched(tuple(spikes), shift_ns, error_ns, unmatched_ns, tick_hz)


def align(gaps: Gaps, episodes: Sequence[Episode]) -> tuple[int, int]:
    """Find the shift of the gaps, within their error, that explains the most lost time.

    An episode [a, b] within a sample [s, e] allows the shifts from b - e to a - s. Each pair whose
    episode is not longer than the sample votes for its range, with the time that it would explain.
    The result is the middle of the place with the most votes. Half its width is the remaining
    error.

    Returns:
        Shift and remaining error, in nanoseconds; (0, the old error) if too few pairs vote.
    """
    error = gaps.error_ns
    if error <= 1_000 or not len(gaps.begin_ns):
        return 0, error
    begins, ends = gaps.begin_ns, gaps.end_ns
    chosen = sorted(episodes, key=lambda episode: -episode.length_ns)[:MOST_TO_ALIGN]
    votes: list[tuple[int, int, int]] = []
    for episode in chosen:
        first = int(np.searchsorted(ends, episode.begin_ns - error, "left"))
        last = int(np.searchsorted(begins, episode.end_ns + error, "right"))
        for number in range(first, last):
            low = max(episode.end_ns - int(ends[number]), -error)
            high = min(episode.begin_ns - int(begins[number]), error)
            if low <= high:
                weight = min(episode.length_ns, int(gaps.excess_ns[number]))
                votes.append((low, high, weight))
    if len(votes) < FEWEST_TO_ALIGN:
        return 0, error
    steps = sorted(
        [(low, 0, weight) for low, _, weight in votes]
        + [(high, 1, -weight) for _, high, weight in votes]
    )
    total = best = 0
    place = (-error, error)
    for number, (at, _, weight) in enumerate(steps):
        total += weight
        if total > best and number + 1 < len(steps):
            best, place = total, (at, steps[number + 1][0])
    # The middle of what fits best is never farther off than what the exchange of clocks allows.
    return (place[0] + place[1]) // 2, max(1, min(error, (place[1] - place[0] + 1) // 2))


def assign(gaps: Gaps, episodes: Sequence[Episode]) -> list[int | None]:
    """Return for each episode the gap whose sample contains it, or None.

    If the error makes two gaps possible, the one that covers more of the episode is used.
    """
    owners: list[int | None] = []
    begins, ends, error = gaps.begin_ns, gaps.end_ns, gaps.error_ns
    for episode in episodes:
        first = int(np.searchsorted(ends, episode.begin_ns - error, "left"))
        last = int(np.searchsorted(begins, episode.end_ns + error, "right"))
        best: tuple[int, int] | None = None
        for number in range(first, last):
            begin, end = int(begins[number]), int(ends[number])
            inside = min(end, episode.end_ns) - max(begin, episode.begin_ns)
            wide = min(end + error, episode.end_ns) - max(begin - error, episode.begin_ns)
            # At least half of it, so that the edge of a neighbouring sample does not take it.
            if 2 * wide >= episode.length_ns and (best is None or inside > best[0]):
                best = (inside, number)
        owners.append(None if best is None else best[1])
    return owners


def divide(excess_ns: int, episodes: Sequence[Episode]) -> dict[Cause, int]:
    """Divide a gap's excess among the episodes within it.

    Each episode takes its own length. The remaining time goes to the episodes up to the cost of
    switches and interrupts that the host's events do not show; the rest is unexplained. Episodes
    that together are longer than the excess share it in proportion.
    """
    if excess_ns <= 0:
        return {}
    taken: dict[Cause, int] = {}
    slack: dict[Cause, int] = {}
    for episode in episodes:
        taken[episode.cause] = taken.get(episode.cause, 0) + episode.length_ns
        hidden = INTERRUPT_SLACK_NS if "interrupt" in episode.cause.kind else SWITCH_SLACK_NS
        slack[episode.cause] = slack.get(episode.cause, 0) + hidden + episode.unseen_ns
    total = sum(taken.values())
    if total > excess_ns:
        taken = {cause: length * excess_ns // total for cause, length in taken.items()}
        total = sum(taken.values())
    left = excess_ns - total
    hidden = sum(slack.values())
    if hidden and left:
        extra = min(left, hidden)
        for cause, own in slack.items():
            taken[cause] += extra * own // hidden
        left -= extra
        greatest = max(taken, key=lambda cause: taken[cause])
        taken[greatest] += excess_ns - left - sum(taken.values())
    if left:
        taken[UNEXPLAINED] = left
    return {cause: length for cause, length in taken.items() if length}


def own_ticks(gaps: Gaps, open_: NDArray[np.bool_]) -> tuple[int | None, NDArray[np.bool_]]:
    """Find the machine's own tick in the gaps that the host does not explain.

    For each rate that Linux can have, the phase is searched at which most of these samples contain
    a tick. It is a tick if chance cannot explain so many: each sample contains one with the
    probability of its length divided by the period.

    Args:
        gaps: All gaps.
        open_: For each gap, whether a part of it is unexplained.

    Returns:
        The rate in Hz (None if no rate is distinct), and for each gap whether a tick was due in it.
    """
    none = np.zeros(len(open_), dtype=bool)
    begins, ends = gaps.begin_ns[open_], gaps.end_ns[open_]
    if begins.size < LEAST_TICKS:
        return None, none
    best: tuple[float, int, int] | None = None
    for rate in TICK_RATES_HZ:
        period = 1_000_000_000 // rate
        lengths = np.minimum(ends - begins, period)
        chance = float(lengths.mean()) / period
        if chance >= 0.9:
            continue
        phase, covered = _best_phase(begins % period, lengths, period)
        share = covered / begins.size
        sigmas = (share - chance) * begins.size**0.5 / max(chance * (1 - chance), 1e-9) ** 0.5
        if share >= LEAST_COVERED and sigmas >= SURE_SIGMAS and (best is None or sigmas > best[0]):
            best = (sigmas, rate, phase)
    if best is None:
        return None, none
    _, rate, phase = best
    period = 1_000_000_000 // rate
    return rate, (phase - gaps.begin_ns) % period <= gaps.end_ns - gaps.begin_ns


def plausible(left_ns: Ints, due: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the gaps in which a tick was due and can be the cause of the remaining time.

    All ticks take about the same time. A gap that takes many times as long has another cause that
    coincided with a tick.
    """
    typical = left_ns[due & (left_ns > 0)]
    if not typical.size:
        return due
    return due & (left_ns <= MOST_TIMES_TYPICAL * float(np.median(typical)))


def _best_phase(phases: Ints, lengths: Ints, period: int) -> tuple[int, int]:
    """Return the phase within a period that most stretches cover, and the number of these."""
    ends = phases + lengths
    wrapped = ends >= period
    starts = np.concatenate([phases, np.zeros(int(wrapped.sum()), dtype=np.int64)])
    stops = np.concatenate([np.minimum(ends, period), ends[wrapped] - period])
    at = np.concatenate([starts, stops])
    steps = np.concatenate([np.ones_like(starts), -np.ones_like(stops)])
    order = np.lexsort((-steps, at))
    depth = np.cumsum(steps[order])
    top = int(depth.argmax())
    after = at[order][top + 1] if top + 1 < depth.size else period
    return int(at[order][top] + after) // 2, int(depth[top])


STOLEN = Cause("host's own steal")
LONGEST_WAKE_NS = 1_000_000
"""No idle state takes longer to leave (the exit latencies in Linux's intel_idle end at 890 us)."""
STEAL_COUNT_NS = 10_000_000
"""The unit of /proc/stat: USER_HZ is 100 on all architectures that matter here; see proc(5)."""
LEAST_STEAL_NS = 500_000
"""Shorter times remain unexplained: hypervisors' schedulers take a CPU away for longer."""


def settle_idle(track: Track, limit: Cause | None) -> Track:
    """Return ``track`` with the final causes of the episodes in which its CPU was idle.

    Args:
        track: The periods in which the host kept the thread from running.
        limit: The limit that was in force and leaves a CPU idle; None if there was none.
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
    """Return ``matched`` with the time that a hypervisor below the host took, if it counted enough.

    Unexplained time is attributed to it, the longest first, while the sum stays within the account.

    Args:
        matched: The gaps with their causes.
        stolen_ns: The growth of the account of steal on the watched CPUs.
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
