"""The throughput of a proxy in each arm, by the size of objects, and the use of CPU time."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.results import Interval
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.topics.proxied_cells import (
    COST,
    HOST,
    LEAST,
    NOTHING,
    OFFERED,
    Against,
    ProxiedCell,
    Proxys,
    compare_within_blocks,
    geometric,
    haproxys_own,
    mean,
    named,
)
from tare.analysis.topics.proxied_losses import Ends, Loss, capacity_losses
from tare.events.cell_facts import ProxyFacts
from tare.events.results import PlatformResult

INSIDE, IDLE = "inside", "idle"
PARTS = 7
"""Parts that may be the limit: the link, the machine's CPUs, and owners with a single thread."""
FULL = 0.93
"""The share of a link's bits from which it is full: acknowledgements and gaps use the rest."""
FRAME, AROUND_FRAME = 1514, 24
"""Bytes of the longest Ethernet frame as a kernel counts it, and bytes that are sent around each
frame (IEEE 802.3, clauses 3.1.1 and 4.4.2)."""
_FIGURES = re.compile(r"[0-9.]+")


@dataclass(frozen=True)
class OwnerTime:
    """CPU time of one owner on the host, or of one kind in the machine.

    Args:
        where: :data:`HOST` or :data:`INSIDE`.
        who: The owner or kind.
        share: Its share of all CPU time there, mean over cells.
        per_request_s: Seconds for each request, mean over cells.
        cycles: Cycles for each request, mean over cells; None: not known in all of them.
        ends: The interval of the share over blocks, for all parts of a machine together; None with
            fewer than two blocks.
    """

    where: str
    who: str
    share: float
    per_request_s: float
    cycles: float | None = None
    ends: Ends | None = None


@dataclass(frozen=True)
class Throughput:
    """The throughput of one arm for objects of one size.

    Args:
        scenario, workload: What was measured. If parameters other than the size vary, the
            workload's name includes them.
        arm: The arm.
        emulated: Whether it is emulated.
        size: Bytes of an object.
        requests: Requests per second, geometric mean over cells.
        limited: Whether client or origin may have been the limit in any cell, so that ``requests``
            is a lower bound.
        limits: These limits in words.
        direct: Requests per second without the proxy, geometric mean.
        straight: The same without any switching between client and origin; None: not measured.
        bandwidth: Bytes of objects per second, mean.
        cpu_s: CPU seconds of the host for the machine per request, mean; None: not known.
        lost: Share of the baseline's requests that is lost; None: this is the baseline, or no block
            bounds the loss.
        spent: CPU time by owner.
        blocks: The number of cells.
        family: The platform with its accelerator or type; arms of a family differ in their devices.
        cpus: CPUs of the host; 0: not recorded.
        faults: Numbers of requests that failed in any stage, by outcome, and of events that kernel
            and proxy counted.
        link: Bits per second of the link outside the machine; None: as fast as the host can.
        wire: Bits per second of its busier direction; None: not known.
        wire_ends: The interval of ``wire`` over blocks, made like those of shares of CPU time.
        no_cycles: Why cycles are not known; empty: they are, or were not recorded.
        cpu: CPU time per request relative to the baseline's in the same block, if both are known,
            even if client or origin was the limit.
        latency_s: Median time of a request at the rate that all arms are offered, geometric mean;
            None: none was offered.
        latency: ``latency_s`` relative to the baseline's in the same block, if neither was
            overloaded.
        offered: That rate, in requests per second; None: not recorded.
        overloaded: Whether that rate exceeded the proxy's capacity in any cell.
        softirq_s: Seconds of the host's software interrupts per request, mean; None: not recorded.
            They are also part of the time of what they interrupted.
        hardirq_s: The same for hardware interrupts.
        own: HAProxy's own report at full load.
        concurrency: Concurrent requests at that rate, median; None: not recorded.
        kind: The workload's own name.
        parameters: The parameters of its cells, as canonical JSON.
    """

    scenario: str
    workload: str
    arm: str
    emulated: bool
    size: int
    requests: float
    limited: bool
    limits: tuple[str, ...]
    direct: float
    straight: float | None
    bandwidth: float
    cpu_s: float | None
    lost: Loss | None
    spent: tuple[OwnerTime, ...]
    blocks: int
    family: str = ""
    cpus: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    link: float | None = None
    wire: float | None = None
    wire_ends: Ends | None = None
    no_cycles: str = ""
    cpu: Against = NOTHING
    latency_s: float | None = None
    latency: Against = NOTHING
    offered: float | None = None
    overloaded: bool = False
    softirq_s: float | None = None
    hardirq_s: float | None = None
    own: Proxys | None = None
    concurrency: float | None = None
    kind: str = ""
    parameters: str = ""

    @property
    def loss(self) -> float | None:
        """The estimated loss; None: there is none, or limited cells leave it open."""
        return None if self.lost is None else self.lost.estimate

    @property
    def interval(self) -> Interval | None:
        """The interval of the loss by itself."""
        return None if self.lost is None else self.lost.interval

    @property
    def link_full(self) -> bool:
        """Whether the busier direction of the link certainly carried as much as it can."""
        return (
            self.link is not None
            and self.wire_ends is not None
            and self.wire_ends[0] >= FULL * self.link
        )

    @property
    def link_free(self) -> bool:
        """Whether the link certainly carried less than it can."""
        return (
            self.link is not None
            and self.wire_ends is not None
            and self.wire_ends[1] < FULL * self.link
        )

    @property
    def busy_ends(self) -> Ends | None:
        """The interval of the share of time in which the machine's own CPUs were busy."""
        inside = [each for each in self.spent if each.where == INSIDE]
        idle = next((each for each in inside if each.who == IDLE), None)
        if idle is not None:
            return None if idle.ends is None else (1 - idle.ends[1], 1 - idle.ends[0])
        # Without a row for idle time, the CPUs were never idle.
        return (1.0, 1.0) if inside and self.blocks > 1 else None

    @property
    def busiest(self) -> OwnerTime | None:
        """The owner of most of the host's CPU time, without idle time."""
        busy = [each for each in self.spent if each.where == HOST and each.who != IDLE]
        return max(busy, key=lambda each: each.share, default=None)


def throughputs(
    runs: Sequence[RunData], arms: Sequence[str], baseline: str, confidence: float
) -> tuple[Throughput, ...]:
    """Return the throughput of each arm, by size.

    Args:
        runs: Runs of one study.
        arms: The arms, in the order of the result.
        baseline: The arm that losses are relative to.
        confidence: Nominal coverage of intervals.
    """
    groups: dict[tuple[str, str, int, str], list[ProxiedCell]] = {}
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs)) if runs else frozenset()
    names = named(runs)
    for run in runs:
        cells = [cell for cell in run.cells if (cell.run, cell.cell) in names]
        values = _values(run) if cells else {}
        for cell in cells:
            about = cell.facts["proxy"]
            name = names[cell.run, cell.cell]
            key = (cell.scenario, name, about.get("size", 0), cell.arm)
            groups.setdefault(key, []).append(ProxiedCell(cell, values.get(cell.cell, {}), about))
    families = {each.arm: _family(each) for run in runs for each in run.platforms}
    own = {arm: base for run in runs for arm, base in run.own_baselines.items()}
    margin = Settings.of(runs).margin if groups else 0.0
    losses: dict[tuple[str, str, int, str], Loss | None] = {}
    for arm in dict.fromkeys(key[-1] for key in groups):
        keys = [key for key in groups if key[-1] == arm]
        base = own.get(arm, baseline)
        sizes = [
            (groups[key], groups.get((*key[:-1], base), []) if base != arm else []) for key in keys
        ]
        lost = capacity_losses(sizes, confidence, margin, f"{runs[0].run} {arm}")
        losses.update(zip(keys, lost, strict=True))
    found = []
    for (scenario, workload, size, arm), members in groups.items():
        base = own.get(arm, baseline)
        others = groups.get((scenario, workload, size, base), []) if base != arm else []
        usable = [each for each in members if each.requests > 0]
        if usable:
            of = (scenario, workload, arm, arm in emulated, size)
            through_arm = _throughput_of(of, usable, losses[scenario, workload, size, arm])
            through_arm = replace(
                through_arm,
                cpu=compare_within_blocks(members, others, ProxiedCell.cost, confidence),
                latency=compare_within_blocks(members, others, ProxiedCell.latency, confidence),
                family=families.get(arm, ""),
                kind=members[0].cell.workload,
                parameters=members[0].cell.parameters,
            )
            found.append(through_arm)
    places = {arm: place for place, arm in enumerate(arms)}
    return tuple(
        sorted(
            found, key=lambda t: (t.workload, places.get(t.arm, len(places)), t.scenario, t.size)
        )
    )


def _family(arm: PlatformResult) -> str:
    kinds = (str(arm.options.get(name) or "") for name in ("accelerator", "type"))
    return " ".join([arm.platform, *(kind for kind in kinds if kind)])


def _values(run: RunData) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    columns = ("cell", "role", "metric", "value")
    for cell, role, metric, value in run.observations.select(columns).iter_rows():
        if role == SUBJECT:
            found.setdefault(cell, {})[metric] = value
    return found


def _limits(cells: Sequence[ProxiedCell]) -> tuple[str, ...]:
    """Return each kind of limit that cells had, in the words of the first cell that had it."""
    found: dict[str, str] = {}
    for each in cells:
        for text in map(str, each.about.get("limits", ())):
            found.setdefault(_FIGURES.sub("", text), text)
    return tuple(found.values())


def _throughput_of(
    of: tuple[str, str, str, bool, int],
    cells: Sequence[ProxiedCell],
    lost: Loss | None,
) -> Throughput:
    scenario, workload, arm, emulated, size = of
    straight = [each.values.get("straight", 0.0) for each in cells]
    wires = [(each.block, wire) for each in cells if (wire := _wire(each.values)) is not None]
    latencies = [each.values.get(OFFERED, 0.0) for each in cells]
    at_once = [each.values["concurrency"] for each in cells if "concurrency" in each.values]
    return Throughput(
        scenario=scenario,
        workload=workload,
        arm=arm,
        emulated=emulated,
        size=size,
        requests=geometric([each.requests for each in cells]),
        limited=any(each.limited for each in cells),
        limits=_limits(cells),
        direct=geometric([each.values.get("direct", 0.0) for each in cells]),
        straight=geometric(straight) if all(straight) else None,
        bandwidth=statistics.fmean(
            each.values.get("bandwidth", each.values.get(f"bandwidth{LEAST}", 0.0))
            for each in cells
        ),
        cpu_s=mean(each.values.get(COST) for each in cells),
        lost=lost,
        spent=_spent(cells),
        blocks=len(cells),
        cpus=max((int(each.account.get("cpus", 0)) for each in cells), default=0),
        faults=_faults(cells),
        link=next((link for each in cells if (link := _link(each.about)) is not None), None),
        wire=statistics.fmean(wire for _, wire in wires) if wires else None,
        wire_ends=_limit_interval(wires),
        no_cycles=next((why for each in cells if (why := each.account.get("no_cycles"))), ""),
        latency_s=geometric(latencies) if all(latencies) else None,
        offered=next((rate for each in cells if (rate := each.offered) is not None), None),
        overloaded=any(each.overloaded for each in cells),
        softirq_s=mean(each.account.get("softirq") for each in cells),
        hardirq_s=mean(each.account.get("hardirq") for each in cells),
        own=haproxys_own(cells),
        concurrency=statistics.median(at_once) if at_once else None,
    )


def _link(about: ProxyFacts) -> float | None:
    network = about.get("network")
    link = network.get("link") if isinstance(network, Mapping) else None
    speed = link.get("bits_per_s") if isinstance(link, Mapping) else None
    return float(speed) if isinstance(speed, int | float) else None


def _wire(values: Mapping[str, float]) -> float | None:
    """Return the bits per second in the busier direction of a cable, including frames and gaps.

    A packet that is longer than a frame is split on the way.
    """
    found = []
    for way in ("in", "out"):
        packets, mean = values.get(f"packets-{way}"), values.get(f"packet-{way}")
        if packets is None or mean is None:
            return None
        found.append(8 * packets * (mean + AROUND_FRAME * max(1.0, mean / FRAME)))
    return max(found)


def _faults(cells: Sequence[ProxiedCell]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in cells:
        for fault in each.about.get("faults", ()):
            where = "" if fault["where"] == "client" else f"{fault['where']} "
            name = f"{where}{str(fault['what']).replace('_', ' ')}"
            found[name] = found.get(name, 0) + int(fault["count"])
    return found


def _spent(cells: Sequence[ProxiedCell]) -> tuple[OwnerTime, ...]:
    sums: dict[tuple[str, str], list[float]] = {}
    named: dict[str, dict[str, None]] = {}
    shares: defaultdict[tuple[str, str], list[tuple[tuple[str, int], float]]] = defaultdict(list)
    cycles: defaultdict[tuple[str, str], float] = defaultdict(float)
    for each in cells:
        for row in each.account.get("spent", ()):
            # The names after a colon are the members of a row, which differ from cell to cell.
            who, _, names = str(row["who"]).partition(": ")
            others = named.setdefault(who, {})
            others |= dict.fromkeys(name for name in names.split(", ") if name)
            both = sums.setdefault((str(row["where"]), who), [0.0, 0.0])
            both[0] += float(row["share"]) / len(cells)
            shares[str(row["where"]), who].append((each.block, float(row["share"])))
            both[1] += float(row["per_request_s"]) / len(cells)
            if "cycles" in row:
                cycles[str(row["where"]), who] += float(row["cycles"]) / len(cells)
    known = all(each.account.get("cycles_per_s") for each in cells)
    found = [
        OwnerTime(
            where,
            f"{who}: {', '.join(named[who])}" if named[who] else who,
            share,
            per_request_s,
            cycles.get((where, who)) if known else None,
            _limit_interval(shares[where, who], len(cells)),
        )
        for (where, who), (share, per_request_s) in sums.items()
    ]
    return tuple(sorted(found, key=lambda each: (each.where, -each.share)))


def _limit_interval(
    values: Sequence[tuple[tuple[str, int], float]], cells: int | None = None
) -> Ends | None:
    """Return Student's interval of a mean over blocks, corrected for all parts that may limit.

    Args:
        values: The block and the value of each cell.
        cells: The number of values that an interval needs, one per cell; None: any number.
    """
    blocks: dict[tuple[str, int], list[float]] = {}
    for block, value in values:
        blocks.setdefault(block, []).append(value)
    if len(blocks) < 2 or (cells is not None and len(values) < cells):
        return None
    means = [statistics.fmean(found) for found in blocks.values()]
    whole = mean_interval(means, 1 - LEVEL / PARTS)
    return float(whole.low), float(whole.high)
