"""The gaps of a run's cells with their causes, read from the run's folder and summed up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, cast

import numpy as np

from tare.analysis.data.parquet import STRANGE, UnreadableSeries
from tare.analysis.data.rundata import RunData
from tare.analysis.data.series_file import read_series
from tare.analysis.topics.host_track import Cause, Episode, ThreadNames, Track, follow
from tare.analysis.topics.quota import THROTTLED, Quota, blame_quota
from tare.analysis.topics.spikes import Gaps, Matched, Spike, blame_steal, match, settle_idle
from tare.analysis.topics.stacks import (
    CellStacks,
    HeldGap,
    Holder,
    Side,
    cpus_of,
    holders_in,
    sights_of,
)
from tare.events.cell_facts import TraceFacts
from tare.events.host_schedule import SERIES
from tare.events.results import CellResult, SeriesEntry
from tare.events.stacks import GUEST_SERIES, HOST_SERIES, PROBE

GAPS = "gaps"
SIDES: tuple[tuple[Side, str], ...] = (("host", HOST_SERIES), ("guest", GUEST_SERIES))
LONG_NS = 10_000
"""Gaps of at least this length are interruptions. Shorter ones come mostly from caches and memory,
which no event of the host shows. The sources' clock tick takes 8 to 10 us."""


@dataclass(frozen=True)
class CauseRow:
    """The time that one cause took.

    Args:
        cause: The cause.
        count: Gaps for which it was the largest part.
        total_ns: Time it took, in all gaps.
        longest_ns: The longest time that it took from one gap.
    """

    cause: Cause
    count: int
    total_ns: int
    longest_ns: int


@dataclass(frozen=True)
class Explained:
    """The share of gaps and of lost time that has a cause.

    Args:
        gaps: Number of gaps.
        explained: Those among them whose greatest part has a cause.
        lost_ns: Time that gaps took.
        explained_ns: The part of it that has a cause.
        long: Number of gaps from `LONG_NS` on.
        long_explained: Those among them whose greatest part has a cause.
    """

    gaps: int
    explained: int
    lost_ns: int
    explained_ns: int
    long: int
    long_explained: int

    @property
    def share_of_long(self) -> float | None:
        """Share of the gaps from `LONG_NS` on with a cause; None without such gaps."""
        return self.long_explained / self.long if self.long else None

    @property
    def share_of_gaps(self) -> float | None:
        """Share of gaps with a cause; None without gaps."""
        return self.explained / self.gaps if self.gaps else None

    @property
    def share_of_time(self) -> float | None:
        """Share of the lost time with a cause; None without any."""
        return self.explained_ns / self.lost_ns if self.lost_ns else None


@dataclass(frozen=True)
class SpikeCell:
    """One cell with its gaps and their causes.

    Args:
        run: The run's identity.
        cell: The cell's identity.
        block: The block.
        arm: The arm.
        scenario: The scenario.
        workload: The workload.
        parameters: The workload's parameters as canonical JSON.
        emulated: Whether its results carry the mark of emulation.
        matched: The gaps with their causes; None if nothing was recorded.
        reason: Why nothing was recorded.
        track: The periods in which the host kept the measuring thread from running.
        first_ns: The time on the host's clock at which the first sample began.
        clock_error_ns: The largest error of the clocks' alignment from their readings alone.
        lost_events: Events that the recorder had no room for.
        not_logged: Gaps that the guest's log had no room for.
        steal_s: The time that a hypervisor below the host took from its CPUs meanwhile; None if
            none is known to report it.
        throttled_s: The time for which a quota stopped the subject's control group, in seconds.
        sums: The sums over all its gaps, and the time that each cause took of them, if only the
            longest gap is kept.
        stacks: The kernel stacks in its gaps from `LONG_NS` on; None if they were not requested.
    """

    run: str
    cell: str
    block: int
    arm: str
    scenario: str
    workload: str
    parameters: str
    emulated: bool
    matched: Matched | None
    reason: str = ""
    track: Track | None = None
    first_ns: int = 0
    clock_error_ns: int = 0
    lost_events: int = 0
    not_logged: int = 0
    steal_s: float | None = None
    throttled_s: float = 0.0
    sums: tuple[Explained, tuple[CauseRow, ...]] | None = None
    stacks: CellStacks | None = None

    @property
    def spikes(self) -> tuple[Spike, ...]:
        """The gaps; empty if nothing was recorded."""
        return self.matched.spikes if self.matched else ()


def spike_cells(runs: Iterable[RunData]) -> Iterator[SpikeCell]:
    """Yield the cells whose host side was to be recorded, with their gaps' causes.

    Cells that do not count are left out, and so are those that were not to be recorded. Cells are
    read one at a time: each can have as many gaps as its log holds, and a run has many cells.
    """
    for run in runs:
        series: dict[tuple[str, str], SeriesEntry] = {
            (entry.cell, entry.name): entry for entry in run.series
        }
        for cell in run.cells:
            facts = cell.facts.get("host_trace")
            if cell.status == "ok" and facts is not None and _wanted(facts):
                yield _read(run, cell, facts, series)


def summed(cell: SpikeCell) -> SpikeCell:
    """Return a cell with its sums and its longest gap, without all others."""
    if cell.matched is None:
        return cell
    sums = explained([cell]), causes([cell])
    longest = max(cell.spikes, key=lambda spike: spike.excess_ns, default=None)
    kept = () if longest is None else (longest,)
    track = cell.track
    if track is not None:
        track = replace(track, episodes=() if longest is None else _episodes_around(longest, track))
    return replace(cell, sums=sums, matched=replace(cell.matched, spikes=kept), track=track)


def _episodes_around(spike: Spike, track: Track) -> tuple[Episode, ...]:
    """Return the episodes in a gap, and those before and after it within the gap's length."""
    length = spike.end_ns - spike.begin_ns
    begin, end = spike.begin_ns - length, spike.end_ns + length
    return tuple(each for each in track.episodes if each.end_ns > begin and each.begin_ns < end)


def _wanted(facts: TraceFacts) -> bool:
    return bool(facts.get("recorded")) or "not asked" not in str(facts.get("reason", ""))


def _read(
    run: RunData,
    cell: CellResult,
    facts: TraceFacts,
    series: Mapping[tuple[str, str], SeriesEntry],
) -> SpikeCell:
    whose: dict[str, Any] = {
        "run": cell.run,
        "cell": cell.cell,
        "block": cell.block,
        "arm": cell.arm,
        "scenario": cell.scenario,
        "workload": cell.workload,
        "parameters": cell.parameters,
        "emulated": cell.arm in run.emulated_arms,
    }
    if not facts.get("recorded"):
        return SpikeCell(**whose, matched=None, reason=str(facts.get("reason", "")))
    try:
        host = read_series(series[cell.cell, SERIES])
        gaps = series.get((cell.cell, GAPS))
        logged = None if gaps is None else read_series(gaps)
        found = match_cell(whose, facts, host, logged)
        return replace(found, stacks=_stacks(found, cell, facts, host, logged, series))
    except UnreadableSeries as error:
        why = str(error)
    except STRANGE as error:
        why = repr(error)
    return SpikeCell(**whose, matched=None, reason=f"the recording cannot be read: {why}")


def _stacks(
    found: SpikeCell,
    cell: CellResult,
    facts: TraceFacts,
    host: Mapping[str, Any],
    logged: Mapping[str, Any] | None,
    series: Mapping[tuple[str, str], SeriesEntry],
) -> CellStacks | None:
    """Return the kernel stacks in the gaps of a cell; None if `stacks` was not requested."""
    recorded: Mapping[str, Any] = cell.facts.get("probes", {}).get(PROBE, {})
    if not recorded or found.matched is None:
        return None
    if "missing" in recorded:
        return CellStacks(missing={"host": str(recorded["missing"])})
    gaps = held_gaps(found, facts, host, logged, recorded)
    holders: list[Holder] = []
    missing: dict[str, str] = {}
    lost = 0
    for side, name in SIDES:
        its = recorded[side]
        entry = series.get((cell.cell, name))
        if entry is None or "missing" in its:
            missing[side] = str(its.get("missing", "it is not in the run's folder"))
            continue
        lost += int(its["lost"])
        holders += holders_in(side, gaps[side], read_series(entry), sights_of(its))
    cost = recorded["host"].get("trace_cost")
    return CellStacks(tuple(holders), missing, lost, None if cost is None else float(cost))


def held_gaps(
    found: SpikeCell,
    facts: TraceFacts,
    host: Mapping[str, Any],
    logged: Mapping[str, Any] | None,
    recorded: Mapping[str, Any],
) -> Mapping[Side, Sequence[HeldGap]]:
    """Return the gaps from `LONG_NS` on, on the clocks of the host's and of the guest's kernel."""
    # The guest's anchors are those of its own CLOCK_MONOTONIC_RAW.
    own = {**facts, "clock": {"shared": True}}
    inner, _ = placed_gaps(cast(TraceFacts, own), logged)
    cpu = recorded["guest"].get("cpu")
    in_guest = frozenset() if cpu is None else frozenset({int(cpu)})
    thread = found.track.thread if found.track else 0
    gaps: dict[Side, list[HeldGap]] = {"host": [], "guest": []}
    for spike in found.spikes:
        if spike.excess_ns < LONG_NS:
            continue
        cpus = cpus_of(thread, host, spike.begin_ns, spike.end_ns)
        rest = (spike.excess_ns, spike.cause)
        gaps["host"].append(HeldGap(spike.begin_ns, spike.end_ns, *rest, cpus))
        begin, end = int(inner.begin_ns[spike.number]), int(inner.end_ns[spike.number])
        gaps["guest"].append(HeldGap(begin, end, *rest, in_guest))
    return gaps


def match_cell(
    whose: Mapping[str, Any],
    facts: TraceFacts,
    host: Mapping[str, Any],
    logged: Mapping[str, Any] | None,
) -> SpikeCell:
    """Match one cell's gaps.

    Args:
        whose: The fields of `SpikeCell` that identify the cell.
        facts: The recorder's facts, of ``CellFinished.facts``.
        host: The series ``host-sched``.
        logged: The series ``gaps``; None if there was no gap.
    """
    names = ThreadNames(
        {int(thread): known for thread, known in facts["threads"].items()},
        {int(number): name for number, name in facts["irqs"].items()},
    )
    track = follow(host, [int(thread) for thread in facts["subject_threads"]], names)
    if track is None:
        return SpikeCell(**whose, matched=None, reason="the measuring thread was not seen to run")
    held = facts.get("throttled", {})
    quota_ns, period_ns = held.get("quota_ns"), held.get("period_ns")
    if quota_ns and period_ns:
        track = blame_quota(track, host, Quota(int(quota_ns), int(period_ns)))
    track = settle_idle(track, limit_in_force(facts))
    gaps, first_ns = placed_gaps(facts, logged)
    episodes = within(track.episodes, first_ns, gaps, float(facts["tick"]["seconds"]))
    matched = match(gaps, episodes, own_tick=not facts["clock"]["shared"])
    steal_s = None if (steal := facts.get("steal_s")) is None else float(steal)
    matched = blame_steal(matched, round((steal_s or 0.0) * 1e9), len(facts.get("cpus", ())))
    return SpikeCell(
        **whose,
        matched=matched,
        track=track,
        first_ns=first_ns + matched.shift_ns,
        clock_error_ns=gaps.error_ns,
        lost_events=int(facts.get("lost", 0)),
        not_logged=max(0, int(facts["tick"].get("gaps") or 0) - len(gaps.begin_ns)),
        steal_s=steal_s,
        throttled_s=float(facts.get("throttled", {}).get("seconds", 0.0)),
    )


def limit_in_force(facts: TraceFacts) -> Cause | None:
    """Return the cause of an idle CPU while the thread was ready, if a limit was in force.

    Args:
        facts: The recorder's facts: ``throttled`` with the kernel's account of the group's quota,
            ``realtime`` with the limit on real-time threads, where the measuring thread is one;
            ``limit``, by which Xen holds a domain back, where it has one.
    """
    if facts.get("limit"):
        return Cause("host throttling", str(facts["limit"]))
    if facts.get("throttled", {}).get("times"):
        return THROTTLED
    if facts.get("realtime", {}).get("limited"):
        return Cause("host throttling", "limit on real-time threads")
    return None


def placed_gaps(facts: TraceFacts, logged: Mapping[str, Any] | None) -> tuple[Gaps, int]:
    """Return the gaps on the host's clock, and the time at which the first sample began.

    The log counts from the first sample by the cycle counter. If the machine's CLOCK_MONOTONIC_RAW
    is the host's own, anchors at both ends place the log on that clock. Otherwise the counter was
    read together with the host's clock before and after the cell, and ran evenly in between.
    """
    tick, clock = facts["tick"], facts["clock"]
    placed = tick["clock"]
    since = np.array(logged["time_ns"] if logged else [], dtype=np.float64)
    excess = np.array(logged["excess_ns"] if logged else [], dtype=np.int64)
    error = float(placed["error_ns"])
    if clock["shared"]:
        first = int(placed["first_raw_ns"])
        length = max(1.0, float(tick["seconds"]) * 1e9)
        stretch = (int(placed["last_raw_ns"]) - first) / length
    else:
        a, b = clock["first"], clock["last"]
        error += max(int(a["error_ns"]), int(b["error_ns"]))
        tick_ns = (int(b["host_ns"]) - int(a["host_ns"])) / max(
            1, int(b["ticks"]) - int(a["ticks"])
        )
        passed = (int(placed["first_ticks"]) - int(a["ticks"])) * tick_ns
        first = int(a["host_ns"]) + round(passed)
        stretch = tick_ns * float(tick["tsc_hz"]) / 1e9
    begin = first + np.rint(since * stretch).astype(np.int64)
    undisturbed = int(float(tick["undisturbed_s"]) * 1e9)
    return Gaps(begin, excess, undisturbed, int(error) + 1), first


def within(
    episodes: Sequence[Episode], first_ns: int, gaps: Gaps, seconds: float
) -> tuple[Episode, ...]:
    """Return the episodes within the measured time, extended by the clocks' error."""
    begin, end = first_ns - gaps.error_ns, first_ns + int(seconds * 1e9) + gaps.error_ns
    return tuple(each for each in episodes if each.begin_ns >= begin and each.end_ns <= end)


def causes(cells: Iterable[SpikeCell]) -> tuple[CauseRow, ...]:
    """Sum up the time that each cause took in all these cells, the greatest total first."""
    found: dict[Cause, CauseRow] = {}
    for cell in cells:
        for row in _rows(cell) if cell.sums is None else cell.sums[1]:
            known = found.get(row.cause, CauseRow(row.cause, 0, 0, 0))
            found[row.cause] = CauseRow(
                row.cause,
                known.count + row.count,
                known.total_ns + row.total_ns,
                max(known.longest_ns, row.longest_ns),
            )
    return tuple(sorted(found.values(), key=lambda row: (-row.total_ns, row.cause)))


def _rows(cell: SpikeCell) -> list[CauseRow]:
    count: dict[Cause, int] = {}
    total: dict[Cause, int] = {}
    longest: dict[Cause, int] = {}
    for spike in cell.spikes:
        count[spike.cause] = count.get(spike.cause, 0) + 1
        for cause, taken in spike.parts:
            total[cause] = total.get(cause, 0) + taken
            longest[cause] = max(longest.get(cause, 0), taken)
    return [
        CauseRow(cause, count.get(cause, 0), total.get(cause, 0), longest.get(cause, 0))
        for cause in count.keys() | total.keys()
    ]


def explained(cells: Iterable[SpikeCell]) -> Explained:
    """Return the share of these cells' gaps and lost time that has a cause."""
    each = [_explained(cell) if cell.sums is None else cell.sums[0] for cell in cells]
    nothing = Explained(0, 0, 0, 0, 0, 0)
    return Explained(*map(sum, zip(*map(astuple, [nothing, *each]), strict=True)))


def _explained(cell: SpikeCell) -> Explained:
    spikes = cell.spikes
    long = [spike for spike in spikes if spike.excess_ns >= LONG_NS]
    return Explained(
        gaps=len(spikes),
        explained=sum(spike.cause.explains for spike in spikes),
        lost_ns=sum(spike.excess_ns for spike in spikes),
        explained_ns=sum(spike.excess_ns - spike.unexplained_ns for spike in spikes),
        long=len(long),
        long_explained=sum(spike.cause.explains for spike in long),
    )
