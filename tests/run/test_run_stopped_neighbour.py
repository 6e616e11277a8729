"""A stopped neighbour is not a load: the host's figures show it on every platform."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from deadlines import patient
from tare.agent.barrier import Barrier
from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Context, Machine, MachineSpec, Platform, Shape
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.run.cells import neighbours
from tare.run.cells.neighbours import LoadReport, Loads, Neighbour, wanted_as_guests_see
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
        marks=[pytest.mark.guest, pytest.mark.slow, pytest.mark.boots],
    ),
]
LONG_S = 2.0
Start = Callable[[Platform[Any], Any, int], Awaitable[Loads]]


@pytest.fixture
async def start(tmp_path: Path, agent_program: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as held:
        ledger = held.enter_context(Ledger(tmp_path / "ledger"))
        context = Context(LocalHost(agent_program), ledger, default_cache(), agent_program, "rt")

        numbers = count(1)

        async def run(platform: Platform[Any], options: Any, memory: int) -> Loads:
            shape = Shape(1, memory)
            name = f"tare-test-{os.getpid()}-neighbour-{next(numbers)}"
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
    start: Start, platform: Platform[Any], options: Any, memory: int
) -> None:
    report = await worked(start, platform, options, memory)
    assert report.ran_share is not None
    assert report.wanted_share is not None
    assert report.wanted_share >= report.ran_share > 0
    assert report.busy == 1
    assert report.values["rate"] > 0


async def worked(start: Start, platform: Platform[Any], options: Any, memory: int) -> LoadReport:
    """Return what a neighbour did; it may stand still truly, once or twice, on a busy computer.

    A thread of QEMU's that is kept from its CPU may hold what the thread of the vCPU waits for.
    """
    for _ in range(3):
        loads = await start(platform, options, memory)
        await asyncio.sleep(LONG_S)
        try:
            (report,) = await loads.end()
        except MachineFault as fault:
            stalled = fault
            await loads.neighbours[0].machine.stop()
            continue
        return report
    raise stalled


@pytest.mark.parametrize(("platform", "options", "memory"), PLATFORMS)
async def test_stopped_neighbour_is_reported_without_waiting_for_it(
    start: Start, platform: Platform[Any], options: Any, memory: int
) -> None:
    loads = await start(platform, options, memory)
    processes = await members(loads)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        await asyncio.sleep(LONG_S)
        with pytest.raises(MachineFault, match="neighbour-1 stalled"):
            async with asyncio.timeout(patient(60)):
                await loads.end()
        async with asyncio.timeout(patient(60)):
            await loads.abandon()
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


class Figures:
    """A machine that consists of the host's figures alone, one sample at a time."""

    name = "tare-test-figures"

    def __init__(self, *costs: tuple[float, float], vcpus: int = 0) -> None:
        self._costs = list(costs)
        self._vcpus = {f"vcpu{number}_run_delay_s": 0.0 for number in range(vcpus)}

    async def host_cost(self) -> dict[str, float]:
        ran, waited = self._costs.pop(0) if len(self._costs) > 1 else self._costs[0]
        kind = "vcpu" if self._vcpus else "threads"
        return {f"{kind}_cpu_s": ran, f"{kind}_run_delay_s": waited, **self._vcpus}


async def proven(machine: Figures, threads: int, elapsed_s: float) -> dict[str, Any]:
    neighbour = Neighbour("neighbour-1", cast("Machine", machine), "cpu-load", {})
    loads = Loads((neighbour,), {"cpu-load": CpuLoad()}, MachineFacts())
    loads._before["neighbour-1"] = await machine.host_cost()
    loads._began = time.monotonic() - elapsed_s
    return await loads._proven(neighbour, threads)


async def test_a_wait_that_is_counted_late_is_not_a_stall() -> None:
    late = Figures((1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.5, 11.0))
    share = await proven(late, 1, 10.0)
    assert share["ran_share"] == pytest.approx(0.0, abs=0.01)
    assert share["wanted_share"] >= 0.99


async def test_a_short_cell_is_watched_beyond_its_end() -> None:
    share = await proven(Figures((0.0, 0.0), (0.0, 0.0), (0.0, 0.002), (9.0, 0.0)), 1, 0.005)
    assert share["wanted_share"] > 0.5


@pytest.mark.parametrize(
    ("threads", "vcpus", "ran", "stalled"),
    [(1, 0, 9.5, False), (1, 0, 5.0, True), (2, 0, 10.0, True), (5, 2, 19.5, False)],
)
async def test_every_thread_of_a_load_must_want_a_cpu(
    monkeypatch: pytest.MonkeyPatch, threads: int, vcpus: int, ran: float, stalled: bool
) -> None:
    monkeypatch.setattr(neighbours, "PATIENCE_S", 0.05)
    machine = Figures((0.0, 0.0), (ran, 0.0), vcpus=vcpus)
    if stalled:
        with pytest.raises(MachineFault, match="stalled"):
            await proven(machine, threads, 10.0)
    else:
        assert (await proven(machine, threads, 10.0))["busy"] == min(threads, vcpus or threads)


async def test_where_the_host_says_nothing_nothing_is_claimed() -> None:
    neighbour = Neighbour("neighbour-1", cast("Machine", Silent()), "cpu-load", {})
    loads = Loads((neighbour,), {"cpu-load": CpuLoad()}, MachineFacts())
    loads._before["neighbour-1"] = {}
    share = await loads._proven(neighbour, 1)
    assert (share["ran_share"], share["wanted_share"]) == (None, None)


def test_guests_account_replaces_a_missing_host_account() -> None:
    timing = {"started_ns": 10**9, "ended_ns": 3 * 10**9, "stolen_ns": 10**9}
    assert wanted_as_guests_see(0.5, timing) == pytest.approx(1.0)
    assert wanted_as_guests_see(None, timing) is None
    assert wanted_as_guests_see(0.5, {}) is None
    # No hypervisor reported steal to this guest's kernel.
    assert wanted_as_guests_see(0.5, {**timing, "stolen_ns": 0}) is None


class Silent:
    """A machine that the host has no figures for."""

    async def host_cost(self) -> dict[str, float]:
        return {"cpu_s": 1.0}
