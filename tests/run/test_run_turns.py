"""Two arms by turns: one is at work at a time, and nobody waits for one that left."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.run_driving import assert_no_ledger_is_left, events, of_type, tare
from tare.run.duet import Side

STUDY = """
study: two
baseline: oci
blocks: {least: 2, most: 2, turns: true}
shape: {vcpus: 1, memory: 64MiB}
arms:
  oci: {platform: oci}
  oci-again: {twin-of: oci}
scenarios:
  pinned: {subject: {cpus: pinned}}
workloads:
  numeric-sort: {duration: 300ms}
  proxy: {size: 0B, duration: 500ms, step: 200ms, warmup: 100ms, most-connections: 4,
          offered: 50, rounds: 3, at-shares: false}
"""
BOTH = ("cell_started", "cell_finished")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 4))
def test_turns_alternate_until_one_wants_none(first: list[int], fewer: int) -> None:
    """Each side takes so many turns in each cell; the second has one cell less, or breaks off."""
    second = [max(0, count - fewer) for count in first]
    held: list[str] = []
    told: list[tuple[int, str]] = []

    async def play(side: Side, cells: list[int]) -> None:
        try:
            for cell, count in enumerate(cells):
                if not await side.meets(cell):
                    return
                await side.begin(cell)
                for _ in range(count):
                    async with side.turn(cell):
                        held.append(side.arm)
                        assert held == [side.arm]
                        told.append((cell, side.arm))
                        await asyncio.sleep(0)
                        held.pop()
                    await asyncio.sleep(0)
                await side.over(cell)
                side.end(cell)
        finally:
            side.leave()

    async def run() -> None:
        a, b = Side.two(["a", "b"], by_turns=True)
        await asyncio.wait_for(asyncio.gather(play(a, first), play(b, second)), 20)

    asyncio.run(run())
    for cell, (more, less) in enumerate(zip(first, second, strict=True)):
        order = [arm for number, arm in told if number == cell]
        assert order == ["a", "b"] * less + ["a"] * (more - less)
    assert all(one <= other for (one, _), (other, _) in pairwise(told))


def test_a_turn_ends_with_the_work_that_fails_in_it() -> None:
    async def fails(side: Side) -> None:
        try:
            await side.meets(0)
            async with side.turn(0):
                raise OSError("gone")
        except OSError:
            pass
        finally:
            side.leave()

    async def works(side: Side) -> int:
        await side.meets(0)
        for _ in range(3):
            async with side.turn(0):
                await asyncio.sleep(0)
        await side.over(0)
        return 3

    async def run() -> int:
        a, b = Side.two(["a", "b"], by_turns=True)
        found = await asyncio.wait_for(asyncio.gather(fails(a), works(b)), 20)
        return found[1]

    assert asyncio.run(run()) == 3


@pytest.mark.slow
def test_arms_by_turns_are_up_at_once_and_work_one_at_a_time(
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
        other = "oci-again" if "/oci/" in cell["cell"] else "oci"
        assert cell["facts"]["turns"] == {"with": other}
    series = sorted(path.name for path in (folder / "series").glob("b001-*responses*"))
    assert len([name for name in series if "subject-offered" in name]) == 6
    # Load by load: each began before the other had ended.
    order = [
        e["type"] for e in events(folder) if "/proxy[" in e.get("cell", "") and e["type"] in BOTH
    ]
    assert order == [BOTH[0], BOTH[0], BOTH[1], BOTH[1]] * 2
    placed = [event["placement"]["cpus"] for event in of_type(folder, "machine_ready")]
    assert all(cpus == placed[0] for cpus in placed)
    assert "worked by turns" in (folder / "report.html").read_text()
    assert_no_ledger_is_left(tmp_path)
