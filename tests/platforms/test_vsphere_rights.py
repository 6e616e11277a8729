"""What the account at ESXi or vCenter may not do is named before anything is made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from platforms.vsphere_simulated import types
from tare.errors import InputError
from tare.platforms.vsphere.inventory import VmLocation
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.rights import (
    EXISTING,
    ON_DATASTORE,
    ON_FOLDER,
    ON_NETWORK,
    ON_POOL,
    rights_of,
)

pytest.importorskip("pyVmomi", reason="pip install 'hypertare[vsphere]'")
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "vsphere.md").read_text(encoding="utf-8")


def asked_of(granted: set[str]) -> tuple[Any, Any]:
    """Return a client whose account has some privileges, and its login."""

    def has(entity: list[Any], sessionId: str, privId: list[str]) -> list[Any]:  # noqa: N803
        available = [SimpleNamespace(privId=each, isGranted=each in granted) for each in privId]
        return [SimpleNamespace(entity=entity[0], privAvailability=available)]

    content = SimpleNamespace(
        sessionManager=SimpleNamespace(currentSession=SimpleNamespace(key="k")),
        authorizationManager=SimpleNamespace(HasPrivilegeOnEntities=has),
    )
    client = SimpleNamespace(RetrieveContent=lambda: content)
    login = SimpleNamespace(name="vSphere at a", vim=types().vim, types=types())
    return client, login


def test_a_right_that_is_missing_is_named_before_anything_is_made() -> None:
    """Without the right to remove it, a machine would be left behind."""
    where = VmLocation("host", "pool", "folder", "datastore", "network", "datacenter", "DC0")
    every = {*ON_FOLDER, *ON_POOL, *ON_DATASTORE, *ON_NETWORK}
    disc = VsphereOptions(address="a", datastore="d", boot="[d] x.iso")
    found = rights_of(*asked_of(every), disc, where)
    assert len(found) == 4 and "Inventory.Delete" in found[0] and found[1].endswith(" on the pool")
    for privilege, kind in (
        ("VirtualMachine.Inventory.Delete", "folder"),
        ("Resource.AssignVMToPool", "pool"),
        ("Datastore.FileManagement", "datastore"),
        ("Network.Assign", "network"),
    ):
        with pytest.raises(InputError, match=f"lacks rights .*: {privilege} on the {kind};"):
            rights_of(*asked_of(every - {privilege}), disc, where)
    # Only machines with a disk of their own need it.
    assert rights_of(*asked_of(every - {"VirtualMachine.Config.AddNewDisk"}), disc, where)
    copied = disc.model_copy(update={"boot": "[d] x.vmdk"})
    with pytest.raises(InputError, match="AddExistingDisk on the folder"):
        rights_of(*asked_of(every), copied, where)


def test_the_guide_lists_all_of_them() -> None:
    """An owner makes a role of that list."""
    for privilege in {*ON_FOLDER, *ON_POOL, *ON_DATASTORE, *ON_NETWORK, EXISTING}:
        assert f".{privilege.rpartition('.')[2]}`" in PAGE, privilege
