"""The facts in a cell's record in addition to its values, typed for the run and the analysis.

The types define the names and forms of facts. They are plain JSON: workloads of other packages may
add facts of their own, and newer versions of Tare may add keys that this one does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Required, cast, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

_MOST = 1e300
Number = Annotated[float, Field(allow_inf_nan=False, ge=-_MOST, le=_MOST)]
Amount = Annotated[float, Field(allow_inf_nan=False, ge=0, le=_MOST)]
Whole = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]


class PhaseFacts(TypedDict):
    """One phase of a job's tasks or of a neighbour; times are in seconds since the cell began."""

    name: str
    begin_s: Number
    end_s: Number


class NeighbourFacts(TypedDict, total=False):
    """The activity of a neighbour while the subject measured.

    Args:
        role: The neighbour's role, such as ``neighbour-1``.
        load: The workload it carried.
        values: The load's own metrics, in their units.
        ran_share: CPU time that its vCPUs, or a process's threads, had on the host, as a share of
            the time: 2 if two were busy throughout; None if unknown.
        wanted_share: The same share, including the time that they were ready but another thread
            ran. This time is from the host's accounting, or else from the guest's (steal time);
            None if unknown.
        busy: The number of vCPUs or threads that the load should have kept busy.
        phases: The phases of the load, in sequence since its start.
        warnings: The warnings of the neighbour's own agent.
        doubt: The reason why it was not a valid load of that kind; empty if it was.
    """

    role: str
    load: str
    values: Any
    ran_share: Any
    wanted_share: Any
    busy: Any
    phases: Any
    warnings: Any
    doubt: Any


class HostCounters(TypedDict, total=False):
    """Whether the host's counters were sampled; if not, the reason."""

    sampled: bool
    reason: str | None


class ClockPlace(TypedDict):
    """One moment on two clocks: the subject's cycle counter (``ticks``) and the host's clock."""

    ticks: int
    host_ns: int
    error_ns: int


class TraceClock(TypedDict, total=False):
    """The relation between the subject's cycle counter and the host's clock.

    If ``shared``, the subject's clock is the host's own. Otherwise ``first`` and ``last`` are
    readings of both, before and after the measurement.
    """

    shared: Required[bool]
    first: ClockPlace
    last: ClockPlace


class Throttled(TypedDict, total=False):
    """The number of times, and the seconds, that a control group's quota stopped the subject."""

    times: int
    seconds: float
    quota_ns: int | None
    period_ns: int | None


class RealtimeLimit(TypedDict, total=False):
    """Whether the host limits real-time threads."""

    limited: bool


class TraceFacts(TypedDict, total=False):
    """The facts needed to read the series ``host-sched``, or the reason why it is missing.

    ``steal_s`` is None if no kernel counts steal. Only Xen's trace has ``by``, ``origin_ticks`` and
    ``limit``, which is the limit by which Xen stops a domain.
    """

    recorded: Required[bool]
    reason: str
    by: str
    cpus: Sequence[int]
    began_ns: int
    ended_ns: int
    events: int
    lost: int
    subject_threads: Sequence[int]
    threads: Mapping[str, Mapping[str, str]]
    irqs: Mapping[str, str]
    clock: TraceClock
    throttled: Throttled
    realtime: RealtimeLimit
    limit: str
    steal_s: float | None
    tick: Mapping[str, Any]
    origin_ticks: int


class DuetFacts(TypedDict, total=False):
    """The arm that worked at the same time, and the share of the cell's time in which it did."""

    beside: str
    share: Number


TurnsFacts = TypedDict("TurnsFacts", {"with": str}, total=False)
"""The arm with which this one took turns."""


class JobStep(TypedDict, total=False):
    """One step of a job: its framework's log, and the page caches that were dropped before it."""

    job: dict[str, Any] | list[Any] | str | None
    caches: list[dict[str, Any]]


class JobFacts(TypedDict, total=False):
    """The results of a job on a cluster in addition to its metrics."""

    steps: dict[str, JobStep]
    replication: Whole
    written_bytes: Amount
    hdfs_written_bytes: Any
    spent_s: Any


class ProxyFault(TypedDict):
    """The number of failures of one kind, and the place where they occurred."""

    where: str
    what: str
    count: Whole


class ProxySpent(TypedDict, total=False):
    """The share of the CPUs that one user of them had."""

    where: Required[str]
    who: Required[str]
    share: Required[Number]
    per_request_s: Required[Number]
    cycles: Number


class ProxyAccount(TypedDict, total=False):
    """The use of the CPUs while the proxy was at its limit."""

    spent: list[ProxySpent]
    cpus: Whole
    cycles_per_s: Number | None
    softirq: Number | None
    hardirq: Number | None
    no_cycles: str | None


class ProxyFacts(TypedDict, total=False):
    """The findings on a load balancer in the machine, for objects of one size (bytes)."""

    size: Whole
    limits: list[Any]
    faults: list[ProxyFault]
    account: ProxyAccount
    offered: Any
    said: Any
    network: Any


class HardwareCounts(TypedDict, total=False):
    """The counts of processors or memory controllers over ``seconds``, or why they are missing."""

    seconds: Amount | None
    llc_misses: Amount | None
    llc_references: Amount | None
    instructions: Amount | None
    cycles: Amount | None
    bytes: Amount | None
    missing: str | None


class ArrayFacts(TypedDict, total=False):
    """The sizes of each array in memory and of the last-level cache, in bytes."""

    array_bytes: int
    last_level_bytes: int


class CellFacts(TypedDict, total=False):
    """All facts that Tare itself writes and reads, by the key in ``CellFinished.facts``.

    Args:
        clock_drift_ppm: The drift of the guest's clock from the host's; None: unknown.
        clock_uncertainty_ppm: The uncertainty of that value.
        host_cost: The cost of the machine on its host, in seconds and bytes.
        start_skew_s: The time between the starts of subject and neighbours.
        neighbours: The activity of each neighbour.
        phases: The phases of neighbours, or of a job's tasks, in sequence.
        host_trace: The facts needed to read the trace of the host's kernel.
        host_counters: Whether the host's counters were sampled; if not, the reason.
        origins_ns: The start of the cell on the clock of each role.
        hypervisor: The hypervisor's own figures; see :mod:`tare.events.hypervisor`.
        host_memory: The bytes that all of the host's CPUs together moved to and from memory.
        host_hardware: The counts of the host's processors for each role.
        hardware: The counts of the subject's processors.
        host_cache: How the host's page cache was dropped.
        disk_moved_bytes: The bytes moved to and from the machine's disk, as its host counts them.
        files: How the machine's disk was used.
        arrays: The sizes of arrays in memory and of the last-level cache.
        job: The results of a job on a cluster in addition to its metrics.
        proxy: The findings on a load balancer.
        duet: The other arm that worked at the same time.
        turns: The other arm with which this one took turns.
        probes: The findings of other packages' probes, by the probe's key.
    """

    clock_drift_ppm: Number | None
    clock_uncertainty_ppm: Number | None
    host_cost: dict[str, Number]
    start_skew_s: Number | None
    neighbours: Sequence[NeighbourFacts]
    phases: Sequence[PhaseFacts]
    host_trace: TraceFacts
    host_counters: HostCounters
    origins_ns: dict[str, Whole]
    hypervisor: Mapping[str, Any]
    host_memory: HardwareCounts
    host_hardware: dict[str, HardwareCounts]
    hardware: HardwareCounts
    host_cache: Mapping[str, Any]
    disk_moved_bytes: Mapping[str, Any]
    files: Mapping[str, Any]
    arrays: ArrayFacts
    job: JobFacts
    proxy: ProxyFacts
    duet: DuetFacts
    turns: TurnsFacts
    probes: Mapping[str, Any]


_READ_LATER = dict.fromkeys(("host_trace", "arrays"), Mapping[str, Any])
"""Facts whose errors are reported or handled by the code that reads them."""


def known_facts(facts: Mapping[str, Any]) -> CellFacts:
    """Return a cell's facts without those that do not have the form of :class:`CellFacts`.

    A run's folder may come from anyone, so facts of another form are left out. Facts that Tare does
    not know are kept.
    """
    return cast(CellFacts, fitting(facts, _forms()))


def fitting(facts: Mapping[str, Any], forms: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts without those whose form differs from the one in ``forms``, by name."""
    wrong = [name for name, form in forms.items() if name in facts and not _fits(facts[name], form)]
    return {key: value for key, value in facts.items() if key not in wrong} if wrong else facts


@lru_cache(maxsize=1)
def _forms() -> Mapping[str, Any]:
    hints = get_type_hints(CellFacts, include_extras=True)
    return {**hints, **_READ_LATER}


def _fits(value: Any, form: Any) -> bool:
    try:
        _reader(form).validate_python(value)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=64)
def _reader(form: Any) -> TypeAdapter[Any]:
    # Validators are made when a run is read: making all of them takes longer than the start of most
    # commands.
    return TypeAdapter(form)
