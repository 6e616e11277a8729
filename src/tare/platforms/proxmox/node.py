"""Requests to one Proxmox node: uploads, VMs, tasks, and facts about the node."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from typing import Any

from tare.errors import InputError, MachineFault
from tare.platforms.contract import Carrier
from tare.platforms.proxmox.session import ProxmoxSession
from tare.platforms.vendors.session import NoSuchObject, RequestRefused, ask_again, wait_for
from tare.study.planning.host_cpus import numbered

TASK_S = 600.0
FIRST_ID = 100
ALL_VMS, SEE = "/vms", "VM.Audit"
ONLINE = "online"


class Upload(io.BytesIO):
    """Bytes that are uploaded under a file name."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(content)
        self.name = name


class Node:
    """A node, reached through an open session.

    Args:
        session: The session.
        name: The node's name.
        vms: The path of the account's rights to VMs: ``/vms`` or the path of a pool.
    """

    def __init__(self, session: ProxmoxSession, name: str, vms: str = ALL_VMS) -> None:
        self.session = session
        self.name = name
        self.vms = vms

    async def ask(self, look: Callable[[Any], Any]) -> Any:
        """Call ``look`` with the node's resource, and return its result."""
        return await self.session.call(lambda api: look(api.nodes(self.name)))

    async def done(self, begin: Callable[[Any], Any], what: str) -> None:
        """Begin a task, and wait for its end.

        Raises:
            MachineFault: The task failed; the message contains the task's own status.
        """
        if task := await self.ask(begin):
            await self.ended(task, what)

    async def ended(self, task: str, what: str) -> None:
        """Wait for the end of a task; raises as :meth:`done`."""

        async def ended() -> Mapping[str, Any] | None:
            state = await ask_again(lambda: self.ask(lambda node: node.tasks(task).status.get()))
            return dict(state) if state["status"] == "stopped" else None

        late = f"{self.name} did not end within {TASK_S:g} s to {what}"
        status = str((await wait_for(ended, late, TASK_S)).get("exitstatus", ""))
        # A task with warnings has succeeded (PVE::Tools::upid_status_is_error).
        if status != "OK" and not status.startswith("WARNINGS"):
            is_busy = "is locked" in status or "already running" in status
            kind = RequestRefused if is_busy else MachineFault
            raise kind(f"{self.name} failed to {what}: {self.session.clean(status)}")

    async def _ask_vm(self, number: int, look: Callable[[Any], Any]) -> Any:
        """Call ``look`` with a VM's resource and return its result; raises NoSuchObject if gone.

        If the account has rights in a pool only, Proxmox refuses access to a VM that is gone, as if
        it were forbidden. If the account may see the pool's VMs, the VM is therefore gone.
        """
        try:
            return await self.ask(lambda node: look(node.qemu(number)))
        except RequestRefused as refusal:
            if f"(/vms/{number}, {SEE})" not in refusal.message or self.vms == ALL_VMS:
                raise
            found = await self.session.call(lambda api: api.access.permissions.get(path=self.vms))
            if SEE not in found.get(self.vms, {}):
                raise
            raise NoSuchObject(f"VM {number} is not in {self.vms}") from None

    async def settled(self, kind: str, number: int | None = None) -> None:
        """Wait until no task of a kind runs; one may still run if the answer to its start was lost.

        Args:
            kind: ``imgcopy``, which stores an upload, ``qmcreate`` or ``qmstart``.
            number: The number of the VM; None: any VM.

        Raises:
            MachineFault: The tasks do not end in time.
        """
        about = {} if number is None else {"vmid": number}

        async def is_idle() -> bool | None:
            listed = await self.ask(
                lambda node: node.tasks.get(source="active", typefilter=kind, **about)
            )
            return all(each.get("endtime") for each in listed) or None

        await wait_for(is_idle, f"{self.name} did not end within {TASK_S:g} s: {kind}", TASK_S)

    async def upload(self, storage: str, name: str, content: bytes) -> None:
        """Upload a small ISO."""
        await self.done(
            lambda node: node.storage(storage).upload.post(
                content="iso", filename=Upload(name, content)
            ),
            f"take {name} into {storage}",
        )

    async def has_upload(self, volume: str) -> bool:
        """Return whether an uploaded file exists, after waiting for uploads that still run."""
        storage = volume.partition(":")[0]
        try:
            await self.settled("imgcopy")
            listed = await self.ask(lambda node: node.storage(storage).content.get(content="iso"))
        except NoSuchObject:
            return False
        return any(each.get("volid") == volume for each in listed)

    async def discard(self, volume: str) -> None:
        """Remove an uploaded file; do nothing if it is gone."""
        storage = volume.partition(":")[0]
        with contextlib.suppress(NoSuchObject):
            await self.done(
                lambda node: node.storage(storage).content(volume).delete(), f"remove {volume}"
            )

    async def free_id(self, least: int = FIRST_ID) -> int:
        """Return a number that no VM of the cluster has, at least ``least``."""
        number = int(await self.session.call(lambda api: api.cluster.nextid.get()))
        return max(number, least)

    async def create(self, number: int, settings: Mapping[str, Any]) -> None:
        """Create a VM."""
        await self.done(lambda node: node.qemu.post(vmid=number, **settings), f"create VM {number}")

    async def config(self, number: int) -> dict[str, Any]:
        """Return a VM's configuration; raises NoSuchObject if it is gone."""
        return dict(await self._ask_vm(number, lambda vm: vm.config.get()))

    async def current(self, number: int) -> dict[str, Any]:
        """Return a VM's current state; raises NoSuchObject if it is gone."""
        return dict(await self._ask_vm(number, lambda vm: vm.status.current.get()))

    async def power_on(self, number: int) -> None:
        """Start a VM."""
        await self.done(lambda node: node.qemu(number).status.start.post(), f"start VM {number}")

    async def power_off(self, number: int) -> None:
        """Stop a VM at once; do nothing if it does not run."""
        await self.done(lambda node: node.qemu(number).status.stop.post(), f"stop VM {number}")

    async def remove(self, number: int) -> None:
        """Remove a VM with its disks."""
        await self.done(
            lambda node: node.qemu(number).delete(purge=1, **{"destroy-unreferenced-disks": 1}),
            f"remove VM {number}",
        )

    async def state(self) -> str:
        """Return the node's state in the cluster: online, offline, unknown or gone."""
        listed = await self.session.call(lambda api: api.nodes.get())
        states = [str(each.get("status", ONLINE)) for each in listed if each["node"] == self.name]
        return states[0] if states else "gone"

    async def booted(self) -> float | None:
        """Return the time of the node's boot, in seconds since 1970; None: unknown.

        The node reports its uptime. It is subtracted from this computer's time, because the node's
        clock may be set after its boot.
        """
        uptime = (await self.ask(lambda node: node.status.get())).get("uptime")
        return None if uptime is None else time.time() - float(uptime)

    async def facts(self) -> Mapping[str, Any]:
        """Return the node's facts about itself, for the proof; unknown values are left out."""
        status = await self.ask(lambda node: node.status.get())
        version = await self.session.call(lambda api: api.version.get())
        licence = await self._licence()
        cpu = status.get("cpuinfo", {})
        threads, cores = int(cpu.get("cpus", 0)), int(cpu.get("cores", 0))
        found = {
            "product": "Proxmox VE",
            "build": f"{version.get('version')} ({version.get('repoid')})",
            "kernel": str(status.get("current-kernel", {}).get("release", "")),
            "licence": licence,
            "cpus": threads,
            "processor": str(cpu.get("model", "")),
            # The scheduler is the kernel's, and its kind follows from the kernel's version.
            "scheduler": "Linux",
        }
        if threads and cores:
            found["hyper-threading"] = "on" if threads > cores else "off"
        return {name: value for name, value in found.items() if value not in ("", 0)}

    async def carrier(self) -> Carrier:
        """Return the node's CPUs and memory.

        ``cpuinfo`` counts the threads, cores and sockets of the whole node (pve-common,
        src/PVE/ProcFSTools.pm). It does not report which CPUs share a core or a NUMA node.
        """
        status = await self.ask(lambda node: node.status.get())
        cpu, memory = status.get("cpuinfo", {}), status.get("memory", {})
        total = int(memory.get("total", 0))
        return Carrier(
            self.name,
            numbered(int(cpu.get("cpus", 1)), cores=int(cpu.get("cores", 0))),
            total,
            max(0, total - int(memory["used"])) if total and "used" in memory else None,
            int(cpu.get("sockets", 0)),
        )

    async def _licence(self) -> str:
        found = await self.ask(lambda node: node.subscription.get())
        level = str(found.get("productname") or found.get("level") or "")
        return f"subscription {found.get('status', 'unknown')}{f', {level}' if level else ''}"


async def only_node(session: ProxmoxSession, wanted: str | None, pool: str | None) -> Node:
    """Return the node that an arm names, or the only one.

    Args:
        session: An open session.
        wanted: The node's name; None: the only node.
        pool: The pool of its VMs; None: they are in no pool.

    Raises:
        InputError: There is no such node, or there are several and the arm names none.
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
            f"{session.name} has {len(names)} nodes", f"name one by `node`: {', '.join(names)}"
        )
    return Node(session, names[0], vms_of(pool))


def vms_of(pool: str | None) -> str:
    """Return the path of the rights to a pool's VMs; without a pool, to all VMs."""
    return ALL_VMS if pool is None else f"/pool/{pool}"
