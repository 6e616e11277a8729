"""The workloads, one file each; `WORKLOADS` lists them all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tare.events.metric import Better, Kind
from tare.workloads.applications.command import Command
from tare.workloads.applications.kernel_compile import KernelCompile
from tare.workloads.applications.program import Program
from tare.workloads.applications.programs import PROGRAMS
from tare.workloads.applications.self_measured import OpensslAes, Scimark
from tare.workloads.contract import MachineFacts, Metric, Parameters, Workload, fitted
from tare.workloads.cpu.bytemark import KERNELS, Bytemark
from tare.workloads.cpu.exits import Exits
from tare.workloads.disk.bonnie import Bonnie
from tare.workloads.disk.filebench import Filebench
from tare.workloads.disk.fio import Fio
from tare.workloads.loads import CpuLoad, DiskLoad, MemoryLoad, NetLoad, PhasedLoad
from tare.workloads.mapreduce.dfsio import Dfsio
from tare.workloads.mapreduce.kmeans import Kmeans
from tare.workloads.mapreduce.queries import Aggregate, Join
from tare.workloads.mapreduce.terasort import Terasort
from tare.workloads.mapreduce.wordcount import Wordcount
from tare.workloads.memory.bandwidth import MemoryBandwidth
from tare.workloads.memory.latency import MemoryLatency
from tare.workloads.network.exchange import ConnectRequestResponse, RequestResponse
from tare.workloads.network.http import HttpLoad
from tare.workloads.network.packet_rate import PacketRate
from tare.workloads.network.proxy.workload import Proxy
from tare.workloads.network.stream import NetStream
from tare.workloads.realtime.switch import Switch
from tare.workloads.realtime.tick import Tick
from tare.workloads.realtime.wakeup import Wakeup

OWN: tuple[Workload[Any], ...] = (
    Tick(),
    Switch(),
    Wakeup(),
    MemoryBandwidth(),
    MemoryLatency(),
    Bytemark(),
    *KERNELS,
    Exits(),
    Filebench(),
    Fio(),
    Bonnie(),
    *PROGRAMS,
    OpensslAes(),
    Scimark(),
    KernelCompile(),
    NetStream(),
    RequestResponse(),
    ConnectRequestResponse(),
    PacketRate(),
    HttpLoad(),
    Proxy(),
    Dfsio(),
    Terasort(),
    Wordcount(),
    Kmeans(),
    Aggregate(),
    Join(),
    Program(),
    Command(),
    CpuLoad(),
    MemoryLoad(),
    DiskLoad(),
    NetLoad(),
    PhasedLoad(),
)

WORKLOADS: Mapping[str, Workload[Any]] = MappingProxyType(
    {workload.name: workload for workload in OWN}
)
"""All workloads by name, in the order of reports."""

__all__ = [
    "WORKLOADS",
    "Better",
    "Kind",
    "MachineFacts",
    "Metric",
    "Parameters",
    "Workload",
    "fitted",
]
