"""Caveats before two runs are compared: different hosts, and arms that one of them lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.analysis_runs import ARMS, run
from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import tare
from tare.analysis.model import Comparison
from tare.events import CellFinished, Event
from tare.report.compare.run_doubts import doubts_of

HOST = {"name": "one", "machine": "x86_64", "cpus": 2, "memory_bytes": 25_276_502_016}


def on(comparison: Comparison, host: dict[str, Any]) -> Comparison:
    return replace(comparison, runs=tuple(replace(run, host=host) for run in comparison.runs))


@pytest.mark.parametrize(
    ("host", "other"),
    [
        (HOST, False),
        ({**HOST, "memory_bytes": 25_276_510_208}, False),
        ({**HOST, "name": "two"}, True),
        ({**HOST, "cpus": 4}, True),
        ({**HOST, "memory_bytes": 2 * 25_276_510_208}, True),
    ],
)
def test_runs_on_different_hosts_are_reported_as_such(host: dict[str, Any], other: bool) -> None:
    """An effect that differs from host to host looks like a change, which no interval covers."""
    caveats = " ".join(doubts_of(on(run(1), HOST), on(run(2), host)))
    assert ("made on different hosts" in caveats) is other


def test_results_that_an_arm_lost_between_two_runs_are_reported(tmp_path: Path) -> None:
    """All its cells failed in the second run, so a table of common results would not show it."""

    def dead(event: Event) -> Event:
        if isinstance(event, CellFinished) and "/other/" in event.cell:
            return event.model_copy(update={"status": "failed", "reason": "no boot"})
        return event

    arms = {**ARMS, "other": "qemu"}
    metric = SimulatedMetric("latency", dict.fromkeys(arms, 1.0), workload="switch")
    for name in ("before", "after"):
        events = events_of(SimulatedRun([metric], arms=arms, emulated=frozenset(), run=name))
        if name == "after":
            events = [dead(event) for event in events]
        write_run(tmp_path / name, events)
    caveat = "The first run alone has 1 headline result of other: how these changed is not known."
    folders, page = (tmp_path / "before", tmp_path / "after"), tmp_path / "page.html"
    done = tare("compare", *folders)
    assert f"Note: {caveat}" in " ".join(done.stdout.split()), done.stderr
    done = tare("compare", *folders, "--html", page, "--gate", "switch latency of vm < +50 %")
    assert done.returncode == 0, done.stderr
    assert f"tare: note: {caveat}" in done.stderr
    assert caveat in page.read_text()
