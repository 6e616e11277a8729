"""What can be measured, one file each; `WORKLOADS` names them all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tare.workloads.applications import PROGRAMS, OpensslAes, Scimark
from tare.workloads.base import Better, Kind, Metric, Parameters, Workload
from tare.workloads.bonnie import Bonnie
from tare.workloads.bytemark import KERNELS, Bytemark
from tare.workloads.filebench import Filebench
from tare.workloads.fio import Fio
from tare.workloads.http_load import HttpLoad
from tare.workloads.kernel_compile import KernelCompile
from tare.workloads.loads import CpuLoad, DiskLoad, MemoryLoad, PhasedLoad
from tare.workloads.machine import MachineFacts, agent_name, ending, fitted
from tare.workloads.memory_bandwidth import MemoryBandwidth
from tare.workloads.memory_latency import MemoryLatency
from tare.workloads.net_exchange import ConnectRequestResponse, RequestResponse
from tare.workloads.net_load import NetLoad
from tare.workloads.net_stream import NetStream
from tare.workloads.packet_rate import PacketRate
from tare.workloads.program import Program
from tare.workloads.switch import Switch
from tare.workloads.tick import Tick

_ALL: tuple[Workload, ...] = (
    Tick(),
    Switch(),
    MemoryBandwidth(),
    MemoryLatency(),
    Bytemark(),
    *KERNELS,
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
    Program(),
    CpuLoad(),
    MemoryLoad(),
    DiskLoad(),
    NetLoad(),
    PhasedLoad(),
)

WORKLOADS: Mapping[str, Workload] = MappingProxyType({workload.name: workload for workload in _ALL})
"""Every workload by its name, in the order in which reports show them."""

__all__ = [
    "WORKLOADS",
    "Better",
    "Kind",
    "MachineFacts",
    "Metric",
    "Parameters",
    "Workload",
    "agent_name",
    "ending",
    "fitted",
]
