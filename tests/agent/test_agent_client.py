"""The client against an agent that does as the test says."""

from __future__ import annotations

import asyncio
from itertools import accumulate, chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agent.agent_doubles import ScriptedAgent
from tare.agent import AgentClient, Barrier
from tare.agent.framing import OUT_OF_BAND, FrameKind, encode
from tare.errors import MachineFault, WorkloadFault

HELLO = {"type": "hello", "protocol": 1, "agent": "9", "role": "init", "proof": {"a": 1}}


def done(request: dict[str, Any], **value: Any) -> dict[str, Any]:
    return {"type": "result", "id": request["id"], "value": value}


def silent(_: dict[str, Any]) -> list[dict[str, Any]]:
    return []


def client_of(agent: ScriptedAgent, repeat_s: float = 0.5) -> AgentClient:
    # Longer than a busy computer keeps the loop waiting, as far as that is to be had.
    return AgentClient(agent, name="vm-1", repeat_s=repeat_s)


async def test_the_agent_sends_hello_unprompted() -> None:
    agent = ScriptedAgent(silent)
    agent.put(b"[    0.5] Run /init as init process\r\n")
    agent.say(HELLO)
    client = client_of(agent)
    hello = await client.hello(5)
    assert (hello.agent, hello.role, hello.proof) == ("9", "init", {"a": 1})
    assert client.noise.bytes > 0
    await client.close()


async def test_a_silent_agent_is_a_fault_with_its_last_message() -> None:
    agent = ScriptedAgent(silent)
    agent.put(b"[    0.5] Kernel panic - not syncing: no init\r\n")
    client = client_of(agent)
    with pytest.raises(MachineFault, match=r"vm-1 did not answer within 0.1 s.*no init") as fault:
        await client.hello(0.1)
    assert fault.value.console_tail == ("[    0.5] Kernel panic - not syncing: no init",)
    await client.close()


async def test_a_damaged_hello_is_requested() -> None:
    agent = ScriptedAgent(lambda request: [{**HELLO, "id": request["id"]}])
    client = client_of(agent)
    frame = agent.frame(HELLO)
    agent.put(frame[:-1] + bytes([frame[-1] ^ 1]))
    assert (await client.hello(5)).agent == "9"
    assert [request["op"] for request in agent.requests] == ["hello"]
    await client.close()


async def test_another_protocol_is_refused() -> None:
    agent = ScriptedAgent(silent)
    agent.say({**HELLO, "protocol": 2})
    with pytest.raises(MachineFault, match="protocol 2"):
        await client_of(agent).hello(5)


async def test_a_request_without_a_sign_is_repeated_with_the_same_id() -> None:
    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["op"] == "clock" and len(agent.asked("clock")) > 2:
            return [done(request, monotonic_raw_ns=5, tsc=6)]
        return []

    agent = ScriptedAgent(answer)
    client = client_of(agent, repeat_s=0.05)
    assert (await client.clock()).guest_ns == 5
    clocks = agent.asked("clock")
    assert [request["id"] for request in clocks[:3]] == [1, 1, 1]
    # More often where the answer waits until this busy computer reads it.
    assert client.noise.repeated >= 2
    await client.close()


async def test_an_accepted_run_is_left_alone() -> None:
    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["op"] != "run":
            return []
        loop = asyncio.get_running_loop()
        loop.call_later(0.3, lambda: agent.say(done(request, ok=1)))
        return [{"type": "accepted", "id": request["id"]}]

    agent = ScriptedAgent(answer)
    client = client_of(agent)
    outcome = await client.run("tick", {"samples": 1}, cpus=[1], deadline_s=5)
    assert outcome.value == {"ok": 1}
    await asyncio.sleep(0)
    assert [r["op"] for r in agent.requests] == ["run", "ack"], "nothing disturbs a measurement"
    assert agent.asked("run")[0]["cpus"] == [1]
    await client.close()


@pytest.mark.parametrize(
    ("took_us", "asked"),
    [
        ([300, 305], 2),
        ([900, 300, 320], 3),
        ([900, 700, 500, 400, 300], 5),
        ([300, 300, 1], 2),
    ],
)
async def test_a_clock_is_read_until_two_readings_are_as_tight(
    took_us: list[int], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each byte costs a guest with an emulated serial line an interrupt, and each cell reads it.
    times = accumulate(chain.from_iterable((1_000_000, took * 1000) for took in took_us))
    clock = SimpleNamespace(clock_gettime_ns=lambda _: next(times), CLOCK_MONOTONIC_RAW=4)
    monkeypatch.setattr("tare.agent.client.time", clock)
    agent = ScriptedAgent(lambda request: [done(request, monotonic_raw_ns=1, tsc=1)])
    client = client_of(agent)
    reading = await client.clock(timeout_s=5)
    assert reading.width_ns == min(took_us[:asked]) * 1000
    assert len({request["id"] for request in agent.asked("clock")}) == asked
    await client.close()


async def test_a_clock_is_read_equally_often_if_time_counts_instructions() -> None:
    agent = ScriptedAgent(lambda request: [done(request, monotonic_raw_ns=1, tsc=1)])
    client = client_of(agent)
    for _ in range(2):
        await client.clock(timeout_s=5, as_often=True)
    assert len({request["id"] for request in agent.asked("clock")}) == 10
    await client.close()


async def test_damaged_requests_are_repeated_at_once() -> None:
    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if len(agent.requests) == 1:
            return [{"type": "damaged"}]
        return [done(request, monotonic_raw_ns=1, tsc=1)]

    agent = ScriptedAgent(answer)
    client = client_of(agent, repeat_s=60)
    await client.clock(timeout_s=5)
    assert client.noise.repeated == 1
    await client.close()


async def test_lost_frames_are_requested_and_put_in_order() -> None:
    chunks: list[bytes] = []

    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["op"] == "run":
            agent.say({"type": "accepted", "id": request["id"]})
            header = {"id": request["id"], "name": "raw", "rows": 2}
            header["columns"] = [["duration_ns", "u32"]]
            for number, value in enumerate((7, 9)):
                place = {"offset": 4 * number, "total": 8}
                data = value.to_bytes(4, "little")
                chunks.append(agent.series_frame({**header, **place}, data))
            agent.put(chunks[0][:-1] + bytes([chunks[0][-1] ^ 1]))
            agent.put(chunks[1])
            agent.say(done(request))
        elif request["op"] == "resend":
            for seq in request["seqs"]:
                agent.put(chunks[seq - 1])
        return []

    agent = ScriptedAgent(answer)
    client = client_of(agent)
    outcome = await client.run("tick", {}, deadline_s=5)
    np.testing.assert_array_equal(outcome.series[0].columns["duration_ns"], [7, 9])
    assert agent.asked("resend")[0]["seqs"] == [1]
    await asyncio.sleep(0)
    assert agent.asked("ack")[-1]["seq"] == 3
    assert (client.noise.resends, client.noise.damaged) == (1, 1)
    await client.close()


async def test_a_truncated_last_answer_is_requested() -> None:
    answers: list[bytes] = []

    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["op"] == "run":
            agent.say({"type": "accepted", "id": request["id"]})
            answers.append(agent.frame(done(request, x=1)))
            agent.put(answers[0][:30] + answers[0][31:])
        elif request["op"] == "resend":
            assert request["seqs"] == [1]
            agent.put(answers[0])
        return []

    agent = ScriptedAgent(answer)
    client = client_of(agent)
    outcome = await client.run("w", {}, deadline_s=5)
    assert outcome.value == {"x": 1}
    assert (client.noise.resends, client.noise.damaged) == (1, 1)
    await client.close()


async def test_results_that_are_gone_are_a_transient_fault() -> None:
    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["op"] == "resend":
            agent.put(agent.frame({"type": "gone", "seqs": request["seqs"]}, OUT_OF_BAND))
        return []

    agent = ScriptedAgent(answer)
    agent.say(HELLO)
    client = client_of(agent)
    await client.hello(5)
    running = asyncio.ensure_future(client.run("w", {}, deadline_s=5))
    await asyncio.sleep(0)
    agent.frame({"type": "log", "text": "never arrives"})
    agent.say({"type": "log", "text": "arrives"})
    with pytest.raises(MachineFault) as fault:
        await running
    assert fault.value.transient
    await client.close()


async def test_an_error_is_a_workload_fault_in_the_agents_words() -> None:
    agent = ScriptedAgent(
        lambda r: [{"type": "error", "id": r["id"], "reason": "no memory"}] if "id" in r else []
    )
    client = client_of(agent)
    with pytest.raises(WorkloadFault, match="sort on vm-1: no memory"):
        await client.run("sort", {}, deadline_s=5)
    await client.close()


async def test_the_end_of_the_channel_ends_everything_at_once() -> None:
    agent = ScriptedAgent(silent)
    client = client_of(agent)
    runs = [asyncio.ensure_future(client.run("w", {}, deadline_s=60)) for _ in range(3)]
    await asyncio.sleep(0)
    agent.put(b"Kernel panic\r\n")
    agent.end()
    for outcome in await asyncio.gather(*runs, return_exceptions=True):
        assert isinstance(outcome, MachineFault)
        assert outcome.console_tail == ("Kernel panic",)
    with pytest.raises(MachineFault):
        await client.clock()
    await client.shutdown()
    await client.close()
    await client.close()


async def test_a_fatal_error_is_delivered_out_of_order() -> None:
    agent = ScriptedAgent(silent)
    client = client_of(agent)
    running = asyncio.ensure_future(client.run("w", {}, deadline_s=60))
    await asyncio.sleep(0)
    agent.put(encode(FrameKind.MESSAGE, OUT_OF_BAND, b'{"type":"fatal","reason":"out of memory"}'))
    with pytest.raises(MachineFault, match="vm-1 failed: out of memory"):
        await running
    await client.close()


async def test_a_deadline_stops_the_run_in_the_agent() -> None:
    agent = ScriptedAgent(
        lambda r: [{"type": "accepted", "id": r["id"]}] if r["op"] == "run" else []
    )
    client = client_of(agent)
    with pytest.raises(MachineFault, match=r"within 0.1 s; last message: accepted"):
        await client.run("w", {}, deadline_s=0.1)
    await asyncio.sleep(0)
    assert agent.asked("stop")[0]["target"] == agent.asked("run")[0]["id"]
    await client.close()


async def test_a_cancelled_run_is_stopped_in_the_agent() -> None:
    agent = ScriptedAgent(silent)
    client = client_of(agent)
    running = asyncio.ensure_future(client.run("w", {}, deadline_s=60))
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(0)
    assert agent.asked("stop")
    await client.close()


async def test_an_echo_of_requests_is_not_taken_for_an_answer() -> None:
    agent = ScriptedAgent(silent)
    client = client_of(agent)
    hello = asyncio.ensure_future(client.hello(5))
    await asyncio.sleep(0)
    agent.put(encode(FrameKind.MESSAGE, 0, b'{"op":"hello","id":1}'))
    agent.say(HELLO)
    assert (await hello).agent == "9"
    await client.close()


@pytest.mark.parametrize(
    "message",
    [
        {"type": "result", "id": 1, "value": 3},
        {"type": "result", "id": 1},
        {"type": "result", "id": 1, "value": {}, "timing": 1},
    ],
)
async def test_an_invalid_message_is_a_fault(message: dict[str, Any]) -> None:
    agent = ScriptedAgent(lambda r: [message] if r["op"] == "run" else [])
    client = client_of(agent)
    with pytest.raises(MachineFault, match="invalid message"):
        await client.run("w", {}, deadline_s=5)
    await client.close()


async def test_runs_of_several_agents_start_together() -> None:
    order: list[str] = []

    def agent(name: str, delay: float) -> ScriptedAgent:
        def say_ready(request: dict[str, Any]) -> None:
            order.append("ready")
            made.say({"type": "ready", "id": request["id"]})

        def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
            if request["op"] == "run":
                asyncio.get_running_loop().call_later(delay, say_ready, request)
                return [{"type": "accepted", "id": request["id"]}]
            if request["op"] == "go":
                assert request["together"]
                order.append(f"go {name}")
                return [done(request), {**done(request), "id": request["target"]}]
            return []

        made = ScriptedAgent(answer)
        return made

    clients = [client_of(agent("a", 0.0)), client_of(agent("b", 0.1))]
    barrier = Barrier(2)
    runs = (client.run("w", {}, barrier=barrier, deadline_s=5) for client in clients)
    await asyncio.gather(*runs)
    assert order == ["ready", "ready", "go a", "go b"]
    assert barrier.skew_ns is not None and barrier.skew_ns >= 0
    for client in clients:
        await client.close()


async def test_measuring_runs_start_before_loads() -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    barrier = Barrier(3)
    await asyncio.gather(
        barrier.arrive(lambda: note("load 1"), load=True),
        barrier.arrive(lambda: note("measures")),
        barrier.arrive(lambda: note("load 2"), load=True),
    )
    assert order == ["measures", "load 1", "load 2"]


async def test_the_answer_to_a_start_signal_is_not_acknowledged_at_once() -> None:
    # On its only CPU each message would take time from what is measured.
    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["op"] == "run":
            return [{"type": "ready", "id": request["id"]}]
        if request["op"] == "go":
            result = {**done(request), "id": request["target"]}
            asyncio.get_running_loop().call_later(0.1, lambda: agent.say(result))
            return [done(request, found=True)]
        return []

    agent = ScriptedAgent(answer)
    client = client_of(agent)
    await client.run("w", {}, barrier=Barrier(1), deadline_s=5)
    await asyncio.sleep(0)
    assert [request["op"] for request in agent.requests] == ["run", "go", "ack"]
    # Nobody begins with it, so it may wait for a moment of its own clock (`tare help lab`).
    assert "together" not in agent.asked("go")[0]
    # What is acknowledged then is the signal's answer too.
    assert agent.asked("ack")[0]["seq"] == 2
    await client.close()


async def test_a_run_that_cannot_start_releases_the_others() -> None:
    ready = ScriptedAgent(lambda r: [{"type": "ready", "id": r["id"]}] if r["op"] == "run" else [])
    broken = ScriptedAgent(
        lambda r: (
            [{"type": "error", "id": r["id"], "reason": "no CPU 9"}] if r["op"] == "run" else []
        )
    )
    barrier = Barrier(2)
    clients = [client_of(ready), client_of(broken)]
    runs = (client.run("w", {}, barrier=barrier, deadline_s=5) for client in clients)
    first, second = await asyncio.gather(*runs, return_exceptions=True)
    assert isinstance(first, MachineFault) and "no CPU 9" in str(first)
    assert isinstance(second, WorkloadFault)
    for client in clients:
        await client.close()
