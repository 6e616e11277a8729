"""Refusals of vSphere: one sentence, without secrets, and with nothing left behind.

Most is refused by govmomi's simulator itself. What depends on a licence, an account's rights or a
moment is one of the products' own faults, see ``vsphere_simulator/main.go`` for their pages.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from platforms.vsphere_simulated import PASSWORD, Firmware, Simulator, booting, simulator, types
from tare.agent.client import Hello
from tare.errors import InputError, MachineFault
from tare.hosts.ledger.cleanup import clean
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.platforms.contract import Context, Machine, MachineSpec, Prepared, Shape
from tare.platforms.vsphere import builder
from tare.platforms.vsphere.inventory import find_all, find_location, machine_named
from tare.platforms.vsphere.options import CpuAllocation, VsphereOptions
from tare.platforms.vsphere.platform import Vsphere
from tare.run.lifecycle.session import agent_path
from tare.run.probes.hypervisor_side import HypervisorSide

SIZE = Shape(1, 256 << 20)
READY = Prepared(kernel="", digest="", cached=True, took_s=0.0)
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def there() -> Iterator[Simulator]:
    with simulator() as running:
        yield running


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    agent = agent_path()
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent), ledger, tmp_path, agent)


def spec_of(name: str = "tare-refused-1-subject", cpus: tuple[int, ...] = ()) -> MachineSpec:
    return MachineSpec(name, SIZE, cpus, Path(tempfile.gettempdir()) / name, realtime=False)


async def begun(
    context: Context, options: VsphereOptions, spec: MachineSpec | None = None
) -> Machine:
    return await Vsphere().start(context, options, READY, spec or spec_of())


def nothing_left(there: Simulator, context: Context) -> None:
    there.order(do="allow")
    assert there.left() == []
    assert not context.ledger.open_entries()
    noted = context.ledger.path.read_text()
    assert PASSWORD not in noted and '"key"' not in noted


@asynccontextmanager
async def running(
    there: Simulator, context: Context, **more: object
) -> AsyncIterator[tuple[Machine, Hello, Firmware]]:
    async with booting(there, agent_path()) as firmware:
        machine = await begun(context, there.options(**more))
        try:
            yield machine, await machine.ready(PATIENCE_S), firmware
        finally:
            await machine.stop()


async def as_owner(there: Simulator, do: Callable[[Any, Any], Any]) -> None:
    """Do something to Tare's virtual machine as its host's owner."""

    def act() -> None:
        with there.client() as client:
            (vm,) = there.machines(client)
            do(client, vm)

    await asyncio.to_thread(act)


@pytest.mark.parametrize(
    ("method", "fault", "words"),
    [
        ("CreateVM_Task", "RestrictedVersion", "free ESXi"),
        ("PowerOnVM_Task", "RestrictedVersion", "free ESXi"),
        ("CreateVM_Task", "NoPermission", "lacks VirtualMachine.Inventory.Create"),
        ("ReconfigVM_Task", "TaskInProgress", "something else changes the same object"),
        ("ReconfigVM_Task", "ConcurrentAccess", "something else changes the same object"),
        ("PowerOnVM_Task", "InvalidArgument", "InvalidArgument"),
    ],
)
async def test_a_refusal_is_reported_and_leaves_nothing(
    there: Simulator, context: Context, method: str, fault: str, words: str
) -> None:
    there.refuse(method, fault)
    with pytest.raises(MachineFault, match=words) as refusal:
        await begun(context, there.options())
    assert "tare-refused-1-subject" in refusal.value.message
    assert PASSWORD not in repr(refusal.value)
    nothing_left(there, context)


@pytest.mark.parametrize("method", ["CreateVM_Task", "ReconfigVM_Task", "PowerOnVM_Task"])
async def test_an_expired_session_is_renewed_once(
    there: Simulator, context: Context, method: str
) -> None:
    there.refuse(method, "NotAuthenticated")
    machine = await begun(context, there.options())
    await machine.stop()
    nothing_left(there, context)


async def test_a_session_that_is_never_taken_ends_it(there: Simulator, context: Context) -> None:
    there.refuse("CreateVM_Task", "NotAuthenticated", count=0)
    with pytest.raises(MachineFault, match="session has expired"):
        await begun(context, there.options())
    nothing_left(there, context)


async def test_a_session_that_an_administrator_ends_is_renewed(
    there: Simulator, context: Context
) -> None:
    async with running(there, context) as (machine, _, _firmware):
        before = await machine.disturbances()
        # Not the stand-in's session, which is its guest's power switch and no part of Tare.
        vm: Any = machine
        driver = vm._vm._session._client

        def end() -> None:
            own = driver.content.sessionManager.currentSession.key
            with there.client() as client:
                client.content.sessionManager.TerminateSession([own])

        await asyncio.to_thread(end)
        assert await machine.disturbances() == before
        assert vm._vm._session._client is not driver
    nothing_left(there, context)


async def test_a_connection_that_is_cut_in_the_middle(there: Simulator, context: Context) -> None:
    there.refuse("ReconfigVM_Task", "TaskInProgress", delay=4000)
    beginning = asyncio.ensure_future(begun(context, there.options()))
    async with asyncio.timeout(PATIENCE_S):
        while not there.left():
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    there.order(do="cut")
    with pytest.raises(MachineFault, match="the connection broke") as refusal:
        await beginning
    assert refusal.value.transient
    nothing_left(there, context)


async def test_a_task_that_fails_half_way(there: Simulator, context: Context) -> None:
    """The host goes into maintenance: the task that switches on begins, and then fails."""

    def maintain(on: bool) -> None:
        with there.client() as client:
            (host,) = [
                each
                for each in find_all(client, types().vim.HostSystem)
                if each.name == there.options().host
            ]
            if on:
                host.EnterMaintenanceMode_Task(timeout=0)
            else:
                host.ExitMaintenanceMode_Task(timeout=0)

    await asyncio.to_thread(maintain, True)
    try:
        with pytest.raises(MachineFault, match="InvalidState"):
            await begun(context, there.options())
    finally:
        await asyncio.to_thread(maintain, False)
    nothing_left(there, context)


@pytest.mark.parametrize("for_ever", [True, False])
async def test_a_key_that_cannot_be_removed_is_reported(
    there: Simulator, context: Context, for_ever: bool
) -> None:
    async with booting(there, agent_path()):
        machine = await begun(context, there.options())
        await machine.ready(PATIENCE_S)
        there.refuse("DeleteDatastoreFile_Task", "NoPermission", count=0 if for_ever else 1)
        if for_ever:
            with pytest.raises(MachineFault, match=r"with tare-cfg\.iso is left there: .* lacks "):
                await machine.stop()
        else:
            await machine.stop()
    # The machine itself is gone nevertheless; the ledger still lists its files.
    kinds = [entry.kind for entry in context.ledger.open_entries()]
    assert kinds == ["vsphere-files"] * for_ever
    there.order(do="allow")
    assert there.left() == []


async def test_a_machine_that_starts_after_it_was_looked_is_removed(
    there: Simulator, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start whose connection broke may begin late: between the look and the removal."""
    begun_late: list[str] = []

    def seen_off(*asked: Any) -> Any:
        vm = machine_named(*asked)
        if begun_late:
            return vm
        seen = SimpleNamespace(powerState=str(vm.runtime.powerState))
        begun_late.append(vm.PowerOnVM_Task()._moId)
        while str(vm.runtime.powerState) != "poweredOn":
            time.sleep(0.05)
        return SimpleNamespace(_moId=vm._moId, runtime=seen, config=vm.config)

    async with booting(there, agent_path()):
        machine = await begun(context, there.options())
        await machine.ready(PATIENCE_S)
        monkeypatch.setattr(builder, "machine_named", seen_off)
        await machine.stop()
    assert len(begun_late) == 1
    nothing_left(there, context)


async def test_a_machine_that_somebody_removes_has_died(there: Simulator, context: Context) -> None:
    def remove(_: Any, vm: Any) -> None:
        vm.PowerOffVM_Task()
        vm.Destroy_Task()

    async with running(there, context) as (machine, _, _firmware):
        await as_owner(there, remove)
        fault = await asyncio.wait_for(machine.died, PATIENCE_S)
        assert "somebody removed it" in fault.message or "powered off" in fault.message
    # What was removed by somebody else is gone with its folder's image, or is Tare's to remove.
    assert not context.ledger.open_entries()


async def test_a_wrong_login_is_reported_without_the_password(
    there: Simulator, context: Context
) -> None:
    wrong = there.folder / "wrong"
    wrong.touch(0o600)
    wrong.write_text("user=tare-measures\npassword=planted-and-wrong\n")
    verdict = await Vsphere().check(context, there.options(credentials=str(wrong)))
    assert not verdict.usable and "rejects the login" in verdict.reason
    assert "planted-and-wrong" not in repr(verdict)


async def test_a_certificate_of_an_unknown_issuer_is_refused(
    there: Simulator, context: Context
) -> None:
    verdict = await Vsphere().check(context, there.options(ca=None))
    assert not verdict.usable and "is not trusted" in verdict.reason
    assert "`ca`" in verdict.hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": None}, "there are 4 of ESXi host"),
        ({"host": "esx9"}, "no ESXi host named esx9"),
        ({"datastore": "tape"}, "no datastore of it named tape"),
        ({"pool": "pond"}, "no pool named pond"),
        ({"folder": "attic"}, "no folder named attic"),
        ({"processors": [0, 9]}, "no processor 9 on the ESXi host, which has 2"),
    ],
)
async def test_missing_objects_are_reported_before_anything_is_created(
    there: Simulator, context: Context, options: dict[str, object], words: str
) -> None:
    verdict = await Vsphere().check(context, there.options(**options))
    assert not verdict.usable and words in verdict.reason
    nothing_left(there, context)


def test_an_empty_list_is_reported_as_a_right_that_may_be_missing() -> None:
    """With System.View missing the API answers with nothing, and not with a fault."""
    seen = SimpleNamespace(view=[], DestroyView=lambda: None)
    content = SimpleNamespace(
        rootFolder=None,
        viewManager=SimpleNamespace(CreateContainerView=lambda *_: seen),
    )
    client = SimpleNamespace(RetrieveContent=lambda: content, content=content)
    options = VsphereOptions(address="a", datastore="d")
    with pytest.raises(InputError, match="lacks the right to see it"):
        find_location(client, SimpleNamespace(HostSystem=None), options)


async def test_a_processor_that_is_not_there_is_refused(there: Simulator, context: Context) -> None:
    """The API takes any number (tried): the range is checked here."""
    with pytest.raises(MachineFault, match="no processor 7 on the ESXi host, which has 2"):
        await begun(context, there.options(), spec_of(cpus=(7,)))
    nothing_left(there, context)
    verdict = await Vsphere().check(context, there.options(processors=(1, 7)))
    assert "no processor 7 on the ESXi host, which has 2" in verdict.reason
    assert "out of 0 to 1" in verdict.hint


async def test_the_request_is_seen_in_the_machine(there: Simulator, context: Context) -> None:
    async with running(
        there, context, reservation=200, limit=900, shares=77, devices="emulated"
    ) as (machine, _, _firmware):
        scheduling = machine.applied["scheduling"]
        assert scheduling["reservation_mhz"] == 200 and scheduling["limit_mhz"] == 900
        assert scheduling["shares"] == 77
        hypervisor = machine.applied["hypervisor"]
        assert "E1000" in hypervisor["devices"] and "LsiLogic" in hypervisor["devices"]
        assert "build" in hypervisor["product"] and hypervisor["licence"]
        assert {"power policy", "hyper-threading", "scheduler", "DRS", "HA"} <= set(hypervisor)
    nothing_left(there, context)


@pytest.mark.parametrize(
    ("nic", "shown"),
    [("e1000", "VirtualE1000"), ("e1000e", "VirtualE1000e")],
)
async def test_an_emulated_card_is_the_one_that_the_arm_names(
    there: Simulator, context: Context, nic: str, shown: str
) -> None:
    async with running(there, context, devices="emulated", nic=nic) as (machine, _, _firmware):
        devices = machine.applied["hypervisor"]["devices"].split(", ")
        assert [each for each in devices if "E1000" in each] == [shown]
    nothing_left(there, context)


def test_an_old_version_of_virtual_hardware_has_no_e1000e() -> None:
    with pytest.raises(ValidationError, match="needs hardware version 8"):
        VsphereOptions(address="a", datastore="d", nic="e1000e", hardware=7)


@pytest.mark.parametrize("esx", [False, True], ids=["vCenter", "ESXi"])
async def test_a_disk_is_copied_for_each_machine(context: Context, esx: bool) -> None:
    """VCenter takes a datastore's path only with its datacenter (VirtualDiskManager)."""
    with simulator(esx=esx) as there:

        def make_golden() -> None:
            with there.client() as client:
                store = find_location(client, types().vim, there.options()).datastore
                for name in ("golden.vmdk", "golden-flat.vmdk"):
                    (Path(store.summary.url) / name).write_bytes(b"a disk")

        await asyncio.to_thread(make_golden)
        async with running(there, context, boot="[LocalDS_0] golden.vmdk") as (machine, _, _fw):
            assert machine.name

            def files() -> list[str]:
                with there.client() as client:
                    (vm,) = there.machines(client)
                    kind = types().vim.vm.device.VirtualDisk
                    found = vm.config.hardware.device
                    return [each.backing.fileName for each in found if isinstance(each, kind)]

            (file,) = await asyncio.to_thread(files)
            assert file.endswith("/tare-boot.vmdk")
        nothing_left(there, context)


async def test_a_cell_is_withheld_for_a_snapshot(there: Simulator, context: Context) -> None:
    async with running(there, context) as (machine, _, _firmware):
        side = HypervisorSide(machine)
        await side.open()
        await side.close()
        assert side.doubt == ""
        await side.open()
        await as_owner(
            there, lambda _, vm: vm.CreateSnapshot_Task("nightly", "", memory=False, quiesce=False)
        )
        await side.close()
        assert "snapshot nightly" in side.doubt
        # A disturbance before the next cell does not count for that cell.
        await side.open()
        await side.close()
        assert side.doubt == ""
    nothing_left(there, context)


async def test_secrets_are_nowhere(there: Simulator, context: Context) -> None:
    async with running(there, context) as (machine, hello, firmware):
        platform = Vsphere()
        verdict = await platform.check(context, there.options())
        recorded = json.dumps(
            [hello.proof, dict(machine.applied), there.options().model_dump(mode="json")],
            default=str,
        )
        (key,) = firmware.keys
        noted = context.ledger.path.read_text()
        for secret in (PASSWORD, key):
            for text in (recorded, noted, repr(verdict), repr(machine), repr(vars(machine))):
                assert secret not in text
    nothing_left(there, context)


async def test_the_ledger_removes_what_a_killed_run_left(
    there: Simulator, context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = there.options()
    assert options.ca is not None
    monkeypatch.chdir(Path(options.ca).parent)
    relative = options.model_copy(update={"ca": Path(options.ca).name})
    machine = await begun(context, relative)
    assert there.left()
    # The clean-up may run on any computer.
    monkeypatch.chdir(tmp_path)
    removed = await clean(context.host, context.ledger, Vsphere.undoers)
    assert any("Removed the virtual machine" in line for line in removed)
    assert there.left() == []
    monkeypatch.chdir(Path(options.ca).parent)
    await machine.stop()
    nothing_left(there, context)


@pytest.mark.parametrize("esx", [False, True], ids=["vCenter", "ESXi"])
async def test_files_of_a_machine_that_is_gone_are_removed_by_the_ledger(
    context: Context, esx: bool
) -> None:
    """The image with the key, and a disk that was copied: destroying a machine takes neither."""
    with simulator(esx=esx) as there:
        await begun(context, there.options())
        others: list[Path] = []

        def forget() -> None:
            """Take it out of the inventory, as an owner may on finding a killed run's machine."""
            with there.client() as client:
                (vm,) = there.machines(client)
                store = Path(
                    find_location(client, types().vim, there.options()).datastore.summary.url
                )
                (store / vm.name / "tare-boot.vmdk").write_bytes(b"a disk")
                others.append(store / "another" / "tare-cfg.iso")
                others[0].parent.mkdir()
                others[0].write_bytes(b"not of this run")
                vm.PowerOffVM_Task()
                vm.UnregisterVM()

        stated = {write.kind for write in Vsphere().writes(there.options())}
        assert {entry.kind for entry in context.ledger.open_entries()} <= stated
        await asyncio.to_thread(forget)
        assert any(path.endswith("/tare-cfg.iso") for path in there.left())
        removed = await clean(context.host, context.ledger, Vsphere.undoers)
        assert "Removed files of tare-refused-1-subject from 127.0.0.1." in removed
        assert not context.ledger.open_entries()
        assert there.left() == [str(others[0])]


def test_options_that_do_not_agree_are_refused() -> None:
    for wrong in (
        {"reservation": 2, "limit": 1},
        {"latency_sensitivity": "high"},
        {"latency_sensitivity": "high", "reservation": 1, "reserve_memory": False},
        {"boot": "iso/tare.iso"},
        {"shares": 0},
    ):
        with pytest.raises(ValueError):
            VsphereOptions.model_validate({"address": "a", "datastore": "d", **wrong})


def test_knobs_become_mhz_and_shares() -> None:
    """A CPU is the clock rate of the host's, in MHz; 1000 shares a vCPU are ordinary."""
    options = VsphereOptions.model_validate(
        {
            "address": "a",
            "datastore": "d",
            "scheduling": {"cap": 1.5, "reservation": 0.5, "weight": 1000},
        }
    )
    own = options.allocation("subject", 2, 2400)
    assert (own.limit, own.reservation, own.shares) == (3600, 1200, 20_000)
    assert options.allocation("neighbour-1", 2, 2400) == CpuAllocation()
    assert "weight 1000" in options.words()[0]
    plain = VsphereOptions(address="a", datastore="d", limit=900, shares=77)
    assert plain.allocation("neighbour-1", 1, 2400) == CpuAllocation(None, 900, 77)
    for both in ({"limit": 900}, {"scheduling": {"nice": 3}}):
        given = {"address": "a", "datastore": "d", "scheduling": {"cap": 1}, **both}
        with pytest.raises(ValueError, match=r"give one|`nice` is not supported by ESXi"):
            VsphereOptions.model_validate(given)


async def test_knobs_are_seen_at_the_host(there: Simulator, context: Context) -> None:
    scheduling = {"cap": "50 %", "reservation": "25 %", "weight": 200}
    async with running(there, context, scheduling=scheduling) as (machine, _, _firmware):
        applied = machine.applied["scheduling"]
        assert applied["limit_mhz"] > 500
        assert applied["reservation_mhz"] == pytest.approx(applied["limit_mhz"] / 2, abs=1)
        assert applied["shares"] == 2000 * SIZE.vcpus
    nothing_left(there, context)
