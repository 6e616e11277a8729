"""Knobs on real processes, containers and guests: they take, are proven, and leave nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.processes import kill_and_wait
from tare.images.cache import default_cache
from tare.platforms.bare import Bare
from tare.platforms.contract import Context, Machine, MachineSpec, Platform, Shape
from tare.platforms.linux.cgroups import cgroup_mounts
from tare.platforms.linux.cpu_groups import cpu_group, offered_by_groups
from tare.platforms.linux.scheduling import linux_knobs, offered_by_threads
from tare.platforms.oci.platform import Oci
from tare.platforms.qemu.platform import Qemu
from tare.platforms.scheduling import Scheduling

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="scheduling others needs root")

SHAPE = Shape(vcpus=1, memory=192 << 20)
PATIENCE_S = 120.0
TICK = {"seconds": 1.0, "loop_ns": 20_000, "allow_untrusted_tsc": True}

PLATFORMS = [
    pytest.param(Bare(), id="bare"),
    pytest.param(
        Oci(),
        id="oci",
        marks=[
            pytest.mark.container,
            pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
        ],
    ),
    pytest.param(Qemu(), id="qemu", marks=[pytest.mark.guest, pytest.mark.slow]),
]
Start = Callable[..., Awaitable[Machine]]


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    host = LocalHost(agent_program)
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(host, ledger, default_cache(), agent_program, "rt")
        assert ledger.open_entries() == ()


@pytest.fixture
async def start(context: Context, tmp_path: Path) -> AsyncIterator[Start]:
    machines: list[Machine] = []

    async def run(platform: Platform[Any], scheduling: dict[str, Any], **more: Any) -> Machine:
        if "slice" in scheduling:
            offered, lacking = await offered_by_threads(context)
            if "slice" not in offered:
                pytest.skip(lacking["slice"])
        options = platform.options.model_validate({"scheduling": scheduling, **more})
        name = f"tare-test-{os.getpid()}-{len(machines)}"
        cpu = max(os.sched_getaffinity(0))
        spec = MachineSpec(name, SHAPE, (cpu,), tmp_path / name, False)
        prepared = await platform.prepare(context, options, SHAPE, True)
        machine = await platform.start(context, options, prepared, spec)
        machines.append(machine)
        await machine.ready(PATIENCE_S)
        return machine

    yield run
    for machine in machines:
        await machine.stop()
        assert await groups_of(context, machine.name) == []


async def groups_of(context: Context, name: str) -> list[Path]:
    mounts = await cgroup_mounts(context.host)
    return [folder / name for folder in mounts.folders if (folder / name).exists()]


async def test_this_host_offers_what_linux_has(context: Context) -> None:
    knobs, lacking = await linux_knobs(context)
    assert knobs >= {"policy", "nice", "fifo"}
    assert lacking["reservation"]
    assert knobs | set(lacking) == {
        *("policy", "fifo", "nice", "slice", "weight", "cap", "reservation")
    }


async def test_an_agent_that_does_not_run_lacks_knobs_and_says_why(
    context: Context, tmp_path: Path
) -> None:
    nowhere = Context(context.host, context.ledger, context.cache, tmp_path / "nowhere")
    offered, lacking = await offered_by_threads(nowhere)
    assert offered == frozenset()
    assert all("nowhere" in reason for reason in lacking.values())


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_threads_are_scheduled_as_asked(start: Start, platform: Platform[Any]) -> None:
    machine = await start(platform, {"policy": "batch", "nice": -7, "slice": "3ms"})
    proof = machine.applied["scheduling"]
    (alike,) = proof["threads"]
    assert (alike["policy"], alike["nice"], alike["slice_ns"]) == ("SCHED_BATCH", -7, 3_000_000)
    threads = alike["threads"]
    assert all(os.sched_getscheduler(thread) == os.SCHED_BATCH for thread in threads)
    assert all(os.getpriority(os.PRIO_PROCESS, thread) == -7 for thread in threads)
    if platform.name == "qemu":
        assert set(threads) == set(await machine.vcpu_threads())
    else:
        found = await machine.agent.run("tick", TICK, deadline_s=60)
        assert found.value["policy"] == "SCHED_BATCH"


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_a_real_time_machine_takes_its_cpu(start: Start, platform: Platform[Any]) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a real-time machine needs another CPU for the host")
    machine = await start(platform, {"policy": "fifo", "priority": 2})
    (alike,) = machine.applied["scheduling"]["threads"]
    assert (alike["policy"], alike["priority"]) == ("SCHED_FIFO", 2)
    found = await machine.agent.run("tick", TICK, deadline_s=60)
    # In a guest the workload's own choice counts; the vCPU is the host's affair.
    assert found.value["policy"] == "SCHED_FIFO"


@pytest.mark.parametrize("platform", PLATFORMS[:2])
async def test_an_endless_real_time_load_can_still_be_stopped(
    start: Start, platform: Platform[Any]
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a real-time machine needs another CPU for the host")
    machine = await start(platform, {"policy": "fifo"})
    load = await machine.agent.start_load("cpu-load", {})
    (thread,) = await machine.measuring_threads() or (0,)
    if thread:
        assert os.sched_getparam(thread).sched_priority == 1
    await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        outcome = await load.stop()
    assert outcome.value["seconds"] > 0


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_a_cap_takes_its_part_in_gaps_as_long_as_the_rest_of_its_period(
    start: Start, context: Context, platform: Platform[Any]
) -> None:
    if "cap" not in (await offered_by_groups(context.host))[0]:
        pytest.skip("no control groups with quotas here")
    # Its weight is so great that nothing else here keeps it below its cap.
    machine = await start(platform, {"cap": "25 %", "period": "80ms", "weight": 10_000})
    group = machine.applied["scheduling"]["group"]
    folder = Path(group["path"])
    assert folder.name == machine.name
    assert {"20000", "80000"} <= {word for value in group.values() for word in value.split()}
    before = throttled(folder)
    found = await machine.agent.run("tick", {**TICK, "seconds": 2.0}, deadline_s=60)
    assert throttled(folder) > before
    # A busy host may take more; it cannot take less.
    assert found.value["stolen_share"] > 0.7
    assert found.value["excess_max_s"] > 0.05


def throttled(folder: Path) -> int:
    fields = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
    return int(fields["nr_throttled"])


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(("asked", "shares"), [({"weight": 1000}, 10240), ({"nice": -10}, 9548)])
async def test_a_group_weighs_what_was_asked(
    start: Start, context: Context, platform: Platform[Any], asked: dict[str, int], shares: int
) -> None:
    machine = await start(platform, asked)
    proof = machine.applied["scheduling"]
    if "group" not in proof:
        # A process or a guest that is nice keeps its session, which is then as nice.
        assert "nice" in asked
        enabled = Path("/proc/sys/kernel/sched_autogroup_enabled")
        if enabled.exists() and enabled.read_text().strip() == "1":
            assert proof["session"].endswith("nice -10")
        return
    folder = Path(proof["group"]["path"])
    if (folder / "cpu.shares").exists():
        assert int((folder / "cpu.shares").read_text()) == shares
    else:
        assert int((folder / "cpu.weight").read_text()) == round(shares * 100 / 1024)


@pytest.mark.parametrize("platform", PLATFORMS[:1])
async def test_neighbours_are_scheduled_by_their_own_knobs(
    context: Context, tmp_path: Path, platform: Platform[Any]
) -> None:
    options = platform.options.model_validate(
        {"scheduling": {"nice": -3}, "neighbour_scheduling": {"nice": 4}}
    )
    prepared = await platform.prepare(context, options, SHAPE, False)
    for role, nice in (("subject", -3), ("neighbour-1", 4)):
        name = f"tare-test-{os.getpid()}-{role}"
        spec = MachineSpec(name, SHAPE, (), tmp_path / name, False, role)
        machine = await platform.start(context, options, prepared, spec)
        await machine.ready(PATIENCE_S)
        (alike,) = machine.applied["scheduling"]["threads"]
        assert (alike["policy"], alike["nice"]) == ("SCHED_OTHER", nice)
        await machine.stop()


@pytest.mark.parametrize("platform", PLATFORMS[:1])
async def test_a_machine_that_lost_its_settings_is_refused(
    context: Context, tmp_path: Path, platform: Platform[Any]
) -> None:
    options = platform.options.model_validate({"scheduling": {"nice": 3}})
    prepared = await platform.prepare(context, options, SHAPE, False)
    name = f"tare-test-{os.getpid()}-changed"
    spec = MachineSpec(name, SHAPE, (), tmp_path / name, False)
    machine = await platform.start(context, options, prepared, spec)
    (entry,) = [entry for entry in context.ledger.open_entries() if entry.kind == "process"]
    pid = int(entry.details["pid"])
    # Only once it has become the agent: until then it makes itself nice.
    await machine.agent.hello(PATIENCE_S)
    os.setpriority(os.PRIO_PROCESS, pid, 9)
    with pytest.raises(MachineFault, match="nice was set to 3, but the kernel says 9"):
        await machine.ready(PATIENCE_S)
    await machine.stop()


async def test_refused_group_is_reported_in_the_kernels_words(context: Context) -> None:
    if not (await offered_by_groups(context.host))[0]:
        pytest.skip("no control groups here")
    wanted = Scheduling(weight=200)
    name = f"tare-test-{os.getpid()}-twice"
    async with cpu_group(context.host, context.ledger, name, wanted, throttled=False) as group:
        assert group is not None
        with pytest.raises(MachineFault, match="File exists"):
            async with cpu_group(
                context.host, context.ledger, f"{name}/../{name}", wanted, throttled=False
            ):
                raise AssertionError("made twice")
        assert group.folder.exists(), "it was not the second one's to remove"
    assert not group.folder.exists()


async def test_clean_removes_the_group_of_a_killed_run(context: Context) -> None:
    if not (await offered_by_groups(context.host))[0]:
        pytest.skip("no control groups here")
    name = f"tare-test-{os.getpid()}-left"
    holding = cpu_group(context.host, context.ledger, name, Scheduling(weight=200), throttled=False)
    group = await holding.__aenter__()
    assert group is not None
    inside = await asyncio.create_subprocess_exec(
        str(context.agent), "exec", *group.flags, "--", "sleep", "300"
    )
    async with asyncio.timeout(60):
        while str(inside.pid) not in (group.folder / "cgroup.procs").read_text().split():
            await asyncio.sleep(0.01)
    try:
        messages = await clean(context.host, context.ledger, {})
    finally:
        await kill_and_wait(context.host, [inside.pid])
        await inside.wait()
    assert not group.folder.exists()
    assert messages == [f"Removed cgroup {group.folder}."]
    assert context.ledger.open_entries() == ()
