"""Results of the agent for each workload, and the values that follow: the material of its tests.

Each sample is a whole result built from one number, in the agent's form for the sample's
parameters, with the values that must be read from it. Tests for all workloads can therefore take
any number out, put anything in its place, and know what to expect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tare.workloads import WORKLOADS, Parameters
from tare.workloads.applications.programs import PROGRAMS
from tare.workloads.applications.self_measured import Scimark
from tare.workloads.cpu.bytemark import INDICES, REFERENCE_RATES
from tare.workloads.cpu.exits import OPERATIONS as LEAVING
from tare.workloads.cpu.exits import Exits
from tare.workloads.disk.bonnie import PHASES
from tare.workloads.disk.filebench import OPERATIONS
from tare.workloads.disk.metrics import DISK_METRICS
from tare.workloads.memory.latency import STATED

Result = dict[str, Any]
Values = dict[str, float]

KERNELS = [
    f"{kernel}-{kind}" for kernel in ("copy", "scale", "add", "triad") for kind in ("u64", "f64")
]
DISK = (
    "read_bytes_per_s", "write_bytes_per_s", "reads_per_s", "writes_per_s", "merged_per_s",
    "flushes_per_s", "queue", "wait_s", "utilisation",
)  # fmt: skip
TIMES = ("wall_s", "cpu_s", "system_s", "max_rss_bytes")


@dataclass(frozen=True)
class Sample:
    """What one workload's result looks like.

    Args:
        result: A number to the agent's whole result.
        values: The same number to what differs from it among the metrics' values.
        parameters: Those that have no default.
        least: The least number that the result can tell exactly enough.
        most: The greatest.
        close: By how much, relatively, a value may differ, where a program writes decimals.
        left_out: Metrics whose value does not follow from this number alone.
        lacking: Metrics that a cell with this result rightly has no value of.
    """

    result: Callable[[float], Result]
    values: Callable[[float], Values] = field(default=lambda _: {})
    parameters: Mapping[str, Any] = field(default_factory=dict)
    least: float = 1e-12
    most: float = 1e12
    close: float = 1e-12
    left_out: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()

    def expected(self, name: str, number: float) -> Values:
        """Return the value of each metric of the workload called ``name``."""
        plain = {metric.name: number for metric in WORKLOADS[name].metrics}
        return {
            metric: value
            for metric, value in (plain | self.values(number)).items()
            if metric not in self.left_out | self.lacking
        }


def parameters_of(name: str) -> Parameters:
    """Return the parameters of ``name``: the defaults, and what has none."""
    parameters: type[Parameters] = WORKLOADS[name].parameters
    return parameters.model_validate(dict(SAMPLES[name].parameters))


def result_of(name: str, number: float) -> Result:
    """Return a result of ``name`` in which every number that counts is ``number``."""
    return SAMPLES[name].result(number)


def _tick(number: float) -> Result:
    keys = (
        "slowdown", "excess_max_s", "stolen_share", "undisturbed_s", "duration_min_s",
        "duration_max_s", "samples_per_s", "gaps", "seconds", "loop_rate", "counter_step_s",
    )  # fmt: skip
    tails = ("median_s", "p99_s", "p999_s", "p9999_s")
    return dict.fromkeys(keys, number) | {"duration": dict.fromkeys(tails, number)}


def _switch(number: float) -> Result:
    tails = dict.fromkeys(("median_s", "p99_s", "p999_s"), number)
    return {"switch_min_s": number, "switch_max_s": number, "switch": tails}


def _wakeup(number: float) -> Result:
    tails = dict.fromkeys(("median_s", "p99_s", "p999_s"), number)
    return {"wakeup_min_s": number, "wakeup_max_s": number, "wakeup": tails}


def _times(number: float) -> Result:
    checks = [{"path": "/tmp/tare-text.txt", "bytes": 5, "sha256": "0" * 64, "verified": True}]
    return {**dict.fromkeys(TIMES, number), "checks": checks}


def _disk(number: float) -> Result:
    return {"disk": dict.fromkeys(DISK, number)}


def _filebench(number: float) -> Result:
    rates = ("operations_per_s", "bytes_per_s", "read_bytes_per_s", "written_bytes_per_s")
    latency = ("mean_s", "median_s", "p99_s", "p999_s", "max_s")
    each = {"median_s": number, "p99_s": number}
    return {
        **dict.fromkeys(rates, number),
        "latency": dict.fromkeys(latency, number),
        "by_operation": {operation: dict(each) for operation in OPERATIONS},
        **_disk(number),
    }


def _fio(number: float) -> Result:
    latency = {
        "mean": number,
        "max": number,
        "percentile": dict.fromkeys(("50.000000", "99.000000", "99.900000"), number),
    }
    direction = {
        "total_ios": number,
        "io_bytes": number,
        "bw_bytes": number,
        "iops": number,
        "clat_ns": latency,
    }
    job = {
        "error": 0,
        "read": direction,
        "write": json.loads(json.dumps(direction)),
        "sync": {"total_ios": number, "lat_ns": {"mean": number, "max": number}},
        "usr_cpu": number,
        "sys_cpu": number,
    }
    return {"fio": {"jobs": [job]}, **_disk(number)}


def _fio_values(number: float) -> Values:
    latencies = {
        metric.name: number * 1e-9
        for metric in WORKLOADS["fio"].metrics
        if "-latency-" in metric.name
    }
    return latencies | {"rate": 2 * number, "operations": 2 * number, "cpu": 2 * number / 100}


def _bonnie(number: float) -> Result:
    row = ["1.98", "2.00a", "tare", *["1"] * 47]
    for index in range(len(PHASES)):
        # Rates of bytes, seeks and rates of files are next to their shares of a CPU.
        at = 9 + 2 * index if index < 6 else 26 + 2 * (index - 6)
        row[at] = row[at + 1] = _decimal(number)
        row[38 + index] = f"{_decimal(number)}us"
    return {"output": f"Writing a byte at a time...done\n{','.join(row)}\n", **_disk(number)}


def _bonnie_values(number: float) -> Values:
    factors = {metric.name: 1.0 for metric in WORKLOADS["bonnie"].metrics}
    for metric in WORKLOADS["bonnie"].metrics:
        if metric.name in {disk.name for disk in DISK_METRICS}:
            continue
        if metric.name.endswith("-cpu"):
            factors[metric.name] = 0.01
        elif metric.name.endswith("-latency"):
            factors[metric.name] = 1e-6
        elif metric.unit == "B/s":
            factors[metric.name] = 1024.0
    return {name: number * factor for name, factor in factors.items()}


def _decimal(number: float) -> str:
    return f"{number:.9f}" if isinstance(number, float) else str(number)


def _openssl(number: float) -> Result:
    output = f"type         16384 bytes\nAES-128-CBC     {_decimal(number)}k\n"
    return {"output": output, **_times(number)}


SCIMARK_NAMES = {
    "composite": "Composite Score", "fft": "FFT (1024)", "sor": "SOR (100x100)",
    "monte-carlo": "Monte Carlo ", "sparse": "Sparse matmult (N=1000, nz=5000)",
    "lu": "LU (100x100)",
}  # fmt: skip


def _scimark(number: float) -> Result:
    lines = [f"{name}: {_decimal(number)}" for name in SCIMARK_NAMES.values()]
    output = "\nSciMark 2.0a\n\n" + "\n".join(lines) + "\n\njava.vendor: Debian\n"
    return {"output": output, **_times(number)}


def _iperf(number: float) -> Result:
    end = {
        "sum_sent": {"bits_per_second": 1.0, "retransmits": number},
        "sum_received": {"bits_per_second": number},
        "cpu_utilization_percent": {"host_total": 10.0, "remote_total": number},
    }
    return {"output": json.dumps({"start": {}, "intervals": [], "end": end})}


def _exchange(number: float) -> Result:
    tails = ("median_s", "p99_s", "p999_s", "max_s")
    return {
        "exchanges_per_s": number,
        "exchange": dict.fromkeys(tails, number),
        "connect": {"median_s": number},
    }


def _http(number: float) -> Result:
    tails = ("median_s", "p99_s", "p999_s", "max_s")
    return {
        "requests_per_s": number,
        "bytes_per_s": number,
        "total": dict.fromkeys(tails, number),
        "first_byte": {"median_s": number},
        "failed_share": number,
    }


def _proxy(number: float) -> Result:
    load = {
        **dict.fromkeys(("requests_per_s", "connections_per_s", "bytes_per_s"), number),
        **dict.fromkeys(("connections_used", "failed_share"), number),
        "total": dict.fromkeys(("median_s", "p99_s"), number),
    }
    stages = ("at-50", "at-70", "at-90", "offered", "probe", "full")
    packets = ("packets-in", "packets-out", "packet-in", "packet-out")
    return {
        "stages": {stage: json.loads(json.dumps(load)) for stage in stages},
        "direct_per_s": number,
        "straight_per_s": number,
        "tls": {"resumed": number, "handshake": {"count": 1}},
        "account": {"owned": number, "machine_s": number},
        "limits": [],
        "packets": dict.fromkeys(packets, number),
    }


PROXY_LIMITED = frozenset({"requests-at-least", "bandwidth-at-least"})
"""Observed only if client or origin were the limit."""


def _phases(number: float) -> Result:
    done = {"name": "cpu-load", "begin_s": 3.0, "end_s": 13.0, "result": {"operations": number}}
    copied = {**done, "name": "memory-load", "result": {"bytes_per_s": number}}
    return {"seconds": 26.0, "asked": 2, "phases": [done, copied], "warnings": []}


UNKNOWN_TO_SPARK = ("hdfs_read_bytes", "local_read_bytes", "hdfs_written_bytes")


def _job(number: float) -> Result:
    counters = ("gc_ms", "cpu_ms", "spilled", "local_written_bytes", "shuffled_bytes")
    fields: Result = {"delay_s": number, "jobs": ["job_1_1"]}
    fields["counters"] = dict.fromkeys(counters, number) | dict.fromkeys(UNKNOWN_TO_SPARK, 0.0)
    fields["counters"] |= {"hdfs_read_bytes": number}
    fields["phases"] = dict.fromkeys(("map", "shuffle", "sort", "reduce"), number)
    return {"took_s": number, "job": fields, "output": ""}


def _cluster(*steps: str) -> Callable[[float], Result]:
    return lambda number: {
        "steps": {step: _job(number) for step in steps},
        "written_bytes": number,
        "replication": number,
    }


def _spark(step: str) -> Callable[[float], Result]:
    def result(number: float) -> Result:
        made = _cluster(step)(number)
        for name in ("spilled", *UNKNOWN_TO_SPARK):
            del made["steps"][step]["job"]["counters"][name]
        return made

    return result


def _dfsio(number: float) -> Result:
    output = f"Throughput mb/sec: {number!r}\nAverage IO rate mb/sec: {number!r}\n"
    step = {**_job(number), "output": f"{output}IO rate std deviation: {number!r}\n"}
    return {**_cluster()(number), "steps": {"write": step, "read": step}}


def _milliseconds(*steps: str, rates: bool = False) -> Callable[[float], Values]:
    factors = {f"{step}-{name}": 1e-3 for step in steps for name in ("gc", "cpu")}
    names = ("throughput", "rate", "deviation") if rates else ()
    factors |= {f"{step}-{name}": float(1 << 20) for step in steps for name in names}
    return _times_and(factors)


def _program(parameters: Mapping[str, Any] | None = None, amount: float = 1.0) -> Sample:
    """A program's result: a rate is what it does by the time that it took."""
    return Sample(_times, lambda number: {"rate": amount / number}, parameters or {})


def _command(number: float) -> Result:
    return {"output": "", "user_s": number, **_times(number)}


def _times_and(factors: Mapping[str, float]) -> Callable[[float], Values]:
    return lambda number: {name: number * factor for name, factor in factors.items()}


SAMPLES: Mapping[str, Sample] = {
    # Gaps and seconds are the same number.
    "tick": Sample(_tick, lambda _: {"gap-rate": 1.0}, least=1.0),
    "switch": Sample(_switch),
    "wakeup": Sample(_wakeup),
    "memory-bandwidth": Sample(
        lambda number: {"bandwidth": {name: {"median_bytes_per_s": number} for name in KERNELS}}
    ),
    "memory-latency": Sample(
        lambda number: {"latency": {str(size): {"median_s": number} for size in STATED}}
    ),
    "bytemark": Sample(
        lambda number: {
            "kernels": {kernel: {"iterations_per_s": number} for kernel in REFERENCE_RATES}
        },
        # test_the_reference_rates_have_an_index_of_one and its neighbour hold these.
        left_out=frozenset(INDICES),
    ),
    **{kernel: Sample(lambda number: {"iterations_per_s": number}) for kernel in REFERENCE_RATES},
    "exits": Sample(
        lambda number: {
            "done": dict.fromkeys(LEAVING, 1000),
            "seconds": dict.fromkeys(LEAVING, number),
        },
        lambda number: {metric.name: number / 1000 for metric in Exits.metrics},
        dict.fromkeys(LEAVING, 1000),
    ),
    "filebench": Sample(_filebench),
    "fio": Sample(_fio, _fio_values),
    "bonnie": Sample(_bonnie, _bonnie_values, least=1.0, close=1e-6),
    **{program.name: _program(amount=program.amount) for program in PROGRAMS},
    "openssl-aes": Sample(_openssl, _times_and({"rate": 1000.0}), least=1.0, close=1e-6),
    "scimark": Sample(
        _scimark, _times_and(dict.fromkeys(Scimark.kernels, 1e6)), least=1.0, close=1e-6
    ),
    "kernel-compile": _program(),
    "net-stream": Sample(_iperf, _times_and({"bandwidth": 1 / 8, "machine-cpu": 0.01})),
    "request-response": Sample(_exchange),
    "connect-request-response": Sample(_exchange),
    "packet-rate": Sample(
        lambda number: {"sent_per_s": number, "server": {"packets_per_s": number}}
    ),
    "http-load": Sample(_http),
    "proxy": Sample(_proxy, lacking=PROXY_LIMITED),
    "dfsio": Sample(_dfsio, _milliseconds("write", "read", rates=True)),
    "terasort": Sample(_cluster("generate", "sort", "validate"), _milliseconds("generate", "sort")),
    "wordcount": Sample(_cluster("count"), _milliseconds("count")),
    "kmeans": Sample(_cluster("cluster"), lambda n: {**_milliseconds("cluster")(n), "jobs": 1}),
    "aggregate": Sample(_cluster("query"), _milliseconds("query")),
    "join": Sample(_spark("query"), _milliseconds("query")),
    "program": _program({"argv": ["true"]}),
    "command": Sample(_command, parameters={"argv": ["true"]}),
    "cpu-load": Sample(lambda number: {"operations_per_s": number}),
    "memory-load": Sample(lambda number: {"bytes_per_s": number}),
    "disk-load": Sample(lambda number: {"bytes_per_s": number}),
    "net-load": Sample(lambda number: {"bytes_per_s": number}),
    "phased-load": Sample(_phases, lambda _: {"phases": 2.0}),
}
"""A sample result of the agent for each workload."""


def places(given_value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to everything within ``given_value``, keys and positions, outer ones first."""
    items: list[tuple[Any, Any]] = []
    if isinstance(given_value, dict):
        items = list(given_value.items())
    elif isinstance(given_value, list):
        items = list(enumerate(given_value))
    found: list[tuple[Any, ...]] = []
    for key, inner in items:
        found += [(*before, key), *places(inner, (*before, key))]
    return found


def changed(given_value: Any, place: tuple[Any, ...], put: Any) -> Any:
    """Return a copy of ``given_value`` with something else at ``place``."""
    return _with(given_value, place, lambda holder, key: holder.__setitem__(key, put))


def without(given_value: Any, place: tuple[Any, ...]) -> Any:
    """Return a copy of ``given_value`` that lacks what is at ``place``."""
    return _with(given_value, place, lambda holder, key: holder.__delitem__(key))


def _with(given_value: Any, place: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    copy = _copied(given_value)
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    change(holder, place[-1])
    return copy


def _copied(given_value: Any) -> Any:
    if isinstance(given_value, dict):
        return {key: _copied(inner) for key, inner in given_value.items()}
    return (
        [_copied(inner) for inner in given_value] if isinstance(given_value, list) else given_value
    )
