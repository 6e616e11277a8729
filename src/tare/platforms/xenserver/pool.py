"""What Tare asks of a pool: objects by name, tasks, VMs, roles, and facts about a host.

The role that each call requires is ``allowed_roles`` in xen-api (ocaml/idl/datamodel.ml and
datamodel_vm.ml), and is listed with each call in the vendors' Management API.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.errors import InputError, MachineFault
from tare.platforms.contract import Presence
from tare.platforms.vendors.patience import patiently
from tare.platforms.vendors.session import Missing, Refused
from tare.platforms.xenserver.session import XenSession

ROLES = ("read-only", "vm-operator", "vm-admin", "vm-power-admin", "pool-operator", "pool-admin")
"""From the least to the one that may do all (ocaml/idl/datamodel_roles.ml)."""
LEAST = "vm-power-admin"
WHY = "VM.start_on, by which a VM is started on the host that was looked at"


def require_role(names: Sequence[str], where: str) -> None:
    """See that one of an account's roles is enough.

    Args:
        names: Its roles; none where the pool does not tell, and nothing is required then.
        where: The pool, in words.

    Raises:
        InputError: None of them is; each is one that is known here.
    """
    if not names or not set(names) <= set(ROLES):
        return
    if all(ROLES.index(name) < ROLES.index(LEAST) for name in names):
        raise InputError(
            f"the account has the role {', '.join(names)} at {where}, which may not make {WHY}",
            f"give it the role {LEAST}: xe subject-role-add uuid=SUBJECT role-name={LEAST}",
        )


TASK_S = 600.0
BUSY_S = 30.0
TRIES = 5
PASSING = ("OTHER_OPERATION", "VDI_IN_USE", "VM_BAD_POWER_STATE")
"""Refusals that pass: a start whose answer was lost goes on, and the VM is not as it was seen."""
NULL = "OpaqueRef:NULL"
OFF = "Halted"
SINCE = "boot_time"
"""The key of a host's ``other_config`` by which XenAPI tells when it was booted."""
OWNER = "tare"
"""The key of ``other_config`` by which Tare knows what is its own; the name is its value."""


class Pool:
    """A pool, by a session that is open."""

    def __init__(self, session: XenSession) -> None:
        self.session = session

    async def ask(self, look: Callable[[Any], Any]) -> Any:
        """Return what a call brings; ``look`` is given the API."""
        return await self.session.call(lambda client: look(client.xenapi))

    async def done(self, begin: Callable[[Any], Any], what: str) -> str:
        """Begin a task (``Async.…``), wait for its end, and return its result.

        Raises:
            TareError: It failed; its own words are told.
        """
        task = str(await self.ask(begin))
        deadline, pause = time.monotonic() + TASK_S, 0.05
        try:
            while (record := await self._task(task))["status"] == "pending":
                if time.monotonic() > deadline:
                    raise MachineFault(f"{self.session.name} did not {what} within {TASK_S:g} s")
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 1.5)
        finally:
            await self._forget(task)
        if record["status"] != "success":
            words = [str(word) for word in record["error_info"]] or [str(record["status"])]
            fault = self.session.failure(words)
            raise type(fault)(self.session.clean(f"could not {what}: {fault.message}"), fault.hint)
        return str(record["result"])

    async def _task(self, task: str) -> Mapping[str, Any]:
        """Ask a task's state: a connection that breaks meanwhile is no end of the task."""
        for left in reversed(range(TRIES)):
            try:
                return dict(await self.ask(lambda api: api.task.get_record(task)))
            except MachineFault as fault:
                if not left or isinstance(fault, Missing | Refused):
                    raise
                await asyncio.sleep(0.2)
        raise AssertionError("unreachable")

    async def _forget(self, task: str) -> None:
        try:
            await self.ask(lambda api: api.task.destroy(task))
        except MachineFault:
            # It is a note of what was done, and ages out by itself.
            return

    async def find(self, kind: str, name: str) -> str:
        """Return the object of a class that has a name, or a UUID.

        Raises:
            InputError: There is none, or more than one.
        """
        try:
            return str(await self.ask(lambda api: api.__getattr__(kind).get_by_uuid(name)))
        except MachineFault as fault:
            if "UUID_INVALID" not in fault.message:
                raise
        found = await self.ask(lambda api: api.__getattr__(kind).get_by_name_label(name))
        if len(found) != 1:
            many = f"has {len(found)} of the name {name}" if found else f"has no {name}"
            raise InputError(
                f"{self.session.name} {many} (class {kind})", "name it by its UUID, or correct it"
            )
        return str(found[0])

    async def get(self, kind: str, of: str, what: str) -> Any:
        """Return a field of an object, or its ``record``."""
        return await self.ask(lambda api: api.__getattr__(kind).__getattr__(f"get_{what}")(of))

    async def record_figure(self, vm: str, name: str) -> None:
        """Have a figure of a VM recorded from now on."""
        await self.ask(lambda api: api.VM.record_data_source(vm, name))

    async def host(self, name: str | None) -> str:
        """Return the host that an arm names, or the only one."""
        if name is not None:
            return await self.find("host", name)
        hosts = await self.ask(lambda api: api.host.get_all())
        if len(hosts) != 1:
            raise InputError(
                f"the pool of {self.session.name} has {len(hosts)} hosts", "say by `on-host` which"
            )
        return str(hosts[0])

    async def default_sr(self) -> str:
        """Return the pool's default storage repository; raises InputError where it has none."""
        pools = await self.ask(lambda api: api.pool.get_all())
        repository = str(await self.ask(lambda api: api.pool.get_default_SR(pools[0])))
        if repository == NULL:
            raise InputError(
                f"the pool of {self.session.name} has no default repository", "name one by `sr`"
            )
        return repository

    async def record(self, vm: str) -> dict[str, Any]:
        """Return a VM's record; raises Missing where it is gone."""
        return dict(await self.ask(lambda api: api.VM.get_record(vm)))

    async def power_on(self, vm: str, host: str) -> None:
        """Start a VM on a host."""
        await self.done(lambda api: api.Async.VM.start_on(vm, host, False, False), "start its VM")

    async def power_off(self, vm: str) -> None:
        """Switch a VM off as by pulling the plug."""
        await self.done(lambda api: api.Async.VM.hard_shutdown(vm), "switch its VM off")

    async def remove_named(self, name: str) -> bool:
        """Remove the VMs and disks of a name, all of them Tare's; what is busy is waited for.

        Returns:
            Whether there was anything.
        """
        return await patiently(lambda: self._remove_named(name), PASSING, BUSY_S)

    async def _remove_named(self, name: str) -> bool:
        found = False
        for vm in await self._own("VM", name):
            found |= await self._remove_vm(vm)
        for disk in await self._own("VDI", name):
            try:
                await self._remove_disk(disk)
                found = True
            except Missing:
                continue
        return found

    async def _own(self, kind: str, name: str) -> list[str]:
        """Return what has a name, and bears Tare's mark: others may call theirs so too."""
        own = []
        for each in await self.ask(lambda api: api.__getattr__(kind).get_by_name_label(name)):
            try:
                marks = await self.get(kind, str(each), "other_config")
            except Missing:
                continue
            if marks.get(OWNER) == name:
                own.append(str(each))
        return own

    async def _remove_disk(self, disk: str) -> None:
        await self.done(lambda api: api.Async.VDI.destroy(disk), "remove a disk")

    async def _remove_vm(self, vm: str) -> bool:
        try:
            if (await self.record(vm))["power_state"] != OFF:
                await self.power_off(vm)
            await self.done(lambda api: api.Async.VM.destroy(vm), "remove its VM")
        except Missing:
            return False
        return True

    async def presence(self, host: str) -> Presence:
        """Return whether a host is up and takes VMs, and since when it runs."""
        record = await self.ask(lambda api: api.host.get_record(host))
        name = str(record.get("name_label", host))
        if not await self.ask(lambda api: api.host_metrics.get_live(record["metrics"])):
            return Presence(absent=f"{name} does not answer the coordinator of its pool")
        if not record["enabled"]:
            return Presence(absent=f"{name} is disabled, and starts no VM")
        try:
            since = float(record["other_config"][SINCE])
        except (KeyError, ValueError):
            return Presence()
        return Presence(since=since)

    async def rights(self) -> tuple[str, ...]:
        """Return the roles of the account; empty where the pool does not tell.

        The host's own root has every right and no role (the management API's pages of the classes
        session, subject and role; any role may ask).

        Raises:
            InputError: None of the roles is enough.
        """
        try:
            own = await self.session.call(
                lambda client: (
                    client.xenapi.session.get_is_local_superuser(client.handle),
                    client.xenapi.session.get_subject(client.handle),
                )
            )
            if own[0]:
                return ("root of the host, who has every right",)
            roles = await self.get("subject", str(own[1]), "roles")
            names = [str(await self.get("role", str(role), "name_label")) for role in roles]
        except MachineFault:
            return ()
        require_role(sorted(names), self.session.name)
        return tuple(f"the role {name}" for name in sorted(names))

    async def facts(self, host: str) -> Mapping[str, Any]:
        """Return what a host says of itself, for the proof; what it does not say is left out."""
        record = await self.ask(lambda api: api.host.get_record(host))
        pools = await self.ask(lambda api: api.pool.get_all())
        pool = await self.ask(lambda api: api.pool.get_record(pools[0]))
        software, cpu = record.get("software_version", {}), record.get("cpu_info", {})
        threads = cpu.get("threads_per_core", "")
        found = {
            "product": software.get("product_brand", ""),
            "build": " ".join(
                word
                for word in (software.get("product_version"), software.get("build_number"))
                if word
            ),
            "xen": software.get("xen", ""),
            "kernel": software.get("linux", ""),
            "licence": record.get("edition", ""),
            "processor": cpu.get("modelname", "").strip(),
            "cpus": cpu.get("cpu_count", ""),
            "hyper-threading": "" if not threads else "on" if int(threads) > 1 else "off",
            "scheduler": await self._granularity(host),
            "HA": "on" if pool.get("ha_enabled") else "off",
        }
        return {name: value for name, value in found.items() if value}

    async def _granularity(self, host: str) -> str:
        """Return what Xen schedules together: CPUs, cores or sockets; older hosts do not tell."""
        try:
            told = await self.ask(lambda api: api.host.get_sched_gran(host))
        except MachineFault:
            return ""
        return f"Xen's, by {told}"
