"""osnoise and hwlat measure the noise of a lab whose kernel has them, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.lab_inside import inside
from tare.events import NoiseMeasured
from tare.hosts.trace.noise import OSNOISE, THRESHOLD_US, NoiseMeasurement, measure_noise
from tare.hosts.trace.tracefs import NoTracing, tracing_root
from tare.lab.options import GIB, LabOptions
from tare.run.preflight.noise import noise_check

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.timeout(900),
    pytest.mark.asyncio,
]

SECONDS = 3.0
SHARED = """
cd {root}; for file in tracing_thresh osnoise/* hwlat_detector/*; do echo $file $(cat $file); done
cat current_tracer; ls instances
"""


async def test_noise_is_measured_by_a_kernel_with_both_tracers(
    agent_program: Path, tmp_path: Path
) -> None:
    options = LabOptions("none", memory=1 * GIB, kernel="rt")
    async with inside(options, tmp_path, agent_program, "generic") as lab:
        host, ledger = lab.host, lab.context.ledger
        cpus = host.topology().online
        async with tracing_root(host, ledger) as root:
            before = await lab.sh(SHARED.format(root=root))
            found = await measure_noise(host, ledger, cpus, SECONDS)
            by_hwlat = await NoiseMeasurement(host, ledger, root, cpus, SECONDS).hwlat()
            assert await lab.sh(SHARED.format(root=root)) == before
            await lab.sh(
                f"mkdir {root}/instances/mine; echo hwlat >{root}/instances/mine/current_tracer"
            )
            with pytest.raises(
                NoTracing, match=r"another process uses .* hwlat in its instance mine"
            ):
                await measure_noise(host, ledger, cpus, SECONDS)
            await lab.sh(f"cat {root}/instances/mine/current_tracer; rmdir {root}/instances/mine")
        print(before)
        print(found)
        print(by_hwlat)
        event = NoiseMeasured(
            took_s=2 * SECONDS,
            by=found.by,
            firmware=found.firmware,
            system=found.system,
            limit_s=1e-4,
            virtual=True,
            emulated=True,
        )
        print(noise_check(event).found)
    # Debian 12's real-time kernel has OSNOISE_IRQ_DISABLE, so hwlat is only asked by this test.
    assert found.by == OSNOISE
    assert {one.cpu for one in by_hwlat} == set(cpus)
    # The lab's emulator takes more than 5 us now and then.
    assert max(one.longest_s for one in by_hwlat) > THRESHOLD_US * 1e-6
    assert all(one.irqs == one.softirqs == one.threads == 0 for one in found.firmware)
    for one in (*found.firmware, *found.system):
        assert 0 <= one.longest_s <= one.taken_s <= one.watched_s
    assert {one.cpu for one in found.firmware} == {one.cpu for one in found.system} == set(cpus)
    # An emulated computer's timer interrupts are noise, and its emulator takes longer at times.
    assert all(one.irqs > 0 and one.taken_s > 0 for one in found.system)
    assert max(one.longest_s for one in found.firmware) > 0
