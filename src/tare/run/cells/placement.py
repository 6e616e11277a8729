"""The hosts on which the machines of one batch run, their specifications and their network."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.platforms.contract import (
    SUBJECT,
    Context,
    Machine,
    MachineSpec,
    Platform,
    PlatformOptions,
    Prepared,
    Shape,
)
from tare.platforms.host_hypervisor import hypervisor_of
from tare.platforms.linux.process_machine import temporary_folder
from tare.run.probes.host_hardware import HostHardware, MemoryTraffic
from tare.run.topologies.peers import Connection, outside_cpus, shared_out

if TYPE_CHECKING:
    from tare.probes import Probe
    from tare.run.hosts.contract import RunHost
    from tare.study.model.releases import Release
    from tare.study.planning.cells import Batch
    from tare.workloads import MachineFacts
    from tare.workloads.contract import Workload


@dataclass(frozen=True)
class ReadyArm:
    """An arm that is ready to run: its platform, its image and its size.

    ``needs`` are the needs of the study's workloads, for which its image was made.
    """

    name: str
    platform: Platform[Any]
    options: PlatformOptions
    kernel: str | None
    prepared: Prepared
    shape: Shape
    realtime: bool
    facts: MachineFacts
    needs: frozenset[str] = frozenset()
    release: Release | None = None

    def at(self, context: Context) -> Context:
        """Return the context of its machines: with the kernel and the release that it names."""
        return replace(context, kernel=self.kernel, release=self.release)

    def memory_probes(
        self,
        context: Context,
        workload: Workload[Any],
        given: Mapping[str, Any],
        machines: Mapping[str, Machine],
        apart: Sequence[int],
    ) -> tuple[Probe, ...]:
        """Return the probes of the host's caches and memory bus; none if the cell needs none.

        Args:
            context: The host of the machines.
            workload: The cell's workload.
            given: The cell's parameters.
            machines: The machines by role.
            apart: CPUs that the counting process avoids.
        """
        parameters = workload.parameters.model_validate(dict(given))
        elsewhere = self.platform.stated(self.options).elsewhere
        if elsewhere or not workload.counts_memory(parameters):
            return ()
        return (HostHardware(context, machines, apart), MemoryTraffic(context.host))


@dataclass(frozen=True)
class ArmHost:
    """One host as the machines of one arm need it.

    Args:
        run_host: The host.
        context: The context of its platforms, once it is booted for the arm.
        platform: The arm's platform on this host.
        prepared: The image of its machines on this host.
    """

    run_host: RunHost
    context: Context
    platform: Platform[Any]
    prepared: Prepared


@dataclass
class OtherHosts:
    """The hosts other than an arm's own on which further machines of the arm run.

    Args:
        run_hosts: All hosts of the run by name.
    """

    run_hosts: Mapping[str, RunHost]
    _prepared: dict[tuple[str, str], Prepared] = field(default_factory=dict)

    async def sites(self, batch: Batch, arm: ReadyArm) -> dict[str, ArmHost]:
        """Return the other hosts that a batch names, booted for it, by name.

        Raises:
            MachineFault: One does not come up, or the platform cannot be used there.
            InputError: One cannot be booted for it.
        """
        names = dict.fromkeys(each.host for each in batch.placement.companions if each.host)
        return {name: await self._site(name, batch, arm) for name in names}

    async def _site(self, name: str, batch: Batch, arm: ReadyArm) -> ArmHost:
        run_host = self.run_hosts[name]
        platform = run_host.platforms[arm.platform.name]
        where = await run_host.under(
            run_host.boot_of(platform, arm.options, arm.release), batch.block
        )
        context = replace(arm.at(where), needs=arm.needs)
        if (arm.name, name) not in self._prepared:
            verdict = await platform.check(context, arm.options)
            if not verdict.usable:
                raise MachineFault(f"{name}: {verdict.reason}", verdict.hint)
            made = await platform.prepare(context, arm.options, arm.shape, arm.realtime)
            self._prepared[arm.name, name] = replace(made, toolbox=arm.prepared.toolbox)
        return ArmHost(run_host, context, platform, self._prepared[arm.name, name])


@dataclass(frozen=True)
class BatchPlacement:
    """The placement of one batch's machines.

    Args:
        batch: The batch.
        arm: Its arm.
        home: The arm's host.
        others: Other hosts that the scenario names, by name.
        machines: The started machines; closing it stops them in reverse order.
        connection: The network between the machines; None if there is none.
        specs: The specifications of the started machines, by role.
    """

    batch: Batch
    arm: ReadyArm
    home: ArmHost
    others: Mapping[str, ArmHost]
    machines: AsyncExitStack
    connection: Connection | None = None
    specs: dict[str, MachineSpec] = field(default_factory=dict)

    def outside(self) -> dict[str, tuple[int, ...]]:
        """Return the CPUs of a client and an origin that are processes on the subject's host.

        Under a hypervisor the host's kernel carries all packets of machines, and has only some of
        the CPUs: one is kept for that.
        """
        boot = self.arm.platform.stated(self.arm.options).host_boot
        free = outside_cpus(self.home.context, self.specs[SUBJECT])
        client, origin = shared_out(free, spare=bool(hypervisor_of(boot)))
        return {"client": client, "origin": origin}

    @property
    def lost(self) -> tuple[asyncio.Future[MachineFault], ...]:
        """Futures, each set if a host, or the network between hosts, is lost."""
        hosts = (site.run_host.lost for site in (self.home, *self.others.values()))
        joined = () if self.connection is None else (self.connection.whole.lost,)
        return (*hosts, *joined)


def spec_at(
    placing: BatchPlacement,
    site: ArmHost,
    name: str,
    shape: Shape,
    cpus: tuple[int, ...],
    role: str,
    *,
    uses_disk: bool,
) -> MachineSpec:
    """Return the specification of a machine, and record it if there is a network.

    Args:
        placing: The placement of its batch.
        site: Its host.
        name: Its name, unique on the host.
        shape: Its size.
        cpus: Host CPUs for its vCPUs; empty: anywhere.
        role: Its role.
        uses_disk: Whether a workload of the batch uses a disk of the machine's own.
    """
    # The random name keeps anybody from creating the folder beforehand.
    workdir = temporary_folder(site.context.host) / f"{name}-{secrets.token_hex(4)}"
    spec = MachineSpec(
        name,
        shape,
        cpus,
        workdir,
        placing.arm.realtime,
        role,
        site.prepared.toolbox,
        uses_disk=uses_disk,
        within=() if cpus or site is not placing.home else placing.batch.placement.within,
        carried=bool(placing.batch.placement.carrier),
    )
    if placing.connection is None:
        return spec
    placed = placing.batch.placement
    cluster = placed.cluster is not None
    placing.specs[role] = replace(
        spec,
        network=placing.connection.whole.on(site.context.host.name),
        way=placing.connection.way,
        own_address=cluster or role in {each.role for each in placed.companions},
        keeps_memory=cluster,
    )
    return placing.specs[role]


def connected_by(placing: BatchPlacement, spec: MachineSpec) -> dict[str, Any]:
    """Return the facts of a machine's network connection, for the record."""
    if placing.connection is None:
        return {}
    whole = placing.connection.whole
    link = whole.links[spec.name]
    return {"network": {"way": link.way, "address": link.address, **link.facts, **whole.facts}}
