"""The privileges that an account needs at ESXi or vCenter, and those that it has.

Privileges are named as in the vSphere Web Services API reference, ``Privileges Reference``. The
privileges that each call needs are documented there with ``CreateVM_Task``, ``ReconfigVM_Task`` and
``ConfigSpec``. ``AuthorizationManager.HasPrivilegeOnEntities`` reports the account's privileges; it
needs System.Read on the objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import InputError
from tare.platforms.vsphere.inventory import VmLocation
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.session import VsphereSession

ADVANCED, EXISTING = "VirtualMachine.Config.AdvancedConfig", "VirtualMachine.Config.AddExistingDisk"
ON_FOLDER = (
    *("VirtualMachine.Inventory.Create", "VirtualMachine.Inventory.Delete"),
    *("VirtualMachine.Config.AddNewDisk", "VirtualMachine.Config.AddRemoveDevice"),
    *("VirtualMachine.Config.CPUCount", "VirtualMachine.Config.Memory"),
    *("VirtualMachine.Config.Resource", "VirtualMachine.Config.Settings"),
    *(ADVANCED, "VirtualMachine.Interact.PowerOn"),
    *("VirtualMachine.Interact.PowerOff", "VirtualMachine.Interact.SetCDMedia"),
    "VirtualMachine.Interact.DeviceConnection",
)
ON_POOL = ("Resource.AssignVMToPool",)
ON_DATASTORE = ("Datastore.AllocateSpace", "Datastore.FileManagement", "Datastore.Browse")
ON_HOST = ("Host.Config.Network",)
ON_NETWORK = ("Network.Assign",)
SURELY = frozenset(
    {
        *("VirtualMachine.Inventory.Create", "VirtualMachine.Inventory.Delete"),
        *("VirtualMachine.Config.AddRemoveDevice", EXISTING),
        *("VirtualMachine.Interact.PowerOn", "VirtualMachine.Interact.PowerOff"),
        *("VirtualMachine.Interact.SetCDMedia", *ON_POOL, *ON_NETWORK),
        *("Datastore.AllocateSpace", "Datastore.FileManagement"),
    }
)
"""The privileges without which no virtual machine can be created, run and removed.

The need for the others depends on the machine; a missing one is reported at its creation.
"""


@dataclass(frozen=True)
class Held:
    """The needed privileges on one kind of object that an account has, and those that it lacks."""

    has: tuple[str, ...]
    lacks: tuple[str, ...]


def needed(options: VsphereOptions, where: VmLocation) -> Mapping[str, tuple[Any, tuple[str, ...]]]:
    """Return the needed privileges on each object, by its kind in words."""
    copied = (EXISTING,) if options.boot is not None and options.boot.endswith(".vmdk") else ()
    return {
        "the folder": (where.folder, (*ON_FOLDER, *copied)),
        "the pool": (where.pool, ON_POOL),
        "the datastore": (where.datastore, ON_DATASTORE),
        **({} if where.network is None else {"the network": (where.network, ON_NETWORK)}),
    }


def rights_of(
    client: Any, session: VsphereSession, options: VsphereOptions, where: VmLocation
) -> tuple[str, ...]:
    """Return which of the needed privileges the account has, as ``PRIVILEGE, … on KIND``.

    Args:
        client: The service instance.
        session: The session of the account.
        options: The arm's options.
        where: The location in which virtual machines are created.

    Returns:
        One text for each kind of object; empty: unknown.

    Raises:
        InputError: It lacks a privilege without which no machine can be created and removed.
    """
    held = _held(client, session, needed(options, where))
    lacking = [
        f"{privilege} on {kind}"
        for kind, each in held.items()
        for privilege in each.lacks
        if privilege in SURELY
    ]
    if lacking:
        raise InputError(
            f"the account lacks rights at {session.name}: {', '.join(lacking)}",
            "give it the role of `tare help vsphere` there",
        )
    return tuple(f"{', '.join(each.has) or 'nothing'} on {kind}" for kind, each in held.items())


def why_no_network(client: Any, session: VsphereSession, host: Any) -> str:
    """Return why the account cannot create an isolated network on an ESXi host; empty: it can.

    The result is also empty if the server does not report the privileges.
    """
    held = _held(client, session, {"the host": (host, ON_HOST)})
    lacking = [each for kind in held.values() for each in kind.lacks]
    return f"the account lacks {', '.join(lacking)} on the ESXi host" if lacking else ""


def _held(
    client: Any, session: VsphereSession, asked: Mapping[str, tuple[Any, tuple[str, ...]]]
) -> dict[str, Held]:
    content = client.RetrieveContent()
    privileges_by_kind = {}
    try:
        own = content.sessionManager.currentSession.key
        for kind, (entity, privileges) in asked.items():
            (found,) = content.authorizationManager.HasPrivilegeOnEntities(
                entity=[entity], sessionId=own, privId=list(privileges)
            )
            has = {each.privId for each in found.privAvailability if each.isGranted}
            privileges_by_kind[kind] = Held(
                tuple(each for each in privileges if each in has),
                tuple(each for each in privileges if each not in has),
            )
    except session.vim.fault.NotAuthenticated:
        # The session has ended: `Session.call` logs in again.
        raise
    except session.types.vmodl.MethodFault:
        return {}
    return privileges_by_kind
