"""If time counts instructions, the host gets no requests while work is under way."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from agent.agent_doubles import ScriptedAgent
from run.run_hostile import TwistedMachine, honest, run_twisted
from tare.agent import AgentClient
from tare.platforms.contract import Machine
from tare.run.cells import cell as cell_module
from tare.run.cells.cell import Attempt
from tare.run.cells.cell_context import CellContext
from tare.run.cells.plausibility import Clocks
from tare.run.cells.roles import Roles
from tare.run.hosts.contract import LocalRunHost
from tare.run.probes import cost
from tare.run.probes.standstill import Standstills
from tare.run.ui.progress_estimate import Watch
from tare.study.planning.cells import Cell
from tare.workloads import WORKLOADS, MachineFacts

WORK_S = 0.2


class Watched(Machine):
    """A machine that records requests to its host while work is under way in it."""

    name = "tare-a-1-subject"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at_work = False
        self.said = ScriptedAgent(self._answer)
        self.agent = AgentClient(self.said, name=self.name, repeat_s=0.05)

    def _answer(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        id = request.get("id", 0)
        match request["op"]:
            case "run":
                self.work = id
                hint = {"expected_s": 9.0, "live": False, "timed": True}
                progress = {"type": "progress", "id": id, "done": 0.0, **hint}
                return [{"type": "accepted", "id": id}, progress, {"type": "ready", "id": id}]
            case "go" if self.at_work:
                self.asked.append("go")
                return []
            case "go":
                # On a busy computer it is answered late.
                self.at_work = True
                asyncio.get_running_loop().call_later(WORK_S, self._finish, id)
                return []
            case "ack" if self.at_work:
                self.asked.append("ack")
                return []
            case "ack":
                return []
        return [{"type": "result", "id": id, "value": {"monotonic_raw_ns": 5, "tsc": 6}}]

    def _finish(self, go: int) -> None:
        self.at_work = False
        self.said.say({"type": "result", "id": go, "value": {"found": True}})
        value = {"iterations": 2, "iterations_per_s": 1.0}
        self.said.say({"type": "result", "id": self.work, "value": value})

    def _note(self, what: str) -> None:
        if self.at_work:
            self.asked.append(what)

    async def ready(self, timeout_s: float) -> Any:
        raise NotImplementedError

    async def stop(self) -> None:
        await self.agent.close()

    async def host_cost(self) -> dict[str, float]:
        self._note("host_cost")
        return {"cpu_s": 1.0}

    async def measuring_threads(self) -> tuple[int, ...]:
        return (7,)

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        self._note("ran_s")
        return 1.0

    async def stopped(self) -> bool:
        self._note("stopped")
        return False


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll the host as often as a slow computer would during a short cell."""
    monkeypatch.setattr(cost, "LOOK_S", 0.01)
    monkeypatch.setattr(cell_module, "Standstills", partial(Standstills, look_s=0.01))
    monkeypatch.setattr(cell_module, "Watch", partial(Watch, interval_s=0.01))


async def asked_meanwhile(*, hands_off: bool) -> set[str]:
    """Measure a cell; return the requests made while its work was under way."""
    machine = Watched()
    context = CellContext(
        folder=cast(Any, None),
        log=cast(Any, None),
        workloads={"numeric-sort": WORKLOADS["numeric-sort"]},
        on_progress=lambda *_: None,
        clocks=Clocks(virtual=hands_off),
        hands_off=hands_off,
    )
    cell = Cell("c", 1, "a", "alone", "s", "numeric-sort", {"duration": 3.0}, expected_s=3.0)
    try:
        await Attempt(context, cell, Roles(machine), MachineFacts())._measure()
    finally:
        await machine.stop()
    return set(machine.asked)


async def test_a_host_is_watched_while_work_is_under_way() -> None:
    # Earlier messages may be acknowledged late: that is not a request.
    asked = await asked_meanwhile(hands_off=False) - {"ack"}
    assert asked == {"stopped", "host_cost", "ran_s", "go"}


async def test_a_host_whose_time_counts_instructions_is_asked_nothing() -> None:
    # The number of requests depends on this computer's speed, and they disturb what is measured.
    assert await asked_meanwhile(hands_off=True) == set()


@pytest.mark.parametrize("counts", [False, True])
async def test_a_run_takes_its_hands_off_a_host_whose_time_counts_instructions(
    counts: bool, tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: set[str] = set()

    async def stopped(machine: TwistedMachine) -> bool:
        looked.add(machine.name)
        return False

    monkeypatch.setattr(TwistedMachine, "stopped", stopped)
    monkeypatch.setattr(LocalRunHost, "counts_instructions", counts)
    fold = await run_twisted(honest, tmp_path / "run", agent_program)
    assert {result.status for result in fold.cell_results()} == {"ok"}
    assert bool(looked) is not counts
