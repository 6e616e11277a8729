"""Progress of long cells, from the agent's report or from the CPU time on the host."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from deadlines import patient
from tare.errors import MachineFault
from tare.events import (
    BlockFinished,
    BlockStarted,
    Calibrated,
    CellFinished,
    CellStarted,
    Event,
    Fold,
    HostJoined,
    HostLost,
    Planned,
    PlatformChecked,
    Record,
    RunResumed,
    RunStarted,
)
from tare.run.cells.plausibility import require_possible
from tare.run.preflight.calibrating import judged
from tare.run.ui.progress import SILENCE_S, CurrentStep, ProgressView, Tally, step_lines
from tare.run.ui.progress_estimate import ALMOST, Watch, estimate_progress

EXPECTED = {"expected_s": 20.0, "sample_s": 68e-6, "unit": "samples/s", "timed": False}


class Machine:
    """A machine whose thread gets half of the CPU, a second at each look."""

    def __init__(self, threads: tuple[int, ...] = (7,), lost_after: int = 10**9) -> None:
        self.asked = 0
        self._threads = threads
        self._lost_after = lost_after

    async def measuring_threads(self) -> tuple[int, ...]:
        return self._threads

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        assert threads == self._threads
        self.asked += 1
        if self.asked > self._lost_after:
            raise MachineFault("gone")
        return 3.0 + self.asked


class ReportedProgress(list[tuple[float, Mapping[str, Any]]]):
    def __call__(self, done: float, fields: Mapping[str, Any]) -> None:
        self.append((done, fields))


async def until(reports: ReportedProgress, count: int) -> None:
    async with asyncio.timeout(patient(20)):
        while len(reports) < count:
            await asyncio.sleep(0.001)


async def test_the_agents_own_word_is_passed_on() -> None:
    reports, machine = ReportedProgress(), Machine()
    watch = Watch(machine, reports, 0.001)
    watch.take(0.0, {**EXPECTED, "live": True})
    watch.take(0.25, {"rate": 5.0, "left_s": 3.0})
    await asyncio.sleep(0.01)
    await watch.end()
    assert reports == [(0.0, {"left_s": 20.0}), (0.25, {"rate": 5.0, "left_s": 3.0})]
    assert machine.asked == 0


async def test_a_silent_agents_work_is_counted_by_its_cpu_time() -> None:
    reports, machine = ReportedProgress(), Machine()
    watch = Watch(machine, reports, 0.001)
    watch.take(0.0, {**EXPECTED, "live": False})
    await until(reports, 3)
    await watch.end()
    count = machine.asked
    # The first look is the beginning; each later one finds a second more of the twenty.
    assert [done for done, _ in reports[:3]] == [0.0, 1 / 20, 2 / 20]
    assert reports[1][1]["unit"] == "samples/s"
    assert reports[1][1]["rate"] > 0
    await asyncio.sleep(0.01)
    assert machine.asked == count


async def test_a_host_that_is_not_to_be_disturbed_is_not_asked_how_far_the_work_is() -> None:
    reports, machine = ReportedProgress(), Machine()
    watch = Watch(machine, reports, 0.001, polls=False)
    watch.take(0.0, {**EXPECTED, "live": False})
    await asyncio.sleep(0.01)
    await watch.end()
    assert reports == [(0.0, {"left_s": 20.0})]
    assert machine.asked == 0


@pytest.mark.parametrize("machine", [Machine(threads=()), Machine(lost_after=2)])
async def test_progress_that_cannot_be_counted_harms_nothing(machine: Machine) -> None:
    reports = ReportedProgress()
    watch = Watch(machine, reports, 0.001)
    watch.take(0.0, {**EXPECTED, "live": False})
    await asyncio.sleep(0.05)
    await watch.end()
    assert 1 <= len(reports) <= 2


@given(
    st.floats(0.1, 1e5), st.floats(0.001, 1e5), st.floats(0, 1e5), st.floats(0, 64), st.booleans()
)
def test_a_standing_never_claims_the_end(
    expected_s: float, elapsed_s: float, ran_s: float, share: float, timed: bool
) -> None:
    fields = {**EXPECTED, "timed": timed}
    done, reports = estimate_progress(fields, expected_s, elapsed_s, ran_s, share)
    assert 0 <= done <= ALMOST
    assert float(reports.get("left_s", 0.0)) >= 0
    assert float(reports["rate"]) >= 0


def test_half_of_the_cpu_takes_twice_as_long() -> None:
    done, reports = estimate_progress(EXPECTED, 20.0, 10.0, 5.0, 0.5)
    assert done == 0.25
    assert reports["left_s"] == 30.0
    assert reports["rate"] == pytest.approx(0.5 / 68e-6)
    done, reports = estimate_progress({**EXPECTED, "timed": True}, 20.0, 5.0, 2.5, 0.5)
    assert (done, reports["left_s"]) == (0.25, 15.0)


CELL = "b001/bare/pinned/tick[samples=50000000]"
STARTED = CellStarted(
    cell=CELL, block=1, arm="bare", scenario="pinned", workload="tick", parameters={}
)
BEGUN = RunStarted(
    run="r1", study={"title": "t"}, study_path="", study_sha256="", seed=1, host={}, versions={}
)


def plan_for(blocks: int, expected_block_s: float = 0.0, cells: int = 1) -> Planned:
    return Planned(blocks_most=blocks, cells_per_block=cells, expected_block_s=expected_block_s)


class Happening:
    """A run under way, by a clock of its own."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.fold = Fold()
        self.tally = Tally(self.fold, most=8, clock=lambda: self.now)
        self.output = io.StringIO()

    def view(self, **console: Any) -> ProgressView:
        return ProgressView(Console(file=self.output, width=200, **console), self.tally)

    def record(self, event: Event) -> Record:
        record = Record(seq=0, time=self.now, event=event)
        self.fold.take(record)
        return record

    def happen(self, *events: Event) -> None:
        for event in events:
            self.tally.take(self.record(event).event)


def test_a_long_cell_reports_once_a_minute_without_a_terminal() -> None:
    run = Happening()
    view = run.view()
    view.take(run.record(STARTED))
    for second in range(1, 200):
        run.now = float(second)
        fields = {"rate": 14690.4, "unit": "samples/s", "left_s": 3400.0 - second}
        view.progress(CELL, second / 3400, fields)
    lines = run.output.getvalue().splitlines()
    assert len(lines) == 199 // SILENCE_S
    assert "tick[samples=50000000] 2%, 14,690 samples/s, about 55 min 40 s left" in lines[0]


def joined(host: str) -> HostJoined:
    return HostJoined(
        host=host, worker="tcp://w", facts={}, versions={}, checked=(), cells_per_block=1, images={}
    )


def test_every_host_has_a_line_of_what_it_does() -> None:
    run = Happening()
    view = run.view()
    events: list[Event] = []
    for number, host in enumerate(("h1", "h2"), 1):
        events += [joined(host), BlockStarted(block=number, order=(), host=host)]
        cell = STARTED.model_copy(update={"cell": f"b{number:03}/bare/a/tick", "block": number})
        events.append(cell)
    for event in events:
        view.take(run.record(event))
    run.tally.progress("b001/bare/a/tick", 0.25, {"left_s": 30.0})
    run.tally.progress("b002/bare/a/tick", 0.5, {})
    assert run.tally.current_steps(9) == [
        "h1: bare / pinned: tick 25%, about 30 s left",
        "h2: bare / pinned: tick 50%",
    ]
    assert run.tally.cell_left_s == 30.0
    run.now = SILENCE_S
    view.progress("b001/bare/a/tick", 0.75, {})
    for event in (
        CellFinished(cell="b001/bare/a/tick", status="ok"),
        BlockFinished(block=1),
        HostLost(host="h2", reason="no worker was left for it", blocks=()),
    ):
        view.take(run.record(event))
    assert run.tally.current_steps(9) == ["h1: bare / pinned: tick"]
    assert run.output.getvalue().splitlines() == [
        "  ✓ h1 takes part",
        "  ✓ h2 takes part",
        "  … h1: bare / pinned: tick 75%",
        "  … h2: bare / pinned: tick 50%",
        "block 1 done on h1 in 1 min; about 3 min left",
        "h2 is left out from here on: no worker was left for it",
    ]


@pytest.mark.parametrize("height", [3, 10, 22, 23, 24, 40])
def test_every_host_is_shown_that_the_terminal_has_a_line_for(height: int) -> None:
    run = Happening()
    view = run.view(force_terminal=True, height=height)
    for number in range(1, 22):
        host = f"h{number:02}"
        # The first two of each three measure.
        events: list[Event] = [joined(host), BlockStarted(block=number, order=(), host=host)]
        if number % 3:
            cell = f"b{number:03}/bare/a/tick"
            events.append(STARTED.model_copy(update={"cell": cell, "block": number}))
        for event in events:
            run.happen(event)
    console = Console(width=200, height=height, file=io.StringIO())
    lines = console.render_lines(view._render(), pad=False)
    shown = ["".join(part.text for part in line).rstrip() for line in lines]
    assert shown[0].startswith("block 21/") and len(shown) <= height - 1
    own = 21 if height >= 23 else height - 3
    assert [line.split(":")[0] for line in shown[1 : own + 1]] == [
        f"h{number:02}" for number in range(1, own + 1)
    ]
    if own < 21:
        rest = range(own + 1, 22)
        measuring = sum(number % 3 > 0 for number in rest)
        words = "more hosts" if own else "hosts"
        ready = f"{len(rest) - measuring} getting ready"
        assert shown[own + 1 :] == [f"{len(rest)} {words}: {measuring} measuring, {ready}"]
    else:
        assert len(shown) == 22


def test_hosts_that_have_no_line_are_summed_up_by_what_they_do() -> None:
    hosts = {
        "h1": CurrentStep("bare: booting subject", stage="booting"),
        "h2": CurrentStep("bare: tick", stage="measuring"),
        "h3": CurrentStep("bare: tick", stage="between two cells"),
        "h4": CurrentStep(),
    }
    each = "1 measuring, 1 booting, 1 between two cells, 1 getting ready"
    assert step_lines(hosts, 1) == [f"4 hosts: {each}"]
    assert step_lines(hosts, 4)[3] == "h4: getting ready"


def test_a_plan_that_grows_as_hosts_join_repeats_no_note() -> None:
    run = Happening()
    view = run.view()
    for notes in (("A plan.",), ("A plan.", "h2 differs.")):
        view.take(run.record(plan_for(2).model_copy(update={"notes": notes})))
    assert run.output.getvalue().splitlines() == ["  A plan.", "  h2 differs."]


def test_arm_on_another_platform_is_reported_at_once() -> None:
    run = Happening()
    checked = PlatformChecked(
        arm="bare", platform="bare", options={}, usable=True, reason="the agent runs here",
        mark="in dom0 under Xen, not on the bare machine",
    )  # fmt: skip
    run.view().take(run.record(checked))
    assert run.output.getvalue().splitlines() == [
        "  ✓ bare: the agent runs here",
        "    ! runs in dom0 under Xen, not on the bare machine",
    ]


def test_calibration_mismatch_is_reported_with_both_figures() -> None:
    run = Happening()
    memory = judged("adding two arrays", "B/s", 10e9, 25e9, "NumPy's", 0.5)
    counter = judged("counter's rate", "Hz", 2.6e9, 2.6e9, "the kernel's log", 0.0005)
    run.view().take(run.record(Calibrated(took_s=0.5, found=(memory, counter))))
    assert run.output.getvalue().splitlines() == [
        "  ! calibrated: adding two arrays: 10.00 GB/s, 25.00 GB/s by NumPy's (60 % apart; "
        "tolerance 50 %)"
    ]


@pytest.mark.parametrize("terminal", ["dumb", "unknown", ""])
def test_a_terminal_that_cannot_redraw_gets_one_line_an_event(
    terminal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", terminal)
    run = Happening()
    with run.view(force_terminal=True, color_system=None) as view:
        for event in (BEGUN, plan_for(1), BlockStarted(block=1, order=()), STARTED):
            view.take(run.record(event))
        for second in range(30):
            run.now = float(second)
            view.progress(CELL, second / 30, {})
            time.sleep(0.04)
        view.take(run.record(CellFinished(cell=CELL, status="failed", reason="it broke")))
        view.take(run.record(BlockFinished(block=1)))
    lines = run.output.getvalue().splitlines()
    assert [line.split(":")[0].strip() for line in lines] == [
        "run r1",
        f"✗ {CELL} failed",
        "block 1 done in 29 s",
    ]


def test_time_left_is_shown_once_known_and_at_least_the_cells_own() -> None:
    run = Happening(100.0)
    assert run.tally.left == ""
    run.happen(plan_for(8, 60.0))
    assert run.tally.left_s == 8 * 60.0
    run.happen(BlockStarted(block=1, order=()))
    run.now += 20
    assert run.tally.left_s == 40.0 + 7 * 60.0
    run.tally.progress("1/bare/alone/tick", 0.01, {"left_s": 3600.0})
    assert run.tally.left_s == 3600.0 + 7 * 60.0
    run.now += 20
    run.happen(BlockFinished(block=1))
    assert run.tally.left_s == 7 * 40.0


def test_block_of_two_processes_does_not_count_for_the_time_left() -> None:
    run = Happening()
    run.happen(plan_for(3, 60.0), BlockStarted(block=1, order=()))
    run.now += 10_000
    run.happen(RunResumed(run="r1", versions={}), BlockFinished(block=1))
    assert run.tally.left_s == 2 * 60.0


def test_a_last_block_that_takes_longer_says_so() -> None:
    run = Happening()
    run.happen(plan_for(1, 5.0), BlockStarted(block=1, order=()))
    run.now += 9
    assert run.tally.left == "longer than expected"


def test_the_bar_moves_within_a_long_cell() -> None:
    run = Happening()
    run.happen(BEGUN, plan_for(2, cells=2), STARTED)
    run.tally.progress(CELL, 0.5, {})
    assert run.tally.share_done == 0.125
    run.happen(CellFinished(cell=CELL, status="ok"))
    assert run.tally.share_done == 0.25


@pytest.mark.parametrize("value", [5.8e224, -2.5e21, 1e15])
def test_impossible_figures_are_refused(value: float) -> None:
    require_possible({"excess-max": 0.03, "bandwidth": 2e10})
    with pytest.raises(MachineFault, match=r"duration-max is .* miscalculated"):
        require_possible({"excess-max": 0.03, "duration-max": value})
