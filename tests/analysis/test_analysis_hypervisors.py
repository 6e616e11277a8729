"""What each platform's hypervisor counts reaches the report and the exports, in its own words."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, some, write_run
from tare.analysis import compare_runs, export_observations, load_run, tidy_frame
from tare.analysis.data.rundata import RunData
from tare.analysis.topics.hypervisors import ReportedFigure, counted_by_hypervisors
from tare.events import CellFinished, Event
from tare.events.hypervisor import HypervisorFigure, HypervisorFigures
from tare.platforms.hyperv.figures import Reading, waits
from tare.platforms.proxmox.vm import minutes_within
from tare.platforms.vsphere.figures import COUNTERS, intervals_within
from tare.platforms.xenserver.vm import rows_within
from tare.report.page.build import build_report
from tare.report.sections.hypervisors import NOT_SHOWN

T0 = 1_800_000_000.0
ARMS = {
    "bare": "bare",
    "esxi": "vsphere",
    "hv": "hyperv",
    "xcp": "xenserver",
    "pve": "proxmox",
    "new": "a-platform-of-somebody-s",
}


def of_esxi(block: int) -> HypervisorFigures:
    """Answer as ESXi: two whole intervals of 20 s, with 0.1 s and 0.3 s for each block."""
    ends = [datetime.datetime.fromtimestamp(T0 + at, datetime.UTC) for at in (20, 40)]
    answer = SimpleNamespace(
        sampleInfo=[SimpleNamespace(timestamp=end, interval=20) for end in ends],
        value=[SimpleNamespace(id=SimpleNamespace(counterId=1), value=[100 * block, 300 * block])],
    )
    return some(intervals_within(answer, {1: COUNTERS["cpu", "ready", "summation"]}, T0, T0 + 40))


def of_hyperv(block: int) -> HypervisorFigures:
    """As Hyper-V's counters grow: 500 dispatches that waited 2 µs for each block."""
    first = Reading(T0, T0 + 0.1, {0: (0, 0)})
    last = Reading(T0 + 9, T0 + 9.1, {0: (500 * 2000 * block, 500)})
    return some(waits([first, last], T0 + 1, T0 + 8))


def of_xen(block: int) -> HypervisorFigures:
    """As ``rrd_updates`` has it: a tenth of the time in contention for each block."""
    answer = {
        "meta": {"step": 5, "legend": ["AVERAGE:vm:u:runstate_full_contention"]},
        "data": [{"t": T0 + 10, "values": [0.1 * block]}],
    }
    return some(rows_within(answer, "u", T0, T0 + 20))


def of_proxmox(block: int) -> HypervisorFigures:
    """As ``rrddata`` has it: so many KiB a second for each block."""
    return some(minutes_within([{"time": T0 + 60, "netin": 1024.0 * block}], T0, T0 + 120))


def of_a_new_one(block: int) -> HypervisorFigures:
    """A platform that Tare does not know."""
    figure = HypervisorFigure("naps", "how often it fell asleep", "1/s", (2.0 * block,), (0,))
    return HypervisorFigures("Somebody's own account", 1.0, "vCPU", (figure,))


FIGURES = {"esxi": of_esxi, "hv": of_hyperv, "xcp": of_xen, "pve": of_proxmox, "new": of_a_new_one}
MEDIANS = {
    "cpu-ready": (0.02, "s/s", 20.0),
    "wait-per-dispatch": (4e-6, "s", 9.1),
    "runstate-full-contention": (0.2, "1", 5.0),
    "net-in": (2048.0, "B/s", 60.0),
    "naps": (4.0, "1/s", 1.0),
}
"""The medians of three blocks: those of the second."""


def events(arms: Mapping[str, str] = ARMS) -> list[Event]:
    """Return a run without figures of ESXi in block 3's cell, which was too short."""
    metric = SimulatedMetric("latency", dict.fromkeys(arms, 1.0), workload="switch")
    simulated = SimulatedRun([metric], arms=arms, emulated=frozenset({"pve"}), blocks=3)
    return [_with_figures(event) for event in events_of(simulated)]


def _with_figures(event: Event) -> Event:
    if not isinstance(event, CellFinished):
        return event
    block, arm = int(event.cell[1:4]), event.cell.split("/")[1]
    if arm not in FIGURES:
        return event
    if arm == "esxi" and block != 2:
        # One that was withheld, and one that was too short for an interval.
        return event.model_copy(update={"status": "withheld" if block == 1 else "ok"})
    return event.model_copy(update={"facts": {"hypervisor": FIGURES[arm](block).fact()}})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return load_run(write_run(tmp_path_factory.mktemp("hypervisors") / "run", events()))


def test_every_arm_has_its_own_figures_and_the_others_are_not_shown(run: RunData) -> None:
    rows = counted_by_hypervisors([run])
    assert [row.arm for row in rows] == list(ARMS)
    bare, *others = rows
    assert bare == ReportedFigure("alone", "bare", False, 3)
    assert [row.name for row in others] == list(MEDIANS)
    for row in others:
        value, unit, resolution_s = MEDIANS[row.name]
        assert row.value == pytest.approx(value)
        assert (row.unit, row.resolution_s) == (unit, resolution_s)
    assert [(row.having, row.cells) for row in others] == [(1, 2), (3, 3), (3, 3), (3, 3), (3, 3)]
    assert [row.emulated for row in others] == [False, False, False, True, False]
    assert [row.each for row in others] == ["interval", "vCPU", "interval", "interval", "vCPU"]


def test_run_without_hypervisor_figures_has_none(tmp_path: Path) -> None:
    silent = load_run(write_run(tmp_path / "run", events({"bare": "bare", "kvm": "qemu"})))
    assert counted_by_hypervisors([silent]) == ()
    page = build_report([silent], compare_runs([silent]), tmp_path / "out").read_text()
    assert "What the hypervisor counted" not in page
    assert not (tmp_path / "out" / "tables" / "hypervisor.csv").exists()
    assert set(tidy_frame(silent)["role"]) == {"subject"}


def test_exports_hold_a_row_for_each_figure_of_each_cell(run: RunData) -> None:
    frame = tidy_frame(run)
    counted = frame.filter(frame["role"] == "hypervisor")
    assert counted.height == 1 + 4 * 3
    (ready,) = counted.filter(counted["metric"] == "cpu-ready").to_dicts()
    assert ready["value"] == pytest.approx(0.02) and ready["unit"] == "s/s"
    assert (ready["block"], ready["arm"], ready["platform"]) == (2, "esxi", "vsphere")
    assert (ready["better"], ready["kind"], ready["headline"]) == ("neither", "typical", False)
    assert ready["resolution_s"] == 20 and ready["source"].startswith("ESXi")
    waits_us = counted.filter(counted["metric"] == "wait-per-dispatch")["value"] * 1e6
    assert waits_us.to_list() == pytest.approx([2.0, 4.0, 6.0])
    measured = frame.filter(frame["role"] == "subject")
    assert set(measured["source"]) == set(measured["resolution_s"]) == {None}
    (withheld,) = frame.filter(frame["status"] == "withheld").to_dicts()
    assert withheld["value"] is None and withheld["role"] is None
    rows = list(csv.DictReader(io.StringIO(export_observations(run, "csv").decode())))
    assert sum(row["role"] == "hypervisor" for row in rows) == counted.height


def test_the_report_shows_them_and_says_what_they_are_not(run: RunData, tmp_path: Path) -> None:
    page = build_report([run], compare_runs([run]), tmp_path).read_text()
    _, found, section = page.partition("What the hypervisor counted</h2>")
    assert found
    section = section.partition("</section>")[0]
    for words in (
        "without interpolation",
        "20.0 ms/s",
        "4.00 µs",
        "2.05 kB/s",
        "how often it fell asleep",
        "1 of 2",
        "3 of 3",
        "pve (emulated)",
        "never a maximum",
    ):
        assert words in section, words
    # The bare machine has no hypervisor: neither its figure nor its value is shown, and no zero.
    (bare,) = [row for row in section.split("<tr") if ">bare<" in row]
    assert bare.count(NOT_SHOWN) == 2
    with (tmp_path / "tables" / "hypervisor.csv").open() as file:
        rows = {row["arm"]: row for row in csv.DictReader(file)}
    assert rows["bare"]["value"] == rows["bare"]["figure"] == ""
    assert float(rows["esxi"]["value"]) == pytest.approx(0.02)
    assert (rows["esxi"]["unit"], rows["esxi"]["cells_having"]) == ("s/s", "1")
