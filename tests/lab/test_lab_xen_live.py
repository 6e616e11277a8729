"""The live image as a whole PC of Xen's: its firmware reads the CD, the agent finds the console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from images.live_guest import make_disc
from lab.lab_inside import PATIENCE_S, Inside, inside, require_hardware_guests
from tare.images.ship import copy_to_host
from tare.lab.options import GIB, MIB, LabOptions
from tare.platforms.vendors.configuration import configuration_image
from tare.platforms.xen.machine import XenMachine
from tare.platforms.xen.options import XenOptions

# Its firmware is emulated inside an emulation, and reads the CD a sector at a time.
pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]

HELLO_S = 1200.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def xen_lab(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("xen")
    options = LabOptions("xen", memory=3 * GIB, dom0_memory=768 * MIB, scheduler="credit")
    async with inside(options, folder, agent_program, "generic") as found:
        yield found


def guest(machine: XenMachine, image: Path, configuration: Path) -> str:
    """Return the text that ``xl create`` takes: a PC with two CDs, and nothing else."""
    cds = [
        f"'format=raw,vdev={name},access=ro,devtype=cdrom,target={file}'"
        for name, file in (("hdc", image), ("hdd", configuration))
    ]
    settings = {
        "name": f"'{machine.name}'",
        "uuid": f"'{machine.uuid}'",
        "type": "'hvm'",
        "memory": "512",
        "vcpus": "1",
        "cpus": "['1']",
        "tsc_mode": "'native'",
        "nomigrate": "1",
        "on_reboot": "'destroy'",
        "on_crash": "'destroy'",
        "disk": f"[{', '.join(cds)}]",
        "boot": "'d'",
        "serial": "'pty'",
        "vnc": "0",
        "vga": "'none'",
        "usb": "0",
    }
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


async def test_the_live_image_boots_as_an_hvm_guest(
    xen_lab: Inside, agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require_hardware_guests()
    folder = tmp_path_factory.mktemp("live")
    # What makes it runs a loop of its own.
    image = await asyncio.to_thread(make_disc, agent_program, folder / "tare.iso", None)
    configuration = folder / "configuration.iso"
    configuration.write_bytes(
        configuration_image({"version": 1, "serial": "hvc0", "key": "0f" * 32})
    )
    there = [await copy_to_host(xen_lab.host, file) for file in (image, configuration)]
    machine = XenMachine(
        xen_lab.context, XenOptions(type="hvm", scheduler="credit"), xen_lab.spec()
    )
    try:
        await machine.run(lambda _uuid, _disks: guest(machine, *there))
        hello = await machine.ready(HELLO_S)
        assert "XenVMMXenVMM" in hello.proof["hypervisor"]["signatures"]
        assert hello.proof["live"]["configuration"].startswith("/dev/sr")
        done = await machine.agent.run("numeric-sort", {"seconds": 0.2}, deadline_s=PATIENCE_S)
        assert done.value["iterations_per_s"] > 0
    finally:
        await machine.stop()
    assert not xen_lab.context.ledger.open_entries()
