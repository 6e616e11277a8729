"""A neighbour that stands still is no load: the host's figures show it on every platform."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tare.agent.barrier import Barrier
from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.base import Context, Machine, MachineSpec, Platform, Shape
from tare.platforms.oci import Oci, OciOptions
from tare.platforms.qemu import Qemu
from tare.platforms.qemu_options import QemuOptions
from tare.run.neighbours import LoadReport, Loads, Neighbour, _busy
from tare.workloads import MachineFacts
from tare.workloads.loads import CpuLoad

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PLATFORMS = [
    pytest.param(Bare(), BareOptions(), 64 << 20, id="bare"),
    pytest.param(
        Oci(),
        OciOptions(),
        64 << 20,
        id="oci",
        marks=[
            ROOT,
            pytest.mark.container,
            pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
        ],
    ),
    pytest.param(
        Qemu(),
        QemuOptions(),
        192 << 20,
        id="qemu",
        marks=[pytest.mark.guest, pytest.mark.slow],
    ),
]
LONG_S = 1.0
Start = Callable[[Platform, Any, int], Awaitable[Loads]]


@pytest.fixture
async def start(tmp_path: Path, agent_program: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as held:
        ledger = held.enter_context(Ledger(tmp_path / "ledger"))
        context = Context(LocalHost(agent_program), ledger, default_cache(), agent_program, "rt")

        async def run(platform: Platform, options: Any, memory: int) -> Loads:
            shape = Shape(1, memory)
            name = f"tare-test-{os.getpid()}-neighbour"
            prepared = await platform.prepare(context, options, shape, True)
            spec = MachineSpec(name, shape, (), tmp_path / name, True, "neighbour-1")
            machine: Machine = await platform.start(context, options, prepared, spec)
            held.push_async_callback(machine.stop)
            await machine.ready(120)
            neighbour = Neighbour("neighbour-1", machine, "cpu-load", {})
            loads = Loads((neighbour,), {"cpu-load": CpuLoad()}, MachineFacts(memory=memory))
            await loads.begin(Barrier(1))
            return loads

        yield run
    assert ledger.open_entries() == ()


async def members(loads: Loads) -> set[int]:
    """Return the ids of the processes whose threads carry the load."""
    threads = await loads.neighbours[0].machine.threads()
    found = set()
    for thread in threads:
        with suppress(OSError):
            status = Path(f"/proc/{thread}/status").read_text()
            found.add(int(status.split("Tgid:")[1].split()[0]))
    return found


@pytest.mark.parametrize(("platform", "options", "memory"), PLATFORMS)
async def test_a_neighbour_that_works_wants_its_cpu_throughout(
    start: Start, platform: Platform, options: Any, memory: int
) -> None:
    loads = await start(platform, options, memory)
    await asyncio.sleep(LONG_S)
    (report,) = await loads.end()
    assert report.ran_share is not None
    assert report.wanted_share is not None
    assert report.wanted_share >= report.ran_share > 0
    assert report.busy == 1
    report.require_load()
    assert report.values["rate"] > 0


@pytest.mark.parametrize(("platform", "options", "memory"), PLATFORMS)
async def test_a_neighbour_that_stands_still_is_told_without_waiting_for_it(
    start: Start, platform: Platform, options: Any, memory: int
) -> None:
    loads = await start(platform, options, memory)
    processes = await members(loads)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        await asyncio.sleep(LONG_S)
        with pytest.raises(MachineFault, match="neighbour-1 stalled"):
            async with asyncio.timeout(10):
                await loads.end()
        async with asyncio.timeout(10):
            await loads.abandon()
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize(
    ("share", "busy", "stalled"),
    [(0.95, 1, False), (0.5, 1, True), (1.0, 2, True), (1.9, 2, False)],
)
def test_every_thread_of_a_load_must_want_a_cpu(share: float, busy: int, stalled: bool) -> None:
    report = LoadReport("neighbour-1", "cpu-load", {}, share, share, busy)
    if stalled:
        with pytest.raises(MachineFault, match="stalled"):
            report.require_load()
    else:
        report.require_load()
    LoadReport("neighbour-1", "cpu-load", {}, None, None, busy).require_load()


def test_a_guest_keeps_no_more_vcpus_busy_than_it_has() -> None:
    vcpus = {"vcpu_run_delay_s": 0.0, "vcpu0_run_delay_s": 0.0, "vcpu1_run_delay_s": 0.0}
    assert _busy({"threads": 1}, vcpus) == 1
    assert _busy({"threads": 5}, vcpus) == 2
    assert _busy({"threads": 5}, {"threads_run_delay_s": 0.0}) == 5
    assert _busy({}, {}) == 1
