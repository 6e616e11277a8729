"""What VMs of Proxmox boot from a disk is copied for each, and goes with it."""

from __future__ import annotations

from pathlib import Path

from platforms.proxmox_server import Proxmox as Server
from platforms.test_proxmox_parts import nothing_left, options_of, server
from platforms.vendor_served import spec_of, started
from tare.platforms.contract import Context
from tare.platforms.proxmox.platform import Proxmox

__all__ = ["server"]


async def test_an_image_that_is_a_disk_is_copied_for_each_vm(
    server: Server, context: Context, tmp_path: Path
) -> None:
    raw = "local:import/tare-live.raw"
    server.storages["local"]["volumes"][raw] = b"live"
    options = options_of(server, image=raw, disks="fast")
    assert (await Proxmox().check(context, options)).usable
    machine = await started(Proxmox(), context, options, spec_of(tmp_path))
    (vm,) = server.vms.values()
    assert vm["config"]["scsi0"].startswith("fast:vm-100-disk-")
    assert vm["config"]["boot"] == "order=scsi0"
    await machine.stop()
    del server.storages["local"]["volumes"][raw]
    assert nothing_left(server, context)
    assert server.storages["fast"]["volumes"] == {}
    # A storage that keeps no disks is reported before anything is made.
    server.storages["local"]["volumes"][raw] = b"live"
    verdict = await Proxmox().check(context, options_of(server, image=raw, disks="local"))
    assert not verdict.usable and "does not accept `images`" in verdict.reason
