"""The verdicts of `make torture` are right: they are tested here, on events of known runs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torture.__main__ import drawn, torture
from torture.faults import FAULTS
from torture.judging import (
    Verdict,
    lost_cells,
    measured_through,
    open_cells,
    reports_death,
    spoilt_cells,
    unreasoned,
)
from torture.table import between_marks, table

Event = dict[str, Any]


def started(cell: str, machine: str = "m") -> Event:
    return {"type": "cell_started", "cell": cell, "machines": {"subject": machine}}


def finished(cell: str, status: str = "ok", reason: str = "", *, transient: bool = False) -> Event:
    return {
        "type": "cell_finished", "cell": cell, "status": status, "reason": reason,
        "transient": transient,
    }  # fmt: skip


@given(st.lists(st.sampled_from(["ok", "failed", "withheld"]), max_size=6), st.integers(0, 3))
def test_a_cell_is_lost_only_if_it_never_ended(statuses: list[str], missing: int) -> None:
    events = [
        event
        for number, status in enumerate(statuses)
        for event in (started(str(number)), finished(str(number), status, "why"))
    ]
    assert bool(lost_cells(events, len(statuses) + missing)) == bool(missing)
    assert len(spoilt_cells(events)) == sum(status != "ok" for status in statuses)
    assert not unreasoned(events)
    assert not open_cells(events)


def test_cells_measured_again_are_lost_unless_the_fault_was_transient() -> None:
    again = [started("a"), finished("a"), started("a"), finished("a")]
    assert lost_cells(again, 1) == ["a was measured again"]
    passing = [started("a"), finished("a", "failed", "x", transient=True), *again[:2]]
    assert lost_cells(passing, 1) == []


def test_a_failure_without_a_reason_and_a_death_are_seen() -> None:
    assert unreasoned([finished("a", "failed")]) == ["a failed without a reason"]
    assert not reports_death([finished("a"), {"type": "machine_stopped", "expected": True}])
    assert reports_death([{"type": "machine_stopped", "expected": False}])
    assert reports_death([finished("a", "failed", "x")])
    assert open_cells([started("a", "m1"), started("b", "m2"), finished("b")], "m1") == ["a"]


def test_a_stop_counts_only_if_the_work_lasted_through_it() -> None:
    assert measured_through({"status": "ok", "measured_s": 4.5}, 3.0)
    assert not measured_through({"status": "ok", "measured_s": 0.03}, 3.0)
    assert not measured_through({"status": "withheld", "measured_s": 4.5}, 3.0)
    assert not measured_through(None, 3.0)


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_faults_are_drawn_alike_from_a_seed_and_each_kind_as_often(seed: int, number: int) -> None:
    found = drawn(seed, number)
    assert found == drawn(seed, number)
    counts = Counter(fault for fault, _ in found)
    assert sum(counts.values()) == number
    assert max(counts.values()) - min(counts.get(fault, 0) for fault in FAULTS) <= 1
    assert {fault for fault, _ in drawn(seed, number, ["disk full"])} == {"disk full"}


def test_the_table_counts_what_went_wrong() -> None:
    bad = Verdict(
        "QEMU killed", 1, ("a",), ("b: failed: x",), ("process 1",), ("nothing reported",)
    )
    good = Verdict("QEMU killed", 2, (), (), (), ())
    text = table([bad, good], 7, 120.0)
    assert "| QEMU killed | 2 | 1 | 1 | 1 | 1 of 2 |" in text
    assert "2 faults in 2 minutes, seed 7." in text
    page = between_marks("a\n<!-- torture -->\nbefore\n<!-- end -->\nb", text)
    assert "before" not in page
    assert page.startswith("a\n")
    assert page.endswith("\nb")
    with pytest.raises(ValueError, match="the page has no"):
        between_marks("no marks", text)


@pytest.mark.acceptance
@pytest.mark.guest
@pytest.mark.container
@pytest.mark.skipif(os.geteuid() != 0, reason="containers and disks need root")
@pytest.mark.parametrize("fault", ["Tare killed", "QEMU killed", "disk full"])
def test_a_disturbed_run_loses_nothing(fault: str, tmp_path: Path) -> None:
    verdict = torture(fault, 1, tmp_path)
    assert verdict.well, verdict
