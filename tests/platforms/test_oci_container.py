from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from hosts.hosts_throttling import USUAL, OwnThrottling
from tare import programs as program_table
from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.processes import start_time
from tare.platforms.contract import Context, Machine, MachineSpec, Shape
from tare.platforms.linux.cgroups import cgroup_mounts
from tare.platforms.oci import platform as oci
from tare.platforms.oci import runtime as runtimes
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
from tare.platforms.oci.runtime import root_file_system
from tare.platforms.oci.seccomp import SeccompName
from tare.run.lifecycle.undoers import all_undoers

OCI = Oci()
AUTO = OciOptions()
MIB = 1 << 20

pytestmark = [
    pytest.mark.container,
    pytest.mark.skipif(os.geteuid() != 0, reason="containers with real-time work need root"),
    pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
]


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    host = OwnThrottling(agent_program, tmp_path / "throttling")
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(host, ledger, tmp_path / "cache", agent_program)
        assert ledger.open_entries() == ()
        assert host.setting.read_text() == USUAL


def throttling(context: Context) -> str:
    assert isinstance(context.host, OwnThrottling)
    return context.host.setting.read_text().strip()


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., MachineSpec]:
    def make(role: str = "subject", memory: int = 64 * MIB, **more: Any) -> MachineSpec:
        name = f"tare-test-{os.getpid()}-{role}"
        given = {"cpus": (), "realtime": False, **more}
        return MachineSpec(name, Shape(1, memory), workdir=tmp_path / name, **given)

    return make


async def start(context: Context, spec: MachineSpec, options: OciOptions = AUTO) -> Machine:
    prepared = await OCI.prepare(context, options, spec.shape, spec.realtime)
    machine = await OCI.start(context, options, prepared, spec)
    await machine.ready(20)
    return machine


async def own_copy(context: Context, monkeypatch: pytest.MonkeyPatch, name: str) -> Path:
    """Return a copy of the containers' root file system that they are given from now on."""
    copy = context.cache / name
    shutil.copytree(await root_file_system(context), copy)

    async def copied(_: Context) -> Path:
        return copy

    monkeypatch.setattr(oci, "root_file_system", copied)
    return copy


async def leftovers(name: str) -> list[Path]:
    mounts = await cgroup_mounts(LocalHost())
    return [folder / name for folder in mounts.folders if (folder / name).exists()]


async def inside(spec: MachineSpec) -> int:
    """Return the host's id of the first process in the container."""
    mounts = await cgroup_mounts(LocalHost())
    group = mounts.of("memory", spec.name)
    assert group is not None
    return int((group / "cgroup.procs").read_text().split()[0])


async def test_a_runtime_is_found_by_running_it(context: Context) -> None:
    verdict = await OCI.check(context, AUTO)
    assert verdict.usable, verdict.reason
    assert "ran a container" in verdict.reason
    assert verdict.capabilities.pinning
    assert {"runc", "crun"} & set(verdict.versions)


async def test_a_runtime_that_is_not_there_comes_with_what_to_do(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test").symlink_to("/usr/bin/test")
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = await OCI.check(context, OciOptions(runtime="runsc"))
    assert not verdict.usable
    assert verdict.reason == "runsc is not installed"
    assert verdict.hint == "apt-get install --no-remove runsc"


@pytest.mark.parametrize("runtime", ["auto", "runc"])
async def test_a_runtime_outside_the_path_is_used(
    context: Context,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runtime: Literal["auto", "runc"],
) -> None:
    """As Docker's snap, CRI-O and Kubernetes bring one."""
    own = tmp_path / "snap/docker/7/bin/runc"
    own.parent.mkdir(parents=True)
    own.symlink_to(str(shutil.which("runc")))
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if tool.name not in ("crun", "runc"):
            (programs / tool.name).symlink_to(tool)
    pattern = f"{tmp_path}/snap/docker/*/bin/runc"
    elsewhere = replace(program_table.RUNC, names=("docker-runc",), files=(pattern,))
    monkeypatch.setattr(program_table, "SYSTEM_FOLDERS", ("/nowhere",))
    table = {"crun": program_table.CRUN, "runc": elsewhere}
    monkeypatch.setattr(runtimes, "RUNTIMES", table)
    monkeypatch.setenv("PATH", str(programs))
    verdict = await OCI.check(context, OciOptions(runtime=runtime))
    assert verdict.usable, (verdict.reason, verdict.hint)
    assert f"ran a container (as {own})" in verdict.reason


async def test_message_of_the_runtime_is_reported(context: Context, tmp_path: Path) -> None:
    broken = tmp_path / "agent"
    broken.write_text("no program")
    other = Context(context.host, context.ledger, context.cache, broken)
    verdict = await OCI.check(other, OciOptions(runtime="runc"))
    assert not verdict.usable
    assert verdict.reason.endswith(" does not run a container here")
    todo, _, words = verdict.hint.partition(" (runc reported: ")
    assert todo
    assert "exec format error" in words


async def test_a_container_is_what_the_shape_says(
    context: Context, spec: Callable[..., MachineSpec]
) -> None:
    cpu = context.host.topology().online[-1]
    wanted = spec(memory=64 * MIB, cpus=(cpu,), realtime=True)
    machine = await start(context, wanted)
    try:
        first = await inside(wanted)
        assert os.sched_getaffinity(first) == {cpu}
        mounts = await cgroup_mounts(context.host)
        for name in ("memory.limit_in_bytes", "memory.max"):
            group = mounts.of("memory", wanted.name)
            assert group is not None
            if (group / name).exists():
                assert int((group / name).read_text()) == 64 * MIB
        assert throttling(context) == "-1"
        found = await machine.agent.run(
            "switch", {"samples": 200, "allow_untrusted_tsc": True}, deadline_s=60
        )
        assert found.value["policy"] == "SCHED_FIFO"
        cost = await machine.host_cost()
        assert cost["cpu_s"] > 0
        assert cost["rss_bytes"] > 0
        assert await machine.vcpu_threads() == ()
        assert set(machine.applied["keeps_to"]) == os.sched_getaffinity(await inside(wanted))
    finally:
        await machine.stop()
    await machine.stop()
    assert not machine.died.done()
    assert throttling(context) == USUAL.strip()
    assert await leftovers(wanted.name) == []
    assert not wanted.workdir.exists()


@pytest.mark.parametrize(("seccomp", "mode"), [("none", "0"), ("docker", "2")])
async def test_calls_are_filtered_where_that_is_asked_for(
    context: Context, spec: Callable[..., MachineSpec], seccomp: SeccompName, mode: str
) -> None:
    wanted = spec(realtime=True)
    machine = await start(context, wanted, OciOptions(runtime="runc", seccomp=seccomp))
    try:
        status = Path(f"/proc/{await inside(wanted)}/status").read_text()
        assert f"Seccomp:\t{mode}\n" in status
        applied = machine.applied["runs_as"]
        assert applied["seccomp"] == seccomp and applied["filtered"] == (mode == "2")
        # CAP_IPC_LOCK and CAP_SYS_NICE alone.
        assert int(applied["capabilities"], 16) == 1 << 14 | 1 << 23
        assert applied["no_new_privileges"]
        # What is measured works under it, real-time priority and threads too.
        asked = {"samples": 100, "threads": 2, "allow_untrusted_tsc": True}
        found = await machine.agent.run("switch", asked, deadline_s=60)
        assert found.value["policy"] == "SCHED_FIFO"
    finally:
        await machine.stop()


async def test_neighbours_share_the_changed_setting(
    context: Context, spec: Callable[..., MachineSpec]
) -> None:
    one = await start(context, spec("subject", realtime=True))
    two = await start(context, spec("neighbour", realtime=True))
    first, second = await inside(spec("subject")), await inside(spec("neighbour"))
    if len(context.host.topology().online) > 1:
        assert os.sched_getaffinity(first) != os.sched_getaffinity(second)
    await one.stop()
    assert throttling(context) == "-1"
    await two.stop()
    assert throttling(context) == USUAL.strip()


@pytest.mark.skipif(not shutil.which("busybox"), reason="busybox-static is not installed")
async def test_out_of_memory_is_reported_as_such(
    context: Context, spec: Callable[..., MachineSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = spec(memory=32 * MIB)
    prepared = await OCI.prepare(context, AUTO, wanted.shape, False)
    greedy = await own_copy(context, monkeypatch, "greedy")
    shutil.copy(str(shutil.which("busybox")), greedy / "sh")
    shutil.copy(greedy / "sh", greedy / "busybox")
    (greedy / "tare-agent").write_text(
        "#!/sh\nexec /busybox dd if=/dev/zero of=/dev/null bs=99M count=1\n"
    )
    machine = await OCI.start(context, AUTO, prepared, wanted)
    with pytest.raises(MachineFault, match="needed more than its 32 MiB"):
        await machine.ready(20)
    await machine.stop()
    assert await leftovers(wanted.name) == []


async def test_a_container_that_does_not_start_says_why(
    context: Context, spec: Callable[..., MachineSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = spec()
    prepared = await OCI.prepare(context, AUTO, wanted.shape, False)
    broken = await own_copy(context, monkeypatch, "broken")
    (broken / "tare-agent").write_text("no program")
    machine = await OCI.start(context, AUTO, prepared, wanted)
    with pytest.raises(MachineFault) as caught:
        await machine.ready(20)
    assert any("exec format error" in line for line in caught.value.console_tail)
    await machine.stop()
    assert await leftovers(wanted.name) == []


PARENT = """
import asyncio, sys
from pathlib import Path
from hosts.hosts_throttling import OwnThrottling
from tare.hosts import Ledger
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
async def main():
    agent, setting, ledger, cache, name = sys.argv[1:]
    host = OwnThrottling(Path(agent), Path(setting))
    context = Context(host, Ledger(Path(ledger)), Path(cache), Path(agent))
    shape = Shape(1, 64 << 20)
    prepared = await Oci().prepare(context, OciOptions(), shape, True)
    spec = MachineSpec(name, shape, (), Path(ledger).parent / name, True)
    machine = await Oci().start(context, OciOptions(), prepared, spec)
    await machine.ready(20)
    await machine.agent.start_load("cpu-load", {})
    print("measuring", flush=True)
    await asyncio.sleep(300)
asyncio.run(main())
"""


async def test_clean_undoes_what_a_killed_tare_left(tmp_path: Path, agent_program: Path) -> None:
    host = OwnThrottling(agent_program, tmp_path / "throttling")
    name = f"tare-test-{os.getpid()}-killed"
    ledger_file = tmp_path / "ledger"
    arguments = [*map(str, (agent_program, host.setting, ledger_file, tmp_path / "cache")), name]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "measuring\n"
    mounts = await cgroup_mounts(host)
    group = mounts.of("memory", name)
    assert group is not None
    child = int((group / "cgroup.procs").read_text().split()[0])
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while await start_time(host, child) is not None:
        assert time.monotonic() < deadline, "the container outlived its killed parent"
        await asyncio.sleep(0.01)
    assert host.setting.read_text().strip() == "-1"
    with Ledger(ledger_file) as ledger:
        messages = await clean(host, ledger, all_undoers())
        assert ledger.open_entries() == (), messages
        assert await clean(host, ledger, all_undoers()) == []
    assert host.setting.read_text() == USUAL
    assert await leftovers(name) == []
    assert not (tmp_path / name).exists()
    assert any("sched_rt_runtime_us" in sentence for sentence in messages)


async def test_the_root_is_not_made_twice(context: Context) -> None:
    assert await root_file_system(context) == await root_file_system(context)
