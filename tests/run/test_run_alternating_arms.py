"""Alternating arms: one is at work at a time, and does not wait for one that left."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.run_driving import assert_no_ledger_is_left, events, of_type, tare
from tare.run.cells.duet import Side

STUDY = """
study: two
baseline: oci
blocks: {least: 1, most: 1, turns: true}
shape: {vcpus: 1, memory: 64MiB}
arms:
  oci: {platform: oci}
  oci-again: {twin-of: oci}
scenarios:
  pinned: {subject: {cpus: pinned}}
workloads:
  numeric-sort: {duration: 300ms}
  request-response: {duration: 300ms}
  proxy: {size: 0B, duration: 500ms, step: 200ms, warmup: 100ms, most-connections: 4,
          offered: 50, rounds: 2, at-shares: false}
"""


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 3),
)
def test_turns_come_in_pairs_once_both_arms_are_in_sync(
    before: list[tuple[int, int]], rounds: int
) -> None:
    """Each side takes so many turns in each cell, as long as its search lasts; then rounds."""
    first, second = ([each[side] for each in before] for side in (0, 1))
    held: list[str] = []
    turns: list[tuple[int, str]] = []

    async def play(side: Side, cells: list[int]) -> None:
        try:
            for cell, count in enumerate(cells):
                if not await side.meets(cell):
                    return
                await side.begin(cell)
                for turn in range(count + rounds):
                    if turn >= count:
                        await side.wait_in_sync(cell)
                    async with side.turn(cell):
                        held.append(side.arm)
                        assert held == [side.arm]
                        turns.append((cell, side.arm))
                        await asyncio.sleep(0)
                        held.pop()
                    await asyncio.sleep(0)
                await side.over(cell)
                side.end(cell)
        finally:
            side.leave()

    async def run() -> None:
        a, b = Side.two(["a", "b"], "seed")
        await asyncio.wait_for(asyncio.gather(play(a, first), play(b, second)), 20)

    asyncio.run(run())
    for cell, counts in enumerate(before):
        order = [arm for number, arm in turns if number == cell]
        assert Counter(order) == Counter(a=counts[0] + rounds, b=counts[1] + rounds)
        pairs = order[sum(counts) :]
        assert all(set(pairs[at : at + 2]) == {"a", "b"} for at in range(0, len(pairs), 2))
    assert all(one <= other for (one, _), (other, _) in pairwise(turns))


def test_which_side_is_first_is_drawn_and_even() -> None:
    """Check the order, so that periodic disturbances of the host affect both arms."""

    async def play(side: Side, order: list[str]) -> None:
        await side.meets(0)
        for _ in range(40):
            await side.wait_in_sync(0)
            async with side.turn(0):
                order.append(side.arm)
        await side.over(0)

    async def run(seed: str) -> list[str]:
        order: list[str] = []
        a, b = Side.two(["a", "b"], seed)
        await asyncio.wait_for(asyncio.gather(play(a, order), play(b, order)), 20)
        return order[::2]

    firsts = [asyncio.run(run(seed)) for seed in ("one", "another")]
    assert firsts[0] != firsts[1]
    assert firsts[0] == asyncio.run(run("one"))
    for first in firsts:
        assert all(set(first[at : at + 2]) == {"a", "b"} for at in range(0, 40, 2))
        assert first[::2].count("a") not in (0, 20)


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
        a, b = Side.two(["a", "b"], "seed")
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
    assert [cell["status"] for cell in cells] == ["ok"] * 6
    for cell in cells:
        other = "oci-again" if "/oci/" in cell["cell"] else "oci"
        assert cell["facts"]["turns"] == {"with": other}
    series = sorted(path.name for path in (folder / "series").glob("b001-*responses*"))
    assert len([name for name in series if "subject-offered" in name]) == 4
    # A proxy's cells load by load, so that each begins before the other ends; others as a whole.
    one, two = ["cell_started", "cell_finished"], ["cell_started"] * 2 + ["cell_finished"] * 2
    orders = {"proxy": two, "numeric-sort": one * 2, "request-response": one * 2}
    for workload, order in orders.items():
        assert order == [
            event["type"]
            for event in events(folder)
            if event["type"] in one and f"/{workload}[" in event["cell"]
        ], workload
    placed = [event["placement"]["cpus"] for event in of_type(folder, "machine_ready")]
    assert all(cpus == placed[0] for cpus in placed)
    assert "worked by turns" in (folder / "report.html").read_text()
    assert_no_ledger_is_left(tmp_path)
