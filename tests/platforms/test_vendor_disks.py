"""A machine that is made over an API boots the live image, and formats the disk it was given.

The server simulates Proxmox, the guest is QEMU's emulation: create, dial back, format, measure,
destroy is one path, and what is measured is a virtual disk on the bus that the arm asks for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from images.live_guest import make_disc
from platforms.live_qemu import LiveGuests
from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as Server
from platforms.vendor_served import reached, spec_of, started, tare, tare_within
from run.run_driving import of_type
from tare.errors import MachineFault
from tare.images.live.disc import TOOLS
from tare.platforms.contract import Context, Shape
from tare.platforms.hyperv.platform import Hyperv
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus
from tare.platforms.live.options import LiveOptions
from tare.platforms.live.platform import BareLive
from tare.platforms.ovirt.platform import Ovirt
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox
from tare.platforms.vendors.own_disk import Bus, OwnDisk, own_disk, scratch_configuration
from tare.platforms.vendors.platform import VendorPlatform
from tare.platforms.vsphere.platform import Vsphere
from tare.platforms.xenserver.platform import Xenserver

MIB = 1 << 20
IMAGE = "local:import/tare-live.raw"
BOOT_S, WORK_S = 400.0, 120.0
SHAPE = Shape(1, 640 * MIB, 64 * MIB)
MAIL = {"work": "varmail", "seconds": 0.5, "files": 40, "mean_bytes": 4096, "threads": 2}
BOOTS = (
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in (*TOOLS, "qemu-system-x86_64")),
        reason="xorriso, mtools or QEMU is not installed",
    ),
)
SCSI = Bus("SCSI", frozenset({"virtio_scsi"}), "boot another image")

T = TypeVar("T", bound=Callable[..., object])


def boots_live(test: T) -> T:
    """Mark a test that boots live images."""
    for mark in BOOTS:
        test = mark(test)
    return test


def test_a_disk_on_another_bus_than_the_arms_is_refused() -> None:
    disk = OwnDisk(SHAPE.disk, SCSI)
    right: dict[str, Any] = {"scratch": {"drivers": ["sd", "virtio_scsi", "virtio-pci"]}}
    assert disk.mismatch(right) == ""
    wrong = disk.mismatch({"scratch": {"drivers": ["virtio_blk", "virtio-pci"]}})
    assert "driven by virtio-pci, virtio_blk" in wrong and wrong.endswith(": boot another image")
    # Without one, workloads that need it fail with the agent's reason, and no other does.
    assert disk.mismatch({"scratch": None}) == disk.mismatch({}) == ""
    assert disk.applied({"scratch": None}) == {}


def test_a_machine_formats_its_disk_as_hosts_do(context: Context) -> None:
    scratch = scratch_configuration(SHAPE.disk)["scratch"]
    assert scratch["bytes"] == SHAPE.disk
    assert scratch["format"][scratch["format"].index("-L") + 1] == "tare-scratch"
    assert own_disk(0, SCSI) is None and own_disk(MIB, None) is None
    with pytest.raises(MachineFault, match="hypervisors round") as fault:
        own_disk(1_000_000_000, SCSI)
    assert "disk: 512MiB" in fault.value.hint


EVERY: tuple[tuple[VendorPlatform[Any, Any], dict[str, Any]], ...] = (
    (Vsphere(), {"datastore": "d"}),
    (Hyperv(), {}),
    (Xenserver(), {}),
    (Ovirt(), {}),
    (Ovirt(), {"chipset": "i440fx"}),
    (Proxmox(), {"disks": "fast"}),
    (Proxmox(), {"disks": "fast", "bus": "sata"}),
)


@pytest.mark.parametrize(("platform", "more"), EVERY, ids=lambda each: getattr(each, "name", ""))
def test_emulated_and_paravirtual_disks_are_distinguished_by_their_drivers(
    platform: VendorPlatform[Any, Any], more: dict[str, Any]
) -> None:
    found = []
    for devices in ("paravirtual", "emulated"):
        given = {"address": "server.example", "devices": devices, **more}
        options = platform.options.model_validate(given)
        able, bus = platform.stated(options).capabilities, platform.disk_bus(options)
        assert bus is not None and able.disk == {bus.name} and able.toolbox == {"live"}
        assert not able.no_disk
        found.append(bus.drivers)
    own, emulated = found
    assert own and emulated and not own & emulated


def test_a_machine_without_a_disk_says_so() -> None:
    proxmox = Proxmox()
    options = ProxmoxOptions.model_validate({"address": "server.example"})
    able = proxmox.stated(options).capabilities
    assert proxmox.disk_bus(options) is None and not able.disk and "`disks`" in able.no_disk
    container = IncusOptions(type="container")
    able = Incus().stated(container).capabilities
    assert Incus().disk_bus(container) is None and not able.disk and not able.toolbox
    assert Incus().stated(IncusOptions()).capabilities.disk == {"virtio-scsi"}
    live = BareLive().stated(LiveOptions(medium="m")).capabilities
    assert not live.disk and "owner's" in live.no_disk and live.toolbox == {"live"}


@pytest.fixture(scope="module")
def image(agent_program: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tare-live-") as folder:
        yield make_disc(agent_program, Path(folder) / "tare.iso", "base")


@pytest.fixture
def served(image: Path, tmp_path: Path) -> Iterator[tuple[Server, LiveGuests]]:
    pytest.importorskip("proxmoxer")
    server = Server(tmp_path)
    server.storages["local"]["volumes"][IMAGE] = b"live"
    guests = LiveGuests(server, image, tmp_path)
    server.plug, server.unplug = guests.plug, guests.unplug
    server.start()
    try:
        yield server, guests
    finally:
        guests.close()
        server.stop()


@boots_live
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("more", "attached", "driver"),
    [
        ({}, "virtio-scsi", "virtio_scsi"),
        ({"devices": "emulated", "machine": "pc"}, "IDE", "ata_piix"),
        ({"devices": "emulated", "bus": "sata"}, "SATA", "ahci"),
    ],
    ids=["paravirtual", "ide", "sata"],
)
async def test_a_disk_is_formatted_in_the_guest_and_measured(
    served: tuple[Server, LiveGuests],
    context: Context,
    tmp_path: Path,
    more: dict[str, Any],
    attached: str,
    driver: str,
) -> None:
    server, guests = served
    given = {"image": IMAGE, "disks": "fast", "kvm": False, "cpu": "max", **more}
    way = reached(server, ROOT, server.passwords[ROOT])
    options = ProxmoxOptions.model_validate({**way, **given})
    spec = replace(spec_of(tmp_path), shape=SHAPE)
    machine = await started(Proxmox(), context, options, spec)
    try:
        hello = await machine.ready(BOOT_S)
        proof = hello.proof
        assert proof["live"]["toolbox"]["on"] == "disk"
        assert proof["live"]["scratch"]["device"]
        assert proof["scratch"]["file_system"] == "ext4"
        assert driver in proof["scratch"]["drivers"]
        wanted = {"attached": attached, "file_system": "ext4", "bytes": SHAPE.disk}
        assert machine.applied["disk"] == wanted
        mail = {**MAIL, "memory_bytes": SHAPE.memory}
        done = await machine.agent.run("filebench", mail, deadline_s=WORK_S)
        assert done.value["operations"] > 0
        # A program of the toolbox finds the same disk.
        fio = ["fio", "--name=t", "--directory=/scratch/tare-files", "--size=4m", "--bs=4k"]
        fio += ["--rw=randwrite", "--direct=1", "--output-format=json+"]
        asked = {"argv": fio, "bytes": 4 * MIB, "timeout_s": WORK_S, "direct": True}
        done = await machine.agent.run("fio", asked, deadline_s=WORK_S)
        moved = done.value["disk"]
        assert moved["write_bytes_per_s"] * moved["seconds"] >= 4 * MIB * 0.99, moved
    except BaseException:
        print(guests.console_words())
        raise
    finally:
        await machine.stop()
    assert server.vms == {} and server.storages["fast"]["volumes"] == {}
    assert context.ledger.open_entries() == ()


@boots_live
@pytest.mark.timeout(1500)
async def test_a_run_compares_an_emulated_disk_with_a_paravirtual_one(
    served: tuple[Server, LiveGuests], tmp_path: Path
) -> None:
    server, guests = served
    way = {"address": "127.0.0.1", "port": server.port, "ca": str(server.ca), "image": IMAGE}
    arm = {"platform": "proxmox", **way, "disks": "fast", "kvm": False, "cpu": "max"}
    study = {
        "study": "disks",
        "baseline": "virtio",
        "blocks": {"least": 2, "most": 2},
        "shape": {"vcpus": 1, "memory": "640MiB", "disk": "64MiB"},
        "arms": {"virtio": arm, "ide": {**arm, "devices": "emulated", "machine": "pc"}},
        "workloads": {
            "mail": {"workload": "filebench", "work": "varmail", "duration": 0.5, "files": 40},
            "random": {"workload": "fio", "mode": "random-write", "total": "8MiB", "duration": 1},
            "program": {"workload": "program", "argv": ["bzip2", "--help"]},
        },
    }
    file, out = tmp_path / "study.yaml", tmp_path / "out"
    file.write_text(yaml.safe_dump(study))
    who = {"TARE_PROXMOX_USER": ROOT, "TARE_PROXMOX_PASSWORD": str(server.passwords[ROOT])}
    who["XDG_STATE_HOME"] = str(tmp_path / "state")
    status, output = await tare_within(1400, "run", str(file), "--out", str(out), **who)
    print(guests.console_words())
    assert status == 0, output
    ended = of_type(out, "cell_finished")
    assert [event["status"] for event in ended] == ["ok"] * 12, output
    code, reported = await tare("report", str(out), **who)
    assert code == 0, reported
    assert server.vms == {} and server.storages["fast"]["volumes"] == {}
