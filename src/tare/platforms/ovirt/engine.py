"""Requests to an engine: objects by name, the state of VMs and disks, and facts about a host."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tare.errors import InputError, MachineFault
from tare.platforms.contract import Carrier
from tare.platforms.ovirt.session import OvirtSession
from tare.platforms.vendors.session import NoSuchObject, wait_for
from tare.study.planning.host_cpus import HostCpus

WORK_S = 600.0
MARK = "tare:"
"""The prefix of the comment of each VM that Tare creates; the VM's name follows."""
MANAGEMENT = "ovirtmgmt"
SINCE = "boot.time"
"""The name of a host's statistic that is the time of its boot, in seconds since 1970."""


class Engine:
    """An engine, reached through an open session."""

    def __init__(self, session: OvirtSession) -> None:
        self.session = session

    @property
    def types(self) -> Any:
        """The library's types."""
        return self.session.types

    async def ask(self, look: Callable[[Any], Any]) -> Any:
        """Call ``look`` with the system's service, and return its result."""
        return await self.session.call(lambda client: look(client.system_service()))

    async def find(
        self,
        what: str,
        service: Callable[[Any], Any],
        name: str | None,
        option: str,
        among: Callable[[Any], bool] | None = None,
    ) -> Any:
        """Return the object of a collection that has a name or an id, or the collection's only one.

        Args:
            what: The kind of objects in the collection, for messages, such as ``clusters``.
            service: Returns the collection's service, given the system's service.
            name: Its name or id; None: the only object.
            option: The option that names it, for messages.
            among: A condition that the object must also meet; None: no condition.

        Raises:
            InputError: There is no such object, or more than one.
        """
        found = await self.ask(lambda api: list(service(api).list()))
        found = [each for each in found if among is None or among(each)]
        if name is not None:
            found = [each for each in found if name in (each.name, each.id)]
        if len(found) == 1:
            return found[0]
        if name is None:
            raise InputError(
                f"{self.session.name} shows this account {len(found)} {what}",
                f"name one by `{option}`",
            )
        if found:
            raise InputError(
                f"{self.session.name} has {len(found)} {what} of the name {name}",
                f"name it by its id by `{option}`",
            )
        raise InputError(
            f"{self.session.name} shows this account no {name} among its {what}",
            f"correct `{option}`, or give the account a right to it",
        )

    async def until(self, look: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until a condition holds.

        Raises:
            MachineFault: The condition did not hold within :data:`WORK_S` seconds.
        """

        async def is_so() -> bool | None:
            return await look() or None

        await wait_for(is_so, f"{self.session.name} did not {what} within {WORK_S:g} s", WORK_S)

    async def vm(self, vm: str) -> Any:
        """Return a VM with all its content; raises NoSuchObject if it is gone."""
        return await self.ask(lambda api: api.vms_service().vm_service(vm).get(all_content=True))

    async def power_on(self, vm: str) -> None:
        """Start a VM."""
        await self.ask(lambda api: api.vms_service().vm_service(vm).start())

    async def power_off(self, vm: str) -> None:
        """Switch a VM off at once, and wait until it is off."""
        off = self.types.VmStatus.DOWN
        if (await self.vm(vm)).status == off:
            return
        await self.ask(lambda api: api.vms_service().vm_service(vm).stop())

        async def is_off() -> bool:
            return bool((await self.vm(vm)).status == off)

        await self.until(is_off, "switch its VM off")

    async def own(self, name: str) -> list[Any]:
        """Return the VMs with a name that have Tare's mark; others may have the same name."""
        found = await self.ask(lambda api: api.vms_service().list(search=f"name={name}"))
        return [vm for vm in found if vm.name == name and vm.comment == MARK + name]

    async def disks(self, name: str) -> list[Any]:
        """Return the disks with a name."""
        found = await self.ask(lambda api: api.disks_service().list(search=f"name={name}"))
        return [disk for disk in found if disk.name == name]

    async def remove_vm(self, vm: str) -> None:
        """Switch a VM off and remove it with its disks; do nothing if it is gone."""
        try:
            await self.power_off(vm)
            await self.ask(lambda api: api.vms_service().vm_service(vm).remove())
        except NoSuchObject:
            return

        async def is_gone() -> bool:
            try:
                await self.vm(vm)
            except NoSuchObject:
                return True
            return False

        await self.until(is_gone, "remove its VM")

    async def remove_disk(self, disk: str) -> None:
        """Remove a disk; do nothing if it is gone."""
        with contextlib.suppress(NoSuchObject):
            await self.ask(lambda api: api.disks_service().disk_service(disk).remove())

    async def facts(self, host: Any, cluster: Any) -> Mapping[str, Any]:
        """Return the facts that engine, cluster and host report about themselves, for the proof.

        Values that they do not report are left out.
        """
        product = (await self.ask(lambda api: api.get())).product_info
        policy = await self._policy(cluster)
        sockets, cores, threads = _topology(host)
        found = {
            "product": product.name,
            "build": product.version.full_version,
            "host": host.version.full_version if host.version else "",
            "libvirt": host.libvirt_version.full_version if host.libvirt_version else "",
            "system": _system(host),
            "processor": host.cpu.name if host.cpu is not None else "",
            "cpus": sockets * cores * threads,
            "hyper-threading": "" if not threads else "on" if threads > 1 else "off",
            "scheduling policy": policy,
            "KSM": _on_or_off(cluster.ksm.enabled if cluster.ksm else None),
            "ballooning": _on_or_off(cluster.ballooning_enabled),
            "HA reservation": _on_or_off(cluster.ha_reservation),
            "threads as cores": _on_or_off(cluster.threads_as_cores),
        }
        return {name: value for name, value in found.items() if value}

    async def rights(self) -> tuple[str, ...]:
        """Return the account's roles, each with the kind of object that it is on; empty: unknown.

        The roles of its groups are included if the engine lists them with the user
        (``/users/ID/permissions``, the REST API guide).
        """
        try:
            user = (await self.ask(lambda api: api.get())).authenticated_user
            if user is None:
                return ()
            given = await self.ask(
                lambda api: api.users_service().user_service(user.id).permissions_service().list()
            )
            roles = {each.id: each.name for each in await self.ask(_roles)}
        except MachineFault:
            return ()
        held = {
            f"the role {roles.get(each.role.id, 'of another name')} on {_subject(each)}"
            for each in given
            if each.role is not None
        }
        return tuple(sorted(held))

    async def carrier(self, host: Any) -> Carrier | None:
        """Return a host's CPUs and memory; None: the engine does not know the host's CPUs yet.

        The engine reports the CPUs of each NUMA node, but not which CPUs share a core. A host's
        ``max_scheduling_memory`` is the memory that the engine would give to new VMs.

        Args:
            host: The host, as the engine lists it.
        """
        sockets, cores, threads = _topology(host)
        if not (count := sockets * cores * threads):
            return None
        nodes: list[Any] = []
        with contextlib.suppress(MachineFault):
            nodes = await self.ask(
                lambda api: api.hosts_service().host_service(host.id).numa_nodes_service().list()
            )
        return Carrier(
            str(host.name),
            HostCpus(
                tuple(range(count)),
                nodes={
                    int(core.index): int(node.index or 0)
                    for node in nodes
                    for core in (node.cpu.cores if node.cpu is not None else None) or ()
                    if int(core.index) < count
                },
                # The unit is MiB (the REST API guide, type NumaNode).
                memory={int(node.index or 0): int(node.memory or 0) << 20 for node in nodes},
                cores=sockets * cores,
            ),
            int(host.memory or 0),
            None if host.max_scheduling_memory is None else int(host.max_scheduling_memory),
            sockets,
        )

    async def booted(self, host: str) -> float | None:
        """Return the time of a host's boot, in seconds since 1970; None: unknown."""
        statistics = await self.ask(
            lambda api: api.hosts_service().host_service(host).statistics_service().list()
        )
        values = [each.values for each in statistics if each.name == SINCE and each.values]
        # An engine that does not know the time yet reports 0.
        return float(values[0][0].datum or 0) or None if values else None

    async def _policy(self, cluster: Any) -> str:
        if cluster.scheduling_policy is None:
            return ""
        policy = cluster.scheduling_policy.id
        try:
            found = await self.ask(
                lambda api: api.scheduling_policies_service().policy_service(policy).get()
            )
        except MachineFault:
            return ""
        return str(found.name)


def _roles(api: Any) -> list[Any]:
    return list(api.roles_service().list())


def _subject(permission: Any) -> str:
    """Return the kind of object that a permission is on; without an object, it is the system."""
    objects = {
        "a cluster": permission.cluster,
        "a data centre": permission.data_center,
        "a disk": permission.disk,
        "a host": permission.host,
        "a storage domain": permission.storage_domain,
        "a template": permission.template,
        "a VM": permission.vm,
        "a pool of VMs": permission.vm_pool,
    }
    return next((kind for kind, of in objects.items() if of is not None), "the system")


def _topology(host: Any) -> tuple[int, int, int]:
    """Return a host's sockets, cores per socket, and threads per core; 0: unknown."""
    if host.cpu is None or host.cpu.topology is None:
        return 0, 0, 0
    topology = host.cpu.topology
    return topology.sockets or 0, topology.cores or 0, topology.threads or 0


def _system(host: Any) -> str:
    if host.os is None:
        return ""
    version = host.os.version.full_version if host.os.version else ""
    return " ".join(word for word in (host.os.type, version) if word)


def _on_or_off(value: bool | None) -> str:
    return "" if value is None else "on" if value else "off"
