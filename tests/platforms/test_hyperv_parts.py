"""Refusals of a Hyper-V host are reported as what they are; nothing is left after a failure."""

from __future__ import annotations

import logging
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pypsrp")
pytest.importorskip("psrpcore")

from platforms.hyperv_host import DISK, FOLDER, IMAGE, PsError
from platforms.hyperv_served import nothing_left, options_of, served, there
from platforms.hyperv_server import HypervServer
from platforms.vendor_served import MIB, messages_of, spec_of, started
from tare.errors import InputError, MachineFault, TareError
from tare.hosts import clean
from tare.platforms.contract import Context, remove_resource
from tare.platforms.hyperv.builder import HypervVmResource
from tare.platforms.hyperv.command import Long, chosen, cmdlet
from tare.platforms.hyperv.cpu_groups import group_details
from tare.platforms.hyperv.platform import Hyperv
from tare.platforms.hyperv.server import Server
from tare.platforms.hyperv.session import HypervSession
from tare.platforms.vendors.configuration import read_configuration
from tare.platforms.vendors.session import NoSuchObject, RequestRefused

NAME = "tare-t-1-subject"
server = served


async def make(server: Server, name: str = NAME, folder: str = FOLDER) -> Any:
    made = await server.session.run(
        cmdlet(
            "New-VM",
            Name=name,
            Generation=1,
            MemoryStartupBytes=Long(256 * MIB),
            Path=folder,
            NoVHD=True,
            BootDevice="CD",
        ),
        chosen("Id"),
    )
    return made[0]._properties["Id"]


# What is asked of it.


async def test_a_machine_has_static_memory_and_its_share(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    plugged: list[list[bytes]] = []
    server.plug = lambda _, images: plugged.append(images)
    scheduling = {"weight": 200, "cap": 1.5, "reservation": 0.5}
    options = options_of(server, scheduling=scheduling)
    machine = await started(Hyperv(), context, options, spec_of(tmp_path, vcpus=3))
    (vm,) = server.host.vms.values()
    # Half of three vCPUs is one and a half.
    assert vm.processor == {"Count": 3, "Maximum": 50, "Reserve": 17, "RelativeWeight": 200}
    assert (vm.generation, vm.memory, vm.dynamic) == (1, 256 * MIB, False)
    assert (vm.checkpoints, vm.path) == ("Disabled", f"{FOLDER}\\{NAME}")
    (card,) = vm.cards
    assert (card.legacy, card.switch) == (False, "External")
    places = {(each.number, each.location): each.path for each in vm.drives}
    assert places == {(1, 0): IMAGE, (1, 1): f"{FOLDER}\\{NAME}\\tare-cfg.iso"}
    # Its agent finds where to dial, on the second CD.
    (found,) = filter(None, map(read_configuration, plugged[0]))
    assert found["name"] == NAME and len(found["key"]) == 64
    applied = await machine._vm.applied()
    assert applied["scheduling"] == {"weight": 200, "maximum %": 50, "reserve %": 17}
    hypervisor = applied["hypervisor"]
    assert (hypervisor["build"], hypervisor["licence"], hypervisor["scheduler"]) == (
        "20348.2402",
        "ServerStandard",
        "core",
    )
    assert (hypervisor["power policy"], hypervisor["hyper-threading"], hypervisor["model"]) == (
        "balanced",
        "on",
        "A maker A server",
    )
    await machine.stop()
    assert nothing_left(server, context)


@pytest.mark.parametrize(
    ("more", "legacy", "boots"),
    [
        ({"devices": "emulated", "image": DISK}, True, "VHD"),
        ({"generation": 2, "secure_boot": True}, False, "CD"),
        ({"generation": 2, "image": DISK}, False, "VHD"),
    ],
    ids=["emulated", "secure", "disk"],
)
async def test_devices_are_those_of_the_arm(
    server: HypervServer,
    context: Context,
    tmp_path: Path,
    more: dict[str, Any],
    legacy: bool,
    boots: str,
) -> None:
    machine = await started(Hyperv(), context, options_of(server, **more), spec_of(tmp_path))
    (vm,) = server.host.vms.values()
    assert ([card.legacy for card in vm.cards], vm.boots) == ([legacy], boots)
    home = f"{FOLDER}\\{NAME}"
    assert vm.disks == ([] if boots == "CD" else [f"{home}\\boot.vhdx"])
    assert f"{home}\\tare-cfg.iso" in {each.path for each in vm.drives}
    if vm.generation == 2:
        assert vm.firmware["EnableSecureBoot"] == ("On" if more.get("secure_boot") else "Off")
    await machine.stop()
    assert nothing_left(server, context)


async def test_a_cpu_group_confines_a_machine(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    options = options_of(server, cpu_groups=True)
    assert Hyperv().stated(options).capabilities.pinning
    spec = spec_of(tmp_path, cpus=(5, 3), vcpus=3)
    machine = await started(Hyperv(), context, options, spec)
    ((group, processors),) = server.host.cpu_groups.items()
    (vm,) = server.host.vms.values()
    assert processors == [3, 5] and vm.group == group
    kinds = {entry.kind for entry in context.ledger.open_entries()}
    assert {"hyperv-cpu-group", "hyperv-vm"} <= kinds
    applied = await machine._vm.applied()
    assert applied["scheduling"]["vcpus"] == {"0": "3,5", "1": "3,5", "2": "3,5"}
    await machine.stop()
    assert nothing_left(server, context)


async def test_a_vm_that_is_in_another_cpu_group_is_not_started(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    class Elsewhere(dict[Any, Any]):
        """VMs that lose their group as soon as they have one."""

        def values(self) -> Any:
            for vm in super().values():
                vm.group = "00000000-0000-0000-0000-000000000000"
            return super().values()

    server.host.vms = Elsewhere()
    options = options_of(server, cpu_groups=True)
    with pytest.raises(MachineFault, match=r"its CPU group was to be .* but Hyper-V reports 0000"):
        await started(Hyperv(), context, options, spec_of(tmp_path, cpus=(1,)))
    assert nothing_left(server, context)


async def test_hosts_without_cpu_groups_are_refused_with_the_reason(
    server: HypervServer, context: Context
) -> None:
    options = options_of(server, cpu_groups=True)
    assert (await Hyperv().check(context, options)).usable
    server.host.scheduler = 4
    verdict = await Hyperv().check(context, options)
    assert not verdict.usable and "root scheduler" in verdict.reason
    assert "hypervisorschedulertype" in verdict.hint
    server.host.scheduler, server.host.has_compute = 3, False
    verdict = await Hyperv().check(context, options)
    assert not verdict.usable and "has no CPU groups" in verdict.reason
    assert "Windows Server 2019" in verdict.hint


async def test_cpu_groups_are_used_where_they_can_be(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    options = options_of(server, cpu_groups="auto")
    assert Hyperv().stated(options).capabilities.pinning
    verdict = await Hyperv().check(context, options)
    assert verdict.usable and verdict.capabilities.pinning
    machine = await started(Hyperv(), context, options, spec_of(tmp_path, cpus=(1,)))
    assert [*server.host.cpu_groups.values()] == [[1]]
    await machine.stop()
    server.host.scheduler = 4
    verdict = await Hyperv().check(context, options)
    assert verdict.usable and not verdict.capabilities.pinning
    assert verdict.shown["cpu groups"].startswith("not used: CPU groups confine nothing here")
    machine = await started(Hyperv(), context, options, spec_of(tmp_path))
    assert not server.host.cpu_groups
    await machine.stop()
    assert nothing_left(server, context)


async def test_with_cpu_groups_the_cores_of_the_host_are_known(
    server: HypervServer, context: Context
) -> None:
    """16 processors, of eight cores in two packages."""
    server.host.sockets, server.host.nodes = 2, 2
    plain = (await Hyperv().check(context, options_of(server))).carrier
    assert plain is not None and plain.cpus.core(2) == {2} and plain.cores == 8
    carrier = (await Hyperv().check(context, options_of(server, cpu_groups=True))).carrier
    assert carrier is not None and carrier.cores == 8
    assert carrier.cpus.core(2) == {2, 3} and carrier.cpus.core(3) == {2, 3}
    assert carrier.cpus.nodes[7] == 0 and carrier.cpus.nodes[8] == 1
    assert (carrier.cpus.packages[7], carrier.cpus.packages[15]) == (0, 8)


async def test_cpus_that_the_host_lacks_are_refused_before_a_cpu_group_is_made(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    options = options_of(server, cpu_groups=True)
    with pytest.raises(MachineFault, match="CPU 16 is not there: the host has 16"):
        await started(Hyperv(), context, options, spec_of(tmp_path, cpus=(16,)))
    assert nothing_left(server, context)


async def test_clean_removes_a_cpu_group_that_a_killed_run_left(
    server: HypervServer, context: Context
) -> None:
    group = uuid.uuid4()
    details = group_details({**options_of(server).connection(), "name": NAME}, group, (2, 1))
    context.ledger.record("hyperv-cpu-group", **details)
    server.host.cpu_groups = {str(group): [1, 2], str(uuid.uuid4()): [3]}
    removed = await clean(context.host, context.ledger, Hyperv.undoers)
    assert removed == [f"Removed the CPU group of {NAME}."]
    assert [*server.host.cpu_groups.values()] == [[3]]
    assert not context.ledger.open_entries()


async def test_nothing_that_a_study_says_is_run(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    hostile = "a\"; $(Stop-VM *) `n' | Remove-Item -Recurse #"
    server.host.switches = [hostile]
    folder = "D:\\ta're $(Get-VM) `whoami`"
    server.host.files[folder.lower()] = server.host.files[FOLDER.lower()]
    server.host.first = dict(server.host.files)
    options = options_of(server, switch=hostile, folder=folder)
    machine = await started(Hyperv(), context, options, spec_of(tmp_path))
    (vm,) = server.host.vms.values()
    assert (vm.cards[0].switch, vm.path) == (hostile, f"{folder}\\{NAME}")
    await machine.stop()
    assert nothing_left(server, context)


# Logins.


async def test_an_ended_shell_is_opened_once_more(server: HypervServer) -> None:
    async with there(server) as host:
        server.shells.clear()
        assert await host.called("tare-none") == []
        server.shells.clear()
        server.password = "changed-by-somebody"
        # The connection has proved itself already, as WinRM's do: a new one is made here.
        server._proofs.clear()
        with pytest.raises(InputError, match="does not let"):
            await host.called("tare-none")
    assert server.shells == {}


async def test_a_shell_that_ends_at_work_is_not_asked_again(
    server: HypervServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with there(server) as host:
        begin = host.session._begun

        def begun(*asked: Any) -> Any:
            running = begin(*asked)
            server.shells.clear()
            return running

        monkeypatch.setattr(host.session, "_begun", begun)
        with pytest.raises(MachineFault, match="ended while it worked"):
            await make(host)
    assert sum(asked.startswith("Command New-VM") for asked in server.asked) == 1


async def test_the_certificate_and_the_account_are_checked(server: HypervServer) -> None:
    with pytest.raises(InputError, match="is not trusted"):
        async with there(server, ca=None):
            pass
    assert server.asked == []
    # WinRM accepts no basic authentication unless it is set to.
    with pytest.raises(InputError, match="does not let"):
        async with there(server, authentication="basic"):
            pass
    server.takes_basic = True
    async with there(server, authentication="basic"):
        assert len(server.shells) == 1
    server.may_open = False
    with pytest.raises(InputError, match="open no shell") as refused:
        async with there(server):
            pass
    assert "Remote Management Users" in refused.value.hint


async def test_an_unreachable_host_is_reported(server: HypervServer, context: Context) -> None:
    verdict = await Hyperv().check(context, options_of(server, port=1))
    assert not verdict.usable and "broke: ConnectionError" in verdict.reason


# What is refused.


async def test_refusals_are_distinguished(server: HypervServer) -> None:
    async with there(server) as host:
        with pytest.raises(NoSuchObject, match="unable to find a virtual machine"):
            await host.session.run(cmdlet("Get-VM", Name="none"))
        vm = await make(host)
        with pytest.raises(MachineFault, match="Reserve 101 is out of range"):
            await host.of(vm, cmdlet("Set-VMProcessor", Reserve=101))
        with pytest.raises(MachineFault, match="NamedParameterNotFound"):
            await host.of(vm, cmdlet("Set-VMProcessor", Affinity=1))
        await host.power_on(vm)
        for refused in ("Set-VMProcessor", "Remove-VM"):
            with pytest.raises(RequestRefused, match=f"InvalidState.*{refused.replace('-', '')}"):
                await host.of(vm, cmdlet(refused))
        with pytest.raises(MachineFault, match="not recognized") as unknown:
            await host.session.run(cmdlet("Get-VMNone"))
        assert "Hyper-V-PowerShell" in unknown.value.hint
        named = HypervVmResource(host.session, {"name": NAME, "folder": FOLDER})
        assert await remove_resource(named)
        assert not await remove_resource(named)


async def test_objects_of_others_with_the_name_are_left(
    server: HypervServer, context: Context
) -> None:
    async with there(server) as host:
        await make(host, folder="D:\\images")
        named = HypervVmResource(host.session, {"name": NAME, "folder": FOLDER})
        assert not await remove_resource(named)
    way = options_of(server).connection()
    context.ledger.record("hyperv-vm", **way, name="theirs", folder=FOLDER)
    removed = await clean(context.host, context.ledger, Hyperv.undoers)
    assert "does not start with tare-" in removed[0] and len(server.host.vms) == 1


@pytest.mark.parametrize("what", ["VM", "folder"])
async def test_a_name_that_is_taken_stays_with_its_owner(
    server: HypervServer, context: Context, tmp_path: Path, what: str
) -> None:
    if what == "folder":
        server.host.files[f"{FOLDER}\\{NAME}".lower()] = b"<a folder>"
    else:
        async with there(server) as host:
            await make(host, folder="D:\\images")
    before = server.left
    with pytest.raises(MachineFault, match=f"{NAME} already"):
        await started(Hyperv(), context, options_of(server), spec_of(tmp_path))
    assert server.left == before and not context.ledger.open_entries()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"switch": "none"}, "has 0 virtual switches of the name none"),
        ({"folder": "E:\\none"}, r"no folder E:\none"),
        ({"image": "D:\\none.iso"}, r"no file D:\none.iso"),
    ],
)
async def test_missing_objects_are_named(
    server: HypervServer, context: Context, more: dict[str, Any], words: str
) -> None:
    verdict = await Hyperv().check(context, options_of(server, **more))
    assert not verdict.usable and words in verdict.reason and "`" in verdict.hint


async def test_an_account_without_rights_is_reported(
    server: HypervServer, context: Context
) -> None:
    server.host.may_hyperv = False
    verdict = await Hyperv().check(context, options_of(server))
    assert not verdict.usable and "do not have the required permission" in verdict.reason
    assert "`tare help hyper-v`" in verdict.hint
    server.host.may_hyperv, server.host.switches = True, []
    verdict = await Hyperv().check(context, options_of(server))
    assert "shows this account 0 virtual switches" in verdict.reason


async def test_an_account_that_sees_nothing_has_removed_nothing(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    machine = await started(Hyperv(), context, options_of(server), spec_of(tmp_path))
    server.host.may_hyperv = False
    with pytest.raises(MachineFault, match="required permission"):
        await machine.stop()
    # An empty list of VMs does not prove that there is none: the entry stays.
    assert "hyperv-vm" in {entry.kind for entry in context.ledger.open_entries()}
    server.host.may_hyperv = True
    await clean(context.host, context.ledger, Hyperv.undoers)
    assert nothing_left(server, context)


async def test_without_wmi_and_logs_fewer_facts_are_reported_and_nothing_fails(
    server: HypervServer, context: Context
) -> None:
    server.host.may_wmi = server.host.may_log = False
    verdict = await Hyperv().check(context, options_of(server))
    assert verdict.usable and verdict.capabilities.max_vcpus == 16
    groups = "Hyper-V Administrators", "Remote Management Users"
    assert verdict.rights == tuple(f"member of {name}" for name in groups)
    assert verdict.reason == "127.0.0.1 is Windows Server 2022 Standard 20348.2402"


# What fails half-way.


@pytest.mark.parametrize("what", ["right", "full", "made", "start", "vcpus"])
async def test_nothing_is_left_after_a_failure(
    server: HypervServer, context: Context, tmp_path: Path, what: str
) -> None:
    commands = "Microsoft.HyperV.PowerShell.Commands"
    server.host.may_write, server.host.full = what != "right", what == "full"
    if what == "made":
        server.host.fails["New-VM"] = PsError(f"OperationFailed,{commands}.NewVM", "It failed.")
    elif what == "start":
        words = f"'{NAME}' failed to start. Not enough memory in the system."
        server.host.fails["Start-VM"] = PsError(f"OutOfMemory,{commands}.StartVM", words)
    expected = r"is denied|not enough space|It failed|Not enough memory|processor topology"
    spec = spec_of(tmp_path, vcpus=17 if what == "vcpus" else 2)
    with pytest.raises(MachineFault, match=expected) as failed:
        await started(Hyperv(), context, options_of(server, image=DISK), spec)
    assert NAME in failed.value.message
    assert nothing_left(server, context)


async def test_a_vm_that_is_made_elsewhere_is_removed_at_once(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    server.host.moved = "D:\\images"
    with pytest.raises(MachineFault, match=r"its files are in D:.images"):
        await started(Hyperv(), context, options_of(server), spec_of(tmp_path))
    # By its folder alone it would be found again; which Hyper-V leaves, empty.
    assert server.left == [f"d:\\images\\{NAME}"] and not context.ledger.open_entries()


@pytest.mark.parametrize(
    "request_cut",
    [
        "^Receive Get-ItemProperty",
        "^Command New-Item",
        "^Send WriteAllBytes",
        "^Receive New-VM",
        "^Command Get-VM Set-VMProcessor",
        "^Command Get-VM Start-VM",
    ],
)
async def test_a_broken_connection_leaves_nothing_behind(
    server: HypervServer, context: Context, tmp_path: Path, request_cut: str
) -> None:
    server.cuts.append(re.compile(request_cut))
    with pytest.raises(TareError, match="broke"):
        await started(Hyperv(), context, options_of(server), spec_of(tmp_path))
    assert server.cuts == [] and nothing_left(server, context)


async def test_a_file_in_use_is_waited_for(
    server: HypervServer, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await started(Hyperv(), context, options_of(server), spec_of(tmp_path))
    server.host.held = f"{FOLDER}\\{NAME}\\tare-cfg.iso"
    monkeypatch.setattr(HypervVmResource, "removal_s", 0.0)
    with pytest.raises(MachineFault, match="RemoveFileSystemItemIOError"):
        await machine.stop()
    # It stays in the ledger until `tare clean`.
    assert "hyperv-vm" in {entry.kind for entry in context.ledger.open_entries()}
    server.host.held = ""
    removed = await clean(context.host, context.ledger, Hyperv.undoers)
    assert removed == [f"Removed the VM {NAME} with its folder."]
    assert nothing_left(server, context)


# Secrets.


async def test_secrets_are_in_no_file_and_no_message(
    server: HypervServer,
    context: Context,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    messages: list[str] = []
    planted = [server.password]
    plugged: list[bytes] = []
    server.plug = lambda _, images: plugged.extend(images)

    options = options_of(server)
    machine = await started(Hyperv(), context, options, spec_of(tmp_path))
    (found,) = filter(None, map(read_configuration, plugged))
    planted.append(str(found["key"]))
    messages.append(await messages_of(machine.stop))
    # A host that repeats what it was sent.
    server.host.fails["Get-VMSwitch"] = PsError("Repeated", f"sent {server.password}")
    messages.append(await messages_of(lambda: Hyperv().check(context, options)))
    assert "Repeated" in messages[-1] and "(secret)" in messages[-1]
    server.password = "another-word"
    server._proofs.clear()
    messages.append(await messages_of(lambda: Hyperv().check(context, options)))
    own = [each.getMessage() for each in caplog.records if not each.name.startswith("psrpcore")]
    messages += [context.ledger.path.read_text(), *own, repr(options), *capfd.readouterr()]
    assert len(planted) == 2 and all(len(word) > 8 for word in planted)
    for word in planted:
        assert not any(word in text for text in messages)
    assert not any(word in asked for word in planted for asked in server.asked)
    assert logging.getLogger("pypsrp").level == logging.WARNING and HypervSession.load()
