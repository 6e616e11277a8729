"""A VM of Debian's LXD boots the live image, emulated, dials back and is measured.

What this computer may lack of what LXD wants for VMs is played; see :mod:`platforms.incus_daemon`.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.incus_daemon import POOL, asked, left_in, served, way_of
from platforms.vendor_served import started
from tare.hosts.trace.threads import allowed_cpus
from tare.images.live.image import make_live_image
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus

BRIDGE, ADDRESS = "taretest0", "10.213.7.1"
BOOT_S = 900.0
WITHOUT_VSOCK = {"raw.qemu.conf": '[device "qemu_vsock"]\n'}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.guest,
    pytest.mark.acceptance,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in ("xorriso", "mcopy", "qemu-img", "dnsmasq")),
        reason="xorriso, mtools, qemu-utils or dnsmasq-base is not installed",
    ),
]


def image_of(disk: Path, folder: Path) -> bytes:
    """Return the image of a VM as a server imports it, see docs/owning.md."""
    made = folder / "rootfs.img"
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", str(disk), str(made)], check=True)
    out, metadata = io.BytesIO(), b"architecture: x86_64\ncreation_date: 1\n"
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("metadata.yaml")
        info.size = len(metadata)
        archive.addfile(info, io.BytesIO(metadata))
        archive.add(made, "rootfs.img")
    return out.getvalue()


@pytest.fixture
def folder() -> Iterator[Path]:
    with served(led=True) as made:
        config = {
            "ipv4.address": f"{ADDRESS}/24",
            "ipv4.nat": "false",
            "ipv4.firewall": "false",
            "ipv6.address": "none",
        }
        way = way_of(made)
        asked(way, "POST", "/1.0/networks", {"name": BRIDGE, "type": "bridge", "config": config})
        try:
            yield made
            assert left_in(made) == []
        finally:
            asked(way, "DELETE", f"/1.0/networks/{BRIDGE}")


async def test_a_vm_boots_the_live_image_is_pinned_and_measured_and_goes(
    folder: Path, context: Context, tmp_path: Path
) -> None:
    live, way = tmp_path / "live.iso", way_of(folder)
    await make_live_image(
        context.host,
        live,
        kernel="generic",
        toolbox=None,
        words=(),
        agent=context.agent,
        cache=context.cache,
        say=print,
    )
    content = image_of(live, tmp_path)
    found = await asyncio.to_thread(asked, way, "POST", "/1.0/images", content)
    alias = {"name": "tare-live", "target": found["fingerprint"]}
    await asyncio.to_thread(asked, way, "POST", "/1.0/images/aliases", alias)
    platform = Incus()
    options = IncusOptions.model_validate(
        {
            "socket": way["socket"],
            "image": "tare-live",
            "pool": POOL,
            "network": BRIDGE,
            "callback": f"{ADDRESS}:0",
            "accelerator": "tcg",
            "secure_boot": False,
            "extra_config": WITHOUT_VSOCK,
        }
    )
    verdict = await platform.check(context, options)
    if not verdict.usable:
        pytest.skip(f"{verdict.reason}; {verdict.hint}")
    name, last = f"tare-test-{os.getpid()}-subject", context.host.topology().online[-1]
    spec = MachineSpec(name, Shape(1, 512 << 20), (last,), tmp_path / "w", False)
    machine = await started(platform, context, options, spec)
    try:
        hello = await machine.ready(BOOT_S)
        assert hello.role == "init"
        assert {nic["driver"] for nic in hello.proof["nics"]} == {"virtio_net"}
        (pid_file,) = folder.glob("logs/*/qemu.pid")
        threads = Path(f"/proc/{pid_file.read_text().strip()}/task").iterdir()
        allowed = [await allowed_cpus(context.host, int(thread.name)) for thread in threads]
        assert (last,) in allowed
        work = await machine.agent.run("numeric-sort", {"seconds": 0.5}, deadline_s=120)
        assert work.value["iterations_per_s"] > 0
    finally:
        await machine.stop()
    assert context.ledger.open_entries() == ()
    fingerprint = found["fingerprint"]
    await asyncio.to_thread(asked, way, "DELETE", f"/1.0/images/{fingerprint}")
