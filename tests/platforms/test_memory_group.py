"""A bare machine that is to be kept to its memory is, page cache included."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.ledger.cleanup import clean
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Context, Machine, MachineSpec, Shape
from tare.platforms.linux.memory_group import memory_group
from tare.platforms.oci.cgroups import cgroup_mounts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
MEMORY = 64 << 20
NAME = f"tare-test-memory-{os.getpid()}"


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, tmp_path / "cache", agent_program)
        assert ledger.open_entries() == ()


async def kept_machine(context: Context) -> Machine:
    bare, options, shape = Bare(), BareOptions(), Shape(1, MEMORY)
    prepared = await bare.prepare(context, options, shape, False)
    spec = MachineSpec(NAME, shape, (), context.ledger.path.parent / NAME, False)
    return await bare.start(context, options, prepared, replace(spec, keeps_memory=True))


async def group_of(context: Context) -> Path:
    folder = (await cgroup_mounts(context.host)).of("memory", NAME)
    assert folder is not None
    return folder


async def test_a_machine_reads_more_than_its_memory_and_keeps_to_it(
    context: Context, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    machine = await kept_machine(context)
    await machine.ready(20)
    folder = await group_of(context)
    members = (folder / "cgroup.procs").read_text().split()
    assert members
    agent = str(context.host_agent)
    writing = ["sh", "-c", f"head -c {2 * MEMORY} /dev/zero >{big}; cat {big} >/dev/null"]
    done = await context.host.run([agent, "exec", "--cgroup", str(folder), "--", *writing])
    assert done.ok, done.words()
    first = folder / "memory.max_usage_in_bytes"
    most = first if first.exists() else folder / "memory.peak"
    if most.exists():
        # The page cache counts: without a limit the file would be there twice over.
        assert MEMORY // 2 < int(most.read_text()) <= MEMORY
    await machine.stop()
    assert not folder.exists()


async def test_what_a_machine_left_running_goes_with_its_group(context: Context) -> None:
    async with memory_group(context.host, context.ledger, NAME, MEMORY) as folder:
        argv = [str(context.host_agent), "exec", "--cgroup", str(folder), "--", "setsid", "sleep"]
        orphan = await asyncio.create_subprocess_exec(*argv, "600")
        for _ in range(500):
            if str(orphan.pid) in (folder / "cgroup.procs").read_text().split():
                break
            await asyncio.sleep(0.01)
    assert await orphan.wait() != 0
    assert not folder.exists()


async def test_a_group_is_cleaned_by_the_ledger_alone(context: Context) -> None:
    holding = memory_group(context.host, context.ledger, NAME, MEMORY)
    folder = await holding.__aenter__()
    assert folder.is_dir()
    await clean(context.host, context.ledger, {})
    assert not folder.exists()
    await holding.__aexit__(None, None, None)


async def test_a_group_that_is_there_already_stays(context: Context) -> None:
    folder = await group_of(context)
    folder.mkdir()
    try:
        with pytest.raises(MachineFault, match="cannot be made"):
            async with memory_group(context.host, context.ledger, NAME, MEMORY):
                pass
        assert folder.is_dir()
    finally:
        folder.rmdir()
