"""KVM guests in a lab: KVM itself, on a processor that QEMU emulates, reached over SSH."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lab.lab_inside import OWN, PATIENCE_S, SHAPE, Inside, inside
from lab.lab_kvm import booted, kvm
from tare.hosts.trace.threads import allowed_cpus
from tare.images.host_kernel import HOST
from tare.lab.options import GIB, LabOptions
from tare.platforms.contract import Capabilities, Context
from tare.platforms.qemu.enlightenments import kvm_features
from tare.platforms.qemu.machine import QemuMachine
from tare.platforms.qemu.offer import offer_of
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

HUGE = "/sys/kernel/mm/hugepages/hugepages-2048kB"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kvm_lab(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("kvm")
    async with inside(LabOptions("kvm", memory=2 * GIB), folder, agent_program, "rt") as found:
        yield found


class TestKvm(PlatformCases):
    platform = Qemu()
    options = kvm()
    patience_s = PATIENCE_S
    killed_words = "QEMU was killed by SIGKILL"

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls, kvm_lab: Inside) -> Context:
        return kvm_lab.context

    @pytest.fixture(scope="class")
    @classmethod
    def elsewhere(cls, kvm_lab: Inside) -> SecondHost:
        """This computer, where QEMU emulates its guest itself."""
        return SecondHost(kvm_lab.here, Qemu(), QemuOptions(accelerator="tcg"))

    @classmethod
    def cpus(cls, context: Context, able: Capabilities) -> tuple[int, ...]:
        return (OWN,)


def features(proof: Mapping[str, Any]) -> tuple[str, ...]:
    leaves = proof["hypervisor"]["leaves"]
    return kvm_features(int(leaves.get("40000001.0", "0").split()[0], 16))


async def test_the_labs_own_qemu_is_asked_what_it_offers(kvm_lab: Inside, tmp_path: Path) -> None:
    # With nothing remembered: this computer's QEMU may be the same one, or another.
    offer = await offer_of(kvm_lab.host, tmp_path)
    assert offer.accelerators == {"tcg", "kvm"}
    assert {"host", "EPYC"} <= offer.models


async def test_features_unknown_to_kvm_are_refused_in_qemus_words(kvm_lab: Inside) -> None:
    verdict = await Qemu().check(kvm_lab.context, kvm())
    assert verdict.usable, verdict.reason
    # KVM is the real one, but the processor below it is not.
    assert verdict.emulated
    unknown = await Qemu().check(kvm_lab.context, kvm(cpu="host,kvm-pv-nonsense=on"))
    assert not unknown.usable
    assert unknown.reason == "QEMU does not start with these options"
    assert "kvm-pv-nonsense' not found" in unknown.hint


async def test_a_guest_of_kvm_boots_the_kernel_that_its_host_runs(kvm_lab: Inside) -> None:
    """``kernel: host`` under KVM: image and modules come from the lab, over SSH."""
    release = (await kvm_lab.sh("uname -r")).strip()
    own = replace(kvm_lab, context=replace(kvm_lab.context, kernel=HOST))
    verdict = await Qemu().check(own.context, kvm())
    assert verdict.usable, verdict.reason
    async with booted(own, kvm()) as (_, proof):
        assert proof["kernel"]["release"] == release == kvm_lab.lab.image.kernel_version
        assert proof["hypervisor"]["signatures"] == ["KVMKVMKVM"]


async def test_two_guests_are_what_was_asked_for_and_share_a_cpu(kvm_lab: Inside) -> None:
    asked = kvm(emulator_cpus="other", mlock=True, enlightenments={"remove": ["kvm-pv-eoi"]})
    unlike = kvm(enlightenments={"kvm": False, "hyperv": True})
    async with (
        booted(kvm_lab, asked) as (subject, proof),
        booted(kvm_lab, unlike, "neighbour-1") as (neighbour, other),
    ):
        assert proof["hypervisor"]["signatures"] == ["KVMKVMKVM"]
        assert "kvm-clock" in proof["clocksource"]["available"]
        assert "kvm-steal-time" in features(proof)
        assert "kvm-pv-eoi" not in features(proof)
        # This one does not support KVM.
        assert other["hypervisor"]["signatures"] == ["Microsoft Hv"]
        assert "kvm-clock" not in other["clocksource"]["available"]
        assert "hyperv_clocksource_tsc_page" in other["clocksource"]["available"]
        for machine in (subject, neighbour):
            (thread,) = await machine.vcpu_threads()
            assert await allowed_cpus(kvm_lab.host, thread) == (OWN,)
        assert subject.applied["emulator"]["cpus"] == [0]
        locked = await kvm_lab.host.read(f"/proc/{subject.pid}/status")
        (kib,) = [line.split()[1] for line in locked.splitlines() if line.startswith(b"VmLck")]
        assert int(kib) << 10 >= SHAPE.memory
        await share_the_cpu(subject, neighbour)
    assert not kvm_lab.context.ledger.open_entries()


async def share_the_cpu(subject: QemuMachine, neighbour: QemuMachine) -> None:
    """Two busy vCPUs have one CPU: the host says so, and the guest feels it."""
    load = await neighbour.agent.start_load("cpu-load", {"threads": 1})
    before = await subject.host_cost()
    tick = {"seconds": 2.0, "allow_untrusted_tsc": True}
    contended = await subject.agent.run("tick", tick, deadline_s=PATIENCE_S)
    after = await subject.host_cost()
    await load.stop(PATIENCE_S)
    assert after["vcpu_run_delay_s"] - before["vcpu_run_delay_s"] > 0.4
    assert contended.value["stolen_share"] > 0.2
    assert contended.timing["stolen_ns"] > 0.2e9


@pytest.mark.acceptance
async def test_huge_pages_of_the_host_carry_the_guests_memory(kvm_lab: Inside) -> None:
    options = kvm(hugepages=True, devices="emulated")
    none = await Qemu().check(kvm_lab.context, options)
    assert not none.usable
    assert "huge" in none.reason
    # Memory is in pieces by now, so what is free has to be moved together first.
    await kvm_lab.sh(
        "echo 3 >/proc/sys/vm/drop_caches; echo 1 >/proc/sys/vm/compact_memory; "
        f"echo {(SHAPE.memory >> 21) + 8} >{HUGE}/nr_hugepages"
    )
    free = int(await kvm_lab.sh(f"cat {HUGE}/free_hugepages"))
    async with booted(kvm_lab, options) as (_, proof):
        assert free - int(await kvm_lab.sh(f"cat {HUGE}/free_hugepages")) == SHAPE.memory >> 21
        # Emulated devices together with the real hypervisor.
        assert proof["hypervisor"]["signatures"] == ["KVMKVMKVM"]
        assert {nic["driver"] for nic in proof["nics"]} == {"e1000"}
    assert int(await kvm_lab.sh(f"cat {HUGE}/free_hugepages")) == free
    await kvm_lab.sh(f"echo 0 >{HUGE}/nr_hugepages")
    assert not kvm_lab.context.ledger.open_entries()


# A lab of its own; in `make test` a run in counted time is on such a lab without a guest.
@pytest.mark.acceptance
async def test_a_lab_whose_idle_minutes_pass_at_once_loses_nothing_meanwhile(
    agent_program: Path, tmp_path: Path
) -> None:
    options = LabOptions("kvm", cpus=1, memory=2 * GIB, deterministic=True)
    async with inside(options, tmp_path, agent_program, "generic") as lab:
        slept = await lab.host.run(["sh", "-c", "sleep 600; echo later"], timeout_s=PATIENCE_S)
        assert slept.stdout == b"later\n"
        async with booted(lab, kvm(), cpu=0) as (machine, _):
            done = await machine.agent.run("numeric-sort", {"seconds": 0.1}, deadline_s=PATIENCE_S)
            assert done.value["iterations_per_s"] > 0
