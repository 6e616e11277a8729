"""Refusals of XenAPI are reported as what they are, and nothing is left after a failure."""

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

from platforms.test_xenserver_conformance import KEPT
from platforms.vendor_served import MIB, messages_of, reached, spec_of, started
from platforms.xenserver_server import USER, XenServer
from tare.errors import InputError, MachineFault, TareError
from tare.hosts import clean
from tare.platforms.contract import Context, remove_resource
from tare.platforms.vendors.session import NoSuchObject, RequestRefused, opened
from tare.platforms.xenserver.builder import XenVmResource
from tare.platforms.xenserver.options import XenserverOptions
from tare.platforms.xenserver.platform import Xenserver
from tare.platforms.xenserver.pool import Pool
from tare.platforms.xenserver.session import XenSession
from tare.platforms.xenserver.vm import STATES, other_devices, vm_record
from tare.run.probes.hypervisor_side import HypervisorSide

pytest.importorskip("XenAPI")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[XenServer]:
    made = XenServer(tmp_path)
    made.start()
    yield made
    made.stop()


def options_of(server: XenServer, **more: Any) -> XenserverOptions:
    way = {**reached(server, USER, server.password), "image": "tare-live.iso"}
    return XenserverOptions.model_validate({**way, **more})


@asynccontextmanager
async def pool_of(server: XenServer, **more: Any) -> AsyncIterator[Pool]:
    async with opened(XenSession(options_of(server, **more).connection())) as session:
        yield Pool(session)


def nothing_left(server: XenServer, context: Context) -> bool:
    disks = [disk["name_label"] for disk in server.objects["VDI"].values()]
    empty = not any(server.objects[kind] for kind in ("VM", "VBD", "VIF", "task"))
    return sorted(disks) == sorted(KEPT) and empty and not context.ledger.open_entries()


# What is asked of it.


def test_each_vcpu_has_its_own_mask(tmp_path: Path, server: XenServer) -> None:
    record = vm_record(options_of(server), spec_of(tmp_path, cpus=(3, 5), vcpus=3), "h")
    assert record["VCPUs_params"] == {"mask": "3;5;3"}
    sizes = {record[key] for key in record if key.startswith("memory_")}
    assert sizes == {str(256 * MIB)}


@given(st.integers(1, 10_000), st.floats(0.01, 64))
def test_weight_and_cap_are_in_xens_measure(weight: int, cap: float) -> None:
    scheduled = XenserverOptions.model_validate(
        {"address": "a", "scheduling": {"weight": weight, "cap": cap}}
    )
    params = scheduled.vcpus_params("subject", 1, ())
    assert 1 <= int(params["weight"]) <= 65_535
    assert weight > 25_000 or int(params["weight"]) == max(1, round(weight * 2.56))
    assert int(params["cap"]) == max(1, round(cap * 100))
    assert scheduled.vcpus_params("neighbour-1", 1, ()) == {}


@pytest.mark.parametrize("knob", [{"nice": 1}, {"reservation": 1}, {"slice": "1ms"}])
def test_options_that_xenapi_lacks_are_refused_in_the_study(
    server: XenServer, knob: object
) -> None:
    with pytest.raises(ValidationError, match="is not supported by XenAPI"):
        options_of(server, scheduling=knob)


@pytest.mark.parametrize(
    ("devices", "driver", "wrong"),
    [
        ("paravirtual", "vif", False),
        ("paravirtual", "8139cp", True),
        ("emulated", "8139cp", False),
        ("emulated", "e1000", False),
        ("emulated", "vif", True),
        ("emulated", "virtio_net", False),
    ],
)
def test_the_proof_must_show_the_devices(devices: str, driver: str, wrong: bool) -> None:
    wrong_devices = other_devices(devices, {"nics": [{"name": "eth0", "driver": driver}]})
    assert bool(wrong_devices) == wrong and (not wrong or "xen_emul_unplug=never" in wrong_devices)
    assert other_devices(devices, {"nics": [{"name": "eth0"}]}) == ""


# Logins.


async def test_an_ended_session_is_logged_in_once_more(server: XenServer) -> None:
    async with pool_of(server) as pool:
        server.sessions.clear()
        assert (await pool.facts(server.host))["build"] == "8.3.0 cloud"
        assert server.asked.count("session.login_with_password") == 2
        server.sessions.clear()
        server.password = "changed"
        with pytest.raises(InputError, match="does not let tare in"):
            await pool.facts(server.host)
    assert server.sessions == set()


async def test_a_member_of_the_pool_names_its_coordinator(
    server: XenServer, context: Context
) -> None:
    server.coordinator = "192.0.2.17"
    verdict = await Xenserver().check(context, options_of(server))
    assert not verdict.usable and "coordinator" in verdict.reason
    assert "address: 192.0.2.17" in verdict.hint


async def test_a_certificate_of_an_unknown_issuer_is_refused(server: XenServer) -> None:
    with pytest.raises(InputError, match="is not trusted"):
        async with pool_of(server, ca=None):
            pass
    assert server.asked == []


# What is refused.


async def test_refusals_are_distinguished(server: XenServer, tmp_path: Path) -> None:
    record = vm_record(options_of(server), spec_of(tmp_path), server.host)
    async with pool_of(server) as pool:
        with pytest.raises(NoSuchObject, match="HANDLE_INVALID"):
            await pool.record("OpaqueRef:none")
        with pytest.raises(InputError, match="has no nothing"):
            await pool.find("VDI", "nothing")
        vm = str(await pool.ask(lambda api: api.VM.create(record)))
        with pytest.raises(RequestRefused, match=r"VM_BAD_POWER_STATE.*running, halted"):
            await pool.power_off(vm)
        await pool.power_on(vm, server.host)
        with pytest.raises(RequestRefused, match=r"VM_BAD_POWER_STATE.*halted, running"):
            await pool.power_on(vm, server.host)
        wrong = {**record, "memory_dynamic_min": "1"}
        other = str(await pool.ask(lambda api: api.VM.create(wrong)))
        with pytest.raises(MachineFault, match="MEMORY_CONSTRAINT_VIOLATION"):
            await pool.power_on(other, server.host)
        named = XenVmResource(pool.session, {"name": record["name_label"]})
        assert await remove_resource(named)
        assert not await remove_resource(named)


async def test_objects_of_others_with_the_name_are_left(
    server: XenServer, context: Context
) -> None:
    server.add("VM", name_label="tare-t-1-subject", other_config={}, power_state="Running")
    async with pool_of(server) as pool:
        named = XenVmResource(pool.session, {"name": "tare-t-1-subject"})
        assert not await remove_resource(named)
    way = options_of(server).connection()
    context.ledger.record("xenserver-vm", **way, name="theirs")
    removed = await clean(context.host, context.ledger, Xenserver.undoers)
    assert "does not start with tare-" in removed[0] and len(server.objects["VM"]) == 1


async def test_cpus_that_are_not_there_are_refused_here(
    server: XenServer, context: Context, tmp_path: Path
) -> None:
    """XenAPI would take the mask, and run the VM anywhere."""
    with pytest.raises(
        MachineFault, match="tare-t-1-subject: CPU 16 is not there: the host has 16"
    ):
        await started(Xenserver(), context, options_of(server), spec_of(tmp_path, cpus=(16,)))
    assert nothing_left(server, context)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"on_host": "xen9"}, "has no xen9"),
        ({"sr": "ISOs"}, "holds CDs"),
        ({"network": "none"}, "has no none"),
        ({"image": "none.iso"}, "has no none.iso"),
    ],
)
async def test_missing_objects_are_named(
    server: XenServer, context: Context, more: dict[str, Any], words: str
) -> None:
    verdict = await Xenserver().check(context, options_of(server, **more))
    assert not verdict.usable and words in verdict.reason and verdict.hint


async def test_check_reports_build_and_cpus(server: XenServer, context: Context) -> None:
    verdict = await Xenserver().check(context, options_of(server))
    assert verdict.usable and verdict.versions == {"xenserver": "8.3.0 cloud", "xen": "4.17.5"}
    assert verdict.capabilities.max_vcpus == 16
    assert verdict.shown["licence"] == "free" and verdict.rights == ("the role vm-power-admin",)
    server.is_superuser = True
    (root,) = (await Xenserver().check(context, options_of(server))).rights
    assert root.startswith("root of the host")


@pytest.mark.parametrize("role", ["read-only", "vm-operator", "vm-admin"])
async def test_a_role_that_is_too_little_is_named_before_anything_is_made(
    server: XenServer, context: Context, tmp_path: Path, role: str
) -> None:
    server.role = role
    verdict = await Xenserver().check(context, options_of(server))
    assert not verdict.usable and f"the role {role} at " in verdict.reason
    assert "role-name=vm-power-admin" in verdict.hint
    # A start despite that is refused, with that role or one with fewer rights.
    with pytest.raises(MachineFault, match="RBAC_PERMISSION_DENIED"):
        await started(Xenserver(), context, options_of(server), spec_of(tmp_path))
    assert nothing_left(server, context)


@pytest.mark.parametrize(
    "licence",
    [
        ["LICENCE_RESTRICTION", "PCI_device_for_auto_update"],
        ["LICENSE_EXPIRED"],
        ["FEATURE_RESTRICTED"],
    ],
    ids=lambda words: words[0],
)
async def test_a_refusal_by_the_licence_says_where_to_look(
    server: XenServer, context: Context, tmp_path: Path, licence: list[str]
) -> None:
    server.licence = licence
    with pytest.raises(RequestRefused, match=licence[0]) as refused:
        await started(Xenserver(), context, options_of(server), spec_of(tmp_path))
    assert "tare-t-1-subject" in refused.value.message
    assert "xe host-license-view" in refused.value.hint
    assert nothing_left(server, context)


# What fails half-way.


@pytest.mark.parametrize("what", ["VM.start_on", "VDI.copy", "role", "full"])
async def test_nothing_is_left_after_a_failure(
    server: XenServer, context: Context, tmp_path: Path, what: str
) -> None:
    server.role = "read-only" if what == "role" else server.role
    server.full = what == "full"
    server.fails = {what: ["INTERNAL_ERROR", "half-way"]}
    with pytest.raises(MachineFault, match=r"half-way|RBAC_PERMISSION_DENIED|SR_FULL"):
        await started(
            Xenserver(), context, options_of(server, image="tare-live.raw"), spec_of(tmp_path)
        )
    assert nothing_left(server, context)


@pytest.mark.parametrize(
    "request_cut", ["VDI.create", "VM.create", "import_raw_vdi", "Async.VM.start_on", "task.get"]
)
async def test_a_broken_connection_leaves_nothing_behind(
    server: XenServer, context: Context, tmp_path: Path, request_cut: str
) -> None:
    server.cuts.append(re.compile(request_cut))
    try:
        machine = await started(Xenserver(), context, options_of(server), spec_of(tmp_path))
    except TareError as error:
        assert "broke" in str(error)
    else:
        # A task continues even if its state cannot be asked; a disk was filled nevertheless.
        assert request_cut == "task.get"
        await machine.stop()
    assert server.cuts == []
    server.objects["task"].clear()
    assert nothing_left(server, context)


async def test_a_busy_vm_is_waited_for(
    server: XenServer, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await started(Xenserver(), context, options_of(server), spec_of(tmp_path))
    (record,) = server.objects["VM"].values()
    record["current_operations"] = {"OpaqueRef:task": "snapshot"}
    monkeypatch.setattr(XenVmResource, "removal_s", 0.0)
    with pytest.raises(RequestRefused, match="OTHER_OPERATION_IN_PROGRESS"):
        await machine.stop()
    # It stays in the ledger until `tare clean`.
    assert "xenserver-vm" in {entry.kind for entry in context.ledger.open_entries()}
    record["current_operations"] = {}
    await clean(context.host, context.ledger, Xenserver.undoers)
    assert nothing_left(server, context)


# Disturbances of a machine, and what its host reports.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"snapshots": ["OpaqueRef:s"]}, "snapshot"),
        ({"current_operations": {"t": "pool_migrate"}}, "pool_migrate under way"),
        ({"resident_on": "OpaqueRef:other"}, "migrated"),
        ({"domid": "77777"}, "another domain"),
        ({"memory_dynamic_min": "1"}, "ballooned"),
    ],
)
async def test_a_cell_that_was_disturbed_is_withheld(
    server: XenServer, context: Context, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    machine = await started(Xenserver(), context, options_of(server), spec_of(tmp_path))
    side, calm = HypervisorSide(machine), HypervisorSide(machine)
    await calm.open()
    await calm.close()
    await side.open()
    (record,) = server.objects["VM"].values()
    before = {key: record[key] for key in change}
    record |= change
    await side.close()
    record |= before
    await machine.stop()
    assert calm.doubt == "" and words in side.doubt


async def test_run_states_are_reported_as_they_were_recorded(
    server: XenServer, context: Context, tmp_path: Path
) -> None:
    machine = await started(Xenserver(), context, options_of(server), spec_of(tmp_path))
    names = [name.rpartition(":")[2] for name in server.legend]
    assert names == list(STATES)
    server.rows = [{"t": t, "values": ["0.5", "NaN", "0", "0.25", "0", "0"]} for t in (95, 105)]
    counted = await machine.hypervisor_figures(100, 120)
    await machine.stop()
    assert counted is not None and counted.resolution_s == 5
    found = {figure.name: figure for figure in counted.figures}
    # What was not known is not shown, and never 0.
    assert (found["runstate-fullrun"].of, found["runstate-fullrun"].values) == ((105,), (0.5,))
    assert "runstate-full-contention" not in found and len(found) == len(STATES) - 1


# Secrets.


async def test_secrets_are_in_no_file_and_no_message(
    server: XenServer,
    context: Context,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, logger="tare")
    messages: list[str] = []
    planted = [server.password]

    options = options_of(server, image="tare-live.raw")
    machine = await started(Xenserver(), context, options, spec_of(tmp_path))
    planted += server.sessions
    # A server that says back what it was sent.
    server.fails = {"VM.hard_shutdown": ["INTERNAL_ERROR", *planted]}
    messages.append(await messages_of(machine.stop))
    server.fails = {"VM.start_on": ["INTERNAL_ERROR", server.password]}
    messages.append(
        await messages_of(lambda: started(Xenserver(), context, options, spec_of(tmp_path)))
    )
    assert "(secret)" in messages[-1]
    server.password = "another"
    messages.append(await messages_of(lambda: Xenserver().check(context, options)))
    messages += [context.ledger.path.read_text(), caplog.text, repr(options), *capfd.readouterr()]
    assert len(planted) == 2 and all(len(word) > 8 for word in planted)
    for word in planted:
        assert not any(word in text for text in messages)
    # Nor in an address that was asked for, which servers keep in their logs.
    assert not any("session_id" in asked for asked in server.asked)
