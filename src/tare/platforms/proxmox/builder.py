"""Create everything that one machine on a Proxmox node needs: its configuration CD, and a VM."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from tare.errors import MachineFault
from tare.platforms.proxmox.node import Node, vms_of
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.session import ProxmoxSession
from tare.platforms.proxmox.vm import settings
from tare.platforms.vendors.platform import VmRequest
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import NoSuchObject

TRIES = 5


class UploadResource(ServerResource[ProxmoxSession]):
    """An uploaded ISO."""

    kind = "proxmox-upload"

    @classmethod
    def name_in(cls, details: Mapping[str, Any]) -> str:
        """Return the file's name, without its storage."""
        return str(details["volume"]).partition("/")[2]

    @property
    def words(self) -> str:
        """The volume, as Proxmox names it."""
        return str(self.details["volume"])

    @property
    def _node(self) -> Node:
        return Node(self.session, str(self.details["node"]))

    async def exists(self) -> bool:
        """Return whether the upload exists, after waiting for uploads that still run."""
        return await self._node.has_upload(self.words)

    async def remove(self) -> None:
        """Remove the upload."""
        await self._node.discard(self.words)


class ProxmoxVmResource(ServerResource[ProxmoxSession]):
    """A VM with its disks. Another VM may have its number by now, so the name must match too."""

    kind = "proxmox-vm"
    busy = ("lock", "is running")
    # "is running": if the answer to a start was lost, the VM may start after it was seen stopped.

    @property
    def words(self) -> str:
        """A phrase that names the VM by its number and name."""
        return f"VM {self._number}, {self.name}"

    @property
    def _number(self) -> int:
        return int(self.details["number"])

    @property
    def _node(self) -> Node:
        return Node(self.session, str(self.details["node"]), vms_of(self.details["pool"]))

    async def exists(self) -> bool:
        """Wait for tasks that may still create or start the VM; return whether it exists."""
        try:
            for kind in ("qmcreate", "qmstart"):
                await self._node.settled(kind, self._number)
            return (await self._node.config(self._number)).get("name") == self.name
        except NoSuchObject:
            return False

    async def remove(self) -> None:
        """Stop the VM, and remove it with its disks."""
        with contextlib.suppress(NoSuchObject):
            if (await self._node.current(self._number)).get("status") != "stopped":
                await self._node.power_off(self._number)
            await self._node.remove(self._number)


class VmBuilder:
    """Creates a VM with its configuration CD.

    Args:
        session: An open session.
        node: The node.
        request: The machine to create.
    """

    def __init__(
        self, session: ProxmoxSession, node: Node, request: VmRequest[ProxmoxOptions]
    ) -> None:
        self._session = session
        self._node = node
        self._request = request
        self.number = 0
        """The number of the VM that was created."""
        self.wanted: Mapping[str, Any] = {}
        """The configuration of the VM as requested."""

    async def build(self) -> None:
        """Upload the CD, and create the VM."""
        request, options = self._request, self._request.options
        at = {**options.connection(), "node": self._node.name, "pool": options.pool}
        file = f"{request.spec.name}.iso"
        volume = f"{options.storage}:iso/{file}"
        upload = partial(self._node.upload, options.storage, file, request.image)
        await request.create(UploadResource(self._session, {**at, "volume": volume}, upload))
        identity = str(uuid.uuid4())
        self.wanted = settings(
            options, request.spec, identity, volume, request.disk, request.isolated
        )
        await self._create_vm({**at, "name": request.spec.name})

    async def _create_vm(self, at: Mapping[str, Any]) -> None:
        """Create the VM with a free number; if another VM takes the number first, try the next."""
        least = 0
        for left in reversed(range(TRIES)):
            self.number = await self._node.free_id(least)
            create = partial(self._node.create, self.number, self.wanted)
            details = {**at, "number": self.number}
            try:
                await self._request.create(ProxmoxVmResource(self._session, details, create))
                return
            except MachineFault as fault:
                if "already exists" not in fault.message or not left:
                    raise
                least = self.number + 1
