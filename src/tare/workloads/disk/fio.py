"""``fio``: run the real fio on the machine's own disk, and record the numbers that it reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from tare.units import Duration, Size
from tare.workloads.contract import NO_CLAIM, DiskClaim, Metric, Parameters, Workload
from tare.workloads.disk.metrics import DISK_METRICS, disk_values
from tare.workloads.values import finite, mapping, number, shortened

FOLDER = "/scratch/tare-files"
"""The path, for programs of the toolbox, of the folder that the agent makes for them."""
MODES: Mapping[str, str] = {
    "sequential-read": "read",
    "sequential-write": "write",
    "random-read": "randread",
    "random-write": "randwrite",
    "random-mixed": "randrw",
}
DIRECTIONS = {"read": "Read", "write": "Write"}
_LATENCIES: Mapping[str, tuple[tuple[str, ...], str, Literal["typical", "tail", "maximum"]]] = {
    "mean": (("mean",), "mean", "typical"),
    "median": (("percentile", "50.000000"), "median", "typical"),
    "p99": (("percentile", "99.000000"), "99th percentile", "tail"),
    "p999": (("percentile", "99.900000"), "99.9th percentile", "tail"),
    "maximum": (("max",), "maximum", "maximum"),
}
"""The keys of each latency under fio's ``clat_ns``, its words for a summary, and the metric's kind.
The names of percentiles contain a dot, so the keys are separate texts."""
TIMEOUT_FACTOR = 20.0
PREPARATION_S = 2.0
_WRITES_PER_S = 100e6
_PERCENT = 100.0
_NS = 1e-9


class FioParameters(Parameters):
    """Which I/O on how large files, for how long."""

    mode: Literal[
        "sequential-read", "sequential-write", "random-read", "random-write", "random-mixed"
    ] = Field(
        default="random-read",
        description="The kind of I/O; 70 % of `random-mixed` are reads.",
    )
    duration: Duration = Field(default=10.0, ge=1, le=86_400, description="How long.")
    io_size: Size = Field(
        default=4096, ge=512, le=64 << 20, description="Size of one read or write (fio's `bs`)."
    )
    depth: int = Field(
        default=1, ge=1, le=4096, description="Number of requests that each job keeps in flight."
    )
    jobs: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Number of identical threads, each on a file of its own.",
    )
    total: Size = Field(
        default=64 << 20,
        ge=1,
        description="Total size of all files, which are written completely before the measurement.",
    )
    direct: bool = Field(default=True, description="Bypass the page cache (O_DIRECT).")
    cached: bool = Field(
        default=False,
        description="Measure the page cache on purpose, with `direct: false`: writes may stay in "
        "it, and reads may come from it. Otherwise a cell is withheld if the disk did not move the "
        "bytes that fio reported.",
    )
    fsync: int = Field(
        default=0, ge=0, description="Sync the file after this number of writes; 0: never."
    )
    engine: Literal["auto", "psync", "libaio", "io_uring"] = Field(
        default="auto",
        description="How requests are made. `auto`: `psync` at depth 1, otherwise `libaio`.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> FioParameters:
        if self.depth > 1 and self.engine == "psync":
            raise ValueError("psync has one request in flight; use `engine: libaio` or `depth: 1`")
        if self.cached and self.direct:
            raise ValueError("cached needs `direct: false`: direct I/O bypasses the page cache")
        if self.direct and self.io_size % 512:
            raise ValueError("direct needs an io-size that is a multiple of 512")
        if self.total // self.jobs < self.io_size:
            raise ValueError("total must hold at least one I/O for each job")
        return self

    @property
    def file_bytes(self) -> int:
        """The size of each job's file in bytes, a multiple of the I/O size."""
        return self.total // self.jobs // self.io_size * self.io_size


class Fio(Workload[FioParameters]):
    """The program itself, with its own clock, histograms and percentiles."""

    name = "fio"
    resource = "disk"
    own_words = "fio"
    summary = (
        "fio's sequential and random reads and writes by block size, depth and fsync, on the "
        "machine's own disk; fio reports the numbers."
    )
    parameters = FioParameters
    needs = frozenset({"disk", "toolbox"})
    from_machine = ("memory_bytes",)
    metrics = (
        Metric("rate", "B/s", "higher", "Bytes read and written per second.", headline=True),
        Metric("operations", "1/s", "higher", "Reads and writes per second.", headline=True),
        *(
            Metric(f"{name}-rate", "B/s", "higher", f"{title} bandwidth, as fio reports it.")
            for name, title in DIRECTIONS.items()
        ),
        *(
            Metric(f"{name}-operations", "1/s", "higher", f"{title} operations per second.")
            for name, title in DIRECTIONS.items()
        ),
        *(
            Metric(
                f"{name}-latency-{label}",
                "s",
                "lower",
                f"{title} latency from submission to completion (fio's `clat`), {words}.",
                kind=kind,
            )
            for name, title in DIRECTIONS.items()
            for label, (_, words, kind) in _LATENCIES.items()
        ),
        Metric("sync-latency-mean", "s", "lower", "Mean time of a sync of the file."),
        Metric(
            "sync-latency-maximum", "s", "lower", "Longest time of a sync of the file.", "maximum"
        ),
        Metric("cpu", "1", "lower", "Share of a CPU that a job took, as user and system time."),
        *DISK_METRICS,
    )

    def request(self, parameters: FioParameters) -> dict[str, Any]:
        """Return the agent's parameters: fio's command lines."""
        argv = command(parameters)
        return {
            "argv": argv,
            "prepare": [[*argv, "--create_only=1"]],
            "bytes": parameters.file_bytes * parameters.jobs,
            "timeout_s": TIMEOUT_FACTOR * self.expected_s(parameters) + 30.0,
            "direct": parameters.direct,
            "times_memory": 1.0,
        }

    def expected_s(self, parameters: FioParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.duration + PREPARATION_S + parameters.total / _WRITES_PER_S

    def clocked_s(self, parameters: FioParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration

    def disk_claim(self, parameters: FioParameters, result: Mapping[str, Any]) -> DiskClaim:
        """Return the bytes that fio reports; no claim if the page cache is measured on purpose.

        Raises:
            KeyError: A value is missing.
            ValueError: A value is not a finite number.
        """
        if parameters.cached:
            return NO_CLAIM
        jobs = mapping(result, "fio")["jobs"]
        read, written = (number(jobs[0], f"{name}.io_bytes") for name in DIRECTIONS)
        return DiskClaim(read, written, "remove `direct: false`, or declare it with `cached: true`")

    def observe(self, parameters: FioParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return fio's own numbers in SI units; operations that it did not do are left out.

        Raises:
            KeyError: A value is missing.
            ValueError: fio reports an error, or a value is not a finite number.
        """
        return fio_values(mapping(result, "fio")) | disk_values(result)


def command(asked: FioParameters) -> list[str]:
    """Return fio's command line (source: the HOWTO of fio 3)."""
    engine = asked.engine
    if engine == "auto":
        engine = "psync" if asked.depth == 1 else "libaio"
    given = {
        "name": "tare",
        "directory": FOLDER,
        "rw": MODES[asked.mode],
        "bs": asked.io_size,
        "size": asked.file_bytes,
        "numjobs": asked.jobs,
        "ioengine": engine,
        "iodepth": asked.depth,
        "direct": int(asked.direct),
        "fsync": asked.fsync,
        "runtime": f"{max(1, round(asked.duration * 1000))}ms",
        # Writes use blocks that exist already, as reads do.
        "overwrite": 1,
        # Use the same random offsets in every arm.
        "randrepeat": 1,
        "allrandrepeat": 1,
        "percentile_list": "50:90:99:99.9:99.99",
        "output-format": "json+",
        "eta": "never",
    }
    flags = ["--thread", "--time_based", "--group_reporting"]
    if asked.mode == "random-mixed":
        flags.append("--rwmixread=70")
    if not asked.direct and asked.mode not in ("sequential-read", "random-read"):
        # Otherwise fio may end before the writes leave the page cache.
        flags.append("--end_fsync=1")
    return ["fio", *(f"--{name}={value}" for name, value in given.items()), *flags]


def fio_values(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics in fio's JSON report.

    Args:
        report: The report that ``--output-format=json+`` with ``--group_reporting`` wrote.

    Raises:
        KeyError: A value is missing.
        ValueError: fio reports an error or no work, or a value is not a finite number.
    """
    jobs = report["jobs"]
    if not isinstance(jobs, list) or not jobs or not isinstance(jobs[0], Mapping):
        raise ValueError("fio reported no job")
    job = jobs[0]
    if job.get("error"):
        raise ValueError(f"fio reported error {shortened(job['error'])}")
    found: dict[str, float] = {"rate": 0.0, "operations": 0.0}
    for name in DIRECTIONS:
        if not number(job, f"{name}.total_ios"):
            continue
        rate, operations = number(job, f"{name}.bw_bytes"), number(job, f"{name}.iops")
        found["rate"] += rate
        found["operations"] += operations
        found[f"{name}-rate"], found[f"{name}-operations"] = rate, operations
        for label, (path, _, _) in _LATENCIES.items():
            found[f"{name}-latency-{label}"] = _NS * number(job, (name, "clat_ns", *path))
    if not any(f"{name}-rate" in found for name in DIRECTIONS):
        raise ValueError("fio neither read nor wrote anything")
    if "sync" in job and number(job, "sync.total_ios"):
        found["sync-latency-mean"] = _NS * number(job, "sync.lat_ns.mean")
        found["sync-latency-maximum"] = _NS * number(job, "sync.lat_ns.max")
    found["cpu"] = (number(job, "usr_cpu") + number(job, "sys_cpu")) / _PERCENT
    return {name: finite(value, f"fio's {name}") for name, value in found.items()}
