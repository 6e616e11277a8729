"""``filebench``: filebench's personalities and microbenchmarks on the machine's own disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from tare.units import Duration, Size
from tare.workloads.contract import NO_CLAIM, DiskClaim, Metric, Parameters, Workload
from tare.workloads.disk.metrics import DISK_METRICS, disk_values
from tare.workloads.values import mapping, number, numbers

Work = Literal[
    "fileserver",
    "varmail",
    "webserver",
    "sequential-read",
    "sequential-write",
    "random-read",
    "random-write",
]
PERSONALITIES = ("fileserver", "varmail", "webserver")
OF_PERSONALITIES = ("files", "file_size", "width", "preallocated")
"""The parameters that do not apply to a microbenchmark's files."""
SYNCED = ("varmail",)
"""The personalities that sync their writes to the disk."""
OPERATIONS: Mapping[str, str] = {
    "create": "creates a file",
    "open": "opens a file that exists",
    "write": "writes a whole new file, or one I/O of a microbenchmark",
    "append": "appends up to 16 KiB to a file",
    "read": "reads a whole file, or one I/O of a microbenchmark",
    "sync": "brings a file to the disk",
    "close": "closes a file",
    "delete": "deletes a file",
    "stat": "asks for a file's attributes",
}
BLOCK = 4096
"""Bytes: lengths that are multiples of it are valid for direct I/O on every disk."""
PREPARATION_S = 2.0
"""Seconds to make the files, on a disk that writes 100 MB/s or more, when they are small."""
_WRITES_PER_S = 100e6


class FilebenchParameters(Parameters):
    """The work, the number of files and the duration; defaults are as published."""

    work: Work = Field(
        default="fileserver",
        description="A personality (`fileserver`, `varmail`, `webserver`) or one kind of I/O on "
        "large files. As in filebench itself, `fileserver` and `webserver` do not sync: their "
        "writes may stay in the page cache until the file is deleted. Their figures are those of "
        "the file system with its cache, and are not compared with the disk's counters.",
    )
    duration: Duration = Field(
        default=60.0, gt=0, le=86_400, description="Duration; 60 s is as published."
    )
    files: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Number of files of a personality. Default: 10000 (fileserver), 1000 (others).",
    )
    file_size: Size | None = Field(
        default=None,
        ge=1,
        description="Mean size of the files (gamma distributed, shape 1.5). Default: 128 KiB "
        "(fileserver), 16 KiB (others).",
    )
    width: int | None = Field(
        default=None,
        ge=2,
        le=10_000_000,
        description="Maximum entries of a directory. Default: 20, or 1,000,000 (varmail).",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Number of threads. Default: 50 (fileserver), 16 (varmail), 100 (webserver), 1 "
        "(microbenchmarks).",
    )
    preallocated: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of a personality's files that exist at the start. Default: 0.8, or 1 "
        "(webserver).",
    )
    io_size: Size | None = Field(
        default=None,
        ge=1,
        le=64 << 20,
        description="Size of one read or write. Default: 1 MiB, or 8 KiB for random I/O.",
    )
    total: Size = Field(
        default=64 << 20,
        ge=1,
        description="Total size of a microbenchmark's files: one file per thread for sequential "
        "I/O, one file shared by all threads for random I/O.",
    )
    direct: bool | None = Field(
        default=None,
        description="Bypass the page cache (O_DIRECT). Default: on for microbenchmarks whose I/O "
        "size is a multiple of 4 KiB. Otherwise data are flushed after each pass through the file. "
        "Not available for personalities, whose sizes are not multiples of a block.",
    )
    cached: bool = Field(
        default=False,
        description="Measure the page cache on purpose: a microbenchmark's writes may stay in it, "
        "and reads may come from it. Otherwise a cell is withheld if the disk did not move the "
        "reported bytes.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> FilebenchParameters:
        if self.direct and self.work in PERSONALITIES:
            raise ValueError(
                f"{self.work} cannot bypass the page cache: its files have arbitrary sizes; use a "
                "microbenchmark such as `random-read`"
            )
        idle = [name for name, value in self if name in OF_PERSONALITIES and value is not None]
        if idle and self.work not in PERSONALITIES:
            raise ValueError(
                f"{idle[0].replace('_', '-')} is for personalities and does not apply to "
                f"{self.work}: write `total`, the size of all its files together"
            )
        if self.direct and (self.io_size or 0) % BLOCK:
            raise ValueError("direct needs an io-size that is a multiple of 4KiB")
        if self.cached and (self.direct or self.work in PERSONALITIES):
            raise ValueError(
                "cached is for microbenchmarks without direct I/O: a personality always uses the "
                "page cache, and direct I/O bypasses it"
            )
        return self

    @property
    def past_cache(self) -> bool:
        """Whether its I/O bypasses the page cache."""
        if self.direct is not None or self.work in PERSONALITIES or self.cached:
            return bool(self.direct)
        return (self.io_size or 0) % BLOCK == 0


class Filebench(Workload[FilebenchParameters]):
    """The personalities' loops as operations on files that the agent performs."""

    name = "filebench"
    resource = "disk"
    summary = (
        "filebench's fileserver, varmail and webserver with their published parameters and loops, "
        "and sequential and random reads and writes, on a disk of the machine's own."
    )
    parameters = FilebenchParameters
    needs = frozenset({"disk"})
    from_machine = ("memory_bytes",)
    metrics = (
        Metric(
            "operations",
            "1/s",
            "higher",
            "Operations on files per second, of all kinds and all threads, as filebench counts "
            "them.",
            headline=True,
        ),
        Metric(
            "throughput",
            "B/s",
            "higher",
            "Bytes read from and written to files per second, whether from the disk or a cache.",
            headline=True,
        ),
        Metric("read", "B/s", "higher", "Bytes read from files per second.", may_be_zero=True),
        Metric("written", "B/s", "higher", "Bytes written to files per second.", may_be_zero=True),
        Metric("latency-mean", "s", "lower", "Mean time of one operation of any kind."),
        Metric("latency-median", "s", "lower", "Median time of one operation of any kind."),
        Metric(
            "latency-p99",
            "s",
            "lower",
            "99th percentile of the time of one operation of any kind.",
            kind="tail",
        ),
        Metric(
            "latency-p999",
            "s",
            "lower",
            "99.9th percentile of the time of one operation of any kind.",
            kind="tail",
        ),
        Metric(
            "latency-maximum", "s", "lower", "The longest time of any operation.", kind="maximum"
        ),
        *(
            Metric(f"{name}-median", "s", "lower", f"Median time of an operation that {what}.")
            for name, what in OPERATIONS.items()
        ),
        *(
            Metric(
                f"{name}-p99",
                "s",
                "lower",
                f"99th percentile of the time of an operation that {what}.",
                kind="tail",
            )
            for name, what in OPERATIONS.items()
        ),
        *DISK_METRICS,
    )

    def request(self, parameters: FilebenchParameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, bytes, counts."""
        given = {
            "files": parameters.files,
            "mean_bytes": parameters.file_size,
            "width": parameters.width,
            "threads": parameters.threads,
            "preallocated": parameters.preallocated,
            "io_bytes": parameters.io_size,
        }
        return {
            "work": parameters.work,
            "seconds": parameters.duration,
            "total_bytes": parameters.total,
            "direct": parameters.past_cache,
            "cached": parameters.cached,
            **{name: value for name, value in given.items() if value is not None},
        }

    def expected_s(self, parameters: FilebenchParameters) -> float:
        """Estimate the seconds of one cell: making the files, and the work."""
        files = parameters.files or (10_000 if parameters.work == "fileserver" else 1000)
        mean = parameters.file_size or ((128 if parameters.work == "fileserver" else 16) << 10)
        made = files * mean if parameters.work in PERSONALITIES else parameters.total
        return parameters.duration + PREPARATION_S + made / _WRITES_PER_S

    def clocked_s(self, parameters: FilebenchParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration

    def disk_claim(self, parameters: FilebenchParameters, result: Mapping[str, Any]) -> DiskClaim:
        """Return the bytes that a microbenchmark moved, or that varmail wrote and synced.

        The other personalities sync nothing, as in filebench itself. Their writes may correctly
        stay in the page cache until the file is deleted, and their reads may come from there.

        Raises:
            KeyError: A value is missing.
            ValueError: A value is not a finite number.
        """
        seconds = number(result, "seconds")
        written = number(result, "written_bytes_per_s") * seconds
        if parameters.work in PERSONALITIES:
            return DiskClaim(written=written) if parameters.work in SYNCED else NO_CLAIM
        if parameters.cached:
            return NO_CLAIM
        read = number(result, "read_bytes_per_s") * seconds
        return DiskClaim(read, written, "remove `direct: false`, or declare it with `cached: true`")

    def observe(
        self, parameters: FilebenchParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return rates and times; kinds of operations that did not occur are left out.

        Raises:
            KeyError: A value is missing.
            ValueError: A value is not a finite number.
        """
        values = numbers(
            result,
            {
                "operations": "operations_per_s",
                "throughput": "bytes_per_s",
                "read": "read_bytes_per_s",
                "written": "written_bytes_per_s",
                "latency-mean": "latency.mean_s",
                "latency-median": "latency.median_s",
                "latency-p99": "latency.p99_s",
                "latency-p999": "latency.p999_s",
                "latency-maximum": "latency.max_s",
            },
        )
        found = mapping(result, "by_operation") if result.get("by_operation") else {}
        for name in OPERATIONS:
            if name in found:
                values[f"{name}-median"] = number(result, f"by_operation.{name}.median_s")
                values[f"{name}-p99"] = number(result, f"by_operation.{name}.p99_s")
        return values | disk_values(result)
