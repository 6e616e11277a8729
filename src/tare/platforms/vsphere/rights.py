"""The privileges that an account needs at ESXi or vCenter, and which of them it has.

Privileges are named as in the vSphere Web Services API reference, ``Privileges Reference``; who has
them is asked with ``AuthorizationManager.HasPrivilegeOnEntities`` (System.Read on what is asked
about).
"""

from __future__ import annotations

from typing import Any

from tare.platforms.vsphere.inventory import Spot
from tare.platforms.vsphere.session import VsphereSession

ON_FOLDER = (
    *("VirtualMachine.Inventory.Create", "VirtualMachine.Inventory.Delete"),
    *("VirtualMachine.Config.AddNewDisk", "VirtualMachine.Config.AddRemoveDevice"),
    *("VirtualMachine.Config.CPUCount", "VirtualMachine.Config.Memory"),
    *("VirtualMachine.Config.Resource", "VirtualMachine.Config.Settings"),
    *("VirtualMachine.Config.AdvancedConfig", "VirtualMachine.Interact.PowerOn"),
    *("VirtualMachine.Interact.PowerOff", "VirtualMachine.Interact.SetCDMedia"),
)
ON_POOL = ("Resource.AssignVMToPool",)
ON_DATASTORE = ("Datastore.AllocateSpace", "Datastore.FileManagement", "Datastore.Browse")
ON_NETWORK = ("Network.Assign",)


def rights_of(client: Any, session: VsphereSession, where: Spot) -> tuple[str, ...]:
    """Return which of the privileges needed the account has, as ``PRIVILEGE, … on KIND``.

    Args:
        client: The service instance.
        session: The login.
        where: Where virtual machines are made.

    Returns:
        One text for each kind of object; empty where the server does not tell.
    """
    asked = {
        "the folder": (where.folder, ON_FOLDER),
        "the pool": (where.pool, ON_POOL),
        "the datastore": (where.datastore, ON_DATASTORE),
        **({} if where.network is None else {"the network": (where.network, ON_NETWORK)}),
    }
    content = client.RetrieveContent()
    told = []
    try:
        own = content.sessionManager.currentSession.key
        for kind, (entity, privileges) in asked.items():
            (found,) = content.authorizationManager.HasPrivilegeOnEntities(
                entity=[entity], sessionId=own, privId=list(privileges)
            )
            has = [each.privId for each in found.privAvailability if each.isGranted]
            told.append(f"{', '.join(has) or 'nothing'} on {kind}")
    except session.vim.fault.NotAuthenticated:
        # The session has ended: whoever calls logs in again.
        raise
    except session.types.vmodl.MethodFault:
        return ()
    return tuple(told)
