"""The disks of a Xen domain: its own disk, and the toolbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host
from tare.images.ship import copy_to_host
from tare.platforms.contract import Context, MachineSpec
from tare.platforms.linux.disk import NoLoop, on_loop, owned_disk
from tare.platforms.xen.options import XenOptions

PARAVIRTUAL = ("xvde", "xvdf")
"""Names of disks that a HVM guest's QEMU does not emulate. It emulates the first four disks,
whatever their names (Xen's docs/man/xen-vbd-interface.7; libxl_dm.c)."""
EMULATED = ("hda", "hdb")

_COPY_S = 300.0


@dataclass(frozen=True)
class GuestDisks:
    """The disks of a domain.

    Args:
        file: The host's file behind its own disk; None without one.
        entries: The entries of the list ``disk`` in its guest file, xl-disk-configuration(5).
        record: How its own disk is attached, for the record.
    """

    file: Path | None = None
    entries: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)


@asynccontextmanager
async def guest_disks(
    context: Context, options: XenOptions, spec: MachineSpec
) -> AsyncIterator[GuestDisks]:
    """Make the disk that the shape asks for, and copy the toolbox that the batch needs.

    Args:
        context: The host; its ledger records everything before it is created.
        options: The machine's options.
        spec: The machine; its folder must exist.

    Raises:
        MachineFault: The host's disk is full, or the file cannot be formatted.
    """
    emulated = options.devices == "emulated"
    own, tools = EMULATED if emulated else PARAVIRTUAL
    entries: list[str] = []
    record: dict[str, Any] = {}
    async with AsyncExitStack() as held:
        disk = await held.enter_async_context(owned_disk(context, spec))
        if disk is not None:
            try:
                device, direct = await held.enter_async_context(
                    on_loop(context.host, context.ledger, disk.file)
                )
                how = f"a loop device {'with direct I/O' if direct else 'and the page cache'}"
            except NoLoop as refusal:
                device, how = str(disk.file), f"a file, as {refusal}"
            entries.append(entry(own, device, writable=True))
            record = {
                "attached": f"{'emulated IDE' if emulated else 'Xen block device'} over {how}",
                "file_system": "ext4",
                "bytes": disk.size,
                "reserved": disk.reserved,
            }
        if spec.toolbox is not None:
            image = await copy_to_host(context.host, spec.toolbox.image)
            if emulated:
                image = await _copied(context.host, image, spec)
            entries.append(entry(tools, str(image), writable=emulated))
        yield GuestDisks(disk.file if disk else None, tuple(entries), record)


def entry(name: str, target: str, *, writable: bool) -> str:
    """Return one disk in the form of the guest file's list."""
    access = "rw" if writable else "ro"
    return f"format=raw,vdev={name},access={access},target={target}"


async def _copied(host: Host, image: Path, spec: MachineSpec) -> Path:
    # An IDE disk cannot be read-only, so each machine has a copy, removed with its folder.
    copy = spec.workdir / "toolbox"
    done = await host.run(
        ["cp", "--reflink=auto", "--sparse=always", str(image), str(copy)], timeout_s=_COPY_S
    )
    if not done.ok:
        raise MachineFault(f"{spec.name}: the toolbox cannot be copied: {done.words()}")
    return copy
