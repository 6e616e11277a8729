from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.hosts_throttling import USUAL, OwnThrottling
from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.realtime import RT_RUNTIME, unthrottled
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Context, Machine, MachineSpec, Shape

OFF = "-1\n"
BARE = Bare()
SHAPE = Shape(1, 64 << 20)


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, tmp_path / "cache", agent_program)
        assert ledger.open_entries() == ()


async def start(
    context: Context, cpus: tuple[int, ...] = (), realtime: bool = False, role: str = "subject"
) -> Machine:
    prepared = await BARE.prepare(context, BareOptions(), SHAPE, realtime)
    name = f"tare-test-{role}"
    workdir = context.ledger.path.parent / name
    spec = MachineSpec(name, SHAPE, cpus, workdir, realtime)
    return await BARE.start(context, BareOptions(), prepared, spec)


def process_of(context: Context) -> int:
    (entry,) = [entry for entry in context.ledger.open_entries() if entry.kind == "process"]
    return int(entry.details["pid"])


async def test_check(context: Context) -> None:
    verdict = await BARE.check(context, BareOptions())
    assert verdict.usable, verdict.reason
    assert verdict.capabilities.max_vcpus == len(context.host.topology().online)
    assert any("memory" in note for note in verdict.capabilities.notes)


async def test_check_of_an_agent_that_does_not_run(context: Context, tmp_path: Path) -> None:
    broken = Context(context.host, context.ledger, context.cache, tmp_path / "nowhere")
    verdict = await BARE.check(broken, BareOptions())
    assert not verdict.usable
    assert "no command" in verdict.reason


async def test_a_machine_measures_and_leaves_nothing(context: Context) -> None:
    cpu = context.host.topology().online[-1]
    machine = await start(context, (cpu,))
    hello = await machine.ready(20)
    assert hello.role == "process"
    assert os.sched_getaffinity(process_of(context)) == {cpu}
    outcome = await machine.agent.run("numeric-sort", {"seconds": 0.05}, deadline_s=60)
    assert outcome.value
    cost = await machine.host_cost()
    assert cost["cpu_s"] > 0
    assert cost["rss_bytes"] > 1 << 19
    await machine.stop()
    await machine.stop()
    assert not machine.died.done()
    assert await machine.host_cost() == cost
    assert not (context.ledger.path.parent / "tare-test-subject").exists()


async def test_an_unpinned_machine_has_as_many_cpus_as_its_shape(context: Context) -> None:
    machine = await start(context)
    await machine.ready(20)
    cpus = os.sched_getaffinity(process_of(context))
    assert len(cpus) == 1
    # Reports use these, where its counters are the host's.
    assert set(machine.applied["keeps_to"]) == cpus
    await machine.stop()


async def test_throttling_is_off_until_the_last_machine_stops(
    context: Context, tmp_path: Path
) -> None:
    host = OwnThrottling(context.agent, tmp_path / "throttling")
    own = replace(context, host=host)
    one = await start(own, realtime=True)
    two = await start(own, realtime=True, role="neighbour")
    assert host.setting.read_text() == "-1\n"
    await one.stop()
    assert host.setting.read_text() == "-1\n"
    await two.stop()
    assert host.setting.read_text() == USUAL


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the kernel's settings needs root")
async def test_the_kernels_own_setting_is_turned_off_and_given_back(context: Context) -> None:
    seen = []
    # Another Tare here may change it at the same moment, but not at each of these.
    for _ in range(50):
        if (before := RT_RUNTIME.read_text()) != OFF:
            async with unthrottled(context.host, context.ledger) as problems:
                during = RT_RUNTIME.read_text()
            seen.append((problems, during, RT_RUNTIME.read_text()))
            if seen[-1] == ((), OFF, before):
                return
        await asyncio.sleep(0.1)
    if not seen:
        pytest.skip("somebody keeps real-time throttling off here")
    pytest.fail(f"throttling was never off and given back: {seen}")


async def test_an_agent_that_hangs_is_ended(context: Context) -> None:
    machine = await start(context)
    await machine.ready(20)
    os.kill(process_of(context), signal.SIGSTOP)
    await asyncio.wait_for(machine.stop(), 60)


async def test_an_agent_that_never_starts_says_why(context: Context, tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\necho 'no library for you' >&2\nexit 7\n")
    program.chmod(0o755)
    broken = Context(context.host, context.ledger, context.cache, program)
    machine = await start(broken)
    with pytest.raises(MachineFault, match="with status 7") as caught:
        await machine.ready(20)
    assert caught.value.console_tail == ("no library for you",)
    await machine.stop()
