"""The client against the real agent, over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from agent.agent_doubles import NoisyChannel
from tare.agent import AgentClient, Barrier, StreamChannel, judge
from tare.agent.expected_series import SERIES_OF_WORKLOAD
from tare.agent.framing import Decoder, FrameKind, encode
from tare.errors import MachineFault, WorkloadFault

CPU = min(os.sched_getaffinity(0))
QUICK = {"samples": 500, "loop_ns": 5000, "allow_untrusted_tsc": True}


@contextlib.asynccontextmanager
async def process(program: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    agent = await asyncio.create_subprocess_exec(program, "serve", stdin=pipe, stdout=pipe)
    try:
        yield agent
    finally:
        if agent.returncode is None:
            agent.kill()
        await agent.wait()


def channel_of(agent: asyncio.subprocess.Process) -> StreamChannel:
    assert agent.stdin is not None and agent.stdout is not None
    return StreamChannel(agent.stdout, agent.stdin)


@contextlib.asynccontextmanager
async def connected(
    program: Path,
) -> AsyncIterator[tuple[AgentClient, asyncio.subprocess.Process]]:
    async with process(program) as agent:
        client = AgentClient(channel_of(agent), name="bare")
        try:
            yield client, agent
        finally:
            await client.close()


async def test_hello_proves_the_environment(agent_program: Path) -> None:
    async with connected(agent_program) as (client, _):
        hello = await client.hello(10)
    assert hello.role == "process"
    assert {"tick", "switch"} <= set(hello.workloads)
    assert hello.proof["kernel"]["release"] == os.uname().release
    assert set(hello.proof["topology"]["usable"]) == os.sched_getaffinity(0)
    assert hello.proof["clocksource"]["current"]
    assert isinstance(hello.proof["mitigations"], dict)


async def test_the_machines_clock_is_the_hosts_here(agent_program: Path) -> None:
    async with connected(agent_program) as (client, _):
        first = await client.clock()
        last = await client.clock()
    assert first.host_before_ns <= first.guest_ns <= first.host_after_ns
    assert first.tsc <= last.tsc
    assert judge(first, last, limit_ppm=1).plausible, "one clock cannot drift from itself"


async def test_a_run_gives_values_and_series(agent_program: Path) -> None:
    async with connected(agent_program) as (client, _):
        outcome = await client.run("tick", {**QUICK, "raw": True}, cpus=[CPU], deadline_s=60)
    assert outcome.value["samples"] == 500
    (raw,) = (series for series in outcome.series if series.name == "raw")
    assert all(len(column) == 500 for column in raw.columns.values())
    timing = outcome.timing
    assert timing["accepted_ns"] <= timing["started_ns"] <= timing["ended_ns"]


async def test_known_series_belong_to_workloads_of_the_agent(agent_program: Path) -> None:
    async with connected(agent_program) as (client, _):
        hello = await client.hello(20)
    assert set(SERIES_OF_WORKLOAD) <= set(hello.workloads)


async def test_impossible_requests_are_refused_with_a_reason(agent_program: Path) -> None:
    async with connected(agent_program) as (client, _):
        with pytest.raises(WorkloadFault, match=r"no workload 'fly'; it has: .*tick"):
            await client.run("fly", {}, deadline_s=30)
        with pytest.raises(WorkloadFault, match="CPU 999"):
            await client.run("tick", QUICK, cpus=[999], deadline_s=30)
        with pytest.raises(WorkloadFault, match="nothing"):
            await client.run("tick", {"nothing": 1}, deadline_s=30)
        with pytest.raises(WorkloadFault, match="not sampled"):
            await client.counters_stop()
        with pytest.raises(WorkloadFault, match="/proc/1/task/999999999"):
            await client.counters_start(threads=[(1, 999999999)])
        assert (await client.clock()).guest_ns > 0, "none of this harms the agent"


async def test_counters_are_sampled_next_to_a_load(agent_program: Path) -> None:
    async with connected(agent_program) as (client, agent):
        await client.counters_start(interval_ms=20, threads=[(agent.pid, agent.pid)])
        load = await client.start_load("cpu-load", {}, cpus=[CPU])
        with pytest.raises(WorkloadFault, match="already"):
            await client.counters_start()
        await asyncio.sleep(0.1)
        assert not load.ended
        assert (await load.stop()).value["operations"] > 0
        outcome = await client.counters_stop()
    (series,) = outcome.series
    assert outcome.value["dropped"] == 0
    time_ns = series.columns["time_ns"]
    assert len(time_ns) == outcome.value["samples"] >= 2
    assert np.all(np.diff(time_ns.astype(np.int64)) > 0)
    assert np.all(series.columns["mem.MemTotal"] > 0)
    assert f"thread.{agent.pid}.{agent.pid}.run_ns" in series.columns
    assert np.all(np.diff(series.columns[f"cpu{CPU}.user"].astype(np.int64)) >= 0)


async def test_runs_pass_a_barrier_together(agent_program: Path) -> None:
    async with connected(agent_program) as (one, _), connected(agent_program) as (two, _):
        barrier = Barrier(2)
        load = {"seconds": 0.05}
        outcomes = await asyncio.gather(
            one.run("cpu-load", load, barrier=barrier, deadline_s=60),
            two.run("cpu-load", load, barrier=barrier, deadline_s=60),
        )
    assert barrier.skew_ns is not None
    # One machine, one clock: no run may start before the other is ready.
    latest_accepted = max(outcome.timing["accepted_ns"] for outcome in outcomes)
    assert all(outcome.timing["started_ns"] >= latest_accepted for outcome in outcomes)


async def test_a_killed_agent_is_a_fault_at_once(agent_program: Path) -> None:
    async with connected(agent_program) as (client, agent):
        load = await client.start_load("cpu-load", {})
        agent.send_signal(signal.SIGKILL)
        with pytest.raises(MachineFault, match="agent of bare is gone"):
            await load.stop()


async def test_a_stopped_agent_is_a_fault_at_its_deadline(agent_program: Path) -> None:
    async with connected(agent_program) as (client, agent):
        await client.hello(10)
        agent.send_signal(signal.SIGSTOP)
        with pytest.raises(MachineFault, match=r"did not answer within 0\.3 s.*hello"):
            await client.clock(timeout_s=0.3)


async def test_without_its_host_the_agent_ends(agent_program: Path) -> None:
    async with process(agent_program) as agent:
        client = AgentClient(channel_of(agent), name="bare")
        await client.start_load("cpu-load", {})
        await client.close()
        assert await asyncio.wait_for(agent.wait(), 30) == 0


async def test_shutdown_ends_the_agent(agent_program: Path) -> None:
    async with connected(agent_program) as (client, agent):
        await client.start_load("cpu-load", {})
        await client.shutdown()
        assert await asyncio.wait_for(agent.wait(), 30) == 0


async def test_a_request_that_comes_twice_is_carried_out_once(agent_program: Path) -> None:
    messages: list[dict[str, object]] = []
    decoder = Decoder()

    async with process(agent_program) as agent:
        channel = channel_of(agent)

        async def ask(**message: object) -> None:
            await channel.send(encode(FrameKind.MESSAGE, 0, json.dumps(message).encode()))

        async def hear(count: int, **wanted: object) -> None:
            while sum(wanted.items() <= message.items() for message in messages) < count:
                for frame in decoder.feed(await channel.receive()):
                    messages.append(json.loads(frame.payload))

        run = {"op": "run", "id": 5, "workload": "cpu-load", "params": {}, "barrier": True}
        for _ in range(3):
            await ask(**run)
        await hear(3, type="accepted", id=5)
        await hear(1, type="ready", id=5)
        await ask(op="stop", id=6, target=5)
        await hear(1, type="error", id=5)
        await ask(**run)
        await hear(2, type="error", id=5)
        await ask(op="stop", id=6, target=5)
        await hear(2, type="result", id=6, value={"found": True})
        await channel.close()
    assert [message["type"] for message in messages].count("ready") == 1, "it was started once"


@pytest.mark.parametrize("seed", range(4))
async def test_noise_and_damage_change_no_result(agent_program: Path, seed: int) -> None:
    async with process(agent_program) as agent:
        noisy = NoisyChannel(channel_of(agent), seed, damage=0.2)
        client = AgentClient(noisy, name="bare", repeat_s=0.1)
        try:
            await client.hello(30)
            for _ in range(5):
                assert (await client.clock(timeout_s=30)).guest_ns > 0
            params = {**QUICK, "samples": 30_000, "loop_ns": 1000, "raw": True}
            outcome = await client.run("tick", params, cpus=[CPU], deadline_s=60)
            (raw,) = (series for series in outcome.series if series.name == "raw")
            assert all(len(column) == 30_000 for column in raw.columns.values())
            assert outcome.value["samples"] == 30_000
            assert client.noise.bytes > 0
            with pytest.raises(WorkloadFault, match="no workload"):
                await client.run("fly", {}, deadline_s=30)
        finally:
            await client.close()


async def test_garbage_does_not_end_the_agent(agent_program: Path) -> None:
    async with process(agent_program) as agent:
        channel = channel_of(agent)
        await channel.send(bytes(range(256)) * 40)
        for payload in (b"", b"[]", b"{", b'{"op":"run"}', b'{"op":"fly","id":3}', b"\xff"):
            await channel.send(encode(FrameKind.MESSAGE, 0, payload))
        await channel.send(encode(FrameKind.SERIES, 0, b"x"))
        await channel.send(b"\xf5TAR\x01\x00")
        client = AgentClient(channel, name="bare")
        assert (await client.hello(10)).role == "process"
        assert (await client.clock()).guest_ns > 0
        await client.close()
