"""Caches and memory bus by counters and the check next to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.analysis_observed import observed_as
from references.references_run import BLOCKS, write_realtime_run
from report.report_page_reader import read
from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.compare import compare
from tare.analysis.topics.hardware import LINE_BYTES, counted
from tare.analysis.topics.interference import memory_bus
from tare.events.cell_facts import CellFacts, HardwareCounts
from tare.events.results import FinishedCell, Observation
from tare.report import build_report
from tare.report.page.data import ReportData
from tare.report.sections.memory_bus import MemoryBus

OTHERS = {"load": "cpu-load", "count": "fill", "cpus": "any", "parameters": {}}
SCENARIOS = {
    "alone": {"subject": {"cpus": "any"}, "neighbours": []},
    "calculating": {"subject": {"cpus": "any"}, "neighbours": [OTHERS]},
    "copying": {
        "subject": {"cpus": "any"},
        "neighbours": [{**OTHERS, "load": "memory-load"}],
    },
    "elsewhere": {
        "subject": {"cpus": "pinned"},
        "neighbours": [{**OTHERS, "load": "memory-load", "cpus": "other"}],
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    data = load_run(write_realtime_run(tmp_path_factory.mktemp("run"), SCENARIOS))

    def headline(result: object, seen: Observation) -> Observation:
        slower = 3.0 if getattr(result, "scenario", "") == "copying" else 1.0
        return Observation(seen.role, seen.metric._replace(headline=True), seen.value * slower)

    return replace(data, counted=observed_as(data, headline))


def with_counters(
    run: RunData,
    counts: Any,
    moved: Any = None,
    by_host: Any = None,
) -> RunData:
    def with_facts(done: FinishedCell) -> FinishedCell:
        facts: CellFacts = {**done.result.facts, "hardware": counts}
        if moved is not None:
            facts["host_memory"] = moved
        if by_host is not None:
            facts["host_hardware"] = by_host
        return replace(done, result=replace(done.result, facts=facts))

    return replace(run, counted=tuple(map(with_facts, run.counted)))


def test_copying_neighbours_are_held_against_calculating_ones_in_the_same_places(
    run: RunData,
) -> None:
    found = memory_bus([run], ("bare", "vm"), 0.95)
    assert {(slowdown.key.scenario, slowdown.quiet) for slowdown in found} == {
        ("copying", "calculating")
    }
    assert all(slowdown.slowdown == pytest.approx(3.0) and slowdown.decided for slowdown in found)
    assert {slowdown.blocks for slowdown in found} == {BLOCKS}


def test_without_a_compute_scenario_there_is_no_check(tmp_path: Path) -> None:
    lonely = {name: SCENARIOS[name] for name in ("alone", "copying", "elsewhere")}
    data = load_run(write_realtime_run(tmp_path / "run", lonely))
    assert memory_bus([data], ("bare", "vm"), 0.95) == ()
    assert memory_bus([], ("bare",), 0.95) == ()


def test_misses_are_lines_from_memory(run: RunData) -> None:
    counts = {
        "seconds": 2.0,
        "cycles": 6e9,
        "instructions": 3e9,
        "llc_references": 4e7,
        "llc_misses": 1e7,
    }
    (one, *_) = counted([with_counters(run, counts)])
    assert one.misses_per_s == pytest.approx(5e6)
    assert one.bandwidth == pytest.approx(5e6 * LINE_BYTES)
    assert one.miss_share == pytest.approx(0.25)
    assert one.per_cycle == pytest.approx(0.5)


@given(
    st.dictionaries(
        st.sampled_from(["seconds", "cycles", "instructions", "llc_references", "llc_misses"]),
        st.floats(0, 1e15),
    )
)
def test_missing_counts_are_not_zero(counts: HardwareCounts) -> None:
    from tare.analysis.topics.hardware import _mean

    value = _mean([counts], "llc_misses", "seconds")
    known = "llc_misses" in counts and (counts.get("seconds") or 0) > 0
    assert (value is not None) == known


def test_the_report_names_missing_counters_and_shows_the_check(
    run: RunData, tmp_path: Path
) -> None:
    without = with_counters(run, {"seconds": 2.0, "missing": "cycles: No such file or directory"})
    comparison = compare([without])
    page = read(build_report([without], comparison, tmp_path).read_text(encoding="utf-8"))
    assert "counters could not be read (cycles: No such file or directory)" in page.words
    assert "is 3.00× of its value in calculating" in page.words
    assert (tmp_path / "tables" / "memory-bus.csv").is_file()
    assert not (tmp_path / "tables" / "counters.csv").exists()


def test_the_report_shows_what_was_counted(run: RunData) -> None:
    counts: dict[str, object] = {"seconds": 1.0, "llc_references": 4e6, "llc_misses": 1e6}
    counting = with_counters(run, counts)
    part = MemoryBus().data(ReportData([counting], compare([counting])))
    assert part is not None and part.counted is not None
    texts = [cell.text for cell in part.counted.rows[0]]
    assert "64.0 MB/s" in texts and "25 %" in texts
    assert not any("could not be read" in line for line in part.lead)
    assert not any("is not counted" in line for line in part.lead)


def test_host_memory_traffic_is_shown_or_the_reason(run: RunData) -> None:
    without = {"seconds": 1.0, "missing": "cycles: No such file or directory"}
    counting = with_counters(run, without, {"bytes": 9e9, "seconds": 3.0})
    part = MemoryBus().data(ReportData([counting], compare([counting])))
    # A guest without counters on a host with them.
    assert part is not None and part.counted is not None
    assert "3.00 GB/s" in [cell.text for cell in part.counted.rows[0]]
    lacking = with_counters(run, without, {"missing": "the host has no resctrl"})
    part = MemoryBus().data(ReportData([lacking], compare([lacking])))
    assert part is not None and part.counted is None
    (line,) = [line for line in part.lead if "resctrl" in line]
    assert line == (
        "The traffic of the host’s memory during bare, bare-again and vm is not counted: "
        "the host has no resctrl."
    )


def test_the_host_counts_for_a_guest_without_counters_and_for_its_neighbours(
    run: RunData,
) -> None:
    without = {"seconds": 1.0, "missing": "cycles: No such file or directory"}
    by_host = {
        "subject": {"seconds": 2.0, "llc_misses": 6e6},
        "neighbour-1": {"seconds": 2.0, "llc_misses": 8e6},
        "neighbour-2": {"seconds": 2.0, "llc_misses": 1e6},
    }
    counting = with_counters(run, without, by_host=by_host)
    (one, *_) = counted([counting])
    assert (one.by_host, one.others, one.by_host_missing) == (3e6, 4.5e6, "")
    part = MemoryBus().data(ReportData([counting], compare([counting])))
    assert part is not None and part.counted is not None
    texts = [cell.text for cell in part.counted.rows[0]]
    assert "3,000,000/s" in texts and "4,500,000/s" in texts


def test_neighbours_of_which_one_was_not_counted_have_no_sum(run: RunData) -> None:
    by_host = {
        "subject": {"seconds": 2.0, "llc_misses": 6e6},
        "neighbour-1": {"seconds": 2.0, "llc_misses": 8e6},
        "neighbour-2": {"missing": "its vCPUs are not threads"},
    }
    counting = with_counters(run, {"seconds": 1.0}, by_host=by_host)
    (one, *_) = counted([counting])
    assert (one.by_host, one.others) == (3e6, None)
    part = MemoryBus().data(ReportData([counting], compare([counting])))
    assert part is not None
    assert (
        "The host’s processor counted nothing for the machines of bare, bare-again and vm: "
        "its vCPUs are not threads."
    ) in part.lead
