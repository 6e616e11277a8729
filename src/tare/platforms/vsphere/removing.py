"""How a virtual machine of vSphere's is removed with all that Tare put on its datastore."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from tare.errors import MachineFault, TareError
from tare.hosts.ledger.undoing import PREFIX
from tare.platforms.vendors.patience import patiently
from tare.platforms.vendors.session import Missing, Refused
from tare.platforms.vsphere.inventory import machine_named, spot
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.session import BUSY, WRONG_STATE, VsphereSession
from tare.platforms.vsphere.spec import BOOT_DISK, CONFIGURATION

OFF = "poweredOff"
PASSING = (WRONG_STATE, BUSY)
"""Refusals that pass: of a machine that runs, until it is switched off, or whose start begins."""
PASSING_S = 60.0
NO_FILE = "FileNotFound"
"""The API's fault for a file that is not there."""


@dataclass(frozen=True)
class Removed:
    """What was there, and is gone.

    Args:
        machine: Whether the virtual machine was.
        files: Whether anything of its folder was when it was gone itself.
    """

    machine: bool
    files: bool


async def remove(
    session: VsphereSession, options: VsphereOptions, name: str, folder: str = ""
) -> Removed:
    """Switch off and remove the virtual machine of that name, and its folder on the datastore.

    Destroying a machine removes the files that are its own: not the image with its key, nor a disk
    that was copied and not attached yet; and where somebody else took the machine away, none.

    Args:
        session: The way to the API.
        options: Where it is: its folder of virtual machines, and nowhere else.
        name: Its name.
        folder: Its folder on the datastore, as ``[DATASTORE] NAME``, where that is known.

    Raises:
        TareError: VSphere refuses.
    """
    vim = session.vim

    def identity(client: Any) -> tuple[str, str, str]:
        vm = machine_named(client, spot(client, vim, options).folder, vim, name)
        if vm is None:
            return "", "", ""
        file = vm.config.files.vmPathName if vm.config is not None else ""
        return vm._moId, str(vm.runtime.powerState), str(file).rpartition("/")[0]

    known, state, seen = await session.call(identity)
    place = seen or folder
    if known:
        await _destroy(session, options, known, state, place)
    there = False
    for file in _left_in(place) if place else ():
        try:
            there = await _deleted(session, options, file) or there
        except TareError as fault:
            what = f"{file} with {CONFIGURATION}" if file == place else file
            raise MachineFault(f"{name}: {what} is left there: {fault.message}") from fault
    return Removed(bool(known), there)


async def _destroy(
    session: VsphereSession, options: VsphereOptions, known: str, state: str, folder: str
) -> None:
    vim = session.vim
    if state != OFF:
        await _switch_off(session, known)
    # The key goes first, whatever becomes of the rest; what fails here is tried again below.
    if folder:
        with contextlib.suppress(TareError):
            await _deleted(session, options, f"{folder}/{CONFIGURATION}")

    async def destroy() -> None:
        try:
            await session.task(
                lambda client: vim.VirtualMachine(known, client._stub).Destroy_Task()
            )
        except Refused:
            # A start whose connection broke may begin after it was looked whether the machine runs.
            await _switch_off(session, known)
            raise

    with contextlib.suppress(Missing):
        await patiently(destroy, PASSING, PASSING_S)


async def _switch_off(session: VsphereSession, known: str) -> None:
    # Somebody else may have switched it off in between.
    with contextlib.suppress(Refused):
        await session.task(
            lambda client: session.vim.VirtualMachine(known, client._stub).PowerOffVM_Task()
        )


def _left_in(folder: str) -> tuple[str, ...]:
    """Return what may be left of a machine's folder: all of one that bears a machine's name.

    On vSAN folders are named otherwise, and shown so; there Tare's own files alone are meant.
    """
    name = folder.rpartition("] ")[2]
    if name.startswith(PREFIX) and "/" not in name:
        return (folder,)
    return (f"{folder}/{CONFIGURATION}", f"{folder}/{BOOT_DISK}")


async def _deleted(session: VsphereSession, options: VsphereOptions, file: str) -> bool:
    """Remove a file or folder of a datastore; returns whether there was one."""

    def begin(client: Any) -> Any:
        return client.content.fileManager.DeleteDatastoreFile_Task(
            name=file, datacenter=spot(client, session.vim, options).datacenter
        )

    try:
        await session.task(begin)
    except Missing:
        return False
    except TareError as fault:
        if NO_FILE in fault.message:
            return False
        raise
    return True
