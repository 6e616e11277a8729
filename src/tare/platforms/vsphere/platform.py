"""Virtual machines of ESXi and vCenter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import PREFIX, Refused
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
from tare.platforms.vendors.faults import named
from tare.platforms.vendors.machine import VendorMachine
from tare.platforms.vendors.offer import CHANNEL, NOTES
from tare.platforms.vendors.options import ANY
from tare.platforms.vendors.session import opened
from tare.platforms.vsphere.inventory import spot
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.proof import in_drs, proof_of
from tare.platforms.vsphere.session import VsphereSession
from tare.platforms.vsphere.vm import HIDDEN, VsphereVm, remove

VM = "vsphere-vm"
MAX_VCPUS = 128
MIN_MEMORY = 192 << 20
NAME_ONE = "a study names the server, as in {platform: vsphere, address: esxi.example, …}"
BOOTS_NOTHING = "without `boot` the virtual machine boots nothing by itself: its network has to"


@asynccontextmanager
async def connected(way: Mapping[str, Any]) -> AsyncIterator[VsphereSession]:
    """Hold a login; raises as :class:`VsphereSession` and its ``open`` do."""
    session = VsphereSession(way["address"], way["port"], way["credentials"], way["ca"])
    async with opened(session):
        yield session


async def undo_vm(host: Host, entry: Entry) -> str:
    """Remove a virtual machine; see :data:`tare.hosts.ledger.undoing.Undo`."""
    name = str(entry.details["name"])
    if not name.startswith(PREFIX):
        raise Refused(f"its name does not begin with {PREFIX}")
    options = VsphereOptions.model_validate(entry.details["options"])
    try:
        async with connected(options.way()) as session:
            removed = await remove(session, options, name)
    except TareError as error:
        if isinstance(error, (InputError, MachineFault)):
            raise
        raise MachineFault(error.message, error.hint) from None
    return f"Removed the virtual machine {name} from {options.address}." if removed else ""


class Vsphere(Platform[VsphereOptions]):
    """Virtual machines of VMware ESXi, by its own API or by vCenter's."""

    name = "vsphere"
    options = VsphereOptions
    variants = tuple(
        Variant(devices, {"address": ANY, "datastore": "DATASTORE", "devices": devices})
        for devices in ("paravirtual", "emulated")
    )
    undoers = MappingProxyType({VM: undo_vm})

    def __init__(self) -> None:
        self._doors = Doors()

    def describe(self, options: VsphereOptions) -> str:
        """Return a phrase such as ``vSphere VM, paravirtual devices``."""
        return ", ".join(("vSphere VM", f"{options.devices} devices", *options.words()))

    def stated(self, options: VsphereOptions) -> Statement:
        """Return what ESXi offers; nothing is tried for it."""
        return Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=MAX_VCPUS,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    "an affinity is the whole virtual machine's: each vCPU may use all of its CPUs",
                    "in a cluster with DRS nothing is pinned, for affinity is not kept there",
                    "reservation, limit and shares are vSphere's own options",
                    "ready and co-stop time are told for whole intervals of 20 s, and never less",
                    "a free ESXi refuses every change by its API",
                    *NOTES,
                ),
            ),
            kernel="that of what it boots (`boot`)",
            channel=CHANNEL,
            needs=(
                "an ESXi host or a vCenter with an account (docs/owning.md)",
                "VMware's Python library (pip install 'hypertare[vsphere]')",
                "an image on a datastore whose Linux starts `tare-agent dial`",
            ),
            untested="Was run against govmomi's simulator only, with a local agent for the guest.",
            confirmed="simulator",
            host_boot=ANY_BOOT,
            boot_s=60.0,
            emulated_boot_s=60.0,
        )

    async def check(self, context: Context, options: VsphereOptions) -> Verdict:
        """Log in, and find all that the options name; nothing is made."""
        able = self.stated(options).capabilities
        if options.address == ANY:
            try:
                VsphereSession(ANY, None, "/dev/null", None)
            except InputError as error:
                # Without the library that is what to do first; without an address, the rest.
                if "pip install" in error.hint:
                    return Verdict(False, error.message, error.hint, False, {}, able)
            return Verdict(False, NAME_ONE, "", False, {}, able)
        try:
            async with connected(options.way()) as session:
                proof, drs = await session.call(lambda client: _looked(client, session, options))
        except TareError as error:
            lasting = isinstance(error, InputError)
            return Verdict(False, error.message, error.hint, False, {}, able, lasting)
        notes = (*able.notes, HIDDEN) if drs else able.notes
        able = Capabilities(
            pinning=able.pinning and not drs,
            max_vcpus=able.max_vcpus,
            min_memory=able.min_memory,
            devices=able.devices,
            notes=notes if options.boot else (*notes, BOOTS_NOTHING),
        )
        return Verdict(
            True,
            f"{proof['product']} at {options.address} takes virtual machines",
            "",
            False,
            {"vsphere": proof["product"]},
            able,
            shown=proof,
        )

    async def prepare(
        self, context: Context, options: VsphereOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Prepare nothing: what boots is on the datastore already."""
        return Prepared(kernel="that of what it boots", digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: VsphereOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Make a virtual machine and switch it on; its agent dials back."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(
                owned_directory(context.host, context.ledger, spec.workdir)
            )
            door = await held.enter_async_context(self._doors.open(options.place))
            caller = held.enter_context(door.expected(spec.name))
            session = await held.enter_async_context(connected(options.way()))
            session.hide(caller.key)
            vm = VsphereVm(session, options, spec.name)
            try:
                await vm.create(
                    spec.shape, spec.cpus, picture(caller.configuration), context.ledger, VM
                )
            except BaseException as error:
                with suppress(TareError):
                    # What cannot be removed now stays in the ledger; the first reason is told.
                    await vm.remove()
                if isinstance(error, TareError):
                    raise named(error, spec.name) from None
                raise
            machine = VendorMachine(
                spec.name, vm, caller.channel, held.pop_all(), power_off_s=options.power_off
            )
        await machine.bring_up()
        return machine


def _looked(
    client: Any, session: VsphereSession, options: VsphereOptions
) -> tuple[dict[str, str], bool]:
    where = spot(client, session.vim, options)
    return proof_of(client, where.host, session.vim), in_drs(where.host, session.vim)
