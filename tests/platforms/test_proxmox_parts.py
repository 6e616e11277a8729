"""Proxmox's refusals are distinguished, and a request that fails half-way leaves nothing."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as Server
from platforms.test_proxmox_conformance import ALLOWED, IMAGE, TOKEN
from platforms.vendor_served import messages_of, reached, spec_of, started
from tare.errors import InputError, MachineFault, TareError
from tare.hosts import clean
from tare.platforms.contract import Context, remove_resource
from tare.platforms.proxmox.builder import ProxmoxVmResource
from tare.platforms.proxmox.node import Node
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox
from tare.platforms.proxmox.session import ProxmoxSession
from tare.platforms.proxmox.vm import RRD_S, differing, minutes_within, own_bus, settings
from tare.platforms.vendors.own_disk import OwnDisk
from tare.platforms.vendors.session import NoSuchObject, RequestRefused, opened
from tare.run.probes.hypervisor_side import HypervisorSide

pytest.importorskip("proxmoxer")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    made.start()
    yield made
    made.stop()


def options_of(server: Server, user: str = ROOT, **more: Any) -> ProxmoxOptions:
    word = server.passwords.get(user) or server.tokens[user]
    way = {**reached(server, user, word), "image": IMAGE}
    return ProxmoxOptions.model_validate({**way, **more})


@asynccontextmanager
async def node_of(server: Server, user: str = ROOT) -> AsyncIterator[Node]:
    async with opened(ProxmoxSession(options_of(server, user).connection())) as session:
        yield Node(session, "pve")


def nothing_left(server: Server, context: Context) -> bool:
    kept = set(server.storages["local"]["volumes"]) == {IMAGE}
    return kept and not server.vms and not context.ledger.open_entries()


# What is asked of it.


def test_devices_are_what_the_arm_says(tmp_path: Path, server: Server) -> None:
    spec = spec_of(tmp_path, cpus=(3, 5), vcpus=3)
    own = settings(options_of(server), spec, "u", "local:iso/c.iso")
    assert own["net0"] == "virtio,bridge=vmbr0" and own["scsi0"] == f"{IMAGE},media=cdrom"
    assert own["affinity"] == "3,5" and own["balloon"] == 0 and own["memory"] == 256
    emulated = options_of(server, devices="emulated", nic="rtl8139", bus="ide")
    old = settings(emulated, spec, "u", "local:iso/c.iso")
    assert old["net0"].startswith("rtl8139,") and old["boot"] == "order=ide0"
    assert old["ide2"] == "local:iso/c.iso,media=cdrom" and "scsi0" not in old


def test_a_disk_of_its_own_is_on_the_bus_of_the_arm(tmp_path: Path, server: Server) -> None:
    spec, size = spec_of(tmp_path), 48 << 20
    assert own_bus(options_of(server)) is None
    for more, key, drivers in (
        ({}, "scsi1", {"virtio_scsi"}),
        ({"devices": "emulated"}, "ide1", {"ata_piix", "ahci"}),
        ({"devices": "emulated", "bus": "sata"}, "sata1", {"ahci"}),
    ):
        options = options_of(server, disks="fast", **more)
        bus = own_bus(options)
        assert bus is not None and bus.drivers == drivers
        wanted = settings(options, spec, "u", "c", OwnDisk(size, bus))
        # The image is a CD still, and the disk is 48 MiB in GiB.
        assert wanted[key] == "fast:0.046875,backup=0,cache=none"
        assert IMAGE in str(wanted[key.replace("1", "0")])
        assert key not in settings(options, spec, "u", "c")
        made = {**wanted, key: "fast:vm-100-disk-0,size=48M"}
        assert differing(wanted, made) == ""
        del made[key]
        assert differing(wanted, made).startswith(f"{key} was to be fast:0.046875")


def test_weight_and_cap_are_those_of_the_role(tmp_path: Path, server: Server) -> None:
    scheduled = options_of(
        server, scheduling={"weight": 300, "cap": 1.5}, neighbour_scheduling={"weight": 50}
    )
    spec = spec_of(tmp_path)
    own = settings(scheduled, spec, "u", "c")
    other = settings(scheduled, replace(spec, role="neighbour-1"), "u", "c")
    assert (own["cpuunits"], own["cpulimit"]) == (300, 1.5)
    assert other["cpuunits"] == 50 and "cpulimit" not in other


@pytest.mark.parametrize("knob", [{"nice": 1}, {"reservation": 1}, {"policy": "fifo"}])
def test_settings_that_proxmox_lacks_are_refused_in_the_study(server: Server, knob: object) -> None:
    with pytest.raises(ValidationError, match="not supported by Proxmox"):
        options_of(server, scheduling=knob)


# Logins.


async def test_an_expired_ticket_is_renewed_once(server: Server) -> None:
    async with node_of(server) as node:
        server.expire()
        assert (await node.facts())["product"] == "Proxmox VE"
        logins = [call for call in server.asked if "access/ticket" in call]
        assert len(logins) == 2
        server.expire()
        server.passwords[ROOT] = "changed"
        with pytest.raises(InputError, match="does not let root@pam in"):
            await node.facts()


async def test_wrong_token_is_reported_as_a_failed_login(server: Server) -> None:
    options = options_of(server, TOKEN)
    server.tokens[TOKEN] = "another"
    with pytest.raises(InputError, match=re.escape(f"does not let {TOKEN} in")):
        async with opened(ProxmoxSession(options.connection())):
            pass


async def test_a_certificate_of_an_unknown_issuer_is_refused(server: Server) -> None:
    options = options_of(server, ca=None)
    with pytest.raises(InputError, match=r"certificate of 127\.0\.0\.1 is not trusted"):
        async with opened(ProxmoxSession(options.connection())):
            pass
    assert server.asked == []


# What is refused.


async def test_refusals_are_distinguished(server: Server) -> None:
    async with node_of(server) as node:
        with pytest.raises(NoSuchObject, match="does not exist"):
            await node.config(4711)
        with pytest.raises(MachineFault, match="value must have a maximum value of 262144"):
            await node.create(100, {"name": "n", "cpuunits": 300_000, "net0": "virtio,bridge=b"})
        await node.create(100, {"name": "n", "cores": 1, "net0": "virtio,bridge=vmbr0"})
        with pytest.raises(MachineFault, match="already exists"):
            await node.create(100, {"name": "n", "net0": "virtio,bridge=vmbr0"})
        await node.power_on(100)
        with pytest.raises(RequestRefused, match="already running"):
            await node.power_on(100)
        with pytest.raises(RequestRefused, match="is running - destroy failed"):
            await node.remove(100)
        with pytest.raises(MachineFault, match="wrong file extension"):
            await node.upload("local", "tare.exe", b"x")
        with pytest.raises(MachineFault, match="does not support 'iso' content"):
            await node.upload("fast", "tare.iso", b"x")
        at = {"node": "pve", "pool": None, "number": 100}
        assert not await remove_resource(ProxmoxVmResource(node.session, {**at, "name": "another"}))
        named = ProxmoxVmResource(node.session, {**at, "name": "n"})
        assert await remove_resource(named) and not await remove_resource(named)


async def test_a_token_cannot_pin(server: Server, context: Context, tmp_path: Path) -> None:
    server.rights[TOKEN] = ALLOWED
    options = options_of(server, TOKEN, pool="tare")
    verdict = await Proxmox().check(context, options)
    assert verdict.usable and not verdict.capabilities.pinning
    assert any("root@pam" in note for note in verdict.capabilities.notes)
    with pytest.raises(RequestRefused, match="root@pam"):
        await started(Proxmox(), context, options, spec_of(tmp_path, cpus=(1,)))
    assert nothing_left(server, context)
    root = await Proxmox().check(context, options_of(server))
    assert root.usable and root.capabilities.pinning and root.capabilities.max_vcpus == 64


@pytest.mark.parametrize("path", sorted(ALLOWED))
async def test_each_right_that_is_missing_is_named(
    server: Server, context: Context, path: str
) -> None:
    for right in sorted(ALLOWED[path]):
        server.rights[TOKEN] = {**ALLOWED, path: ALLOWED[path] - {right}}
        options = options_of(server, TOKEN, pool="tare", disks="fast")
        verdict = await Proxmox().check(context, options)
        assert not verdict.usable and f"{right} on {path}" in verdict.reason


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"node": "other"}, "no node other"),
        ({"storage": "nowhere"}, "no storage nowhere"),
        ({"storage": "fast"}, "does not accept `iso`"),
        ({"image": "local:iso/none.iso"}, "local:iso/none.iso is not there"),
    ],
)
async def test_missing_objects_are_named_with_a_remedy(
    server: Server, context: Context, more: dict[str, Any], words: str
) -> None:
    verdict = await Proxmox().check(context, options_of(server, **more))
    assert not verdict.usable and words in verdict.reason and verdict.hint


# What fails half-way.


@pytest.mark.parametrize("kind", ["imgcopy", "qmcreate", "disks", "qmstart"])
async def test_a_failed_task_leaves_nothing_behind(
    server: Server, context: Context, tmp_path: Path, kind: str
) -> None:
    server.fails[kind] = "no space left on device"
    with pytest.raises(MachineFault, match="no space left on device"):
        await started(Proxmox(), context, options_of(server), spec_of(tmp_path))
    assert nothing_left(server, context)


@pytest.mark.parametrize(
    "request_cut", ["POST .*upload", r"POST .*/qemu$", r"POST .*start", "GET .*tasks"]
)
async def test_a_broken_connection_leaves_nothing_behind(
    server: Server, context: Context, tmp_path: Path, request_cut: str
) -> None:
    server.cuts.append(re.compile(request_cut))
    try:
        machine = await started(Proxmox(), context, options_of(server), spec_of(tmp_path))
    except TareError as error:
        assert "broke" in str(error)
    else:
        # A task continues, however often its state cannot be read.
        assert "tasks" in request_cut
        await machine.stop()
    assert server.cuts == []
    assert nothing_left(server, context)


@pytest.mark.parametrize("overlooked", [False, True])
async def test_a_start_that_begins_after_its_connection_broke_leaves_no_vm(
    server: Server,
    context: Context,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overlooked: bool,
) -> None:
    server.takes["qmstart"] = 0.5
    server.cuts.append(re.compile(r"POST .*start"))
    removals: list[str] = []

    async def settled(*_: object) -> None:
        """Find no task: this one is listed a moment later."""

    async def remove(node: Node, number: int) -> None:
        while not removals and server.vms[number]["status"] != "running":
            await asyncio.sleep(0.02)
        removals.append(server.vms[number]["status"])
        await removed(node, number)

    if overlooked:
        removed = Node.remove
        monkeypatch.setattr(Node, "settled", settled)
        monkeypatch.setattr(Node, "remove", remove)
    with pytest.raises(TareError, match="broke"):
        await started(Proxmox(), context, options_of(server), spec_of(tmp_path))
    assert removals == (["running", "stopped"] if overlooked else [])
    begun = [task for task in server.tasks.values() if task["type"] == "qmstart"]
    assert [task["exitstatus"] for task in begun] == ["OK"], "it was removed before it had begun"
    assert nothing_left(server, context)


async def test_a_removal_that_fails_too_does_not_hide_why(
    server: Server, context: Context, tmp_path: Path
) -> None:
    server.fails["qmcreate"] = "no space left on device"
    server.cuts.append(re.compile("DELETE .*/content/"))
    with pytest.raises(MachineFault, match=r"tare-t-1-subject: .*no space left on device"):
        await started(Proxmox(), context, options_of(server), spec_of(tmp_path))
    assert server.cuts == []
    # What could not be removed is noted still.
    assert {entry.kind for entry in context.ledger.open_entries()} == {"proxmox-upload"}
    await clean(context.host, context.ledger, Proxmox.undoers)
    assert nothing_left(server, context)


async def test_a_number_that_another_takes_is_given_up(
    server: Server, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.vms[100] = {"config": {"name": "theirs"}, "status": "running", "pid": 7, "pool": None}
    taken = iter([100])
    free_id = Node.free_id

    async def late(self: Node, least: int = 100) -> int:
        return next(taken, None) or await free_id(self, least)

    monkeypatch.setattr(Node, "free_id", late)
    machine = await started(Proxmox(), context, options_of(server), spec_of(tmp_path))
    assert server.vms[101]["config"]["name"] == "tare-t-1-subject"
    await machine.stop()
    assert list(server.vms) == [100] and not context.ledger.open_entries()


async def test_a_locked_vm_is_waited_for(
    server: Server, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await started(Proxmox(), context, options_of(server), spec_of(tmp_path))
    server.vms[100] |= {"lock": "backup"}
    monkeypatch.setattr(ProxmoxVmResource, "removal_s", 0.0)
    with pytest.raises(RequestRefused, match="locked"):
        await machine.stop()
    # It is reported, and stays in the ledger until `tare clean`.
    assert {entry.kind for entry in context.ledger.open_entries()} >= {"proxmox-vm"}
    del server.vms[100]["lock"]
    await clean(context.host, context.ledger, Proxmox.undoers)
    assert nothing_left(server, context)


async def test_revoked_rights_do_not_count_as_a_removed_vm(
    server: Server, context: Context, tmp_path: Path
) -> None:
    server.rights[TOKEN] = ALLOWED
    machine = await started(
        Proxmox(), context, options_of(server, TOKEN, pool="tare"), spec_of(tmp_path)
    )
    server.rights[TOKEN] = {**ALLOWED, "/pool/tare": set()}
    messages = await clean(context.host, context.ledger, Proxmox.undoers)
    assert any("Could not undo proxmox-vm" in sentence for sentence in messages)
    server.rights[TOKEN] = ALLOWED
    await clean(context.host, context.ledger, Proxmox.undoers)
    await machine.stop()
    assert nothing_left(server, context)


async def test_names_that_are_not_tares_are_left(server: Server, context: Context) -> None:
    server.vms[100] = {"config": {"name": "theirs"}, "status": "stopped", "pid": 0, "pool": None}
    server.storages["local"]["volumes"]["local:iso/theirs.iso"] = b""
    way = {**options_of(server).connection(), "node": "pve", "pool": None}
    context.ledger.record("proxmox-vm", **way, number=100, name="theirs")
    context.ledger.record("proxmox-upload", **way, volume="local:iso/theirs.iso")
    messages = await clean(context.host, context.ledger, Proxmox.undoers)
    assert len(messages) == 2 and all(
        "does not start with tare-" in sentence for sentence in messages
    )
    assert list(server.vms) == [100]
    assert "local:iso/theirs.iso" in server.storages["local"]["volumes"]


# Disturbances of a machine, and what its node reports.


@pytest.mark.parametrize("kind", ["vzdump", "qmsnapshot", "qmigrate", "lock"])
async def test_a_cell_that_was_disturbed_is_withheld(
    server: Server, context: Context, tmp_path: Path, kind: str
) -> None:
    machine = await started(Proxmox(), context, options_of(server), spec_of(tmp_path))
    side, calm = HypervisorSide(machine), HypervisorSide(machine)
    await calm.open()
    await calm.close()
    await side.open()
    if kind == "lock":
        server.vms[100] |= {"lock": "snapshot"}
    else:
        server.disturb(100, kind)
    await side.close()
    server.vms[100].pop("lock", None)
    await machine.stop()
    assert calm.doubt == "" and ("snapshot" if kind == "lock" else kind) in side.doubt


times = st.floats(0, 1e6)


@given(st.lists(st.integers(0, 10_000).map(lambda n: n * 60.0), unique=True), times, times)
def test_minutes_are_kept_whole_or_not_at_all(ends: list[float], one: float, two: float) -> None:
    begun, ended = sorted((one, two))
    found = minutes_within([{"time": end, "cpu": 0.5} for end in ends], begun, ended)
    inner = [end for end in ends if begun <= end - RRD_S and end + RRD_S <= ended]
    assert (found is None) == (not inner)
    for figure in found.figures if found is not None else ():
        assert (figure.name, figure.unit, figure.of) == ("cpu-used", "1", tuple(inner))
        assert set(figure.values) == {0.5}


def test_figures_that_the_node_does_not_report_are_left_out() -> None:
    points: list[dict[str, Any]] = [
        {"time": 120.0},
        {"time": 180.0, "cpu": None},
        {"time": 240.0, "cpu": 0.0},
    ]
    found = minutes_within(points, 0, 1000)
    assert found is not None
    (kept,) = found.figures
    assert (kept.name, kept.of, kept.values) == ("cpu-used", (240.0,), (0.0,))
    assert minutes_within(points[:2], 0, 1000) is None


# Secrets.


async def test_secrets_are_in_no_output(
    server: Server,
    context: Context,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, logger="tare")
    outputs: list[str] = []
    planted = [server.passwords[ROOT]]

    options = options_of(server)
    machine = await started(Proxmox(), context, options, spec_of(tmp_path))
    outputs.append(await messages_of(machine.stop))
    # A server that says back what it was sent.
    for kind in ("qmcreate", "qmstart", "imgcopy"):
        planted += [*server.tickets, *(csrf for _, csrf in server.tickets.values())]
        server.expire()
        server.fails[kind] = "broken by {asked}"
        outputs.append(
            await messages_of(lambda: started(Proxmox(), context, options, spec_of(tmp_path)))
        )
        assert "broken by (secret)" in outputs[-1]
    server.passwords[ROOT] = "another"
    outputs.append(await messages_of(lambda: Proxmox().check(context, options)))
    outputs += [context.ledger.path.read_text(), caplog.text, repr(options), *capfd.readouterr()]
    assert len(planted) == 7 and all(len(word) > 8 for word in planted)
    for word in planted:
        assert not any(word in text for text in outputs)
