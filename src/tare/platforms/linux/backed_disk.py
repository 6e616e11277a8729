"""The backing of a machine's disk on its host: raw file, qcow2 file, block device or volume."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.undoing import require_own
from tare.hosts.programs import install_command_for
from tare.platforms.contract import Context, MachineSpec, Resource, Write, created
from tare.platforms.linux.disk import (
    NoLoop,
    OwnDisk,
    forget_file,
    format_disk,
    on_loop,
    owned_disk,
    run_tool,
)
from tare.platforms.linux.writes import LOOP
from tare.programs import LVM, QEMU_IMG

Backing = Literal["raw", "qcow2", "block", "lvm"]
BACKINGS: Mapping[str, str] = {
    "raw": "a raw file",
    "qcow2": "a qcow2 file",
    "block": "a loop device over a file",
    "lvm": "a logical volume",
}
"""The words that reports use for each backing."""
VOLUME = "logical-volume"
"""The kind of ledger entries for logical volumes."""
_MAPPER = "/dev/mapper/control"


def backing_writes(kind: str, group: str | None) -> tuple[Write, ...]:
    """Return the objects that such disks create on a host, beyond files in a machine's folder."""
    node = Write("file", "mknod /dev/tare-…-disk", "rm of that node", "/dev")
    if kind == "block":
        return (LOOP, node)
    if kind != "lvm":
        return ()
    made, removed = f"lvcreate --name tare-… {group}", f"lvremove {group}/tare-…"
    return (Write(VOLUME, made, removed, f"volume group {group}"), node)


async def lacking_backing(host: Host, kind: str, group: str | None) -> tuple[str, str] | None:
    """Return what a host lacks for disks with a backing, and what to do; None: nothing is missing.

    Args:
        host: The host of the machines.
        kind: One of :data:`BACKINGS`.
        group: The volume group for logical volumes.
    """
    option = f"`disk-format: {kind}`"
    if kind == "qcow2" and not (await run_tool(host, "qemu-img", "--version")).ok:
        return f"{option}: qemu-img does not run", await install_command_for(host, QEMU_IMG)
    if kind == "block":
        found = await run_tool(host, "losetup", "--find")
        if not found.ok:
            return f"{option}: the host offers no loop device ({found.words()})", "modprobe loop"
    if kind == "lvm":
        assert group is not None
        if not (await run_tool(host, "lvs", "--version")).ok:
            return f"{option}: there is no LVM", await install_command_for(host, LVM)
        if not await host.exists(_MAPPER):
            return f"{option}: the host's kernel has no device-mapper", "modprobe dm_mod"
        found = await run_tool(host, "vgs", "--noheadings", "-o", "vg_name", group)
        if not found.ok:
            return f"{option}: there is no volume group {group} ({found.words()})", "vgs"
    return None


@asynccontextmanager
async def backed_disk(
    context: Context, spec: MachineSpec, kind: str, group: str | None
) -> AsyncIterator[OwnDisk | None]:
    """Make the disk that a machine's shape asks for, and remove it at the end.

    Args:
        context: The host and its ledger, which records each object before it is created.
        spec: The machine; its folder must exist.
        kind: One of :data:`BACKINGS`.
        group: The volume group for a logical volume.

    Yields:
        The disk, with the file or device to open; None if the shape has no disk.

    Raises:
        MachineFault: The disk cannot be made. The message quotes the tool that failed.
    """
    if kind == "lvm" and spec.shape.disk:
        assert group is not None
        host, size = context.host, spec.shape.disk
        async with created(context.ledger, LogicalVolume(host, group, spec.name, size)):
            volume = Path("/dev") / group / spec.name
            # Blocks of a volume still hold old data, unlike those of a new file.
            await format_disk(host, spec.name, volume, zeroed=False)
            async with _own_node(context, spec.name, volume) as node:
                yield OwnDisk(node, size, True)
        return
    async with AsyncExitStack() as held:
        disk = await held.enter_async_context(owned_disk(context, spec))
        if disk is not None and kind == "qcow2":
            disk = await _as_qcow2(context.host, spec.name, disk)
            held.push_async_callback(context.host.remove, disk.file)
        elif disk is not None and kind == "block":
            file = disk.file
            try:
                device, _ = await held.enter_async_context(
                    on_loop(context.host, context.ledger, file)
                )
            except NoLoop as refusal:
                raise MachineFault(f"{spec.name}: {refusal}", "losetup -a") from refusal
            node = await held.enter_async_context(_own_node(context, spec.name, Path(device)))
            disk = replace(disk, file=node, under=file)
        yield disk


async def _as_qcow2(host: Host, name: str, disk: OwnDisk) -> OwnDisk:
    file = disk.file.with_suffix(".qcow2")
    kinds = ("-f", "raw", "-O", "qcow2")
    done = await run_tool(host, "qemu-img", "convert", *kinds, str(disk.file), str(file))
    if not done.ok:
        await host.remove(file)
        raise MachineFault(f"{name}: its disk cannot be made: {done.words()}")
    await host.remove(disk.file)
    # A qcow2 file grows as the guest writes, so its space is not reserved, as usual for such files.
    return replace(disk, file=file, reserved=False)


class LogicalVolume(Resource):
    """A logical volume that belongs to Tare.

    Args:
        host: The host that has it.
        group: Its volume group.
        name: Its name, which is the machine's.
        size: Size in bytes.
    """

    kind = VOLUME

    def __init__(self, host: Host, group: str, name: str, size: int = 0) -> None:
        self._host = host
        self._group = group
        self._name = name
        self._size = size

    @property
    def details(self) -> Mapping[str, Any]:
        """The volume's group and name, for the ledger."""
        return {"group": self._group, "name": self._name}

    @property
    def words(self) -> str:
        """The volume's group and name as a phrase for messages."""
        return f"the logical volume {self._group}/{self._name}"

    @property
    def ends_with_boot(self) -> bool:
        """Whether a reboot removes the volume; always False."""
        return False

    async def create(self) -> None:
        """Create the volume; raises MachineFault with LVM's message."""
        words = ("--yes", "--zero", "n", "--wipesignatures", "n", "--size", f"{self._size}b")
        made = await run_tool(self._host, "lvcreate", *words, "--name", self._name, self._group)
        if not made.ok:
            raise MachineFault(f"{self._name}: its logical volume cannot be made: {made.words()}")

    async def exists(self) -> bool:
        """Check whether LVM lists the volume."""
        volume = f"{self._group}/{self._name}"
        return (await run_tool(self._host, "lvs", "--noheadings", "-o", "lv_name", volume)).ok

    async def remove(self) -> None:
        """Remove the volume; raises MachineFault with LVM's message."""
        done = await run_tool(self._host, "lvremove", "--yes", f"{self._group}/{self._name}")
        if not done.ok:
            raise MachineFault(f"{self.words} cannot be removed: {done.words()}")


def volume_of(host: Host, details: Mapping[str, Any]) -> LogicalVolume:
    """Return the volume that an entry of the ledger names; raises NotOwn."""
    name = str(details["name"])
    require_own(name)
    return LogicalVolume(host, str(details["group"]), name)


@asynccontextmanager
async def _own_node(context: Context, name: str, device: Path) -> AsyncIterator[Path]:
    """Create and hold a second node of a block device, whose owner Tare may change.

    The first node belongs to the host.
    """
    host, ledger = context.host, context.ledger
    # Outside /dev, file systems may be mounted with `nodev`, and ignore device files.
    node = Path("/dev") / f"{name}-disk"
    require_own(node.name)
    entry = ledger.record("file", path=str(node))
    try:
        # stat(1) prints the numbers of a device in hexadecimal.
        script = 'set -- "$2" $(stat -L -c "0x%t 0x%T" "$1") && mknod -m 600 "$1" b "$2" "$3"'
        try:
            done = await host.run(["sh", "-c", script, "sh", str(device), str(node)], timeout_s=30)
        except InputError as error:
            raise MachineFault(f"{name}: {error.message}") from error
        if not done.ok:
            raise MachineFault(f"{name}: its disk {device} cannot be named: {done.words()}")
        yield node
    finally:
        await host.remove(node)
        ledger.done(entry)


async def forget_backed(host: Host, disk: OwnDisk) -> dict[str, Any]:
    """Drop what the host has cached of a disk, whatever its backing is.

    Returns:
        The record of :func:`tare.platforms.linux.disk.forget_file`, about the file under the
        block device if there is one, otherwise about the file or device itself.
    """
    record = await forget_file(host, disk.file)
    return record if disk.under is None else await forget_file(host, disk.under)
