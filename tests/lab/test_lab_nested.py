"""A machine in a machine of KVM boots and is measured, in a lab with an emulated processor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lab.lab_inside import SHAPE, Inside, inside
from lab.lab_kvm import kvm
from tare.analysis.topics.exit_reasons import reason_of
from tare.hosts.trace.exits import exit_recorder
from tare.lab.options import GIB, LabOptions
from tare.platforms.qemu.platform import Qemu, launch

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.timeout(3600),
    pytest.mark.asyncio(loop_scope="module"),
]

CPUID = 200
READY_S = 1500.0
"""An exit of the inner machine is some ten of the outer one, each of them emulated. So it boots
for many minutes."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kvm_lab(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("nested")
    async with inside(LabOptions("kvm", memory=3 * GIB), folder, agent_program, "generic") as found:
        yield found


async def test_the_inner_machine_is_measured_and_runs_in_the_outer_one(kvm_lab: Inside) -> None:
    context, options = kvm_lab.context, kvm(nested=True)
    prepared = await Qemu().prepare(context, options, SHAPE, realtime=False)
    image, program = prepared.extra["image"], prepared.extra["program"]
    machine = await launch(context, options, image, kvm_lab.spec(), program=program)
    try:
        proof = (await machine.ready(READY_S)).proof
        assert proof["hypervisor"]["signatures"] == ["KVMKVMKVM"]
        threads = await machine.vcpu_threads()
        async with exit_recorder(kvm_lab.host, kvm_lab.context.ledger) as recorder:
            await recorder.begin(threads)
            done = await machine.agent.run("exits", {"cpuid": CPUID}, deadline_s=READY_S)
            found = await recorder.end()
    finally:
        await machine.stop()
    names = {reason_of(each.isa, each.reason).name: each.count for each in found.counts}
    print(names, done.value)
    # The outer machine enters the inner one again after each of its exits.
    assert done.value["done"] == {"cpuid": CPUID}
    assert names["CPUID"] >= CPUID and names["VMRUN"] >= CPUID
    assert not kvm_lab.context.ledger.open_entries()


async def test_a_lab_whose_kvm_nests_says_so(kvm_lab: Inside) -> None:
    verdict = await Qemu().check(kvm_lab.context, kvm(nested=True))
    assert verdict.usable, verdict.reason
