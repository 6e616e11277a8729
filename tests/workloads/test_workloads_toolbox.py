"""The real applications of the real toolbox, on machines of several platforms, each verified."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.toolbox_small import real_toolbox
from platforms.libvirt_embedded import embedded
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.images.toolbox.toolbox import Toolbox
from tare.platforms.contract import Context, Machine, MachineSpec, Shape, ToolboxFiles
from tare.registry import installed
from tare.workloads import WORKLOADS, MachineFacts, fitted
from tare.workloads.applications.programs import PROGRAMS

MIB = 1 << 20
PATIENCE_S = 120.0
# Emulated processors take many times longer.
DEADLINE_S = 480.0
NAMES = [*(program.name for program in PROGRAMS), "openssl-aes", "scimark"]
QUICK: dict[str, dict[str, Any]] = {"scimark": {"duration": "10 ms"}}
PLACES = [
    pytest.param(
        "bare",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="entering the toolbox needs root"),
    ),
    pytest.param(
        "oci",
        marks=[
            pytest.mark.container,
            pytest.mark.skipif(os.geteuid() != 0, reason="containers need root"),
            pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
        ],
    ),
]

pytestmark = [pytest.mark.slow, pytest.mark.boots]


@pytest.fixture(scope="module")
def toolbox(agent_program: Path) -> Toolbox:
    return asyncio.run(real_toolbox(agent_program))


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    host = LocalHost(agent_program)
    needs = frozenset({"toolbox"})
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(host, ledger, default_cache(), agent_program, "cloud", needs=needs)
        assert ledger.open_entries() == ()


async def started(
    context: Context,
    platform: str,
    toolbox: Toolbox,
    memory: int,
    disk: int = 0,
    **chosen: Any,
) -> Machine:
    kind, name = installed().platforms[platform], f"tare-test-{os.getpid()}-tools"
    options, shape = kind.options.model_validate(chosen), Shape(1, memory, disk)
    prepared = await kind.prepare(context, options, shape, False)
    files = ToolboxFiles(toolbox.image, toolbox.digest, toolbox.tree)
    spec = MachineSpec(name, shape, (), context.ledger.path.parent / name, False)
    machine = await kind.start(context, options, prepared, replace(spec, toolbox=files))
    await machine.ready(PATIENCE_S)
    return machine


async def run_study(machine: Machine, name: str, toolbox: Toolbox) -> dict[str, float]:
    """Run an application once, and return its metrics once it is known to be right."""
    workload = WORKLOADS[name]
    parameters = workload.parameters.model_validate({"runs": 1, **QUICK.get(name, {})})
    outcome = await machine.agent.run(
        workload.agent_name, workload.request(parameters), deadline_s=DEADLINE_S
    )
    result = outcome.value
    assert result["repetitions"] == 1
    assert [check["verified"] for check in result["checks"]] == [True]
    assert result["toolbox"] == {"kind": "base", "key": toolbox.key}
    values = workload.observe(parameters, result)
    assert set(values) == {metric.name for metric in workload.metrics}
    assert min(value for metric, value in values.items() if metric != "system-time") > 0
    assert values["cpu-time"] >= values["system-time"] >= 0
    assert 1 * MIB < values["max-rss"] < workload.memory
    return values


def present(toolbox: Toolbox, names: Iterable[str]) -> list[str]:
    """Return the applications that the toolbox has: it says what could not be fetched."""
    if not toolbox.notes:
        return list(names)
    (note,) = toolbox.notes
    assert "SciMark" in note
    return [name for name in names if name != "scimark"]


@pytest.mark.parametrize("platform", PLACES)
async def test_every_application_runs_and_is_verified(
    platform: str, context: Context, toolbox: Toolbox
) -> None:
    machine = await started(context, platform, toolbox, 512 * MIB)
    try:
        for name in present(toolbox, NAMES):
            await run_study(machine, name, toolbox)
    finally:
        await machine.stop()


@pytest.fixture
def libvirt_uri() -> Iterator[str]:
    with embedded() as uri:
        yield uri


@pytest.mark.guest
@pytest.mark.skipif(os.geteuid() != 0, reason="libvirt's system driver needs root")
@pytest.mark.parametrize("machine_type", ["q35", "pc"])
async def test_an_application_runs_from_an_emulated_disk_of_libvirt(
    machine_type: str, context: Context, toolbox: Toolbox, libvirt_uri: str
) -> None:
    chosen = {"uri": libvirt_uri, "devices": "emulated", "machine": machine_type}
    # Debian's kernel for clouds has no drivers of emulated devices.
    general = replace(context, kernel="generic")
    machine = await started(general, "libvirt", toolbox, 512 * MIB, 64 * MIB, **chosen)
    try:
        await run_study(machine, "bzip2-decompress", toolbox)
    finally:
        await machine.stop()


@pytest.mark.parametrize("platform", PLACES)
async def test_the_real_fio_and_bonnie_work_on_the_machines_own_disk(
    platform: str, context: Context, toolbox: Toolbox
) -> None:
    machine = await started(context, platform, toolbox, 256 * MIB, 64 * MIB)
    try:
        fio = await disk_values(
            machine, "fio", mode="random-mixed", duration=1, total=4 * MIB, fsync=4
        )
        assert fio["rate"] == pytest.approx(fio["read-rate"] + fio["write-rate"])
        # 70 of 100 I/Os are reads; each is 4 KiB.
        assert fio["read-rate"] > fio["write-rate"] > 0
        assert fio["operations"] * 4096 == pytest.approx(fio["rate"], rel=0.01)
        assert fio["read-latency-median"] <= fio["read-latency-p99"] <= fio["read-latency-maximum"]
        assert fio["sync-latency-mean"] > 0
        bonnie = await disk_values(
            machine, "bonnie", size=8 * MIB, chars=False, files=0, concurrency=2
        )
        # What takes less than half a second Bonnie++ does not rate; every phase has a longest wait.
        assert {"put-block-latency", "rewrite-latency", "get-block-latency"} <= set(bonnie)
        assert "put-char" not in bonnie
    finally:
        await machine.stop()


async def disk_values(machine: Machine, name: str, **parameters: Any) -> dict[str, float]:
    workload = WORKLOADS[name]
    asked = workload.parameters.model_validate(parameters)
    request = fitted(workload, workload.request(asked), MachineFacts(memory=256 * MIB))
    outcome = await machine.agent.run(workload.agent_name, request, deadline_s=DEADLINE_S)
    values = workload.observe(asked, outcome.value)
    assert set(values) <= {metric.name for metric in workload.metrics}
    assert values["disk-written"] > 0
    return values


@pytest.mark.guest
async def test_applications_run_in_a_guest_and_write_the_same(
    context: Context, toolbox: Toolbox
) -> None:
    machine = await started(context, "qemu", toolbox, 384 * MIB)
    try:
        # The emulated processor's floating point and AES: other last bits would fail the check.
        for name in ("tidy", "openssl-aes", "oggenc"):
            await run_study(machine, name, toolbox)
    finally:
        await machine.stop()
