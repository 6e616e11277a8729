"""The rates of a machine's and its host's counters over a cell, on one time axis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tare.analysis.data.parquet import UnreadableSeries, floats, understood
from tare.analysis.data.rundata import RunData
from tare.analysis.data.series_file import read_series
from tare.analysis.topics.cores import (
    Core,
    bound_cpus,
    cores_of,
    grown,
    kept_cpus,
    mean_of_cores,
    shares,
    split_by_binding,
)
from tare.events.cell_facts import CellFacts
from tare.events.parts import ARMS_HOST as ARMS_HOST
from tare.events.parts import host_named as host_named
from tare.events.parts import is_host as is_host
from tare.events.results import CellResult, SeriesEntry

SERIES = "counters"
LEAST_SAMPLES = 4
SECTOR = 512
"""Bytes of a sector in ``/proc/diskstats``, whatever the disk's own sector size (iostats.rst)."""

CPU = ("user", "system", "iowait", "steal")
QUANTITIES: Mapping[str, str] = {
    **{f"cpu-{state}": "1" for state in CPU},
    "disk-read": "B/s",
    "disk-written": "B/s",
    "disk-busy": "1",
    "disk-merged": "1/s",
    "disk-queue": "1",
    "net-received": "B/s",
    "net-sent": "B/s",
    "net-packets-received": "1/s",
    "net-packets-sent": "1/s",
    "net-size-received": "B",
    "net-size-sent": "B",
}
"""Each quantity's unit: shares of all CPUs' time, of one disk's time, bytes, requests, packets.

``disk-queue`` is the mean number of requests under way (weighted time in iostats.rst). A size is
that of one packet as the network's device counts it. If the device combines segments, it is that of
the combined packet."""
SIZES = {f"net-size-{way}": (f"net-{way}", f"net-packets-{way}") for way in ("received", "sent")}
"""For each size, the two quantities whose quotient it is; 0 if no packet passed."""
COUNTS = frozenset({"disk-queue"})
"""Counters whose unit is 1 and that are not shares."""

Column = NDArray[np.float64]
_OTHER_END = re.compile(r"net\.(lo|tare-[0-9a-f]{6}(?:[pocd]|\d+[olv]))\.")
"""Interfaces that are not counted, because their packets also pass a machine's interface. They are
the loopback, the device below a macvtap, and in Tare's networks the ends of a peer and an origin
with the bridge and the cable between them."""


@dataclass(frozen=True)
class Phase:
    """A named part of a cell, in seconds since the cell's start."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class CounterTrack:
    """One computer's counters over one cell.

    Args:
        role: A machine's role, ``host`` for the arm's own host, ``host-NAME`` for another one.
        time_s: The ends of the intervals, in seconds since the cell's common start, or since the
            first sample if that start was not recorded.
        values: One value per interval, by quantity of :data:`QUANTITIES`. A quantity whose counters
            this computer lacks is missing. If machines have a host's CPUs for themselves, the host
            also has ``bound-STATE`` for these CPUs and ``others-STATE`` for the others.
        cores: Its single CPUs, as far as their counters were recorded.
    """

    role: str
    time_s: tuple[float, ...]
    values: Mapping[str, tuple[float, ...]]
    cores: tuple[Core, ...] = ()

    def mean(self, quantity: str) -> float | None:
        """Return a quantity's mean over the cell; None if it is missing."""
        if quantity in SIZES:
            volume, packets = map(self.mean, SIZES[quantity])
            return volume / packets if volume is not None and packets else None
        found = self.values.get(quantity)
        return fmean(found) if found else None


@dataclass(frozen=True)
class Monitor:
    """A cell with the recorded tracks of its machines and hosts.

    ``bound`` has the CPUs that machines were bound to, by the role of each host. ``own`` has the
    CPUs of each role whose counters are those of its host, and so include other CPUs.
    """

    cell: str
    block: int
    arm: str
    scenario: str
    workload: str
    parameters: str
    emulated: bool
    tracks: tuple[CounterTrack, ...]
    phases: tuple[Phase, ...] = ()
    bound: Mapping[str, frozenset[int]] = field(default_factory=dict)
    own: Mapping[str, frozenset[int]] = field(default_factory=dict)
    run: str = ""

    @property
    def length_s(self) -> float:
        """The length of the recorded time, in seconds."""
        return max(track.time_s[-1] for track in self.tracks)

    @property
    def hosts(self) -> tuple[CounterTrack, ...]:
        """The tracks of hosts, the arm's own host first."""
        found = [track for track in self.tracks if is_host(track.role)]
        return tuple(sorted(found, key=lambda track: track.role))

    @property
    def machines(self) -> tuple[CounterTrack, ...]:
        """The tracks of machines."""
        return tuple(track for track in self.tracks if not is_host(track.role))

    def bound_on(self, role: str) -> frozenset[int]:
        """Return the CPUs of a host that machines were bound to."""
        return self.bound.get(role, frozenset())

    def track(self, role: str) -> CounterTrack | None:
        """Return the track of ``role``, if it was recorded."""
        return next((track for track in self.tracks if track.role == role), None)


@dataclass
class _Found:
    cell: CellResult
    tracks: list[CounterTrack] = field(default_factory=list)


def monitors(runs: Iterable[RunData]) -> tuple[Monitor, ...]:
    """Return all cells that count and whose counters were sampled often enough."""
    found: list[Monitor] = []
    for run in runs:
        cells = {cell.cell: _Found(cell) for cell in run.cells if cell.status == "ok"}
        for entry in run.series:
            if entry.name == SERIES and entry.cell in cells:
                track = _read(
                    entry, cells[entry.cell].cell.facts.get("origins_ns", {}).get(entry.role)
                )
                if track is not None:
                    cells[entry.cell].tracks.append(track)
        placed = _placed(run)
        found += [
            _monitor(each, run.emulated_arms, placed) for each in cells.values() if each.tracks
        ]
    return tuple(found)


def _placed(run: RunData) -> dict[tuple[int, str, str], list[Mapping[str, Any]]]:
    """Return the placements of each batch's machines, by block, arm and scenario."""
    found: dict[tuple[int, str, str], list[Mapping[str, Any]]] = {}
    for machine in run.machines:
        key = (machine.block, machine.arm, machine.scenario)
        found.setdefault(key, []).append(machine.placement)
    return found


def _monitor(
    found: _Found,
    emulated: frozenset[str],
    placed: Mapping[tuple[int, str, str], list[Mapping[str, Any]]],
) -> Monitor:
    cell = found.cell
    places = placed.get((cell.block, cell.arm, cell.scenario), [])
    roles = [track.role for track in found.tracks if is_host(track.role)]
    bound = {
        role: bound_cpus(each for each in places if each.get("host", "") == host_named(role))
        for role in roles
    }
    return Monitor(
        run=cell.run,
        cell=cell.cell,
        block=cell.block,
        arm=cell.arm,
        scenario=cell.scenario,
        workload=cell.workload,
        parameters=cell.parameters,
        emulated=cell.arm in emulated,
        tracks=tuple(_grouped(track, bound.get(track.role, frozenset())) for track in found.tracks),
        phases=phases_of(cell.facts),
        bound=bound,
        own={
            str(place.get("role")): cpus
            for place in places
            if place.get("sees_host_cpus") and (cpus := kept_cpus(place))
        },
    )


def _grouped(track: CounterTrack, bound: frozenset[int]) -> CounterTrack:
    """Return a host's track with separate shares for CPUs that machines are bound to and others."""
    mine, others = split_by_binding(track.cores, bound)
    if not is_host(track.role) or not mine or not others:
        return track
    groups = {
        f"{group}-{state}": values
        for group, cores in (("bound", mine), ("others", others))
        for state, values in mean_of_cores(cores).items()
    }
    return replace(track, values={**track.values, **groups})


def phases_of(facts: CellFacts) -> tuple[Phase, ...]:
    """Return the phases that a cell's facts list; empty if they list none."""
    return tuple(
        Phase(each["name"], float(each["begin_s"]), float(each["end_s"]))
        for each in facts.get("phases", ())
    )


def missing_host(cell: CellResult) -> str:
    """Return why a cell lacks its host's counters; empty if it has them, or none were due."""
    return cell.facts.get("host_counters", {}).get("reason") or ""


def _read(entry: SeriesEntry, origin_ns: int | None) -> CounterTrack | None:
    try:
        table = read_series(entry)
        with understood(entry.path):
            columns = {name: floats(column) for name, column in table.items()}
            return track_of(entry.role, columns, origin_ns)
    except UnreadableSeries:
        return None


def track_of(
    role: str, columns: Mapping[str, Column], origin_ns: int | None = None
) -> CounterTrack | None:
    """Return the rates between samples of counters; None with too few samples.

    Args:
        role: The role of the counted machine or host.
        columns: ``time_ns`` and counters as the agent names them, one value a sample.
        origin_ns: The cell's begin on that clock; intervals that ended before it are left out.
    """
    time = columns.get("time_ns")
    if time is None or len(time) < LEAST_SAMPLES:
        return None
    keep = np.concatenate(([True], np.diff(time) > 0))
    clean = {name: values[keep] for name, values in columns.items()}
    seconds = np.diff(clean["time_ns"]) / 1e9
    if len(seconds) < LEAST_SAMPLES - 1:
        return None
    values = {**_cpu(clean), **_disks(clean, seconds), **_network(clean, seconds)}
    begin_ns = clean["time_ns"][0] if origin_ns is None else float(origin_ns)
    ends = (clean["time_ns"][1:] - begin_ns) / 1e9
    kept = ends > 0
    if not kept.any():
        return None
    return CounterTrack(
        role=role,
        time_s=tuple(ends[kept].tolist()),
        values={name: tuple(values[name][kept].tolist()) for name in QUANTITIES if name in values},
        cores=cores_of(clean, kept),
    )


def _cpu(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {f"cpu-{state}": share for state, share in shares(columns).items()}


def _disks(columns: Mapping[str, Column], seconds: Column) -> dict[str, Column]:
    disks = whole_disks(
        name.removesuffix(".io_ms")
        for name in columns
        if name.startswith("disk.") and name.endswith(".io_ms")
    )
    if not disks:
        return {}

    def rate(field_name: str) -> Column:
        return _sum(columns, [f"{disk}.{field_name}" for disk in disks]) / seconds

    busy = np.max([grown(columns[f"{disk}.io_ms"]) for disk in disks], axis=0) / 1e3 / seconds
    return {
        "disk-read": rate("sectors_read") * SECTOR,
        "disk-written": rate("sectors_written") * SECTOR,
        "disk-busy": np.minimum(busy, 1.0),
        "disk-merged": rate("reads_merged") + rate("writes_merged"),
        "disk-queue": rate("weighted_ms") / 1e3,
    }


def whole_disks(names: Iterable[str]) -> list[str]:
    """Return the disks among ``names``: no partitions, and nothing that only maps other disks."""
    known = sorted(name for name in names if not re.search(r"\.(dm-|md|zram)\d+$", name))
    return [
        name
        for name in known
        if not any(re.fullmatch(rf"{re.escape(disk)}p?\d+", name) for disk in known)
    ]


def _network(columns: Mapping[str, Column], seconds: Column) -> dict[str, Column]:
    def of(suffix: str) -> list[str]:
        return [
            name
            for name in columns
            if name.startswith("net.") and name.endswith(suffix) and not _OTHER_END.match(name)
        ]

    found: dict[str, Column] = {}
    for way, end in (("received", "rx"), ("sent", "tx")):
        if volumes := of(f".{end}_bytes"):
            found[f"net-{way}"] = _sum(columns, volumes) / seconds
        if packets := of(f".{end}_packets"):
            found[f"net-packets-{way}"] = _sum(columns, packets) / seconds
    for size, (volume, number) in SIZES.items():
        if volume in found and number in found:
            of_one = np.zeros(len(seconds))
            found[size] = np.divide(found[volume], found[number], of_one, where=found[number] > 0)
    return found


def _sum(columns: Mapping[str, Column], names: Sequence[str]) -> Column:
    length = len(columns["time_ns"]) - 1
    return sum((grown(columns[name]) for name in names if name in columns), start=np.zeros(length))
