"""A bare machine that is to be kept to its memory is, page cache included."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tare.errors import MachineFault, WorkloadFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.ledger.cleanup import clean
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.bare import _explain as explained
from tare.platforms.contract import Context, Machine, MachineSpec, Shape
from tare.platforms.linux import memory_group as groups
from tare.platforms.linux.cgroups import CgroupMounts, cgroup_mounts
from tare.platforms.linux.memory_group import lacks_memory_groups, memory_group

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
MEMORY = 64 << 20
NAME = f"tare-test-memory-{os.getpid()}"
FILE = 2 * MEMORY
OPTIONS = frozenset({"memory_limit", "scheduling"})
READING = {
    "work": "sequential-read",
    "seconds": 1.5,
    "total_bytes": FILE,
    "direct": False,
    "cached": True,
}


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, tmp_path / "cache", agent_program)
        assert ledger.open_entries() == ()


async def machine(context: Context, disk: int = 0, **given: Any) -> Machine:
    """Start a bare machine of 64 MiB; options by their names, the rest is of its specification."""
    options = BareOptions.model_validate({name: given.pop(name) for name in OPTIONS & given.keys()})
    bare, shape = Bare(), Shape(1, MEMORY, disk)
    prepared = await bare.prepare(context, options, shape, False)
    spec = MachineSpec(NAME, shape, (), context.ledger.path.parent / NAME, False, **given)
    return await bare.start(context, options, prepared, spec)


async def kept_machine(context: Context) -> Machine:
    return await machine(context, keeps_memory=True)


async def group_of(context: Context) -> Path:
    folder = (await cgroup_mounts(context.host)).of("memory", NAME)
    assert folder is not None
    return folder


async def test_a_machine_reads_more_than_its_memory_and_keeps_to_it(
    context: Context, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    running = await kept_machine(context)
    await running.ready(20)
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
    await running.stop()
    assert not folder.exists()


async def test_processes_left_by_a_machine_end_with_its_group(context: Context) -> None:
    async with memory_group(context.host, context.ledger, NAME, MEMORY) as group:
        folder = group.folder
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
    folder = (await holding.__aenter__()).folder
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


async def share_from_the_disk(running: Machine) -> float:
    """Read a file of twice the memory over and over; return how much of that the disk read."""
    outcome = await running.agent.run("filebench", READING, deadline_s=120)
    result, disk = outcome.value, outcome.value["disk"]
    read = float(result["bytes_per_s"] * result["seconds"])
    assert read > 2.5 * FILE, result
    return float(disk["read_bytes_per_s"] * disk["seconds"]) / read


async def test_a_file_beyond_the_memory_comes_from_the_disk_and_not_from_the_host(
    context: Context,
) -> None:
    """Check that a sequential read finds nothing cached: 64 MiB could hold half of the file."""
    shares = {}
    for limit in ("auto", "none"):
        running = await machine(context, 4 * MEMORY, uses_disk=True, memory_limit=limit)
        try:
            hello = await running.ready(20)
            if not running.applied["disk"]["attached"].startswith("loop"):
                pytest.skip("no loop device can be had here")
            shares[limit] = await share_from_the_disk(running)
            kept = running.applied["memory"]
            assert kept["kept_to"] == (MEMORY if limit == "auto" else None)
            confined = hello.proof["confinement"]["memory_max"]
            assert (confined == str(MEMORY)) == (limit == "auto"), confined
        finally:
            await running.stop()
        assert not (await group_of(context)).exists()
    assert shares["auto"] > 0.9 and shares["none"] < 0.5, shares


async def test_a_machine_without_a_disk_has_the_hosts_memory_unless_asked(context: Context) -> None:
    for limit, kept in (("auto", False), ("shape", True)):
        running = await machine(context, memory_limit=limit)
        await running.ready(20)
        assert (await group_of(context)).exists() == kept == ("memory" in running.applied)
        await running.stop()


async def test_cpu_and_memory_are_limited_together(context: Context) -> None:
    """Version 2 has one group for both, version 1 one for each."""
    running = await machine(context, keeps_memory=True, scheduling={"weight": 50})
    await running.ready(20)
    assert running.applied["memory"]["kept_to"] == MEMORY
    assert running.applied["scheduling"]["group"]
    await running.stop()
    assert not (await group_of(context)).exists()


async def test_a_group_for_cpus_is_used_for_memory_too(context: Context) -> None:
    folder = await group_of(context)
    folder.mkdir()
    try:
        own = memory_group(context.host, context.ledger, NAME, MEMORY, own=folder)
        async with own as group:
            assert group.folder == folder
        assert folder.is_dir(), "it is its maker's to remove"
    finally:
        folder.rmdir()


async def test_a_machine_with_a_memory_limit_is_not_swapped(context: Context) -> None:
    async with memory_group(context.host, context.ledger, NAME, MEMORY) as group:
        first = group.folder / "memory.swappiness"
        file = first if first.exists() else group.folder / "memory.swap.max"
        if file.exists():
            assert file.read_text().strip() == "0"
        assert (group.record["swap"] == "off") == file.exists()


@pytest.mark.parametrize("swaps", [True, False])
async def test_limits_are_written_to_the_files_of_version_2(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    folder = tmp_path / NAME
    folder.mkdir()
    for file in ("memory.max", *["memory.swap.max"] * swaps):
        (folder / file).write_text("max\n")

    async def mounts(_: object) -> CgroupMounts:
        return CgroupMounts((tmp_path,), {}, tmp_path)

    monkeypatch.setattr(groups, "cgroup_mounts", mounts)
    async with memory_group(context.host, context.ledger, NAME, MEMORY, own=folder) as group:
        written = {file.name: file.read_text() for file in folder.iterdir()}
        assert written == {"memory.max": str(MEMORY), **({"memory.swap.max": "0"} if swaps else {})}
        assert group.record["swap"].startswith("off" if swaps else "not limited")
        assert await group.exhausted() == ""
        (folder / "memory.events").write_text("oom 1\noom_kill 1\n")
        assert "64 MiB" in await group.exhausted()


async def test_machine_that_exceeds_its_limit_ends_as_out_of_memory(
    context: Context,
) -> None:
    greedy = ["sh", "-c", f"head -c {2 * MEMORY} /dev/zero | tail -c {2 * MEMORY} >/dev/null"]
    async with memory_group(context.host, context.ledger, NAME, MEMORY) as group:
        assert await group.exhausted() == ""
        assert await explained(-9, group) == "the agent on the bare host was killed by signal 9"
        inside = [str(context.host_agent), "exec", "--cgroup", str(group.folder), "--"]
        await context.host.run([*inside, *greedy], timeout_s=60)
        assert await explained(-9, group) == (
            "the kernel killed the agent on the bare host: it needed more than the 64 MiB of "
            "memory that it is kept to"
        )


async def test_a_workload_knows_what_memory_its_machine_is_kept_to(context: Context) -> None:
    running = await kept_machine(context)
    await running.ready(20)
    greedy = {"seconds": 0.1, "array_bytes": 4 * MEMORY, "threads": 1}
    with pytest.raises(WorkloadFault, match="do not fit into 60 % of the 64 MiB available"):
        await running.agent.run("memory-bandwidth", greedy, deadline_s=60)
    await running.stop()


@pytest.mark.parametrize(
    ("offered", "granted", "why"),
    [
        ("cpu io memory", "cpu memory", ""),
        ("cpu io memory", "cpu io", "echo +memory > "),
        ("cpu io", "cpu", "the memory controller is not there"),
    ],
)
async def test_why_a_host_with_version_2_keeps_nothing_to_its_memory(
    context: Context,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    offered: str,
    granted: str,
    why: str,
) -> None:
    (tmp_path / "cgroup.controllers").write_text(offered)
    (tmp_path / "cgroup.subtree_control").write_text(granted)

    async def mounts(_: object) -> CgroupMounts:
        return CgroupMounts((tmp_path,), {}, tmp_path)

    monkeypatch.setattr(groups, "cgroup_mounts", mounts)
    reason = await lacks_memory_groups(context.host)
    assert why in reason and bool(reason) == bool(why)
    verdict = await Bare().check(context, BareOptions())
    assert verdict.usable and verdict.capabilities.no_own_cache == reason
    assert (reason in verdict.reason) or not reason
    wanting = await Bare().check(context, BareOptions(memory_limit="shape"))
    assert wanting.usable == (not why), wanting.reason


async def test_a_machine_runs_unkept_and_says_so_where_the_host_keeps_nothing(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lacks(_: object) -> str:
        return "the controller is away"

    monkeypatch.setattr("tare.platforms.bare.lacks_memory_groups", lacks)
    running = await machine(context, 4 * MEMORY, uses_disk=True)
    await running.ready(20)
    assert running.applied["memory"] == {"kept_to": None, "reason": "the controller is away"}
    await running.stop()
