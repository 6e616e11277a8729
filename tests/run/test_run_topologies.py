"""The machines of a cell's work, by the topology that its workload names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tare.errors import WorkloadFault
from tare.platforms.contract import Machine
from tare.run.cells.roles import Roles
from tare.run.topologies.kinds import (
    CellWork,
    Clustered,
    MissingTopology,
    Pair,
    Proxied,
    Single,
    Topology,
)
from tare.workloads import WORKLOADS, MachineFacts, Workload
from tare.workloads.contract import TopologyName

SUBJECT, PEER, ORIGIN, SLAVE = (
    cast(Machine, SimpleNamespace(name=name)) for name in ("subject", "peer", "origin", "slave")
)
NOBODY: Any = None


def work(workload: Workload[Any]) -> CellWork:
    parameters = workload.parameters.model_validate({})
    return CellWork(workload, parameters, MachineFacts(), NOBODY, 1.0, NOBODY, NOBODY)


def formed() -> dict[str, Topology]:
    between: Any = SimpleNamespace(subject=SUBJECT, origin=ORIGIN)
    layout = SimpleNamespace(slaves=("a", "b", "c"))
    cluster: Any = SimpleNamespace(outside=False, layout=layout, folder="/")
    peer: Any = SimpleNamespace(machine=PEER)
    return {
        "pair": Pair(SUBJECT, peer),
        "proxied": Proxied(between),
        "cluster": Clustered(SUBJECT, {"slave-1": SLAVE}, cluster),
    }


def test_every_workload_names_a_topology_that_there_is() -> None:
    there = {Single.name, *(each.name for each in formed().values())}
    assert {workload.topology for workload in WORKLOADS.values()} == there


def test_a_topology_is_found_by_its_name_and_adds_its_machines() -> None:
    kinds = formed()
    cast_of_all = Roles(SUBJECT, topologies=tuple(kinds.values()))
    assert isinstance(cast_of_all.topology("single"), Single)
    for name, topology in kinds.items():
        assert cast_of_all.topology(cast(TopologyName, name)) is topology
    assert cast_of_all.machines == {"subject": SUBJECT, "peer": PEER, "origin": ORIGIN}
    assert kinds["cluster"].carriers == (SUBJECT, SLAVE)
    assert kinds["pair"].carriers == (SUBJECT,)


def test_jobs_on_clusters_are_scaled_by_the_slaves() -> None:
    workload = WORKLOADS["wordcount"]
    whole, each = (workload.parameters.model_validate({"per_slave": says}) for says in (0, 1))
    cluster = formed()["cluster"]
    assert cluster.parameters(workload, whole) == whole
    assert cluster.parameters(workload, each) == workload.on_slaves(each, 3) != each


@pytest.mark.parametrize(
    ("name", "lacks"), [("net-stream", "peer"), ("proxy", "peer"), ("wordcount", "cluster")]
)
async def test_work_whose_machines_are_missing_fails_with_the_reason(name: str, lacks: str) -> None:
    workload = WORKLOADS[name]
    topology = Roles(SUBJECT).topology(workload.topology)
    assert isinstance(topology, MissingTopology)
    with pytest.raises(WorkloadFault, match=f"{name} needs a {lacks}, and there is none"):
        await topology.run(work(workload))


@pytest.mark.parametrize("name", ["pair", "proxied", "cluster"])
async def test_a_workload_that_does_not_describe_its_topology_fails(name: str) -> None:
    workload = WORKLOADS["numeric-sort"]
    with pytest.raises(WorkloadFault, match="has the topology single, whose work is of the type"):
        await formed()[name].run(work(workload))
