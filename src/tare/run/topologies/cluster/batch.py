"""The cluster of one batch, started before its first cell and stopped after the last."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import InputError, MachineFault, TareError
from tare.events import ClusterReady, ClusterStopped
from tare.outputs import put
from tare.platforms.contract import SUBJECT
from tare.run.cells.liveness import run_while_alive
from tare.run.topologies.cluster.cluster import EMULATED, RunningCluster, layout_for
from tare.run.topologies.cluster.contract import LOGS_S
from tare.run.topologies.cluster.member import Member
from tare.run.topologies.cluster.outside import CLIENT, LOOPBACK, OutsideCluster, require_name
from tare.run.topologies.kinds import Clustered
from tare.workloads.mapreduce.outside import read_outside

if TYPE_CHECKING:
    from tare.platforms.contract import Context, Machine, MachineSpec
    from tare.run.cells.cell_context import CellContext
    from tare.run.cells.roles import Roles
    from tare.run.topologies.cluster.contract import HadoopCluster
    from tare.run.topologies.peers import Connection
    from tare.study.model.scenario import Cluster
    from tare.study.planning.cells import Batch

LEAVING_S = 1.5
"""Seconds for logs, and then for the end of the daemons, if the run has to stop now."""


@asynccontextmanager
async def clustered(
    roles: Roles,
    specs: Mapping[str, MachineSpec],
    connection: Connection | None,
    batch: Batch,
    context: CellContext,
    home: Context,
    *,
    emulated: bool,
    lost: Sequence[asyncio.Future[MachineFault]] = (),
) -> AsyncIterator[Roles]:
    """Form a cluster of a batch's machines if its scenario has one, and stop it in the end.

    Args:
        roles: The machines, which are ready.
        specs: The specification of each machine, by role.
        connection: Their network.
        batch: The batch, which describes the cluster.
        context: The context of the cells, with the event log.
        home: The subject's host.
        emulated: Whether the machines are emulated, so that everything may take longer.
        lost: Futures, each set if a whole host, or the network between hosts, is lost.

    Yields:
        The roles, with the cluster.

    Raises:
        MachineFault: It does not come up.
    """
    wanted = batch.placement.cluster
    if wanted is None or (connection is None and wanted.external is None):
        yield roles
        return
    # A peer of the neighbours' loads is not in the cluster.
    companions = {role: roles.companions[role] for role in wanted.roles}
    machines = {SUBJECT: roles.subject, **companions}
    slower = EMULATED if emulated else 1.0
    if connection is None:
        cluster = await _existing_cluster(roles, home, wanted, slower)
    else:
        cluster = _own_cluster(machines, specs, connection, wanted, slower)
    reason, leaving = "", False
    try:
        try:
            await run_while_alive(tuple(machines.values()), cluster.bring_up(), *lost)
        except MachineFault as fault:
            reason = str(fault)
            raise
        context.log.append(
            ClusterReady(
                machine=roles.subject.name,
                block=batch.block,
                arm=batch.arm,
                scenario=batch.scenario,
                took_s=cluster.took_s,
                facts=cluster.facts(),
            )
        )
        formed = Clustered(roles.subject, companions, cluster)
        yield replace(roles, topologies=(*roles.topologies, formed))
    except asyncio.CancelledError:
        leaving = True
        raise
    finally:
        logs = await _keep(cluster, context, LEAVING_S if leaving else cluster.patience(LOGS_S))
        ended = cluster.lost.result() if cluster.lost.done() else ""
        with suppress(TimeoutError):
            # Daemons that are still running then end with their machine, or are in the ledger.
            async with asyncio.timeout(LEAVING_S if leaving else None):
                await cluster.stop()
        context.log.append(
            ClusterStopped(
                machine=roles.subject.name,
                expected=not (reason or ended),
                reason=reason or ended,
                logs=logs,
            )
        )


def _own_cluster(
    machines: Mapping[str, Machine],
    specs: Mapping[str, MachineSpec],
    connection: Connection,
    wanted: Cluster,
    slower: float,
) -> HadoopCluster:
    """Return a cluster of Tare's own machines, not started yet."""
    if len({id(machine.agent) for machine in machines.values()}) < len(machines):
        raise MachineFault("a cluster needs separate machines, but here all roles share one")
    addresses = {
        role: connection.whole.links[machine.name].address for role, machine in machines.items()
    }
    slave = specs[wanted.roles[-1] if wanted.roles else SUBJECT].shape
    layout = layout_for(wanted, addresses, slave.memory, slave.vcpus, slower)
    roles = (SUBJECT, *wanted.roles)
    members = {
        name: Member(name, machines[role], address)
        for role, (name, address) in zip(roles, layout.addresses.items(), strict=True)
    }
    return RunningCluster(members, layout)


async def _existing_cluster(
    roles: Roles, home: Context, wanted: Cluster, slower: float
) -> HadoopCluster:
    """Return a cluster that exists already, not contacted yet."""
    try:
        about = await asyncio.to_thread(read_outside, Path(str(wanted.external)))
        user = require_name(getpass.getuser())
    except InputError as error:
        raise MachineFault(error.message, error.hint) from error
    client = Member(CLIENT, roles.subject, LOOPBACK)
    return OutsideCluster(client, about, home, user, 1, slower)


async def _keep(cluster: HadoopCluster, context: CellContext, within_s: float) -> tuple[str, ...]:
    """Write notes and available logs into the run's folder; return their paths in it."""
    kept: list[str] = []
    folder = context.folder.machines / cluster.master.machine.name
    with suppress(TareError, OSError):
        for name, text in {**await cluster.logs(within_s), **cluster.notes}.items():
            if text:
                folder.mkdir(parents=True, exist_ok=True)
                put(folder / name, text.encode(errors="replace"))
                kept.append(context.folder.relative(folder / name))
    return tuple(kept)
