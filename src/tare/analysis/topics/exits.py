"""Exits of virtual machines by reason, and the part of an arm's added time that each explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.effects.results import DECLARED, Effect
from tare.analysis.topics.exit_reasons import Reason, is_idle, is_interrupt, reason_of
from tare.events.cell_facts import Amount, Whole

PROBE = "exits"
RATES = frozenset({"1/s", "B/s"})
"""Units of metrics whose inverse is the time of one unit of work."""
_Count = Annotated[int, Field(ge=0, le=1 << 62)]


class _Exit(TypedDict):
    vcpu: Whole
    isa: str
    reason: Whole
    count: _Count
    seconds: Amount


class _Helper(TypedDict):
    name: str
    ran_s: Amount
    waited_s: Amount


class _Recorded(TypedDict, total=False):
    """The facts of the probe, as `tare.run.probes.exits` records them."""

    missing: str
    by: str
    reason: str
    vcpus: Required[_Count]
    seconds: Required[Amount]
    recorded_s: Amount
    run_delay_s: Amount
    waited_s: Amount
    polled_s: Amount
    helpers: list[_Helper]
    dropped: _Count
    exits: list[_Exit]
    counters: dict[str, Whole]
    trace_cost: Amount
    cost_per_exit_s: Amount
    switch_s: Amount
    cost_unknown: str


@cache
def _reader() -> TypeAdapter[_Recorded]:
    return TypeAdapter(_Recorded)


@dataclass(frozen=True)
class ReasonCost:
    """Exits with one reason.

    Args:
        reason: The reason.
        per_s: Exits per second of one vCPU.
        share: The share of the vCPU's time from these exits until the guest ran again.
        each_s: Mean time of one exit; None if it is unknown, as of PV guests of Xen.
        total_s: The time over all vCPUs and cells; estimated if only a part was recorded.
        total: The number of exits over all vCPUs and cells, estimated likewise.
        per_unit: Exits per unit of work; None if the workload has no rate.
    """

    reason: Reason
    per_s: float
    share: float
    each_s: float | None
    total_s: float
    total: float
    per_unit: float | None = None

    @property
    def idle(self) -> bool:
        """Whether the guest had nothing to do meanwhile."""
        return is_idle(self.reason.name)


@dataclass(frozen=True)
class HelperTime:
    """A thread of the host that works for a machine, such as the one that carries its packets.

    Args:
        name: The thread's name.
        waited_s: The time for which it was ready but another thread had the CPU, in seconds.
    """

    name: str
    waited_s: float


@dataclass(frozen=True)
class ArmExits:
    """Exits of one arm in one scenario and workload, over all cells.

    Args:
        cells: Number of cells in which exits were recorded.
        vcpus: Number of vCPUs of the machine.
        reasons: The reasons, the one that takes most time first; those of idle time last.
        recorded: The share of the time that was recorded; below 1 if recording is expensive.
        dropped: Exits that the kernel's histogram had no room for.
        agreement: Recorded exits over those of the kernel's own counter; None if it is unknown, or
            if only a part was recorded.
        trace_cost: The share of a vCPU's time that recording took; None if unknown.
        counters: Counters of the kernel per second of the machine, by name.
        missing: Why no reasons were recorded; empty if they were.
        work: The metric whose unit of work ``per_unit`` is about; empty if there is none.
        run_delay: The share of a vCPU's time in which it was ready but another ran, if the recorder
            of exits saw that, as xentrace does. It is then not part of the exits' time.
        waited: The share in which a vCPU had no CPU within an exit, such as one that waits for a
            device model in another domain.
        switch_s: What each exit cost in addition to its recorded time, measured with CPUID: the
            switch to the host and back. None if it was not measured.
        polled_s: The time over all vCPUs and cells in which the host's kernel waited busily for a
            vCPU that had halted: it is idle for the guest, but takes CPU time.
        helpers: The host's other threads that worked for the machine, over all cells.
    """

    arm: str
    emulated: bool
    scenario: str
    workload: str
    parameters: str
    cells: int
    vcpus: int
    reasons: tuple[ReasonCost, ...]
    recorded: float
    dropped: int
    agreement: float | None
    trace_cost: float | None
    counters: Mapping[str, float]
    missing: str
    work: str = ""
    run_delay: float | None = None
    waited: float = 0.0
    switch_s: float | None = None
    polled_s: float = 0.0
    helpers: tuple[HelperTime, ...] = ()

    @property
    def host_share(self) -> float:
        """The share of a vCPU's time in the host, without the guest's idle time."""
        return sum(each.share for each in self.reasons if not each.idle)

    @property
    def idle_share(self) -> float:
        """The share of a vCPU's time in which the guest had nothing to do."""
        return sum(each.share for each in self.reasons if each.idle)


def arm_exits(runs: Sequence[RunData]) -> tuple[ArmExits, ...]:
    """Return the exits of each arm and workload, in the order of the cells."""
    found: dict[tuple[str, str, str, str], list[tuple[Any, float | None, str]]] = {}
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    for run in runs:
        for done in run.counted:
            cell = done.result
            facts = (cell.facts.get("probes") or {}).get(PROBE)
            if facts is None:
                continue
            rates = [
                (each.value, each.metric.name)
                for each in done.observed
                if each.role == SUBJECT and each.metric.headline and each.metric.unit in RATES
            ]
            rate, work = rates[0] if len(rates) == 1 else (None, "")
            key = (cell.arm, cell.scenario, cell.workload, cell.parameters)
            found.setdefault(key, []).append((facts, rate, work))
    return tuple(_arm_exits(key, cells, key[0] in emulated) for key, cells in found.items())


def _arm_exits(
    key: tuple[str, str, str, str],
    cells: Sequence[tuple[Any, float | None, str]],
    emulated: bool,
) -> ArmExits:
    read = [(_read(facts), rate) for facts, rate, _ in cells]
    usable = [(facts, rate) for facts, rate in read if facts.get("seconds")]
    traced = [(facts, rate) for facts, rate in usable if facts.get("recorded_s")]
    reasons = [facts.get("missing") or facts.get("reason") or "" for facts, _ in read]
    missing = "" if traced else next(filter(None, reasons), "nothing was recorded")
    seconds = sum(facts["seconds"] for facts, _ in usable)
    rates = [rate for _, rate in traced if rate]
    whole = [facts for facts, _ in traced if facts["recorded_s"] >= 0.99 * facts["seconds"]]
    kernel = sum(facts.get("counters", {}).get("exits", 0) for facts in whole)
    costs = [facts["trace_cost"] for facts, _ in traced if "trace_cost" in facts]
    names = dict.fromkeys(name for facts, _ in usable for name in facts.get("counters", {}))
    vcpu_s = sum(facts["recorded_s"] * max(1, facts["vcpus"]) for facts, _ in traced)
    delays = [facts["run_delay_s"] for facts, _ in traced if "run_delay_s" in facts]
    switches = [_switch_s(facts) for facts, _ in traced if "switch_s" in facts]
    return ArmExits(
        *(key[0], emulated, *key[1:]),
        cells=len(traced),
        vcpus=max((facts["vcpus"] for facts, _ in usable), default=0),
        reasons=_reasons(
            [facts for facts, _ in traced],
            sum(rates) / len(rates) if traced and len(rates) == len(traced) else None,
        ),
        recorded=sum(facts["recorded_s"] for facts, _ in traced) / seconds if traced else 0.0,
        dropped=sum(facts.get("dropped", 0) for facts, _ in traced),
        agreement=sum(map(_total, whole)) / kernel if kernel else None,
        trace_cost=max(costs) if costs and len(costs) == len(traced) else None,
        counters={
            name: sum(facts.get("counters", {}).get(name, 0) for facts, _ in usable) / seconds
            for name in names
        },
        missing=missing,
        work=cells[0][2],
        run_delay=sum(delays) / vcpu_s if delays and len(delays) == len(traced) else None,
        waited=sum(facts.get("waited_s", 0.0) for facts, _ in traced) / vcpu_s if traced else 0.0,
        switch_s=sum(switches) / len(switches) if len(switches) == len(traced) > 0 else None,
        polled_s=sum(facts.get("polled_s", 0.0) for facts, _ in usable),
        helpers=_helpers([facts for facts, _ in usable]),
    )


def _helpers(recorded: Sequence[_Recorded]) -> tuple[HelperTime, ...]:
    """Return the threads that worked for the machine, over all cells, by name."""
    found: dict[str, float] = {}
    for each in (helper for facts in recorded for helper in facts.get("helpers", ())):
        found[each["name"]] = found.get(each["name"], 0.0) + each["waited_s"]
    return tuple(HelperTime(*each) for each in found.items())


def _read(facts: Any) -> _Recorded:
    """Check and return the facts of a cell: a run's folder may come from anyone."""
    nothing: _Recorded = {"vcpus": 0, "seconds": 0.0}
    if isinstance(facts, Mapping) and isinstance(facts.get("missing"), str):
        return {**nothing, "missing": facts["missing"]}
    try:
        return _reader().validate_python(facts)
    except ValidationError:
        return {**nothing, "missing": "the cell's facts are not those of exits"}


def _switch_s(facts: _Recorded) -> float:
    """Return the time of one exit beyond its recorded time, in seconds; it may be negative.

    The time that was measured with CPUID, like the recorded time, contains a part of the cost of
    recording. Exits in the part of the cell that was not recorded did not have that cost.
    """
    unrecorded = 1 - min(1.0, facts["recorded_s"] / facts["seconds"])
    return facts["switch_s"] - unrecorded * facts.get("cost_per_exit_s", 0.0)


def _total(facts: _Recorded) -> int:
    return sum(each["count"] for each in facts.get("exits", ()))


def _reasons(recorded: Sequence[_Recorded], rate: float | None) -> tuple[ReasonCost, ...]:
    vcpu_s = sum(each["recorded_s"] * max(1, each["vcpus"]) for each in recorded)
    wall_s = sum(each["recorded_s"] for each in recorded)
    counts: dict[Reason, tuple[int, float, float, float]] = {}
    for facts in recorded:
        for each in facts.get("exits", ()):
            reason = reason_of(each["isa"], each["reason"])
            count, seconds, total, total_s = counts.get(reason, (0, 0.0, 0.0, 0.0))
            more = max(1.0, facts["seconds"] / facts["recorded_s"])
            counts[reason] = (
                count + each["count"],
                seconds + each["seconds"],
                total + each["count"] * more,
                total_s + each["seconds"] * more,
            )
    found = [
        ReasonCost(
            reason,
            count / vcpu_s,
            seconds / vcpu_s,
            seconds / count if seconds else None,
            total_s,
            total,
            count / wall_s / rate if rate else None,
        )
        for reason, (count, seconds, total, total_s) in counts.items()
    ]
    return tuple(sorted(found, key=lambda each: (each.idle, -each.share, each.reason.name)))


@dataclass(frozen=True)
class Bucket:
    """A part of the added time of one unit of work, in seconds; may be negative."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Decomposition:
    """The parts of the time that an arm adds to one unit of work.

    With one vCPU, the elapsed time is decomposed. Several vCPUs work at the same time, so that
    their elapsed times overlap. What adds up is the time in which they ran or were ready to run.

    Args:
        effect: The effect that is decomposed: a rate against the baseline's.
        added_s: The added time of one unit of work.
        buckets: The measured parts of the added time, the largest first.
        unexplained_s: The rest of the added time.
        host_threads_s: CPU time per unit of work of the machine's other threads on the host. They
            work at the same time as the vCPU, so it does not count in the sum. None if unknown.
        decided: Whether the comparison shows a difference.
        vcpus: The number of vCPUs.
        untimed: Whether exits without a known time are part of the rest, as with PV guests of Xen.
        helpers: The time of those other threads per unit of work, the longest wait first. While
            one waits for a CPU, the vCPU that needs it is idle.
    """

    effect: Effect
    added_s: float
    buckets: tuple[Bucket, ...]
    unexplained_s: float
    host_threads_s: float | None
    decided: bool
    vcpus: int = 1
    untimed: bool = False
    helpers: tuple[HelperTime, ...] = ()

    def share(self, seconds: float) -> float:
        """Return seconds as a share of the added time."""
        return seconds / self.added_s


DELAY = "run delay: the vCPU was ready, and the host ran something else"
POLLING = "halt polling: the host's kernel waited busily while the vCPU was idle"
WAITING = "idle: the vCPU waited for longer than the bare machine"
OFF = "run delay and idle: the vCPU had no CPU for longer than the bare machine"


def decompositions(
    runs: Sequence[RunData], effects: Iterable[Effect], found: Sequence[ArmExits]
) -> tuple[tuple[Decomposition, ...], tuple[str, ...]]:
    """Decompose the added time of each effect on a rate.

    Args:
        runs: The runs, with the host costs of machines.
        effects: Effects against the baseline.
        found: The exits of each arm.

    Returns:
        The decompositions, and one sentence for each arm and workload that cannot be decomposed.
    """
    exits = {(each.arm, each.scenario, each.workload, each.parameters): each for each in found}
    made, refused = [], []
    for effect in effects:
        key = effect.key
        mine = exits.get((effect.arm, key.scenario, key.workload, key.parameters))
        wanted = effect.headline and key.role == SUBJECT and effect.unit in RATES
        if mine is None or mine.missing or not wanted or effect.compared is None:
            continue
        if any(run.counts_instructions for run in runs):
            refused.append(
                f"{key.workload} in {effect.arm} is not decomposed: the lab's time counts "
                "instructions, and what machines cost is in this computer's time."
            )
            continue
        value, base = effect.compared
        if value <= 0 or base <= 0:
            continue
        against = exits.get((effect.baseline, key.scenario, key.workload, key.parameters))
        if against is not None and against.missing:
            against = None
        whole = _decomposed(runs, effect, mine, against, 1 / value, 1 / base)
        if isinstance(whole, str):
            refused.append(f"{key.workload} in {effect.arm} is not decomposed: {whole}.")
        else:
            made.append(whole)
    return tuple(made), tuple(dict.fromkeys(refused))


def _decomposed(
    runs: Sequence[RunData],
    effect: Effect,
    mine: ArmExits,
    against: ArmExits | None,
    own_s: float,
    base_s: float,
) -> Decomposition | str:
    """Decompose one effect, or return why that is not possible.

    Args:
        runs: The runs.
        effect: The effect.
        mine: The arm's exits.
        against: The baseline's, if it is a machine with exits of its own.
        own_s: The time of one unit of work on the arm.
        base_s: The time of one unit of work on the baseline.
    """
    count = mine.vcpus
    own = _shares(runs, effect, effect.arm, count, mine.run_delay)
    traced = None if against is None else against.run_delay
    base = _shares(runs, effect, effect.baseline, count, traced)
    if own is None:
        return "its host does not show what the machine cost"
    if count > 1 and (base is None or base.demand is None or own.demand is None):
        return (
            f"with {count} vCPUs, times overlap, and it is not known for how long the vCPUs and "
            "the baseline ran"
        )
    parts = _exit_seconds(mine, own, own_s)
    if against is not None and base is not None:
        # A baseline that is a machine has exits too.
        for name, seconds in _exit_seconds(against, base, base_s).items():
            parts[name] = parts.get(name, 0.0) - seconds
    buckets = [Bucket(f"exits {name}", seconds) for name, seconds in parts.items()]
    polled = mine.polled_s / own.wall_s / count * own_s
    if against is not None and base is not None:
        polled -= against.polled_s / base.wall_s / count * base_s
    if polled:
        buckets.append(Bucket(POLLING, polled))
    if base is not None and own.off is not None and base.off is not None:
        off = (own.off - mine.waited) * own_s
        off -= (base.off - (against.waited if against is not None else 0.0)) * base_s
        if own.run_delay is not None and base.run_delay is not None:
            delay = own.run_delay * own_s - base.run_delay * base_s
            buckets.append(Bucket(DELAY, delay))
            if count == 1:
                buckets.append(Bucket(WAITING, off - delay))
        elif count == 1:
            buckets.append(Bucket(OFF, off))
    added = own_s - base_s
    if count > 1 and base is not None:
        added = (own.demand or 0.0) * own_s - (base.demand or 0.0) * base_s
        added += mine.waited * own_s - (against.waited * base_s if against is not None else 0.0)
    helpers = [HelperTime(each.name, each.waited_s / own.wall_s * own_s) for each in mine.helpers]
    rest = added - sum(each.seconds for each in buckets)
    scaled = [Bucket(each.name, count * each.seconds) for each in buckets]
    return Decomposition(
        effect,
        count * added,
        tuple(sorted(scaled, key=lambda each: -each.seconds)),
        count * rest,
        None if own.threads is None else own.threads * own_s,
        effect.verdict in DECLARED,
        count,
        any(each.each_s is None for each in mine.reasons),
        tuple(sorted(helpers, key=lambda each: -each.waited_s)),
    )


def _exit_seconds(found: ArmExits, shares: _Shares, unit_s: float) -> dict[str, float]:
    """Return the time of exits by reason per unit of work, on average over the vCPUs."""
    # On KVM, a vCPU loses its CPU only within an exit, so its waits are part of the exits' time.
    # Most are in interrupts, which let the host switch threads. Waits beyond the interrupts' time
    # are subtracted from all other exits in proportion. xentrace shows the waits by themselves.
    left = (shares.run_delay or 0.0) if found.run_delay is None else 0.0
    taken = {
        each.reason.name: each.total_s / shares.wall_s / max(1, found.vcpus)
        for each in found.reasons
        if each.each_s is not None
    }
    for name in filter(is_interrupt, taken):
        inside = min(left, taken[name])
        taken[name], left = taken[name] - inside, left - inside
    others = sum(share for name, share in taken.items() if not is_interrupt(name))
    kept = max(0.0, 1 - left / others) if others else 0.0
    switches = {
        each.reason.name: (found.switch_s or 0.0) * each.total / shares.wall_s / max(1, found.vcpus)
        for each in found.reasons
    }
    return {
        name: unit_s * (share * (1.0 if is_interrupt(name) else kept) + switches[name])
        for name, share in taken.items()
        if not is_idle(name)
    }


@dataclass(frozen=True)
class _Shares:
    """Shares of the wall time of an arm's cells; None where they were not measured.

    Args:
        wall_s: The wall time of all cells, in seconds.
        busy: The share in which the measuring side had a CPU: a vCPU, or the processes of a bare
            machine. It is the mean over all vCPUs, or over as many CPUs.
        run_delay: The share in which it was ready, but another ran; the mean likewise.
        threads: The CPU time of the host's threads other than vCPUs; their sum.
    """

    wall_s: float
    busy: float | None
    run_delay: float | None
    threads: float | None

    @property
    def off(self) -> float | None:
        """The share in which it had no CPU: it waited for one, or was idle."""
        return None if self.busy is None else max(0.0, 1 - self.busy)

    @property
    def demand(self) -> float | None:
        """The share in which it ran, or was ready to run."""
        return None if self.busy is None else self.busy + (self.run_delay or 0.0)


def _shares(
    runs: Sequence[RunData], effect: Effect, arm: str, vcpus: int, traced_delay: float | None
) -> _Shares | None:
    """Return the shares of an arm's time; None if its host does not report them.

    Args:
        runs: The runs.
        effect: The effect that is decomposed.
        arm: The arm.
        vcpus: The number of vCPUs.
        traced_delay: The run delay that the recorder of exits saw, if it did.
    """
    key = effect.key
    cells = [
        done.result.facts.get("host_cost", {})
        for run in runs
        for done in run.counted
        if done.result.arm == arm
        and done.result.scenario == key.scenario
        and (done.result.workload, done.result.parameters) == (key.workload, key.parameters)
    ]
    costs = [cost for cost in cells if cost.get("wall_s", 0.0) > 0]
    wall = sum(cost["wall_s"] for cost in costs)

    def share(*names: str) -> float | None:
        for name in names:
            if all(name in cost for cost in costs):
                return sum(cost[name] for cost in costs) / wall
        return None

    if not costs or len(costs) != len(cells):
        return None
    cpu, of_vcpus = share("cpu_s"), share("vcpu_cpu_s")
    busy = cpu if of_vcpus is None else of_vcpus
    delay = share("vcpu_run_delay_s", "thread_run_delay_s")
    if traced_delay is not None:
        delay = traced_delay * vcpus
    return _Shares(
        wall,
        None if busy is None else busy / vcpus,
        None if delay is None else delay / vcpus,
        None if cpu is None or of_vcpus is None else max(0.0, cpu - of_vcpus),
    )
