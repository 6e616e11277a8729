"""Requests to a pool: objects by name, tasks, VMs, roles, and facts about a host.

The roles that may make a call are its ``allowed_roles`` in xen-api (ocaml/idl/datamodel.ml and
datamodel_vm.ml). The vendors' Management API lists them with each call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.errors import InputError, MachineFault
from tare.platforms.contract import Carrier, Presence
from tare.platforms.vendors.session import NoSuchObject, ask_again, wait_for
from tare.platforms.xenserver.session import GIVE_ROLE, LEAST, XenSession
from tare.study.planning.host_cpus import numbered

ROLES = ("read-only", "vm-operator", "vm-admin", "vm-power-admin", "pool-operator", "pool-admin")
"""The roles from the weakest to the strongest (ocaml/idl/datamodel_roles.ml)."""
WHY = "VM.start_on, by which a VM is started on the host that was looked at"


def require_role(names: Sequence[str], where: str) -> None:
    """Check that one of an account's roles suffices.

    Args:
        names: The account's roles; empty if the pool does not report them, and then nothing is
            required.
        where: The pool, in words.

    Raises:
        InputError: None of the roles suffices, and all of them are known here.
    """
    if not names or not set(names) <= set(ROLES):
        return
    if all(ROLES.index(name) < ROLES.index(LEAST) for name in names):
        raise InputError(
            f"the account has the role {', '.join(names)} at {where}, which may not make {WHY}",
            GIVE_ROLE,
        )


TASK_S = 600.0
NULL = "OpaqueRef:NULL"
OFF = "Halted"
SINCE = "boot_time"
"""The key in a host's ``other_config`` whose value is the time of its boot."""
OWNER = "tare"
"""The key in ``other_config`` that marks Tare's objects; its value is the object's name."""


class Pool:
    """A pool, reached through an open session."""

    def __init__(self, session: XenSession) -> None:
        self.session = session

    async def ask(self, look: Callable[[Any], Any]) -> Any:
        """Call ``look`` with the API, and return its result."""
        return await self.session.call(lambda client: look(client.xenapi))

    async def done(self, begin: Callable[[Any], Any], what: str) -> str:
        """Begin a task (``Async.…``), wait for its end, and return its result.

        Raises:
            TareError: The task failed; the message is the task's own.
        """
        task = str(await self.ask(begin))

        async def ended() -> Mapping[str, Any] | None:
            record = await ask_again(lambda: self.ask(lambda api: api.task.get_record(task)))
            return None if record["status"] == "pending" else dict(record)

        try:
            late = f"{self.session.name} did not {what} within {TASK_S:g} s"
            record = await wait_for(ended, late, TASK_S)
        finally:
            with contextlib.suppress(MachineFault):
                # A task that has ended is only a record, which the pool would remove some time
                # later.
                await self.ask(lambda api: api.task.destroy(task))
        if record["status"] != "success":
            words = [str(word) for word in record["error_info"]] or [str(record["status"])]
            fault = self.session.failure(words)
            raise type(fault)(self.session.clean(f"could not {what}: {fault.message}"), fault.hint)
        return str(record["result"])

    async def find(self, kind: str, name: str) -> str:
        """Return the object of a class that has a name or a UUID.

        Raises:
            InputError: There is no such object, or more than one.
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
        """Return a field of an object; with ``record``, return all of its fields."""
        return await self.ask(lambda api: api.__getattr__(kind).__getattr__(f"get_{what}")(of))

    async def record_figure(self, vm: str, name: str) -> None:
        """Make the pool record a data source of a VM from now on."""
        await self.ask(lambda api: api.VM.record_data_source(vm, name))

    async def host(self, name: str | None) -> str:
        """Return the host that an arm names, or the pool's only host."""
        if name is not None:
            return await self.find("host", name)
        hosts = await self.ask(lambda api: api.host.get_all())
        if len(hosts) != 1:
            raise InputError(
                f"the pool of {self.session.name} has {len(hosts)} hosts", "name one by `on-host`"
            )
        return str(hosts[0])

    async def default_sr(self) -> str:
        """Return the pool's default storage repository; raises InputError if it has none."""
        pools = await self.ask(lambda api: api.pool.get_all())
        repository = str(await self.ask(lambda api: api.pool.get_default_SR(pools[0])))
        if repository == NULL:
            raise InputError(
                f"the pool of {self.session.name} has no default repository", "name one by `sr`"
            )
        return repository

    async def record(self, vm: str) -> dict[str, Any]:
        """Return a VM's record; raises NoSuchObject if it is gone."""
        return dict(await self.ask(lambda api: api.VM.get_record(vm)))

    async def power_on(self, vm: str, host: str) -> None:
        """Start a VM on a host."""
        await self.done(lambda api: api.Async.VM.start_on(vm, host, False, False), "start its VM")

    async def power_off(self, vm: str) -> None:
        """Switch a VM off at once."""
        await self.done(lambda api: api.Async.VM.hard_shutdown(vm), "switch its VM off")

    async def own(self, kind: str, name: str) -> list[str]:
        """Return a class's objects with a name and Tare's mark; others may have the name."""
        own = []
        for each in await self.ask(lambda api: api.__getattr__(kind).get_by_name_label(name)):
            with contextlib.suppress(NoSuchObject):
                if (await self.get(kind, str(each), "other_config")).get(OWNER) == name:
                    own.append(str(each))
        return own

    async def remove_disk(self, disk: str) -> None:
        """Remove a disk; do nothing if it is gone."""
        with contextlib.suppress(NoSuchObject):
            await self.done(lambda api: api.Async.VDI.destroy(disk), "remove a disk")

    async def remove_vm(self, vm: str) -> None:
        """Switch a VM off and remove it; do nothing if it is gone."""
        with contextlib.suppress(NoSuchObject):
            if (await self.record(vm))["power_state"] != OFF:
                await self.power_off(vm)
            await self.done(lambda api: api.Async.VM.destroy(vm), "remove its VM")

    async def remove_network(self, network: str) -> None:
        """Remove a network; do nothing if it is gone."""
        with contextlib.suppress(NoSuchObject):
            await self.ask(lambda api: api.network.destroy(network))

    async def presence(self, host: str) -> Presence:
        """Return whether a host is up and accepts VMs, and since when it runs."""
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
        """Return the roles of the account; empty if the pool does not report them.

        The host's own root has every right and no role. Any role may query this (the Management
        API's pages of the classes session, subject and role).

        Raises:
            InputError: None of the roles suffices.
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
        """Return a host's facts about itself, for the proof; unknown values are left out."""
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

    async def carrier(self, host: str) -> Carrier:
        """Return a host's CPUs and memory.

        ``cpu_info`` counts the CPUs and sockets of Xen, not of dom0 (xen-api,
        ocaml/xapi/create_misc.ml). XenAPI does not report which CPUs share a core or a NUMA node.
        """
        record = await self.ask(lambda api: api.host.get_record(host))
        cpu = record.get("cpu_info", {})
        count = int(cpu.get("cpu_count", 0)) or len(record.get("host_CPUs", ())) or 1
        threads = int(cpu.get("threads_per_core") or 0)
        metrics = await self.ask(lambda api: api.host_metrics.get_record(record["metrics"]))
        free: int | None
        try:
            free = int(await self.ask(lambda api: api.host.compute_free_memory(host)))
        except MachineFault:
            free = int(metrics["memory_free"]) if "memory_free" in metrics else None
        return Carrier(
            str(record.get("name_label") or self.session.name),
            numbered(count, cores=count // threads if threads else 0),
            int(metrics.get("memory_total", 0)),
            free,
            int(cpu.get("socket_count", 0)),
        )

    async def _granularity(self, host: str) -> str:
        """Return the unit that Xen schedules: CPUs, cores or sockets; empty on older hosts."""
        try:
            granularity = await self.ask(lambda api: api.host.get_sched_gran(host))
        except MachineFault:
            return ""
        return f"Xen's, by {granularity}"
