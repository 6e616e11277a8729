"""A cluster whose machines have fallen silent is not waited for when the run is to stop now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tare.run.topologies.cluster.batch as batches
from run.run_pretended_cluster import PretendedMachine, PretendedMember, Started, layout_of
from tare.agent.client import LoadHandle, Outcome
from tare.errors import MachineFault
from tare.events import ClusterStopped
from tare.platforms.contract import Context, Machine
from tare.run.cells.cell_context import CellContext
from tare.run.cells.roles import Roles
from tare.run.lifecycle.folder import RunFolder
from tare.run.topologies.cluster.batch import clustered
from tare.run.topologies.cluster.cluster import RunningCluster
from tare.run.topologies.cluster.member import SHORT_S
from tare.run.topologies.peers import Connection
from tare.study.planning.cells import Batch

SOON_S = 0.05


@dataclass
class Alive(PretendedMachine):
    """A machine of a cluster, which has not died."""

    name: str = "subject"
    died: asyncio.Future[MachineFault] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class NeverEnding(Started):
    """A daemon that does not end when it is stopped."""

    async def stop(self, timeout_s: float = 30.0) -> Outcome:
        return await asyncio.Future[Outcome]()


class Silent(PretendedMember):
    """A member whose slave gives no log, and whose daemons do not end."""

    async def output(self, script: str, *arguments: str, timeout_s: float = SHORT_S) -> str:
        if self.name == "slave-1":
            await asyncio.Event().wait()
        return f"{self.name} has much to say"

    async def start(self, argv: Sequence[str]) -> LoadHandle:
        return cast(LoadHandle, NeverEnding())


class Up(RunningCluster):
    """A cluster that is up once its daemons were started."""

    async def _await_up(self, until: float) -> None:
        pass


def silent() -> RunningCluster:
    layout = layout_of(1)
    machine = cast(Machine, Alive())
    members = {name: Silent(name, machine, address) for name, address in layout.addresses.items()}
    return Up(members, layout)


async def test_logs_of_an_answering_machine_are_kept_despite_a_silent_one() -> None:
    cluster = silent()
    await cluster.bring_up()
    logs = await asyncio.wait_for(cluster.logs(SOON_S), 30)
    assert {name for name, log in logs.items() if not log} == {
        "slave-1-datanode.log",
        "slave-1-nodemanager.log",
    }
    assert logs["master-namenode.log"] == "master has much to say"


async def test_a_run_that_is_to_stop_now_waits_for_neither_logs_nor_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, events = silent(), list[Any]()
    monkeypatch.setattr(batches, "LEAVING_S", SOON_S)
    monkeypatch.setattr(batches, "_own_cluster", lambda *_: cluster)
    machine = cluster.master.machine
    context = SimpleNamespace(log=events, folder=RunFolder(tmp_path))
    batch = SimpleNamespace(
        block=1,
        arm="bare",
        scenario="two",
        placement=SimpleNamespace(cluster=SimpleNamespace(external=None, roles=())),
    )
    ready = asyncio.Event()

    async def measure() -> None:
        async with clustered(
            Roles(machine),
            {},
            cast(Connection, object()),
            cast(Batch, batch),
            cast(CellContext, context),
            cast(Context, None),
            emulated=True,
        ):
            ready.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(measure())
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert ready.is_set(), task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    stopped = events[-1]
    assert isinstance(stopped, ClusterStopped)
    assert stopped.expected
    kept = {Path(log).name for log in stopped.logs}
    assert "master-namenode.log" in kept and "slave-1-datanode.log" not in kept
