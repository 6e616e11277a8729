"""The section on causes says what took the time, and draws the worst gaps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tare.analysis.topics.host_track import Cause, Episode, Track
from tare.analysis.topics.spike_cells import SpikeCell, causes, explained, summed
from tare.analysis.topics.spikes import UNEXPLAINED, Matched, Spike
from tare.analysis.topics.stacks import CellStacks, Holder
from tare.events.stacks import SAME_KERNEL
from tare.report.figures.spikes import timeline_figure, worst_spikes
from tare.report.sections.spikes import (
    _first_of_each,
    _groups,
    _lead,
    _notes,
    causes_table,
    explained_table,
    stacks_table,
)

NEIGHBOUR = Cause("preempted", "neighbour-1 (cpu-load)")
TIMER = Cause("timer interrupt")


def cell_of(arm: str, *parts: tuple[Cause, int], **more: Any) -> SpikeCell:
    spikes, episodes, at = [], [], 1_000_000
    for number, (cause, length) in enumerate(parts):
        spikes.append(Spike(number, at, at + length + 68_000, length, ((cause, length),)))
        episodes.append(Episode(at + 10_000, at + 10_000 + length, cause))
        at += length + 5_000_000
    return SpikeCell(
        run="r",
        cell=f"b001/{arm}/contended/tick",
        block=1,
        arm=arm,
        scenario="contended",
        workload="tick",
        parameters="{}",
        emulated=arm == "qemu",
        matched=Matched(tuple(spikes), 0, 300, 0, None),
        track=Track(7, tuple(episodes), 10_000_000),
        clock_error_ns=150_000,
        **more,
    )


QEMU = cell_of("qemu", (NEIGHBOUR, 3_100_000), (TIMER, 20_000), (UNEXPLAINED, 80_000))
BARE = cell_of("bare", (TIMER, 9_000))


def test_causes_are_counted_and_summed_for_each_arm() -> None:
    table = causes_table(_groups([QEMU, BARE]))
    rows = {(row.group.arm, str(row.cause)): row for row in table.rows}
    worst = rows["qemu", "preempted by neighbour-1 (cpu-load)"]
    assert (worst.count, worst.total_s, worst.longest_s) == (1, 3.1e-3, 3.1e-3)
    assert rows["bare", "timer interrupt"].share == 1.0
    shown = table.shown()
    texts = [[cell.text for cell in row] for row in shown.rows]
    assert any("3.1 ms" in row and "96.9 %" in row for row in texts)
    assert any("qemu (emulated)" in row for row in texts)
    assert "preempted" in table.csv()


def test_a_summarised_cell_reports_the_same_from_its_longest_gap() -> None:
    many = cell_of("kvm", *[(TIMER, 9_000)] * 50, (NEIGHBOUR, 4_000_000), *[(UNEXPLAINED, 70)] * 50)
    cells = [QEMU, many, BARE, replace(BARE, matched=Matched((), 0, 20, 0, None))]
    brief = [summed(cell) for cell in cells]
    assert [len(cell.spikes) for cell in brief] == [1, 1, 1, 0]
    assert brief[1].track is not None
    assert [each.cause for each in brief[1].track.episodes] == [NEIGHBOUR]
    assert (explained(brief), causes(brief)) == (explained(cells), causes(cells))
    for drawn in (
        lambda c: causes_table(_groups(c)).csv(),
        lambda c: explained_table(_groups(c)).csv(),
        lambda c: timeline_figure(worst_spikes(c), name="t").spec,
        _lead,
        _notes,
    ):
        assert drawn(brief) == drawn(cells)
    absent = replace(QEMU, matched=None, reason="no tracefs")
    assert summed(absent) is absent


def test_the_share_explained_and_the_clocks_error_are_stated() -> None:
    (row,) = explained_table(_groups([QEMU])).shown().rows
    texts = [cell.text for cell in row]
    assert "97.5 %" in texts
    assert "66.7 %" in texts
    assert "300 ns" in texts
    assert "97.5%" in _lead([QEMU])


def test_missing_and_lost_recordings_are_reported_with_the_reason() -> None:
    absent = replace(QEMU, matched=None, reason="tracing the host's scheduler needs root")
    notes = " ".join(_notes([absent, absent, replace(BARE, lost_events=3, steal_s=0.5)]))
    assert "2 cells not recorded: tracing the host's scheduler needs root." in notes
    assert "lost 3 events" in notes
    assert "500 ms" in notes and "not known whether" not in notes
    unknown = " ".join(_notes([replace(BARE, steal_s=None), replace(BARE, steal_s=0.0), absent]))
    assert "In 1 cell it is not known whether a hypervisor below the host took time" in unknown
    assert "could not be recorded" in _lead([absent])
    quiet = replace(BARE, matched=Matched((), 0, 20, 0, None))
    assert _lead([quiet]) == "No gap was seen in 1 recorded cell."


def test_the_longest_gap_of_each_arm_is_drawn_the_longest_first() -> None:
    worst = worst_spikes([BARE, QEMU])
    assert [each.cell.arm for each in worst] == ["qemu", "bare"]
    figure = timeline_figure(worst, name="spikes-timeline")
    assert figure.emulated
    assert figure.panels == 2
    assert "3.1 ms lost, preempted by neighbour-1" in figure.description
    words = json.dumps(figure.spec.marks)
    assert "guest" in words
    assert "host" in words
    assert len(worst_spikes([QEMU], most=0)) == 0


def holder(side: str, what: str, longest_ns: int, *frames: str, seen: int = 1) -> Holder:
    return Holder(side, what, "cp", frames, 1, seen, longest_ns, NEIGHBOUR)  # type: ignore[arg-type]


def test_stacks_are_shown_by_arm_those_of_the_longest_gap_first() -> None:
    many = [holder("host", f"softirq S{number:02}", 20_000 + number) for number in range(12)]
    worst = holder("guest", "interrupt ahci", 3_100_000, *(f"f{place}" for place in range(6)))
    qemu = replace(QEMU, stacks=CellStacks((*many, worst), {"host": "no root"}, 3, 0.012))
    timer = holder("host", "timer interrupt", 12_000)
    bare = replace(BARE, stacks=CellStacks((timer,), {"guest": SAME_KERNEL}))
    table = stacks_table(_groups([qemu, bare]))
    assert len(table.rows) == 14
    assert "f0 < f1 < f2 < f3 < f4 < f5" in table.csv()
    shown = [
        [cell.text for cell in row] for row in table.shown(rows=_first_of_each(table.rows)).rows
    ]
    assert len(shown) == 8 + 1
    of_qemu = [row for row in shown if "qemu (emulated)" in row]
    assert "f0 < f1 < f2 < f3" in of_qemu[0] and "3.1 ms" in of_qemu[0] and "guest" in of_qemu[0]
    assert "not in the kernel" in of_qemu[1]
    notes = " ".join(_notes([qemu, bare]))
    assert "No kernel stacks of the host: no root." in notes
    assert "kernel of its own" not in notes
    assert "3 kernel stacks found no room" in notes
    assert "took at most 1.2 % of the watched CPUs’ time" in notes
