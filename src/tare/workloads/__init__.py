"""The workloads, one file each; `OWN` lists where each is, in the order of reports."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tare.events.metric import Better, Kind
from tare.workloads.contract import MachineFacts, Metric, Parameters, Workload, fitted

_BYTEMARK = "tare.workloads.cpu.bytemark:KERNELS"
_PROGRAMS = "tare.workloads.applications.programs:PROGRAMS"

OWN: Mapping[str, str] = MappingProxyType(
    {
        "tick": "tare.workloads.realtime.tick:Tick",
        "switch": "tare.workloads.realtime.switch:Switch",
        "wakeup": "tare.workloads.realtime.wakeup:Wakeup",
        "memory-bandwidth": "tare.workloads.memory.bandwidth:MemoryBandwidth",
        "memory-latency": "tare.workloads.memory.latency:MemoryLatency",
        "bytemark": "tare.workloads.cpu.bytemark:Bytemark",
        "numeric-sort": _BYTEMARK,
        "string-sort": _BYTEMARK,
        "bitfield": _BYTEMARK,
        "fp-emulation": _BYTEMARK,
        "fourier": _BYTEMARK,
        "assignment": _BYTEMARK,
        "idea": _BYTEMARK,
        "huffman": _BYTEMARK,
        "neural-net": _BYTEMARK,
        "lu": _BYTEMARK,
        "exits": "tare.workloads.cpu.exits:Exits",
        "filebench": "tare.workloads.disk.filebench:Filebench",
        "fio": "tare.workloads.disk.fio:Fio",
        "bonnie": "tare.workloads.disk.bonnie:Bonnie",
        "gnugo": _PROGRAMS,
        "oggenc": _PROGRAMS,
        "bzip2-compress": _PROGRAMS,
        "bzip2-decompress": _PROGRAMS,
        "tidy": _PROGRAMS,
        "dcraw": _PROGRAMS,
        "povray": _PROGRAMS,
        "openssl-aes": "tare.workloads.applications.self_measured:OpensslAes",
        "scimark": "tare.workloads.applications.self_measured:Scimark",
        "kernel-compile": "tare.workloads.applications.kernel_compile:KernelCompile",
        "net-stream": "tare.workloads.network.stream:NetStream",
        "request-response": "tare.workloads.network.exchange:RequestResponse",
        "connect-request-response": "tare.workloads.network.exchange:ConnectRequestResponse",
        "packet-rate": "tare.workloads.network.packet_rate:PacketRate",
        "http-load": "tare.workloads.network.http:HttpLoad",
        "proxy": "tare.workloads.network.proxy.workload:Proxy",
        "dfsio": "tare.workloads.mapreduce.dfsio:Dfsio",
        "terasort": "tare.workloads.mapreduce.terasort:Terasort",
        "wordcount": "tare.workloads.mapreduce.wordcount:Wordcount",
        "kmeans": "tare.workloads.mapreduce.kmeans:Kmeans",
        "aggregate": "tare.workloads.mapreduce.queries:Aggregate",
        "join": "tare.workloads.mapreduce.queries:Join",
        "program": "tare.workloads.applications.program:Program",
        "command": "tare.workloads.applications.command:Command",
        "cpu-load": "tare.workloads.loads:CpuLoad",
        "memory-load": "tare.workloads.loads:MemoryLoad",
        "disk-load": "tare.workloads.loads:DiskLoad",
        "net-load": "tare.workloads.loads:NetLoad",
        "phased-load": "tare.workloads.loads:PhasedLoad",
    }
)
"""Maps each workload's name to its class or to a tuple of workloads, as MODULE:NAME. Workloads that
a study does not name are not loaded."""

if TYPE_CHECKING:
    WORKLOADS: Mapping[str, Workload[Any]]
    """All workloads by name, in the order of reports; they are loaded at the first use."""

__all__ = [
    "OWN",
    "WORKLOADS",
    "Better",
    "Kind",
    "MachineFacts",
    "Metric",
    "Parameters",
    "Workload",
    "fitted",
]


def __getattr__(name: str) -> Any:
    if name != "WORKLOADS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = {workload: _load(workload, place) for workload, place in OWN.items()}
    globals()[name] = MappingProxyType(found)
    return globals()[name]


def _load(name: str, place: str) -> Workload[Any]:
    brought = resolve_name(place)
    if isinstance(brought, tuple):
        return next(workload for workload in brought if workload.name == name)
    workload: Workload[Any] = brought()
    return workload
