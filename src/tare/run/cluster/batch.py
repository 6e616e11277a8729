"""The cluster of one batch: up before its first cell, and stopped after the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tare.errors import MachineFault, TareError
from tare.events import ClusterReady, ClusterStopped
from tare.outputs import put
from tare.platforms.contract import SUBJECT
from tare.run.alive import while_alive
from tare.run.cluster.cluster import RunningCluster, layout_for
from tare.run.cluster.member import Member

if TYPE_CHECKING:
    from tare.platforms.contract import MachineSpec
    from tare.run.cast import Cast
    from tare.run.cell import CellContext
    from tare.run.peers import Connection
    from tare.study.cells import Batch


@asynccontextmanager
async def clustered(
    cast: Cast,
    specs: Mapping[str, MachineSpec],
    connection: Connection | None,
    batch: Batch,
    context: CellContext,
    *,
    emulated: bool,
    lost: Sequence[asyncio.Future[MachineFault]] = (),
) -> AsyncIterator[Cast]:
    """Make a cluster of a batch's machines where its scenario asks for one, and stop it.

    Args:
        cast: The machines, which are ready.
        specs: What each was to be, by role.
        connection: How they are connected.
        batch: Says what cluster they are to be.
        context: Where it is told of.
        emulated: Whether the machines are so slow that all may take longer.
        lost: Each set if a host is lost as a whole, or the network between hosts.

    Yields:
        The cast, with the cluster.

    Raises:
        MachineFault: It does not come up.
    """
    wanted = batch.placement.cluster
    if wanted is None or connection is None:
        yield cast
        return
    machines = {SUBJECT: cast.subject, **cast.companions}
    if len({id(machine.agent) for machine in machines.values()}) < len(machines):
        raise MachineFault("a cluster needs machines of its own, and here all are one")
    addresses = {
        role: connection.whole.links[machine.name].address for role, machine in machines.items()
    }
    slave = specs[wanted.roles[-1] if wanted.roles else SUBJECT].shape
    layout = layout_for(wanted, addresses, slave.memory, slave.vcpus)
    roles = (SUBJECT, *wanted.roles)
    members = {
        name: Member(name, machines[role], address)
        for role, (name, address) in zip(roles, layout.addresses.items(), strict=True)
    }
    cluster = RunningCluster(members, layout, emulated)
    reason = ""
    try:
        try:
            await while_alive(tuple(machines.values()), cluster.bring_up(), *lost)
        except MachineFault as fault:
            reason = str(fault)
            raise
        context.log.append(
            ClusterReady(
                machine=cast.subject.name,
                block=batch.block,
                arm=batch.arm,
                scenario=batch.scenario,
                took_s=cluster.took_s,
                facts=cluster.facts(),
            )
        )
        yield replace(cast, cluster=cluster)
    finally:
        logs = await _keep(cluster, context)
        ended = cluster.lost.result() if cluster.lost.done() else ""
        await cluster.stop()
        context.log.append(
            ClusterStopped(
                machine=cast.subject.name,
                expected=not (reason or ended),
                reason=reason or ended,
                logs=logs,
            )
        )


async def _keep(cluster: RunningCluster, context: CellContext) -> tuple[str, ...]:
    """Write the daemons' logs into the run's folder; return where, relative to it."""
    kept: list[str] = []
    folder = context.folder.machines / cluster.master.machine.name
    with suppress(TareError, OSError):
        for name, text in (await cluster.logs()).items():
            if text:
                folder.mkdir(parents=True, exist_ok=True)
                put(folder / name, text.encode(errors="replace"))
                kept.append(context.folder.relative(folder / name))
    return tuple(kept)
