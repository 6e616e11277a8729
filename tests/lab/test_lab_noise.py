"""osnoise and hwlat measure the noise of a lab whose kernel has them, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.lab_inside import inside
from tare.events import NoiseMeasured
from tare.hosts.trace.noise import HWLAT, measure_noise
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
            assert await lab.sh(SHARED.format(root=root)) == before
            await lab.sh(f"mkdir {root}/instances/mine; echo hwlat >{root}/instances/mine/cur*er")
            with pytest.raises(NoTracing, match=r"somebody uses .* hwlat in its instance mine"):
                await measure_noise(host, ledger, cpus, SECONDS)
            await lab.sh(f"cat {root}/instances/mine/cur*er; rmdir {root}/instances/mine")
        print(before)
        print(found)
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
    # Debian 12's real-time kernel, 6.1, has no OSNOISE_IRQ_DISABLE yet.
    assert found.by == HWLAT
    for one in (*found.firmware, *found.system):
        assert 0 <= one.taken_s <= one.watched_s
        assert one.longest_s <= max(one.taken_s, one.longest_s)
    assert {one.cpu for one in found.firmware} == {one.cpu for one in found.system} == set(cpus)
    # An emulated computer's timer interrupts are noise, and its emulator takes longer at times.
    assert all(one.irqs > 0 and one.taken_s > 0 for one in found.system)
    assert max(one.longest_s for one in found.firmware) > 0
