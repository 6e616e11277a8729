"""An engine's refusals are distinguished, and a request that fails half-way leaves nothing."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from platforms.ovirt_server import USER, OvirtServer
from platforms.vendor_served import MIB, messages_of, reached, spec_of, started
from tare.errors import InputError, MachineFault, TareError
from tare.hosts import clean
from tare.platforms.contract import Context, MachineSpec, remove_resource
from tare.platforms.ovirt import engine as engines
from tare.platforms.ovirt.builder import OvirtVmResource
from tare.platforms.ovirt.cpu_profile import create_profile
from tare.platforms.ovirt.engine import Engine
from tare.platforms.ovirt.options import OvirtOptions
from tare.platforms.ovirt.platform import Ovirt
from tare.platforms.ovirt.session import OvirtSession
from tare.platforms.ovirt.vm import differing, vm_wanted
from tare.platforms.vendors.configuration import read_configuration
from tare.platforms.vendors.session import NoSuchObject, RequestRefused, opened
from tare.run.probes.hypervisor_side import HypervisorSide

pytest.importorskip("ovirtsdk4")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OvirtServer]:
    made = OvirtServer(tmp_path)
    made.start()
    yield made
    made.stop()


def options_of(server: OvirtServer, **more: Any) -> OvirtOptions:
    way = {**reached(server, USER, server.password), "image": "tare-live.iso"}
    return OvirtOptions.model_validate({**way, **more})


@asynccontextmanager
async def engine_of(server: OvirtServer, **more: Any) -> AsyncIterator[Engine]:
    async with opened(OvirtSession(options_of(server, **more).connection())) as session:
        yield Engine(session)


def nothing_left(server: OvirtServer, context: Context) -> bool:
    return not server.left and not context.ledger.open_entries()


def wanted(server: OvirtServer, spec: MachineSpec, **more: Any) -> Any:
    return vm_wanted(server.types, options_of(server, **more), spec, "c1", "h1", {"key": "k"}, None)


# What is asked of it.


async def test_a_machine_is_pinned_and_has_no_balloon(
    server: OvirtServer, context: Context, tmp_path: Path
) -> None:
    plugged: list[list[bytes]] = []
    server.plug = lambda _, images: plugged.append(images)
    spec = spec_of(tmp_path, cpus=(3, 5), vcpus=3)
    scheduling = {"weight": 200}
    machine = await started(Ovirt(), context, options_of(server, scheduling=scheduling), spec)
    (vm,) = server.vms.values()
    assert {pin.vcpu: pin.cpu_set for pin in vm.cpu.cpu_tune.vcpu_pins} == {0: "3", 1: "5", 2: "3"}
    assert (vm.memory, vm.memory_policy.guaranteed, vm.memory_policy.max) == (256 * MIB,) * 3
    assert vm.memory_policy.ballooning is False and vm.cpu_shares == 2048
    assert server.drives[vm.id] == "d1" and server.attached[vm.id] == []
    (card,) = server.cards[vm.id]
    assert (str(card.interface), card.vnic_profile.id) == ("virtio", "n1")
    # Its agent finds where to dial, on a CD as the host makes it.
    (found,) = filter(None, map(read_configuration, plugged[0]))
    assert found["name"] == spec.name and len(found["key"]) == 64
    await machine.stop()
    assert nothing_left(server, context)


@pytest.mark.parametrize(
    ("chipset", "bus"), [("q35", "sata"), ("i440fx", "ide")], ids=["q35", "i440fx"]
)
async def test_emulated_devices_of_an_image_that_is_a_disk(
    server: OvirtServer, context: Context, tmp_path: Path, chipset: str, bus: str
) -> None:
    options = options_of(
        server,
        devices="emulated",
        nic="rtl8139",
        image="tare-live.raw",
        storage="fast",
        chipset=chipset,
    )
    machine = await started(Ovirt(), context, options, spec_of(tmp_path))
    (vm,) = server.vms.values()
    (attachment,), (card,) = server.attached[vm.id], server.cards[vm.id]
    copy = server.disks[attachment.disk.id]
    assert attachment.bootable and str(attachment.interface) == bus
    assert (copy.name, copy.storage_domains[0].id) == ("tare-t-1-subject", "s2")
    assert str(card.interface) == "rtl8139"
    await machine.stop()
    assert nothing_left(server, context)


@given(st.integers(1, 10_000))
def test_weight_is_in_cpu_shares(weight: int) -> None:
    options = OvirtOptions.model_validate({"address": "a", "scheduling": {"weight": weight}})
    shares = options.cpu_shares("subject")
    assert shares is not None and 2 <= shares <= 262_144
    assert shares == max(2, round(weight * 10.24))
    assert options.cpu_shares("neighbour-1") is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scheduling": {"nice": 1}}, "`nice` is not supported by oVirt"),
        ({"scheduling": {"reservation": 1}}, "`reservation` is not supported by oVirt"),
        ({"scheduling": {"cap": 0.5}, "cpu_profile": "half"}, "a VM has one CPU profile"),
        ({"chipset": "i440fx", "firmware": "uefi"}, "write `chipset: q35`"),
    ],
)
def test_settings_that_the_engine_lacks_are_refused_in_the_study(
    server: OvirtServer, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        options_of(server, **more)


def test_vm_that_differs_from_the_request_is_reported(server: OvirtServer, tmp_path: Path) -> None:
    spec = spec_of(tmp_path, cpus=(1,), vcpus=2)
    asked = wanted(server, spec)
    assert differing(asked, wanted(server, spec)) == ""
    other = wanted(server, spec)
    other.cpu.cpu_tune = None
    assert "pinning was to be {0: '1', 1: '1'}" in differing(asked, other)
    other = wanted(server, spec)
    other.memory_policy.ballooning = True
    assert "ballooning was to be False, but the engine reports True" in differing(asked, other)
    assert "CPU shares" in differing(wanted(server, spec, scheduling={"weight": 50}), asked)


@pytest.mark.parametrize(("cap", "percent"), [(1, 6), (4, 25), (0.01, 1), (64, 100)])
async def test_a_cap_is_a_cpu_profile_in_percent_of_the_host(
    server: OvirtServer, context: Context, tmp_path: Path, cap: float, percent: int
) -> None:
    """The host has 16 CPUs."""
    options = options_of(server, scheduling={"cap": cap})
    machine = await started(Ovirt(), context, options, spec_of(tmp_path))
    (quality,) = server.qualities
    assert (quality.name, quality.cpu_limit) == ("tare-t-1-subject", percent)
    (vm,) = server.vms.values()
    profiles = {each.id: each for each in server.there["cpuprofiles"]}
    assert profiles[vm.cpu_profile.id].qos.id == quality.id
    assert profiles[vm.cpu_profile.id].name == "tare-t-1-subject"
    kinds = {entry.kind for entry in context.ledger.open_entries()}
    assert {"ovirt-cpu-profile", "ovirt-vm"} <= kinds
    await machine.stop()
    assert nothing_left(server, context)


async def test_clean_removes_a_cpu_profile_that_a_killed_run_left(
    server: OvirtServer, context: Context
) -> None:
    async with engine_of(server) as engine:
        (cluster,) = server.there["clusters"]
        way = options_of(server).connection()
        context.ledger.record("ovirt-cpu-profile", **way, name="tare-x", data_center="dc1")
        await create_profile(engine, "tare-x", cluster, 50)
    removed = await clean(context.host, context.ledger, Ovirt.undoers)
    assert removed == ["Removed the CPU profile tare-x with its quality of service."]
    assert nothing_left(server, context)


# Logins.


async def test_an_ended_session_is_logged_in_once_more(server: OvirtServer) -> None:
    async with engine_of(server) as engine:
        server.tokens.clear()
        assert await engine.own("tare-none") == []
        assert sum("oauth/token" in asked for asked in server.asked) == 2
        server.tokens.clear()
        server.password = "changed"
        with pytest.raises(InputError, match="does not let tare@internal in"):
            await engine.own("tare-none")
    assert server.tokens == set()


async def test_a_certificate_of_an_unknown_issuer_is_refused(server: OvirtServer) -> None:
    with pytest.raises(InputError, match="is not trusted") as refused:
        async with engine_of(server, ca=None):
            pass
    assert "pki-resource" in refused.value.hint and server.asked == []


async def test_unreachable_engine_is_reported(server: OvirtServer, context: Context) -> None:
    verdict = await Ovirt().check(context, options_of(server, port=1))
    assert not verdict.usable and "broke" in verdict.reason and "Curl" not in verdict.reason


# What is refused.


async def test_refusals_are_distinguished(server: OvirtServer, tmp_path: Path) -> None:
    asked = wanted(server, spec_of(tmp_path))
    async with engine_of(server) as engine:
        with pytest.raises(NoSuchObject, match="Entity not found"):
            await engine.vm("none")
        server.storage.clear()
        vm = (await engine.ask(lambda api: api.vms_service().add(asked))).id
        with pytest.raises(RequestRefused, match="VM is locked"):
            await engine.power_on(vm)
        with pytest.raises(RequestRefused, match="same name already exists"):
            await engine.ask(lambda api: api.vms_service().add(asked))
        server.storage.set()

        async def made() -> bool:
            return bool((await engine.vm(vm)).status == server.types.VmStatus.DOWN)

        await engine.until(made, "make it")
        await engine.power_on(vm)
        with pytest.raises(RequestRefused, match=r"Cannot run VM\. VM is running"):
            await engine.power_on(vm)
        named = OvirtVmResource(engine.session, {"name": asked.name})
        assert await remove_resource(named)
        assert not await remove_resource(named)


async def test_vms_of_others_with_the_same_name_are_kept(
    server: OvirtServer, context: Context, tmp_path: Path
) -> None:
    theirs = wanted(server, spec_of(tmp_path))
    theirs.comment = ""
    async with engine_of(server) as engine:
        await engine.ask(lambda api: api.vms_service().add(theirs))
        named = OvirtVmResource(engine.session, {"name": theirs.name})
        assert not await remove_resource(named)
    context.ledger.record("ovirt-vm", **options_of(server).connection(), name="theirs")
    messages = await clean(context.host, context.ledger, Ovirt.undoers)
    assert "does not start with tare-" in messages[0] and len(server.vms) == 1


async def test_an_existing_disk_of_the_same_name_is_kept(
    server: OvirtServer, context: Context, tmp_path: Path
) -> None:
    server.disks["d1"].name = "tare-t-1-subject"
    with pytest.raises(MachineFault, match="has a disk called tare-t-1-subject already"):
        await started(
            Ovirt(), context, options_of(server, image="tare-live.raw"), spec_of(tmp_path)
        )
    assert "d1" in server.disks and nothing_left(server, context)


async def test_cpus_that_are_not_there_are_refused_here(
    server: OvirtServer, context: Context, tmp_path: Path
) -> None:
    with pytest.raises(
        MachineFault, match="tare-t-1-subject: CPU 16 is not there: the host has 16"
    ):
        await started(Ovirt(), context, options_of(server), spec_of(tmp_path, cpus=(16,)))
    assert nothing_left(server, context)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cluster": "none"}, "no none among its clusters"),
        ({"on_host": "node9"}, "no node9 among its hosts"),
        ({"vnic_profile": "none"}, "no none among its vNIC profiles"),
        ({"cpu_profile": "none"}, "no none among its CPU profiles"),
        ({"image": "none.iso"}, "no none.iso among its disks"),
        ({"image": "tare-live.raw", "storage": "none"}, "no none among its storage domains"),
    ],
)
async def test_missing_objects_are_named_with_a_remedy(
    server: OvirtServer, context: Context, more: dict[str, Any], words: str
) -> None:
    verdict = await Ovirt().check(context, options_of(server, **more))
    assert not verdict.usable and words in verdict.reason and "`" in verdict.hint


async def test_an_empty_list_is_a_missing_right(server: OvirtServer, context: Context) -> None:
    server.there["clusters"] = []
    verdict = await Ovirt().check(context, options_of(server))
    assert not verdict.usable and "shows this account 0 clusters" in verdict.reason


async def test_host_in_maintenance_is_reported(server: OvirtServer, context: Context) -> None:
    server.there["hosts"][0].status = server.types.HostStatus.MAINTENANCE
    verdict = await Ovirt().check(context, options_of(server))
    assert not verdict.usable and verdict.reason == "the host node1 is maintenance"


async def test_check_reports_build_and_cpus(server: OvirtServer, context: Context) -> None:
    verdict = await Ovirt().check(context, options_of(server, cpu_profile="half"))
    assert verdict.usable and verdict.versions["ovirt"] == "4.5.4-1.el8"
    assert verdict.capabilities.max_vcpus == 16 and verdict.shown["HA reservation"] == "off"
    assert verdict.rights == ("the role TareMeasures on a cluster",)


# What fails half-way.


@pytest.mark.parametrize("what", ["right", "full", "copy"])
async def test_a_failed_creation_leaves_nothing_behind(
    server: OvirtServer,
    context: Context,
    tmp_path: Path,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "WORK_S", 0.5)
    server.may_write = what != "right"
    server.full, server.copy_fails = what == "full", what == "copy"
    with pytest.raises(MachineFault, match=r"not authorized|Low disk space|did not copy"):
        await started(
            Ovirt(), context, options_of(server, image="tare-live.raw"), spec_of(tmp_path)
        )
    assert nothing_left(server, context)


@pytest.mark.parametrize(
    "request_cut", [r"POST .*/vms$", r"POST .*/nics", r"PUT .*/cdroms", r"POST .*/start"]
)
async def test_a_broken_connection_leaves_nothing_behind(
    server: OvirtServer, context: Context, tmp_path: Path, request_cut: str
) -> None:
    server.cuts.append(re.compile(request_cut))
    with pytest.raises(TareError, match="broke"):
        await started(Ovirt(), context, options_of(server), spec_of(tmp_path))
    assert server.cuts == [] and nothing_left(server, context)


async def test_a_locked_vm_is_waited_for(
    server: OvirtServer, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await started(Ovirt(), context, options_of(server), spec_of(tmp_path))
    (vm,) = server.vms.values()
    vm.status = server.types.VmStatus.IMAGE_LOCKED
    monkeypatch.setattr(OvirtVmResource, "removal_s", 0.0)
    monkeypatch.setattr(engines, "WORK_S", 0.2)
    server.unplug = lambda _: None
    monkeypatch.setattr(server, "powered_off", lambda _: None)
    with pytest.raises(MachineFault):
        await machine.stop()
    # It stays in the ledger until `tare clean`.
    assert "ovirt-vm" in {entry.kind for entry in context.ledger.open_entries()}
    vm.status = server.types.VmStatus.DOWN
    await clean(context.host, context.ledger, Ovirt.undoers)
    assert nothing_left(server, context)


# Disturbances of a machine.


@pytest.mark.parametrize("what", ["snapshot", "backup", "migrated", "paused", "started", "balloon"])
async def test_a_cell_that_was_disturbed_is_withheld(
    server: OvirtServer, context: Context, tmp_path: Path, what: str
) -> None:
    types = server.types
    machine = await started(Ovirt(), context, options_of(server), spec_of(tmp_path))
    (vm,) = server.vms.values()
    await machine._vm.applied()
    side, calm = HypervisorSide(machine), HypervisorSide(machine)
    await calm.open()
    await calm.close()
    await side.open()
    if what == "snapshot":
        kind = types.SnapshotType.REGULAR
        server.snapshots[vm.id].append(types.Snapshot(id="s", snapshot_type=kind))
    elif what == "backup":
        server.backups[vm.id].append(types.Backup(id="b"))
    elif what == "migrated":
        vm.host = types.Host(id="h2")
    elif what == "paused":
        vm.status = types.VmStatus.PAUSED
    elif what == "started":
        vm.start_time = vm.start_time.replace(year=2001)
    else:
        vm.memory_policy.ballooning = True
    await side.close()
    vm.status = types.VmStatus.UP
    await machine.stop()
    assert calm.doubt == "" and what in side.doubt


# Secrets.


async def test_secrets_are_in_no_output(
    server: OvirtServer,
    context: Context,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, logger="tare")
    outputs: list[str] = []
    planted = [server.password]

    options = options_of(server)
    machine = await started(Ovirt(), context, options, spec_of(tmp_path))
    (vm,) = server.vms.values()
    planted += [*server.tokens, str(configuration_key(vm))]
    outputs.append(await messages_of(machine.stop))
    # A server that says back what it was sent.
    server.there["clusters"][0].name = server.password
    outputs.append(
        await messages_of(
            lambda: Ovirt().check(context, options_of(server, cluster=server.password))
        )
    )
    server.password = "another-word"
    outputs.append(await messages_of(lambda: Ovirt().check(context, options)))
    outputs += [context.ledger.path.read_text(), caplog.text, repr(options), *capfd.readouterr()]
    assert len(planted) == 3 and all(len(word) > 8 for word in planted)
    for word in planted:
        assert not any(word in text for text in outputs)
    # Nor in an address that was asked for, which servers keep in their logs.
    assert not any(word in asked for word in planted for asked in server.asked)


def configuration_key(vm: Any) -> str:
    """Return the key on the CD of a VM."""
    found = re.search(r'"key": "(\w+)"', vm.payloads[0].files[0].content)
    assert found is not None
    return found[1]
