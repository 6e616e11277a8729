"""A process that writes without end, or leaves its pipes to others, does not block Tare."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.processes import start_owned

FLOODS = {
    "output": "exec yes",
    "deaf": "trap '' TERM HUP INT; while :; do echo 0123456789012345678901234567890123456789; done",
    "both": "timeout 8 yes >&2 & exec yes",
    "left to a child": "trap '' TERM; (exec sleep 20) & exec yes",
    "silent, its child holds the pipe": "(exec sleep 20) & exit 0",
}


@pytest.fixture
def host(agent_program: Path) -> LocalHost:
    return LocalHost(agent_program)


@pytest.mark.parametrize("script", FLOODS.values(), ids=FLOODS)
async def test_a_process_with_unread_output_ends_on_request(
    host: LocalHost, tmp_path: Path, script: str
) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        process = await start_owned(host, ledger, ["sh", "-c", script])
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await process.end(0.3)
        assert time.monotonic() - began < 8
        assert process.returncode is not None and not ledger.open_entries()


async def test_the_exit_of_a_process_with_unread_output_is_noticed(
    host: LocalHost, tmp_path: Path
) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        script = "head -c 5000000 /dev/zero & sleep 0.3; exit 7"
        process = await start_owned(host, ledger, ["sh", "-c", script])
        assert await asyncio.wait_for(process.wait(), 5) == 7


async def test_all_that_a_process_wrote_is_there_once_it_has_ended(host: LocalHost) -> None:
    process = await host.start(["sh", "-c", "head -c 300000 /dev/zero; echo end"])
    assert await process.wait() == 0
    assert (await process.stdout.read()).endswith(b"end\n")


@pytest.mark.parametrize("script", [FLOODS["output"], FLOODS["left to a child"]])
async def test_a_command_that_floods_ends_with_its_time(host: LocalHost, script: str) -> None:
    began = time.monotonic()
    with pytest.raises(MachineFault, match="did not end within"):
        await host.run(["sh", "-c", script], timeout_s=0.5)
    assert time.monotonic() - began < 8


async def test_a_command_that_is_cancelled_while_it_floods_ends_at_once(host: LocalHost) -> None:
    running = asyncio.ensure_future(host.run(["sh", "-c", FLOODS["deaf"]]))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert time.monotonic() - began < 8


async def test_an_agent_that_floods_costs_its_machine_and_no_time(
    host: LocalHost, tmp_path: Path
) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        process = await start_owned(host, ledger, ["sh", "-c", FLOODS["deaf"]])
        agent = AgentClient(StreamChannel(process.stdout, process.stdin), name="box")
        began = time.monotonic()
        with pytest.raises(MachineFault):
            await agent.hello(1.0)
        await process.end(0.3)
        await agent.close()
        assert time.monotonic() - began < 12
