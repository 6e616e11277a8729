"""XenServer and XCP-ng as a platform."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import PREFIX
from tare.hosts.ledger.undoing import Refused as NotOurs
from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    Prepared,
    Shape,
    Statement,
    Variant,
    Verdict,
)
from tare.platforms.linux.process_machine import owned_directory
from tare.platforms.vendors.callback import Doors
from tare.platforms.vendors.configuration import picture
from tare.platforms.vendors.machine import VendorMachine
from tare.platforms.vendors.offer import CHANNEL, NOTES
from tare.platforms.vendors.options import ANY
from tare.platforms.vendors.session import opened
from tare.platforms.xenserver.making import Making
from tare.platforms.xenserver.options import KNOBS, XenserverOptions
from tare.platforms.xenserver.pool import Pool
from tare.platforms.xenserver.session import XenSession, load
from tare.platforms.xenserver.vm import XenVm, other_devices

if TYPE_CHECKING:
    from tare.agent.client import Hello

VM = "xenserver-vm"
MIN_MEMORY = 256 << 20
NAME_ONE = "a study names a pool's coordinator, as in {platform: xenserver, address: xen1.example}"
MISSING_KNOBS = {
    "reservation": "Xen has weight and cap, and no reservation",
    "policy": "Xen's schedulers know no policy",
    "fifo": "Xen's schedulers know no fifo",
    "nice": "Xen has weight instead",
    "slice": "XenAPI does not set Xen's time slice; on Xen with `xl`, `platform: xen` does",
}


async def undo_vm(host: Host, entry: Entry) -> str:
    """Remove a VM with its disks; see :data:`tare.hosts.ledger.undoing.Undo`."""
    name = str(entry.details["name"])
    if not name.startswith(PREFIX):
        raise NotOurs(f"its name does not begin with {PREFIX}")
    async with opened(XenSession(entry.details)) as session:
        removed = await Pool(session).remove_named(name)
    return f"Removed the VM {name} with its disks." if removed else ""


class XenMachine(VendorMachine):
    """A VM whose guest must drive the devices that were asked for."""

    devices = "paravirtual"

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello, and see which drivers it proves."""
        hello = await super().ready(timeout_s)
        if why := other_devices(self.devices, hello.proof):
            raise MachineFault(f"{self.name}: {why}")
        return hello


class Xenserver(Platform[XenserverOptions]):
    """XenServer and XCP-ng: HVM guests of a pool, made and removed over XenAPI."""

    name = "xenserver"
    options = XenserverOptions
    variants = (Variant("", {"address": ANY}),)
    undoers = MappingProxyType({VM: undo_vm})

    def __init__(self) -> None:
        self._doors = Doors()

    def describe(self, options: XenserverOptions) -> str:
        """Return a phrase such as ``XenServer HVM, paravirtual devices``."""
        parts = ["XenServer HVM", f"{options.devices} devices"]
        if options.devices == "emulated":
            parts.append(f"{options.nic} and IDE")
        if words := options.scheduling.words():
            parts.append(words)
        return ", ".join(parts)

    def stated(self, options: XenserverOptions) -> Statement:
        """Return what XenServer offers; nothing is tried for it."""
        return Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    *NOTES,
                    "guests are HVM: newer XenServer has no PV guests",
                    "the guest's kernel chooses between para-virtual and emulated devices: "
                    "emulated ones need an image told `xen_emul_unplug=never nopv`",
                    "run states are told every 5 s, for all vCPUs of a VM together",
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
            ),
            kernel="the live image's",
            channel=CHANNEL,
            needs=(
                "XenServer 8, Citrix Hypervisor 8.2 or XCP-ng 8.2 or newer, with an account of the "
                "role vm-admin",
                "XenAPI (pip install 'hypertare[xenserver]')",
                "a live image in one of its repositories",
            ),
            confirmed="simulator",
            untested="Was run against a server of Tare's own that answers and refuses as XenAPI "
            "does, never on a host.",
            host_boot=ANY_BOOT,
            boot_s=40.0,
            emulated_boot_s=120.0,
        )

    async def check(self, context: Context, options: XenserverOptions) -> Verdict:
        """Log in, and see whether host, repository, network and image are there."""
        able = self.stated(options).capabilities
        try:
            load()
            if options.address == ANY:
                return Verdict(False, NAME_ONE, "", False, {}, able)
            async with opened(XenSession(options.way())) as session:
                pool = Pool(session)
                host = await pool.host(options.on_host)
                await Making(pool, options, host).look()
                facts = await pool.facts(host)
        except TareError as error:
            return Verdict(False, error.message, error.hint, False, {}, able)
        able = replace(able, max_vcpus=int(facts.get("cpus", 1)))
        versions = {
            "xenserver": str(facts.get("build", "")),
            "xen": str(facts.get("xen", "")),
        }
        reason = f"{options.address} is {facts.get('product')} {facts.get('build')}"
        return Verdict(True, reason, "", False, versions, able)

    async def prepare(
        self, context: Context, options: XenserverOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Return what VMs boot: an image that is in the pool already.

        Raises:
            InputError: None is named.
        """
        if options.image is None:
            raise InputError(
                "nothing is named that VMs of XenServer boot",
                "say by `image` which VDI: its name, or its UUID",
            )
        return Prepared(kernel=f"of {options.image}", digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: XenserverOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Make the VM and its configuration disk, and start it."""
        ledger = context.ledger
        async with AsyncExitStack() as held:
            await held.enter_async_context(owned_directory(context.host, ledger, spec.workdir))
            session = await held.enter_async_context(opened(XenSession(options.way())))
            pool = Pool(session)
            host = await pool.host(options.on_host)
            facts = await pool.facts(host)
            _require_cpus(spec, facts)
            door = await held.enter_async_context(self._doors.open(options.place))
            caller = held.enter_context(door.expected(spec.name))
            session.hide(caller.key)
            # The VM and its disks have one name, by which they are removed together.
            entry = ledger.record(VM, **options.way(), name=spec.name)

            async def gone() -> None:
                await pool.remove_named(spec.name)
                ledger.done(entry)

            made = await held.enter_async_context(AsyncExitStack())
            made.push_async_callback(gone)
            making = Making(pool, options, host)
            vm, wanted = await making.make(spec, picture(caller.configuration))
            made.pop_all()
            machine = XenMachine(
                spec.name,
                XenVm(pool, vm, host, wanted, facts, gone),
                caller.channel,
                held.pop_all(),
                power_off_s=options.power_off,
            )
        machine.devices = options.devices
        await machine.bring_up()
        return machine


def _require_cpus(spec: MachineSpec, facts: Any) -> None:
    """XenAPI takes any mask, and leaves out what it cannot use: CPUs are checked here."""
    there = int(facts.get("cpus", 0))
    if beyond := [cpu for cpu in spec.cpus if there and cpu >= there]:
        raise InputError(
            f"CPU {beyond[0]} is not there: the host has {there}",
            "plan with a host that has as many CPUs",
        )
