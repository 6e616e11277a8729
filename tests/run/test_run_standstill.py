"""A cell in whose middle the machine was stopped is marked, on every platform the same."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import pytest

from processes import agents_of
from run.run_driving import Running, of_type
from tare.errors import MachineFault
from tare.run.probes import standstill
from tare.run.probes.standstill import Standstill, Standstills

STUDY = """
study: stopped
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
workloads:
  numeric-sort: {duration: 4s}
"""


class Scripted:
    """A machine that is stopped for some time after its first check."""

    def __init__(self, *stops: tuple[float, float]) -> None:
        self._stops, self._began = stops, time.monotonic()

    async def stopped(self) -> bool:
        passed = time.monotonic() - self._began
        return any(begin <= passed < end for begin, end in self._stops)


async def doubt_after(
    *stops: tuple[float, float], look_s: float = 0.2, seconds: float = 1.2
) -> str:
    watch = Standstill(Scripted(*stops), look_s)
    watch.begin()
    await asyncio.sleep(seconds)
    return await watch.end()


async def test_only_a_lasting_stop_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standstill, "LEAST_S", 0.2)
    assert await doubt_after() == ""
    assert await doubt_after((0.1, 0.22), (0.7, 0.83)) == ""
    # Only one of two checks at the usual interval meets it.
    stops = await doubt_after((0.6, 1.8), look_s=1.0, seconds=2.4)
    found = re.fullmatch(
        r"the machine was stopped for (\S+) s meanwhile, as its host reports", stops
    )
    assert found is not None and 0.1 <= float(found[1]) <= 1.5


@pytest.mark.parametrize(("stopped_s", "is_reported"), [(0.5, True), (0.49, False)])
async def test_a_stop_marks_from_its_least_length_on(stopped_s: float, is_reported: bool) -> None:
    assert bool(await Standstill(Scripted(), stopped_s=stopped_s).end()) is is_reported


async def test_a_machine_that_cannot_be_checked_marks_nothing() -> None:
    class Lost:
        async def stopped(self) -> bool:
            raise MachineFault("it is gone")

    watch = Standstill(Lost(), 0.01)
    watch.begin()
    await asyncio.sleep(0.05)
    assert await watch.end() == ""


async def test_stopped_machine_is_reported_with_its_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standstill, "LEAST_S", 0.1)
    roles = ("subject", "neighbour-1", "peer", "slave-2")
    for stopped in roles:
        machines = {role: Scripted(*[(0.0, 9.0)] * (role == stopped)) for role in roles}
        watch = Standstills(machines, 0.02)
        await watch.open()
        await asyncio.sleep(0.3)
        whose = "the machine" if stopped == "subject" else f"the machine of the {stopped}"
        await watch.close()
        doubt = watch.doubt
        assert doubt.startswith(f"{whose} was stopped for") and ";" not in doubt


async def test_a_lost_machine_does_not_stop_the_checks_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standstill, "LEAST_S", 0.1)

    class Lost:
        async def stopped(self) -> bool:
            raise MachineFault("it is gone")

    watch = Standstills({"subject": Lost(), "peer": Scripted((0.0, 9.0))}, 0.02)
    await watch.open()
    await asyncio.sleep(0.3)
    await watch.close()
    assert "the machine of the peer was stopped" in watch.doubt


async def test_sleep_of_the_computer_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Standstills({"subject": Scripted(), "peer": Scripted()}, 0.01)
    before = standstill.slept_s()
    monkeypatch.setattr(standstill, "slept_s", lambda: before + 8.0)
    await watch.close()
    assert watch.doubt.count("suspended") == 1


@pytest.mark.parametrize(("slept_s", "is_reported"), [(0.5, True), (0.49, False)])
async def test_a_nap_marks_from_its_least_length_on(
    slept_s: float, is_reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "slept_s", lambda: 64.0 + slept_s)
    watch = Standstill(Scripted(), _slept_s=64.0)
    assert bool(await watch.end()) is is_reported


async def test_suspended_computer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Standstill(Scripted(), 0.01)
    before = watch._slept_s
    monkeypatch.setattr(standstill, "slept_s", lambda: before + 8.0)
    assert await watch.end() == "this computer was suspended for 8.0 s meanwhile"


def test_subject_stopped_in_mid_cell_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "study.yaml").write_text(STUDY)
    folder = tmp_path / "run"

    def begun(block: int) -> bool:
        return any(event["block"] == block for event in of_type(folder, "cell_started"))

    with Running(folder, "run", tmp_path / "study.yaml", "--out", folder) as run:
        run.wait_for(lambda _: begun(1))
        time.sleep(1.0)
        agents = agents_of(run.process.pid)
        assert agents
        for agent in agents:
            os.kill(agent, signal.SIGSTOP)
        time.sleep(3.5)
        for agent in agents:
            os.kill(agent, signal.SIGCONT)
        _, output = run.end()
    first, second = of_type(folder, "cell_finished")
    assert first["status"] == "withheld", output
    assert "the machine was stopped for" in first["reason"]
    assert second["status"] == "ok", second["reason"]
