"""The computer that runs an arm's machines, as each hypervisor's API reports it.

Each has another topology than the test's computer: more CPUs or fewer, several threads of a core,
two sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from platforms.test_vendor_presence import PRODUCTS, Product
from tare.hosts import Host
from tare.platforms.contract import Carrier, Context
from tare.platforms.incus.server import Server as IncusServer
from tare.platforms.incus.session import IncusSession
from tare.platforms.libvirt.connection import cpus_in
from tare.platforms.libvirt.platform import carrier_of
from tare.study.planning.host_cpus import HostCpus

GIB = 1 << 30


@dataclass(frozen=True)
class Computer:
    """A computer: threads, cores, sockets, NUMA nodes, and memory in GiB."""

    threads: int
    cores: int
    sockets: int
    nodes: int
    memory: int

    @property
    def node_of(self) -> dict[int, int]:
        return {cpu: cpu * self.nodes // self.threads for cpu in range(self.threads)}


COMPUTERS = {
    "more, SMT, two sockets": Computer(96, 48, 2, 2, 256),
    "fewer": Computer(1, 1, 1, 1, 4),
    "SMT": Computer(4, 2, 1, 1, 16),
    "two sockets": Computer(24, 24, 2, 2, 64),
}


def of_proxmox(server: Any, like: Computer) -> None:
    server.cpus, server.sockets = like.threads, like.sockets
    server.threads = like.threads // like.cores
    server.memory = {"total": like.memory * GIB, "used": GIB}


def of_xen(server: Any, like: Computer) -> None:
    server.objects["host"][server.host]["cpu_info"] = {
        "cpu_count": str(like.threads),
        "socket_count": str(like.sockets),
        "modelname": "A CPU",
    }
    memory = {"memory_total": str(like.memory * GIB), "memory_free": str((like.memory - 1) * GIB)}
    server.objects["host_metrics"][server.host_metrics].update(memory)


def of_ovirt(server: Any, like: Computer) -> None:
    types, (host,) = server.types, server.there["hosts"]
    topology = types.CpuTopology(
        sockets=like.sockets,
        cores=like.cores // like.sockets,
        threads=like.threads // like.cores,
    )
    host.cpu = types.Cpu(name="A CPU", topology=topology)
    host.memory, host.max_scheduling_memory = like.memory * GIB, (like.memory - 1) * GIB
    server.nodes = [
        types.NumaNode(
            id=str(number),
            index=number,
            memory=like.memory * 1024 // like.nodes,
            cpu=types.Cpu(
                cores=[types.Core(index=cpu) for cpu, own in like.node_of.items() if own == number]
            ),
        )
        for number in range(like.nodes)
    ]


def of_hyperv(server: Any, like: Computer) -> None:
    host = server.host
    host.hardware |= {"LogicalProcessorCount": like.threads, "MemoryCapacity": like.memory * GIB}
    host.sockets, host.cores, host.nodes = like.sockets, like.cores, like.nodes


CHANGES: dict[str, tuple[Callable[[Any, Computer], None], bool, bool]] = {
    # By whether the API reports cores, and NUMA nodes.
    "proxmox": (of_proxmox, True, False),
    "xenserver": (of_xen, False, False),
    "ovirt": (of_ovirt, True, True),
    "hyperv": (of_hyperv, True, True),
}


@pytest.mark.parametrize("computer", COMPUTERS)
@pytest.mark.parametrize("name", CHANGES)
async def test_a_product_reports_the_computer_that_runs_its_vms(
    name: str, computer: str, tmp_path: Path, context: Context
) -> None:
    product: Product = PRODUCTS[name]
    pytest.importorskip(product.module)
    like, (change, has_cores, has_nodes) = COMPUTERS[computer], CHANGES[name]
    server = product.server(tmp_path)
    change(server, like)
    server.start()
    try:
        options = product.options(server)
        verdict = await product.platform.check(context, options)
    finally:
        server.stop()
    assert verdict.usable, verdict.reason
    carrier = verdict.carrier
    assert carrier is not None and not carrier.is_host
    assert carrier.cpus.online == tuple(range(like.threads))
    assert carrier.cores == (like.cores if has_cores else 0)
    assert (carrier.sockets, carrier.memory) == (like.sockets, like.memory * GIB)
    assert carrier.free is not None and like.memory // 2 * GIB <= carrier.free < carrier.memory
    assert dict(carrier.cpus.nodes) == (like.node_of if has_nodes else {})
    assert verdict.shown["runs on"] == f"{carrier.name}: {carrier.words}"
    assert verdict.capabilities.max_vcpus == min(
        like.threads, 64 if name == "hyperv" else like.threads
    )


# vSphere


def esxi_host(like: Computer) -> Any:
    host = pytest.importorskip("pyVmomi").vim.host
    own = {
        node: [cpu for cpu, n in like.node_of.items() if n == node] for node in range(like.nodes)
    }
    packages = [
        range(number * like.threads // like.sockets, (number + 1) * like.threads // like.sockets)
        for number in range(like.sockets)
    ]
    return SimpleNamespace(
        name="esx1",
        hardware=host.HardwareInfo(
            cpuInfo=host.CpuInfo(
                numCpuPackages=like.sockets,
                numCpuCores=like.cores,
                numCpuThreads=like.threads,
                hz=1,
            ),
            cpuPkg=[
                host.CpuPackage(index=number, threadId=list(package))
                for number, package in enumerate(packages)
            ],
            # The API lists them in descending order.
            numaInfo=host.NumaInfo(
                type="NUMA",
                numNodes=like.nodes,
                numaNode=[host.NumaNode(typeId=node, cpuID=own[node][::-1]) for node in own],
            ),
            memorySize=like.memory * GIB,
        ),
        summary=SimpleNamespace(quickStats=SimpleNamespace(overallMemoryUsage=1024)),
    )


@pytest.mark.parametrize("computer", COMPUTERS)
def test_esxi_reports_cores_packages_and_nodes(computer: str) -> None:
    from tare.platforms.vsphere.esxi_host import carrier_of as of_esxi

    like = COMPUTERS[computer]
    carrier = of_esxi(esxi_host(like))
    assert len(carrier.cpus.online) == like.threads
    assert (carrier.cores, carrier.sockets) == (like.cores, like.sockets)
    assert (carrier.memory, carrier.free) == (like.memory * GIB, (like.memory - 1) * GIB)
    assert dict(carrier.cpus.nodes) == like.node_of
    assert len(set(carrier.cpus.packages.values())) == like.sockets
    if like.threads == 2 * like.cores:
        assert carrier.cpus.core(1) == {0, 1} and carrier.cpus.core(2) == {2, 3}


def test_processors_of_a_vsphere_arm_are_those_that_machines_run_on() -> None:
    from tare.platforms.vsphere.esxi_host import carrier_of as of_esxi

    cpus = of_esxi(esxi_host(COMPUTERS["SMT"]), (3, 1)).cpus
    assert (cpus.machines, cpus.within, len(cpus.online)) == ((1, 3), (1, 3), 4)


# Incus and libvirt


def resources(like: Computer) -> dict[str, Any]:
    """Return what ``GET /1.0/resources`` answers; siblings are numbered as Linux often does."""
    sockets: list[dict[str, Any]] = [{"socket": n, "cores": []} for n in range(like.sockets)]
    for core in range(like.cores):
        threads = [
            {"id": cpu, "numa_node": like.node_of[cpu], "online": True, "isolated": False}
            for cpu in range(
                core * like.threads // like.cores, (core + 1) * like.threads // like.cores
            )
        ]
        sockets[core * like.sockets // like.cores]["cores"].append({"threads": threads})
    return {
        "cpu": {"sockets": sockets, "total": like.threads},
        "memory": {"total": like.memory * GIB, "used": GIB, "nodes": []},
    }


def at_incus(like: Computer, host: object = None) -> IncusServer:
    async def ask(method: str, path: str) -> Any:
        assert (method, path) == ("GET", "/1.0/resources")
        return resources(like)

    played = SimpleNamespace(name="incus1", host=host, ask=ask)
    return IncusServer(cast(IncusSession, played))


@pytest.mark.parametrize("computer", COMPUTERS)
async def test_incus_reports_the_computer_that_runs_its_instances(computer: str) -> None:
    like = COMPUTERS[computer]
    carrier = await at_incus(like).carrier()
    assert carrier is not None and not carrier.is_host
    assert len(carrier.cpus.online) == like.threads
    assert (carrier.cores, carrier.sockets) == (like.cores, like.sockets)
    assert (carrier.memory, carrier.free) == (like.memory * GIB, (like.memory - 1) * GIB)
    assert dict(carrier.cpus.nodes) == like.node_of


def host_with(online: tuple[int, ...]) -> Host:
    topology = HostCpus(online, isolated=frozenset(online[-1:]))
    return cast(Host, SimpleNamespace(name="kvm1", topology=lambda: topology))


async def test_a_server_of_the_host_is_asked_only_where_tare_has_other_cpus() -> None:
    like = COMPUTERS["SMT"]
    assert await at_incus(like, host_with((0, 1, 2, 3))).carrier() is None
    carrier = await at_incus(like, host_with((0,))).carrier()
    assert carrier is not None and carrier.is_host and carrier.free is None
    assert carrier.cpus.online == (0, 1, 2, 3)


CELL = """<cell id='{node}'><memory unit='KiB'>{memory}</memory><cpus num='2'>
<cpu id='{first}' socket_id='{node}' core_id='0' siblings='{first},{second}'/>
<cpu id='{second}' socket_id='{node}' core_id='0' siblings='{first},{second}'/>{more}
</cpus></cell>"""


def test_libvirt_reports_the_host_where_tare_is_confined_to_some_of_its_cpus() -> None:
    cells = CELL.format(node=0, memory=4 << 20, first=0, second=2, more="<cpu id='8'/>")
    cells += CELL.format(node=1, memory=2 << 20, first=1, second=3, more="")
    xml = f"<capabilities><host><topology><cells>{cells}</cells></topology></host></capabilities>"
    cpus = cpus_in(xml)
    # The offline CPU 8 is left out.
    assert cpus.online == (0, 1, 2, 3)
    assert cpus.core(0) == {0, 2} and dict(cpus.nodes) == {0: 0, 2: 0, 1: 1, 3: 1}
    carrier = carrier_of(host_with((0,)), cpus)
    assert isinstance(carrier, Carrier) and carrier.is_host
    assert carrier.words == "4 CPUs on 2 cores in 2 sockets, 2 NUMA nodes, 6 GiB of memory"
    assert carrier.cpus.isolated == {0}
    assert carrier_of(host_with((0, 1, 2, 3)), cpus) is None


async def test_libvirts_own_driver_reports_its_cpus() -> None:
    pytest.importorskip("libvirt")
    from tare.platforms.libvirt.connection import Connection

    connection = Connection("test:///default", "test")
    await connection.open()
    try:
        cpus = await connection.host_cpus()
    finally:
        await connection.close()
    assert len(cpus.online) == 16 and set(cpus.nodes.values()) == {0, 1}
    assert dict(cpus.memory) == {0: 2 * GIB, 1: 4 * GIB}
