"""What Tare asks of one Proxmox node: uploads, VMs, tasks, and what the node says of itself."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Mapping
from typing import Any

from tare.errors import InputError, MachineFault
from tare.platforms.proxmox.session import ProxmoxSession
from tare.platforms.vendors.session import Missing, Refused

TASK_S = 600.0
FIRST_ID = 100
ALL_VMS, SEE = "/vms", "VM.Audit"
TRIES = 5
ONLINE = "online"


class Upload(io.BytesIO):
    """Bytes that are uploaded under a name."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(content)
        self.name = name


class Node:
    """A node, by a session that is open.

    Args:
        session: The session.
        name: The node's name.
        vms: The path on which the account has its rights to VMs: ``/vms`` or a pool's.
    """

    def __init__(self, session: ProxmoxSession, name: str, vms: str = ALL_VMS) -> None:
        self.session = session
        self.name = name
        self.vms = vms

    async def ask(self, look: Callable[[Any], Any]) -> Any:
        """Return what a request for the node's resource brings."""
        return await self.session.call(lambda api: look(api.nodes(self.name)))

    async def done(self, begin: Callable[[Any], Any], what: str) -> None:
        """Begin a task, and wait for its end.

        Raises:
            MachineFault: It failed; its own words are told.
        """
        task = await self.ask(begin)
        if not task:
            return
        deadline = time.monotonic() + TASK_S
        pause = 0.05
        while (state := await self._state(task))["status"] != "stopped":
            if time.monotonic() > deadline:
                raise MachineFault(f"{self.name} did not end within {TASK_S:g} s to {what}")
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 1.5)
        said = str(state.get("exitstatus", ""))
        # A task with warnings has done its work (PVE::Tools::upid_status_is_error).
        if said != "OK" and not said.startswith("WARNINGS"):
            kind = Refused if "is locked" in said or "already running" in said else MachineFault
            raise kind(f"{self.name} failed to {what}: {self.session.clean(said)}")

    async def _of(self, number: int, look: Callable[[Any], Any]) -> Any:
        """Return what a request for a VM brings; raises Missing where it is gone.

        Who has rights in a pool alone is refused what is no longer in it: a VM that is gone looks
        like one that is forbidden, unless the account may see those of the pool.
        """
        try:
            return await self.ask(lambda node: look(node.qemu(number)))
        except Refused as refusal:
            if f"(/vms/{number}, {SEE})" not in refusal.message or self.vms == ALL_VMS:
                raise
            found = await self.session.call(lambda api: api.access.permissions.get(path=self.vms))
            if SEE not in found.get(self.vms, {}):
                raise
            raise Missing(f"VM {number} is not in {self.vms}") from None

    async def _state(self, task: str) -> Mapping[str, Any]:
        """Ask a task's state: a connection that breaks meanwhile is no end of the task."""
        for left in reversed(range(TRIES)):
            try:
                return dict(await self.ask(lambda node: node.tasks(task).status.get()))
            except MachineFault as fault:
                if not left or isinstance(fault, Missing | Refused):
                    raise
                await asyncio.sleep(0.2)
        raise AssertionError("unreachable")

    async def settled(self, kind: str, number: int | None = None) -> None:
        """Wait until no task of a kind runs: one may go on whose answer never came.

        Args:
            kind: ``imgcopy``, which takes an upload, ``qmcreate`` or ``qmstart``.
            number: The VM's that it is about; None: any.

        Raises:
            MachineFault: It does not end.
        """
        about = {} if number is None else {"vmid": number}
        deadline = time.monotonic() + TASK_S
        while any(
            not each.get("endtime")
            for each in await self.ask(
                lambda node: node.tasks.get(source="active", typefilter=kind, **about)
            )
        ):
            if time.monotonic() > deadline:
                raise MachineFault(f"{self.name} did not end within {TASK_S:g} s: {kind}")
            await asyncio.sleep(0.2)

    async def upload(self, storage: str, name: str, content: bytes) -> None:
        """Upload a small ISO."""
        await self.done(
            lambda node: node.storage(storage).upload.post(
                content="iso", filename=Upload(name, content)
            ),
            f"take {name} into {storage}",
        )

    async def discard(self, volume: str) -> bool:
        """Remove an uploaded file, once it has arrived; returns whether it was there."""
        storage = volume.partition(":")[0]
        try:
            await self.settled("imgcopy")
            listed = await self.ask(lambda node: node.storage(storage).content.get(content="iso"))
            if all(each.get("volid") != volume for each in listed):
                return False
            await self.done(
                lambda node: node.storage(storage).content(volume).delete(), f"remove {volume}"
            )
        except Missing:
            return False
        return True

    async def free_id(self, least: int = FIRST_ID) -> int:
        """Return a number that no VM of the cluster has."""
        number = int(await self.session.call(lambda api: api.cluster.nextid.get()))
        return max(number, least)

    async def create(self, number: int, settings: Mapping[str, Any]) -> None:
        """Make a VM."""
        await self.done(lambda node: node.qemu.post(vmid=number, **settings), f"make VM {number}")

    async def config(self, number: int) -> dict[str, Any]:
        """Return a VM's configuration; raises Missing where it is gone."""
        return dict(await self._of(number, lambda vm: vm.config.get()))

    async def current(self, number: int) -> dict[str, Any]:
        """Return a VM's present state; raises Missing where it is gone."""
        return dict(await self._of(number, lambda vm: vm.status.current.get()))

    async def power_on(self, number: int) -> None:
        """Start a VM."""
        await self.done(lambda node: node.qemu(number).status.start.post(), f"start VM {number}")

    async def power_off(self, number: int) -> None:
        """Stop a VM at once; of one that does not run, nothing happens."""
        await self.done(lambda node: node.qemu(number).status.stop.post(), f"stop VM {number}")

    async def remove(self, number: int) -> None:
        """Remove a VM with its disks."""
        await self.done(
            lambda node: node.qemu(number).delete(purge=1, **{"destroy-unreferenced-disks": 1}),
            f"remove VM {number}",
        )

    async def remove_named(self, number: int, name: str) -> bool:
        """Stop and remove a VM if it has that name.

        Returns:
            Whether there was one.
        """
        try:
            for kind in ("qmcreate", "qmstart"):
                await self.settled(kind, number)
            if (await self.config(number)).get("name") != name:
                return False
            if (await self.current(number)).get("status") != "stopped":
                await self.power_off(number)
            await self.remove(number)
        except Missing:
            return False
        return True

    async def state(self) -> str:
        """Return what the cluster says of the node: online, offline or unknown."""
        listed = await self.session.call(lambda api: api.nodes.get())
        states = [str(each.get("status", ONLINE)) for each in listed if each["node"] == self.name]
        return states[0] if states else "gone"

    async def booted(self) -> float | None:
        """Return since when the node runs, in seconds since 1970; None where it is not told.

        The node tells for how long. It is taken from this computer's time, not from the node's,
        which may be set once it is up.
        """
        uptime = (await self.ask(lambda node: node.status.get())).get("uptime")
        return None if uptime is None else time.time() - float(uptime)

    async def facts(self) -> Mapping[str, Any]:
        """Return what the node says of itself, for the proof; what it does not say is left out."""
        status = await self.ask(lambda node: node.status.get())
        told = await self.session.call(lambda api: api.version.get())
        licence = await self._licence()
        cpu = status.get("cpuinfo", {})
        threads, cores = int(cpu.get("cpus", 0)), int(cpu.get("cores", 0))
        found = {
            "product": "Proxmox VE",
            "build": f"{told.get('version')} ({told.get('repoid')})",
            "kernel": str(status.get("current-kernel", {}).get("release", "")),
            "licence": licence,
            "cpus": threads,
            "processor": str(cpu.get("model", "")),
            # The scheduler is the kernel's own; which, follows from its version.
            "scheduler": "Linux",
        }
        if threads and cores:
            found["hyper-threading"] = "on" if threads > cores else "off"
        return {name: value for name, value in found.items() if value not in ("", 0)}

    async def _licence(self) -> str:
        said = await self.ask(lambda node: node.subscription.get())
        level = str(said.get("productname") or said.get("level") or "")
        return f"subscription {said.get('status', 'unknown')}{f', {level}' if level else ''}"


async def only_node(session: ProxmoxSession, wanted: str | None, pool: str | None) -> Node:
    """Return the node that an arm names, or the only one; VMs are in the pool, where there is one.

    Raises:
        InputError: There is none of that name, or more than one and none is named.
    """
    listed = await session.call(lambda api: api.nodes.get())
    names = sorted(str(each["node"]) for each in listed)
    if wanted is not None:
        if wanted not in names:
            raise InputError(
                f"{session.name} has no node {wanted}", f"name one of: {', '.join(names)}"
            )
        return Node(session, wanted, vms_of(pool))
    if len(names) != 1:
        raise InputError(
            f"{session.name} has {len(names)} nodes", f"say by `node` which: {', '.join(names)}"
        )
    return Node(session, names[0], vms_of(pool))


def vms_of(pool: str | None) -> str:
    """Return the path of the rights to a pool's VMs; of all where there is no pool."""
    return ALL_VMS if pool is None else f"/pool/{pool}"
