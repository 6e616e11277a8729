"""TestDFSIO: write files to HDFS and read them again, with one task for each file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.units import Size
from tare.workloads.contract import Metric
from tare.workloads.mapreduce.job import Job, JobStep, options
from tare.workloads.mapreduce.metrics import (
    step_metrics,
    step_values,
    took,
    whole_metrics,
    whole_values,
)
from tare.workloads.mapreduce.workload import ClusterParameters, ClusterWorkload
from tare.workloads.values import finite, words

MIB = 1 << 20
_MAIN = "org.apache.hadoop.fs.TestDFSIO"
_FOLDER = "/tare/dfsio"
_PHASES = ("map",)
_LINES = {
    "throughput": (r"Throughput mb/sec:\s*([0-9.eE+-]+)", MIB),
    "rate": (r"Average IO rate mb/sec:\s*([0-9.eE+-]+)", MIB),
    "deviation": (r"IO rate std deviation:\s*([0-9.eE+-]+)", MIB),
}
_BYTES = re.compile(r"Total MBytes processed:\s*([0-9.]+)")
_WORDS = {
    "throughput": (
        "Bytes of all tasks divided by the *sum of their times*: the throughput of one task while "
        "the others run too."
    ),
    "rate": "Mean of the tasks' own rates, in which fast tasks weigh more than slow ones.",
}


class DfsioParameters(ClusterParameters):
    """How much is written and read."""

    size: Size = Field(
        default=64 * MIB,
        ge=MIB,
        description="Total size of all files, in whole MiB for each; li2013 has 5 to 25 GB.",
    )
    files: int = Field(default=4, ge=1, le=1000, description="Number of files, one per task.")
    warm: bool = Field(
        default=False,
        description="Keep what writing left in the page caches of the machines and of their hosts. "
        "Default: drop all page caches before reading.",
    )


class Dfsio(ClusterWorkload[DfsioParameters]):
    """Hadoop's own benchmark of HDFS."""

    name = "dfsio"
    summary = "TestDFSIO on a Hadoop cluster: files are written to HDFS and then read."
    parameters = DfsioParameters
    grows = ("size", "files")
    metrics = (
        tuple(
            metric
            for way in ("write", "read")
            for metric in (
                Metric(
                    f"{way}-time",
                    "s",
                    "lower",
                    "From the start of the client to its end, including YARN's overhead.",
                    headline=True,
                    may_be_zero=False,
                ),
                *(Metric(f"{way}-{name}", "B/s", "higher", text) for name, text in _WORDS.items()),
                Metric(
                    f"{way}-deviation", "B/s", "neither", "Standard deviation of the tasks' rates."
                ),
                *step_metrics(way, _PHASES),
            )
        )
        + whole_metrics()
    )

    def job(self, parameters: DfsioParameters) -> Job:
        """Return the two runs: the first writes the files, and the second reads them."""
        each = max(1, parameters.size // parameters.files // MIB)
        common = [
            *options({"test.build.data": _FOLDER, **parameters.properties}),
            *("-nrFiles", str(parameters.files), "-size", f"{each}MB"),
            *("-resFile", "/tmp/hadoop/dfsio.txt"),
        ]
        write = JobStep("write", _MAIN, [*common, "-write"], measured=True, cold=True)
        read = JobStep("read", _MAIN, [*common, "-read"], measured=True, cold=not parameters.warm)
        summary = JobStep("files", script=f'hdfs GET "{_FOLDER}/io_data?op=GETCONTENTSUMMARY"')
        wanted = each * parameters.files * MIB

        def check(steps: Mapping[str, Any]) -> str:
            for way in ("write", "read"):
                found = _BYTES.search(words(steps[way], "output"))
                if found is None or float(found[1]) * MIB != wanted:
                    reported = "nothing" if found is None else f"{found[1]} MiB"
                    return f"TestDFSIO -{way} reports {reported}, not {wanted // MIB} MiB"
            length = re.search(r'"length":(\d+)', words(steps["files"], "output"))
            if length is None or int(length[1]) != wanted:
                reported = "nothing" if length is None else f"{length[1]} bytes"
                return f"HDFS holds {reported} of the {wanted} bytes that were written"
            return ""

        return Job((write, summary, read), check, (_FOLDER,), parameters.replication)

    def expected_s(self, parameters: DfsioParameters) -> float:
        """Estimate the seconds of one cell: two jobs, and a disk's time for the copies."""
        return 2 * 20.0 + parameters.size * (1 + (parameters.replication or 1)) / 100e6

    def observe(self, parameters: DfsioParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; see :class:`tare.workloads.contract.Workload`."""
        found = whole_values(result)
        for way in ("write", "read"):
            found[f"{way}-time"] = took(result, way)
            output = words(result["steps"][way], "output")
            for name, (pattern, scale) in _LINES.items():
                seen = re.findall(pattern, output)
                if not seen:
                    raise KeyError(f"the output of TestDFSIO -{way} has no {name}")
                found[f"{way}-{name}"] = scale * finite(seen[-1], f"{way}-{name}")
            found |= step_values(result, way, _PHASES)
        return found
