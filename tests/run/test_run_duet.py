"""Two arms at once: they keep step, each cell records its overlap, and none waits for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.run_driving import Event, Running, assert_no_ledger_is_left, events, of_type, tare
from tare.errors import WorkloadFault
from tare.run.cells.duet import Side

STUDY = """
study: two
baseline: bare
blocks: {least: 2, most: 2, duet: true}
shape: {vcpus: 1, memory: 64MiB}
arms:
  bare: {platform: bare}
  bare-again: {twin-of: bare}
scenarios:
  pinned: {subject: {cpus: pinned}}
workloads:
  numeric-sort: {duration: 300ms}
  fourier: {duration: 300ms}
"""


@given(st.lists(st.sampled_from(["ok", "fails before", "fails after"]), max_size=6),
       st.lists(st.sampled_from(["ok", "fails before", "fails after"]), max_size=6))  # fmt: skip
def test_sides_keep_step_and_do_not_wait_for_one_that_is_gone(
    first: list[str], second: list[str]
) -> None:
    async def play(side: Side, cells: list[str]) -> list[str]:
        outcomes: list[str] = []
        try:
            for number, plan in enumerate(cells):
                if not await side.meets(number):
                    return outcomes
                if plan == "fails before":
                    outcomes.append("failed")
                    continue
                try:
                    await side.begin(number)
                except WorkloadFault:
                    outcomes.append("alone")
                    continue
                await asyncio.sleep(0)
                side.end(number)
                outcomes.append("both")
        finally:
            side.leave()
        return outcomes

    async def run() -> tuple[list[str], list[str]]:
        sides = Side.two(["a", "b"])
        return await asyncio.wait_for(
            asyncio.gather(play(sides[0], first), play(sides[1], second)), 20
        )

    found = asyncio.run(run())
    for number in range(min(map(len, (first, second)))):
        fails = [cells[number] == "fails before" for cells in (first, second)]
        outcomes = [each[number] for each in found]
        if not any(fails):
            assert outcomes == ["both", "both"]
        elif all(fails):
            assert outcomes == ["failed", "failed"]
        else:
            assert sorted(outcomes) == ["alone", "failed"]
    shorter = min(len(first), len(second))
    assert all(len(each) == shorter for each in found)


def test_the_share_with_company_is_the_overlap() -> None:
    async def run() -> tuple[float, float]:
        short, long = Side.two(["a", "b"])
        await asyncio.gather(short.begin(0), long.begin(0))
        short._began[0] = long._began[0] = 10.0
        short._ended[0] = 14.0
        alone_until = short.overlap(0)
        long._ended[0] = 18.0
        assert alone_until == 1.0
        return short.overlap(0), long.overlap(0)

    assert asyncio.run(run()) == (1.0, 0.5)


@pytest.mark.slow
def test_arms_of_a_duet_run_at_once_on_cores_that_they_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "two.yaml", tmp_path / "run"
    study.write_text(STUDY)
    done = tare("run", study, "--out", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = of_type(folder, "cell_finished")
    assert [cell["status"] for cell in cells] == ["ok"] * 8
    for cell in cells:
        own, other = ("bare", "bare-again") if "/bare/" in cell["cell"] else ("bare-again", "bare")
        assert cell["facts"]["duet"]["beside"] == other, own
        assert 0 < cell["facts"]["duet"]["share"] <= 1
    # Each began before the other ended.
    order = [(e["type"], e["cell"]) for e in events(folder) if e["type"].startswith("cell_")]
    for place in range(0, len(order), 4):
        kinds = [kind for kind, _ in order[place : place + 4]]
        assert kinds == ["cell_started", "cell_started", "cell_finished", "cell_finished"]
        assert len({cell.split("/")[-1] for _, cell in order[place : place + 4]}) == 1
    assert_cores_are_exchanged(folder)
    assert "on equal CPUs that they exchanged" in (folder / "report.html").read_text()
    assert_no_ledger_is_left(tmp_path)


def assert_cores_are_exchanged(folder: Path) -> None:
    started = {event["machine"]: event for event in of_type(folder, "machine_starting")}
    places = {
        (started[event["machine"]]["block"], started[event["machine"]]["arm"]): event["placement"]
        for event in of_type(folder, "machine_ready")
    }
    halves = {key: tuple(place["cpus"]) for key, place in places.items()}
    assert halves[1, "bare"] == halves[2, "bare-again"] != halves[1, "bare-again"]
    assert halves[2, "bare"] == halves[1, "bare-again"]


@pytest.mark.acceptance
def test_duet_resumes_after_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "two.yaml", tmp_path / "run"
    study.write_text(STUDY)

    def ended(event: Event) -> bool:
        return bool(event["type"] == "cell_finished")

    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(ended)
        running.process.send_signal(2)
        code, output = running.end()
    assert code == 130, output
    done = tare("resume", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    finished = {cell["cell"]: cell["status"] for cell in of_type(folder, "cell_finished")}
    assert finished == dict.fromkeys(finished, "ok")
    assert len(finished) == 8
    assert_no_ledger_is_left(tmp_path)
