"""A machine's own disk: the same in every arm, full when it is full, and removed afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tare.errors import InputError, MachineFault, WorkloadFault
from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.loops import attached, detach, mounted
from tare.images.cache import default_cache
from tare.platforms.contract import Context, Machine, MachineSpec, Shape
from tare.platforms.linux.disk import (
    FILE,
    MOUNTED,
    block_cache,
    forget_file,
    mounted_disk,
    owned_disk,
    require_room,
)
from tare.registry import installed

MIB = 1 << 20
DISK = 48 * MIB
MEMORY = 192 * MIB
PATIENCE_S = 120.0
QUICK = {
    "work": "varmail",
    "seconds": 0.3,
    "files": 40,
    "mean_bytes": 4096,
    "threads": 4,
    "memory_bytes": MEMORY,
}
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and mounts need root")
ARMS = [
    pytest.param("bare", {}, marks=ROOT),
    pytest.param(
        "oci",
        {},
        marks=[
            ROOT,
            pytest.mark.container,
            pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
        ],
    ),
    pytest.param("qemu", {}, marks=[pytest.mark.guest, pytest.mark.slow, pytest.mark.boots]),
    pytest.param(
        "qemu",
        {"devices": "emulated", "disk_cache": "writethrough"},
        marks=[pytest.mark.guest, pytest.mark.slow, pytest.mark.boots],
    ),
]


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
        assert ledger.open_entries() == ()


@asynccontextmanager
async def running(
    context: Context, platform: str, options: dict[str, Any], folder: Path
) -> AsyncIterator[tuple[Machine, dict[str, Any]]]:
    chosen = installed().platforms[platform]
    asked = chosen.options.model_validate(options)
    shape = Shape(1, MEMORY, DISK)
    prepared = await chosen.prepare(context, asked, shape, False)
    name = f"tare-test-{os.getpid()}-disk"
    workdir = folder / name
    machine = await chosen.start(
        context, asked, prepared, MachineSpec(name, shape, (), workdir, False)
    )
    try:
        hello = await machine.ready(PATIENCE_S)
        yield machine, dict(hello.proof)
    finally:
        await machine.stop()
    assert not workdir.exists()


def spec(folder: Path, size: int = DISK) -> MachineSpec:
    workdir = folder / "tare-machine"
    workdir.mkdir()
    return MachineSpec("tare-machine", Shape(1, MEMORY, size), (), workdir, False)


@pytest.mark.parametrize(("platform", "options"), ARMS)
async def test_every_arm_has_the_same_files_on_a_disk_that_is_proven(
    context: Context, tmp_path: Path, platform: str, options: dict[str, Any]
) -> None:
    async with running(context, platform, options, tmp_path) as (machine, proof):
        seen, applied = proof["scratch"], machine.applied["disk"]
        assert seen["file_system"] == "ext4"
        assert seen["options"] == "rw,nosuid,nodev,relatime"
        assert applied["bytes"] == DISK
        assert applied["file_system"] == "ext4"
        if platform == "qemu":
            through = options.get("disk_cache") == "writethrough"
            assert seen["cache"] == ("write through" if through else "write back")
            assert applied["cache_told_by_qemu"]["direct"] is not through
        else:
            assert seen["device"] == "loop"
        outcome = await machine.agent.run("filebench", QUICK, deadline_s=PATIENCE_S)
        assert outcome.value["operations"] > 0
        assert outcome.value["disk"]["write_bytes_per_s"] > 0
        assert outcome.value["caches_dropped"] == ("files" if platform == "oci" else "all")
        forgotten = await machine.forget_disk()
        assert forgotten["dropped"] != "nothing"
        # A disk that is too small is reported before anything is measured.
        with pytest.raises(WorkloadFault, match="disk is too small"):
            much = {**QUICK, "mean_bytes": 100 * MIB}
            await machine.agent.run("filebench", much, deadline_s=PATIENCE_S)


@ROOT
async def test_a_disk_that_fills_up_fails_the_workload_in_plain_words(
    context: Context, tmp_path: Path
) -> None:
    async with running(context, "bare", {}, tmp_path) as (machine, _):
        folder = next(tmp_path.glob(f"*/{MOUNTED}"))
        longer = {**QUICK, "seconds": 60}
        working = asyncio.create_task(machine.agent.run("filebench", longer, deadline_s=PATIENCE_S))
        while not list(folder.glob("*/f*")):
            await asyncio.sleep(0.05)
        with (folder / "ballast").open("wb", buffering=0) as ballast:
            # Again and again: what the workload deletes makes room.
            while not working.done():
                try:
                    ballast.write(bytes(MIB))
                except OSError:
                    with contextlib.suppress(OSError):
                        ballast.write(bytes(4096))
                    await asyncio.sleep(0)
        with pytest.raises(WorkloadFault, match=r"the machine's disk is full \(0 of \d+ MiB free"):
            await working


@ROOT
async def test_a_host_whose_disk_is_full_says_so_and_keeps_nothing(
    context: Context, tmp_path: Path
) -> None:
    host, small = context.host, tmp_path / "tare-small.img"
    place = tmp_path / "tare-small"
    place.mkdir()
    subprocess.run(["truncate", "-s", "100M", small], check=True)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-F", small], check=True)
    subprocess.run(["mount", "-o", "loop", small, place], check=True)
    try:
        with pytest.raises(InputError, match=r"the host's disk is full: .* MiB are free"):
            await require_room(host, DISK, place)
        given = spec(place)
        with pytest.raises(MachineFault, match="the host's disk is full"):
            async with owned_disk(context, given):
                pytest.fail("there is no room for it")
        assert list(given.workdir.iterdir()) == []
    finally:
        subprocess.run(["umount", place], check=True)
    assert not await attached(host, small)


@ROOT
async def test_mounts_left_by_a_killed_run_are_removed(context: Context, tmp_path: Path) -> None:
    given = spec(tmp_path)
    host, ledger = context.host, context.ledger
    held = mounted_disk(context, given)
    disk = await held.__aenter__()
    assert disk is not None
    file = given.workdir / FILE
    assert await mounted(host, disk.path)
    assert await attached(host, file)
    messages = await clean(host, ledger, {})
    assert len(messages) == 2
    assert not await mounted(host, disk.path)
    assert await attached(host, file) == ()
    # Undoing again, as the run itself would, finds nothing to do.
    await held.__aexit__(None, None, None)
    assert not file.exists()


async def test_a_disk_is_the_same_each_time(context: Context, tmp_path: Path) -> None:
    superblocks = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        async with owned_disk(context, spec(tmp_path / str(number))) as disk:
            assert disk is not None
            assert disk.file.stat().st_size == DISK
            block = disk.file.read_bytes()[1024:2048]
            # UUID, label and the seed of directories' hashes (ext4's super.rst).
            superblocks.append((block[0x68:0x78], block[0x78:0x88], block[0xEC:0xFC]))
            forgotten = await forget_file(context.host, disk.file)
            assert forgotten.get("cached_bytes_after", 0) == 0
        assert not disk.file.exists()
    assert superblocks[0] == superblocks[1]
    assert superblocks[0][1].rstrip(b"\0") == b"tare-scratch"


async def test_no_disk_is_made_where_none_is_asked_for(context: Context, tmp_path: Path) -> None:
    given = spec(tmp_path, 0)
    async with mounted_disk(context, given) as disk:
        assert disk is None
    assert list(given.workdir.iterdir()) == []
    assert await detach(context.host, given.workdir / FILE)


def test_qemus_words_of_a_cache_are_found_by_the_nodes_name() -> None:
    cache = {"writeback": True, "direct": False, "no-flush": False}
    blocks: list[dict[str, Any]] = [
        {"device": ""},
        {"inserted": {"node-name": "disk", "cache": cache}},
    ]
    assert block_cache(blocks, "disk") == cache
    assert block_cache(blocks, "other") is None
