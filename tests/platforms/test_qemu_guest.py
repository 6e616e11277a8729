"""Guests in a real QEMU: they boot, are pinned, are lost in every way, and leave nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tare.errors import InputError, MachineFault, WorkloadFault
from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.processes import start_time
from tare.images.cache import default_cache
from tare.platforms.contract import Context, MachineSpec, Prepared, Shape
from tare.platforms.qemu.command import kernel_arguments
from tare.platforms.qemu.machine import QemuMachine
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import MIN_MEMORY, Qemu, launch

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.boots]

SHAPE = Shape(vcpus=1, memory=192 << 20)
# Long enough for a computer that is busy with something else.
PATIENCE_S = 120.0
Start = Callable[..., Awaitable[QemuMachine]]


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Context:
    host = LocalHost(agent_program)
    return Context(host, Ledger(tmp_path / "ledger"), default_cache(), agent_program, "rt")


@pytest.fixture
async def start(context: Context, tmp_path: Path) -> AsyncIterator[Start]:
    machines: list[QemuMachine] = []

    async def run(
        options: QemuOptions | None = None,
        *,
        shape: Shape = SHAPE,
        cpus: tuple[int, ...] = (),
        append: tuple[str, ...] | None = None,
        workdir: Path | None = None,
    ) -> QemuMachine:
        chosen = options or QemuOptions()
        prepared = await prepare(context, chosen, shape)
        spec = MachineSpec("tare-test-1-subject", shape, cpus, workdir or tmp_path / "tare-m", True)
        machine = await launch(context, chosen, prepared.extra["image"], spec, append=append)
        machines.append(machine)
        return machine

    yield run
    for machine in machines:
        await machine.stop()


async def prepare(context: Context, options: QemuOptions, shape: Shape = SHAPE) -> Prepared:
    return await Qemu().prepare(context, options, shape, True)


def nothing_is_left(context: Context, machine: QemuMachine, workdir: Path) -> bool:
    return (
        not context.ledger.open_entries()
        and not workdir.exists()
        and not Path(f"/proc/{machine.pid}").exists()
    )


# What every platform's guests do, tests/platforms/test_conformance.py sees of these too.


async def test_each_vcpu_is_pinned_in_turn_and_costs(start: Start) -> None:
    cpus = tuple(sorted(os.sched_getaffinity(0)))[:2]
    machine = await start(shape=Shape(vcpus=3, memory=256 << 20), cpus=cpus)
    proof = (await machine.ready(PATIENCE_S)).proof
    assert proof["topology"]["online"] == "0-2"
    assert proof["kernel"]["preempt"] == "rt"
    assert {nic["driver"] for nic in proof["nics"]} == {"virtio_net"}
    assert len(proof["disks"]) == 1
    threads = await machine.vcpu_threads()
    assert [os.sched_getaffinity(thread) for thread in threads] == [
        {cpus[number % len(cpus)]} for number in range(3)
    ]
    cost = await machine.host_cost()
    assert cost["vcpu_cpu_s"] > 0
    assert cost["rss_bytes"] > 1 << 20
    assert all(cost[f"vcpu{number}_run_delay_s"] >= 0 for number in range(3))


async def test_the_tick_stops_where_that_was_asked_for_and_the_work_is_done_there(
    start: Start,
) -> None:
    machine = await start(QemuOptions(nohz_full=True), shape=Shape(vcpus=3, memory=256 << 20))
    proof = (await machine.ready(PATIENCE_S)).proof
    assert proof["topology"]["tickless"] == "1-2"
    assert proof["kernel"]["tick_hz"] > 0
    asked = {"threads": 2, "samples": 1000, "allow_untrusted_tsc": True}
    assert machine.inner_cpus == (1, 2)
    outcome = await machine.agent.run("switch", asked, cpus=machine.inner_cpus, deadline_s=60)
    assert outcome.value["cpu"] in machine.inner_cpus


async def test_the_guests_kernel_has_the_settings_that_were_asked_for(start: Start) -> None:
    machine = await start(
        QemuOptions(
            guest_clocksource="acpi_pm",
            guest_mitigations="off",
            guest_idle="halt",
            guest_x2apic=False,
        )
    )
    proof = (await machine.ready(PATIENCE_S)).proof
    assert proof["clocksource"]["current"] == "acpi_pm"
    assert {"mitigations=off", "idle=halt", "nox2apic"} <= set(proof["kernel"]["cmdline"].split())
    assert not any("Mitigation" in str(text) for text in proof["mitigations"].values())


async def test_a_guest_can_read_the_tsc(start: Start) -> None:
    machine = await start(QemuOptions(guest_clocksource="tsc", guest_idle="poll"))
    proof = (await machine.ready(PATIENCE_S)).proof
    assert proof["clocksource"]["current"] in ("tsc", "tsc-early")


async def test_nothing_is_measured_if_the_kernel_lacks_a_setting(start: Start) -> None:
    # A real-time kernel has no transparent huge pages.
    machine = await start(QemuOptions(guest_huge_pages="never"))
    with pytest.raises(MachineFault, match="transparent huge pages: unknown instead of never"):
        await machine.ready(PATIENCE_S)


async def test_a_killed_qemu_ends_the_wait_for_a_guest(start: Start) -> None:
    machine = await start()
    asyncio.get_running_loop().call_later(0.3, os.kill, machine.pid, signal.SIGKILL)
    with pytest.raises(MachineFault, match="killed by SIGKILL"):
        await machine.ready(PATIENCE_S)


async def test_panic_is_reported_in_the_kernels_words(start: Start) -> None:
    words = (*kernel_arguments(QemuOptions()), "rdinit=/nonexistent", "init=/nonexistent")
    machine = await start(append=words)
    with pytest.raises(MachineFault, match="the guest's kernel panicked: ") as caught:
        await machine.ready(PATIENCE_S)
    assert any("Kernel panic" in line for line in caught.value.console_tail)
    assert machine.died.done()


async def test_panic_without_reboot_is_reported(start: Start) -> None:
    # panic=0: the kernel stops, and QEMU keeps running.
    words = (*kernel_arguments(QemuOptions()), "panic=0", "rdinit=/none", "init=/none")
    machine = await start(append=words)
    with pytest.raises(MachineFault, match="the guest's kernel panicked: "):
        await machine.ready(PATIENCE_S)


async def test_a_guest_that_never_answers_meets_its_deadline(
    start: Start, context: Context, tmp_path: Path
) -> None:
    words = (*kernel_arguments(QemuOptions(), channel="tare.nobody"), "loglevel=7")
    machine = await start(append=tuple(word for word in words if word != "quiet"))
    began = time.monotonic()
    with pytest.raises(
        MachineFault, match=r"did not answer within 4 s; last console line: "
    ) as caught:
        await machine.ready(4.0)
    assert time.monotonic() - began < PATIENCE_S
    assert caught.value.console_tail
    await machine.stop()
    assert nothing_is_left(context, machine, tmp_path / "tare-m")


async def test_noise_on_the_channel_and_console_does_no_harm(start: Start) -> None:
    # The kernel's own messages go to the console and, on the same line as the agent, the channel.
    words = kernel_arguments(QemuOptions(devices="emulated"))
    noisy = ("console=ttyS1,115200", *(word for word in words if word != "quiet"), "loglevel=8")
    machine = await start(QemuOptions(devices="emulated"), append=noisy)
    hello = await machine.ready(PATIENCE_S)
    assert "console=ttyS1,115200" in hello.proof["kernel"]["cmdline"]
    assert machine.agent.noise.bytes > 1000


async def test_too_little_memory_is_reported_by_qemu_or_the_kernel(start: Start) -> None:
    with pytest.raises(MachineFault):
        machine = await start(shape=Shape(vcpus=1, memory=1 << 20))
        await machine.ready(PATIENCE_S)


async def test_the_least_memory_is_enough(start: Start) -> None:
    machine = await start(QemuOptions(devices="emulated"), shape=Shape(1, MIN_MEMORY))
    proof = (await machine.ready(PATIENCE_S)).proof
    assert proof["kernel"]["preempt"] == "rt"
    assert {nic["driver"] for nic in proof["nics"]} == {"e1000"}
    assert len(proof["disks"]) == 1


async def test_more_threads_than_memory_holds_are_refused_and_the_guest_lives_on(
    start: Start,
) -> None:
    machine = await start(shape=replace(SHAPE, memory=128 << 20))
    await machine.ready(PATIENCE_S)
    asked = {"threads": 1000, "samples": 1000, "allow_untrusted_tsc": True}
    with pytest.raises(WorkloadFault, match="1000 threads need about"):
        await machine.agent.run("switch", asked, deadline_s=60)
    outcome = await machine.agent.run("switch", asked | {"threads": 50}, deadline_s=60)
    assert outcome.value["samples"] > 0


async def test_refused_option_is_reported_in_qemus_words(
    start: Start, context: Context, tmp_path: Path
) -> None:
    with pytest.raises(MachineFault, match=r"QEMU ended with code 1: .*nonsense"):
        await start(QemuOptions(cpu="nonsense"))
    assert not context.ledger.open_entries()
    assert not (tmp_path / "tare-m").exists()
    verdict = await Qemu().check(context, QemuOptions(cpu="nonsense"))
    assert not verdict.usable
    assert "nonsense" in verdict.reason


async def test_a_folder_with_a_long_name_gets_its_sockets_elsewhere(
    start: Start, context: Context, tmp_path: Path
) -> None:
    workdir = tmp_path / ("tare-" + "x" * 120)
    machine = await start(workdir=workdir)
    await machine.ready(PATIENCE_S)
    await machine.stop()
    assert nothing_is_left(context, machine, workdir)


async def test_the_cloud_kernel_has_no_emulated_devices(context: Context) -> None:
    with pytest.raises(InputError, match="has no module e1000"):
        await prepare(replace(context, kernel="cloud"), QemuOptions(devices="emulated"))


async def test_kvm_is_usable_only_if_a_guest_boots(context: Context) -> None:
    verdict = await Qemu().check(context, QemuOptions(accelerator="kvm"))
    assert not verdict.emulated
    if verdict.usable:
        assert verdict.reason == "a guest booted under KVM"
    else:
        assert verdict.reason
        assert verdict.hint
    assert not context.ledger.open_entries()
    again = await Qemu().check(context, QemuOptions(accelerator="kvm"))
    assert again.usable == verdict.usable
    # If the host was busy it is asked again, and was busy in another way.
    first, second = (each.reason.partition("; the host was busy")[0] for each in (verdict, again))
    assert first == second


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1])
async def test_a_cancelled_start_leaves_nothing_behind(
    start: Start, context: Context, tmp_path: Path, after_s: float
) -> None:
    await prepare(context, QemuOptions())
    starting = asyncio.ensure_future(start())
    await asyncio.sleep(after_s)
    starting.cancel()
    await asyncio.wait({starting})
    if not starting.cancelled():
        await starting.result().stop()
    assert not context.ledger.open_entries()
    assert not (tmp_path / "tare-m").exists()


SCRIPT = """
import asyncio, sys
from pathlib import Path
from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.processes import start_time
from tare.images.cache import default_cache
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.qemu.platform import Qemu
from tare.platforms.qemu.options import QemuOptions

async def main(folder, agent):
    context = Context(LocalHost(agent), Ledger(folder / "ledger"), default_cache(), agent, "rt")
    shape = Shape(1, 192 << 20)
    prepared = await Qemu().prepare(context, QemuOptions(), shape, True)
    spec = MachineSpec("tare-test-1-subject", shape, (), folder / "tare-m", True)
    machine = await Qemu().start(context, QemuOptions(), prepared, spec)
    print(machine.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
"""


async def test_when_tare_is_killed_qemu_ends_and_the_ledger_knows_the_rest(
    tmp_path: Path, agent_program: Path
) -> None:
    tare = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, str(tmp_path), str(agent_program),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert tare.stdout is not None
    qemu = int(await asyncio.wait_for(tare.stdout.readline(), PATIENCE_S))
    host = LocalHost(agent_program)
    assert await start_time(host, qemu) is not None
    tare.kill()
    await tare.wait()
    async with asyncio.timeout(60):
        while await start_time(host, qemu) is not None:
            await asyncio.sleep(0.02)
    assert (tmp_path / "tare-m").exists()
    ledger = Ledger(tmp_path / "ledger")
    assert {entry.kind for entry in ledger.open_entries()} == {"directory", "process"}
    await clean(host, ledger, {})
    assert not ledger.open_entries()
    assert not (tmp_path / "tare-m").exists()
