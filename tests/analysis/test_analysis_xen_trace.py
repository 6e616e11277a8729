"""A recording of real Xen, with a neighbour of known pattern: the neighbour is found again.

``tests/fixtures/xentrace/pv-hog`` is what `tests/lab/test_lab_xen_schedule.py` recorded in a lab of
Xen 4.17: a PV guest that never rests, and a neighbour on its CPU that was asked to take it for
20 ms, 60 times. One in twenty of the records that a vCPU keeps running was kept, as they add
nothing here; of the gaps that the guest saw, those from 0.2 ms on.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tare.analysis.topics.host_track import Cause
from tare.analysis.topics.spike_cells import SpikeCell, match_cell
from tare.platforms.xen.trace.records import Runstate, RunstateChange, records
from tare.platforms.xen.trace.schedule import domain_of, schedule
from tare.run.probes.xen_trace import watched

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "xentrace"
CULPRIT = Cause("preempted", "neighbour-1 (vCPU 0)")


@pytest.fixture(scope="module")
def reported() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / "pv-hog.json").read_text())
    return read


@pytest.fixture(scope="module")
def raw() -> bytes:
    return gzip.decompress((FOLDER / "pv-hog.bin.gz").read_bytes())


@pytest.fixture(scope="module")
def cell(reported: dict[str, Any], raw: bytes) -> SpikeCell:
    facts = reported["facts"]
    taken = schedule(records(raw), facts["tick"]["tsc_hz"], facts["origin_ticks"])
    assert taken.lost == 0
    whose = dict.fromkeys(("run", "cell", "arm", "scenario", "workload", "parameters"), "")
    gaps = {name: np.array(values) for name, values in reported["gaps"].items()}
    columns = watched(taken, tuple(facts["cpus"]))
    return match_cell({**whose, "block": 1, "emulated": True}, facts, columns, gaps)


@pytest.fixture(scope="module")
def turns(reported: dict[str, Any], raw: bytes, cell: SpikeCell) -> list[tuple[float, float]]:
    """When the neighbour had the CPU, as Xen noted it, within the measurement."""
    facts = reported["facts"]
    role = next(int(who) for who, is_ in facts["threads"].items() if is_["role"] == "neighbour-1")
    domain, _ = domain_of(role)
    ns = 1e9 / facts["tick"]["tsc_hz"]
    last_ns = cell.first_ns + facts["tick"]["seconds"] * 1e9
    began, found = 0.0, []
    for change in records(raw):
        if (
            isinstance(change, RunstateChange)
            and change.domain == domain
            and change.was != change.now
        ):
            at = (change.ticks - facts["origin_ticks"]) * ns
            if change.now == Runstate.RUNNING:
                began = at
            elif change.was == Runstate.RUNNING and began > cell.first_ns and at < last_ns:
                found.append((began, at))
    return found


def theirs(cell: SpikeCell) -> dict[int, int]:
    return {
        spike.number: sum(taken for cause, taken in spike.parts if cause == CULPRIT)
        for spike in cell.spikes
    }


def test_nearly_all_gaps_that_were_injected_are_blamed_on_the_right_domain(
    reported: dict[str, Any], cell: SpikeCell, turns: list[tuple[float, float]]
) -> None:
    blamed, hog = theirs(cell), reported["hog"]
    long = [(begin, end) for begin, end in turns if end - begin > hog["length_ns"] / 2]
    right = sum(
        any(
            spike.begin_ns <= (begin + end) / 2 <= spike.end_ns
            and blamed[spike.number] >= (end - begin) / 2
            for spike in cell.spikes
        )
        for begin, end in long
    )
    assert len(long) >= 0.95 * hog["count"]
    assert right >= 0.95 * len(long)


def test_time_attributed_to_neighbours_is_within_five_per_cent_of_the_injected(
    cell: SpikeCell, turns: list[tuple[float, float]]
) -> None:
    injected = sum(end - begin for begin, end in turns)
    assert abs(sum(theirs(cell).values()) / injected - 1) <= 0.05


def test_time_that_the_emulation_took_is_not_attributed_to_neighbours(cell: SpikeCell) -> None:
    # Other work of its computer stopped the lab's own CPUs too: Xen did not see that.
    kinds = {cause.kind for spike in cell.spikes for cause, _ in spike.parts}
    assert "unexplained" in kinds
    assert kinds <= {"unexplained", "preempted", "guest's own tick", "platform", "wake-up"}
