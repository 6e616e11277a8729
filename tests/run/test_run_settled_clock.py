"""A machine that has just booted is waited for until its clock runs at its final rate."""

from __future__ import annotations

from typing import Any

import pytest

from agent.agent_doubles import ScriptedAgent
from tare.agent import AgentClient
from tare.run.cells import plausibility
from tare.run.cells.plausibility import wait_for_settled_clock


class Booted(ScriptedAgent):
    """A guest whose hellos report one clock after another; the last one stays."""

    def __init__(self, *clocks: str) -> None:
        super().__init__(self._answers)
        self.clocks = list(clocks)
        self.say(self._hello())

    def _hello(self) -> dict[str, Any]:
        clock = self.clocks.pop(0) if len(self.clocks) > 1 else self.clocks[0]
        proof = {"clocksource": {"current": clock}}
        return {"type": "hello", "protocol": 1, "agent": "9", "role": "init", "proof": proof}

    def _answers(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**self._hello(), "id": request["id"]}]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plausibility, "SETTLE_LOOK_S", 0.01)


async def _clock_after(guest: Booted) -> str:
    client = AgentClient(guest, name="vm-1", repeat_s=0.5)
    try:
        hello = await wait_for_settled_clock(client, await client.hello(5))
    finally:
        await client.close()
    return str(hello.proof["clocksource"]["current"])


async def test_early_clocksource_is_waited_for_and_the_later_one_reported() -> None:
    guest = Booted("tsc-early", "tsc-early", "tsc-early", "tsc")
    assert await _clock_after(guest) == "tsc"
    assert len(guest.asked("hello")) == 3


@pytest.mark.parametrize("clock", ["tsc", "kvm-clock", "hpet"])
async def test_any_other_clock_is_taken_as_it_is(clock: str) -> None:
    guest = Booted(clock)
    assert await _clock_after(guest) == clock
    assert not guest.asked("hello")


async def test_a_clock_that_stays_early_is_not_waited_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plausibility, "SETTLE_MOST_S", 0.05)
    assert await _clock_after(Booted("tsc-early")) == "tsc-early"
