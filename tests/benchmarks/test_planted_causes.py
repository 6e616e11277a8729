"""Planted causes: cells become a run, the analysis decomposes it, and a table says yes or no."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.planted_causes import CAUSES, PLAIN, PLANTED, decomposed, table, written
from tare.analysis.topics.exits import DELAY, WAITING

NPF, CPUID = 0x400, 0x72
WALL = 2.0


def facts(exits: dict[int, float], *, busy: float = 1.0, delay: float = 0.0) -> dict[str, Any]:
    """Return a cell's facts: shares of the time in exits, on the CPU, and ready without one."""
    return {
        "host_cost": {
            "wall_s": WALL,
            "cpu_s": busy * WALL,
            "vcpu_cpu_s": busy * WALL,
            "vcpu_run_delay_s": delay * WALL,
        },
        "probes": {
            "exits": {
                "vcpus": 1,
                "seconds": WALL,
                "recorded_s": WALL,
                "exits": [
                    {"vcpu": 0, "isa": "svm", "reason": code, "count": 100, "seconds": part * WALL}
                    for code, part in exits.items()
                ],
            }
        },
    }


@pytest.mark.parametrize(
    ("name", "part", "planted", "found", "within"),
    [
        ("device", "exits NPF", facts({CPUID: 0.2, NPF: 0.5}), 1.0, "yes"),
        ("device", "exits NPF", facts({CPUID: 0.2, NPF: 0.4}), 0.8, "no"),
        ("hog", DELAY, facts({CPUID: 0.2}, busy=0.5, delay=0.5), 1.0, "yes"),
        ("iothread", WAITING, facts({CPUID: 0.2}, busy=0.5), 1.0, "yes"),
    ],
)
def test_a_planted_cause_is_in_the_table_with_what_was_found(
    tmp_path: Path, name: str, part: str, planted: dict[str, Any], found: float, within: str
) -> None:
    # The plain cells do twice as much; a CPUID takes as long in both.
    cells = {
        PLAIN: [(1000.0, facts({CPUID: 0.4}))] * 3,
        PLANTED: [(500.0, planted)] * 3,
    }
    whole = decomposed(written(tmp_path / "run", cells))
    assert whole.added_s == pytest.approx(1e-3)
    parts = {each.name: whole.share(each.seconds) for each in whole.buckets}
    assert part in CAUSES[name].parts
    assert parts[part] == pytest.approx(found, abs=0.01)
    line = table({name: whole}).splitlines()[-1]
    assert line.startswith(f"| {CAUSES[name].name} |")
    assert line.endswith(f"| {within} |")
