"""Find by name where a virtual machine is created in an inventory; nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tare.errors import InputError
from tare.hosts.ledger.undoing import PREFIX
from tare.platforms.vsphere.options import VsphereOptions


@dataclass(frozen=True)
class VmLocation:
    """The location in which a virtual machine is created.

    Args:
        host: The ESXi host.
        pool: The resource pool.
        folder: The folder.
        datastore: The datastore.
        network: The port group; None: the guest needs no network.
        datacenter: The datacenter; vCenter accepts no datastore path without it.
    """

    host: Any
    pool: Any
    folder: Any
    datastore: Any
    network: Any
    datacenter: Any
    path: str


def find_all(client: Any, kind: Any) -> list[Any]:
    """Return all objects of a kind that the account may see."""
    content = client.RetrieveContent()
    view = content.viewManager.CreateContainerView(content.rootFolder, [kind], True)
    try:
        return list(view.view)
    finally:
        view.DestroyView()


def find_location(client: Any, vim: Any, options: VsphereOptions) -> VmLocation:
    """Find where the options say that virtual machines are created.

    Raises:
        InputError: A name is missing or ambiguous, or the account sees no object of the kind.
    """
    host = host_named(client, vim, options)
    root = client.content.rootFolder
    datacenter = _datacenter_of(host, vim, root)
    datastore = _choose(list(host.datastore), options.datastore, "datastore of it", "datastore")
    network = port_group(host, options.network)
    pool = host.parent.resourcePool
    if options.pool is not None:
        pool = _choose(_pools(pool), options.pool, "pool", "pool")
    folder = datacenter.vmFolder
    if options.folder is not None:
        folder = _choose(_folders(folder, vim), options.folder, "folder", "folder")
    path = _path_of(datacenter, root)
    return VmLocation(host, pool, folder, datastore, network, datacenter, path)


def port_group(host: Any, name: str | None, key: str = "network") -> Any:
    """Return the named port group of an ESXi host, or its only one; raises if there is none."""
    found = list(host.network)
    if name is None:
        # Tare's own isolated port groups do not lead to the address that agents dial back to.
        found = [each for each in found if not each.name.startswith(PREFIX)]
    return _choose(found, name, "port group of it", key)


def host_named(client: Any, vim: Any, options: VsphereOptions) -> Any:
    """Return the named ESXi host, or the only one; raises as :func:`find_location`."""
    return _choose(find_all(client, vim.HostSystem), options.host, "ESXi host", "host")


def _choose(found: Sequence[Any], name: str | None, what: str, key: str) -> Any:
    if not found:
        # If the account lacks the right, the API answers with an empty list, not with a fault.
        raise InputError(
            f"the account sees no {what}: there is none, or it lacks the right to see it",
            "give it System.View and System.Read there; `tare help vsphere` lists what it needs",
        )
    names = sorted(each.name for each in found)
    if name is None:
        if len(found) == 1:
            return found[0]
        raise InputError(
            f"there are {len(found)} of {what}: {_first_names(names)}", f"name one by `{key}`"
        )
    if not (named := [each for each in found if each.name == name]):
        raise InputError(f"there is no {what} named {name}; there are: {_first_names(names)}", "")
    if len(named) > 1:
        raise InputError(f"{len(named)} of {what} are named {name}", "rename one of them")
    return named[0]


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def _datacenter_of(entity: Any, vim: Any, root: Any) -> Any:
    for above in _ancestors(entity, root):
        if isinstance(above, vim.Datacenter):
            return above
    raise InputError(
        "the account does not see the datacenter of that host", "give it System.View there"
    )


def _path_of(datacenter: Any, root: Any) -> str:
    return "/".join(reversed([each.name for each in _ancestors(datacenter, root)]))


def _ancestors(entity: Any, root: Any) -> Iterator[Any]:
    """Yield an object and all its ancestors, except the root folder."""
    while entity is not None and entity._moId != root._moId:
        yield entity
        entity = entity.parent


def _pools(root: Any) -> list[Any]:
    found = [root]
    for child in root.resourcePool:
        found += _pools(child)
    return found


def _folders(root: Any, vim: Any) -> list[Any]:
    found = [root]
    for child in root.childEntity:
        if isinstance(child, vim.Folder):
            found += _folders(child, vim)
    return found


def machine_named(client: Any, folder: Any, vim: Any, name: str) -> Any:
    """Return the virtual machine of that name in a folder; None: there is none."""
    found = client.content.searchIndex.FindChild(folder, name)
    return found if isinstance(found, vim.VirtualMachine) else None


def properties(client: Any, types: Any, thing: Any, paths: Sequence[str]) -> dict[str, Any]:
    """Return some properties of an object, read at one moment; unset ones are left out.

    Args:
        client: The service instance.
        types: PyVmomi's module.
        thing: The object.
        paths: The properties' paths.
    """
    query = types.vmodl.query.PropertyCollector
    asked = query.FilterSpec(
        objectSet=[query.ObjectSpec(obj=thing, skip=False)],
        propSet=[query.PropertySpec(type=type(thing), pathSet=list(paths))],
    )
    (found,) = client.content.propertyCollector.RetrieveContents([asked])
    return {each.name: each.val for each in found.propSet}
