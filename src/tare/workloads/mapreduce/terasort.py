"""TeraSort: generate records of 100 bytes, sort them, and verify their order and completeness."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.units import Size
from tare.workloads.contract import Metric
from tare.workloads.mapreduce.job import Job, JobStep, options
from tare.workloads.mapreduce.metrics import (
    engine_values,
    step_metrics,
    step_values,
    took,
    whole_metrics,
    whole_values,
)
from tare.workloads.mapreduce.workload import EngineWorkload, ProgramParameters
from tare.workloads.values import mapping, words

RECORD = 100
"""Bytes of a record (sortbenchmark.org's rules for GraySort and similar benchmarks)."""
_MAIN = "org.apache.hadoop.examples.terasort"
_FOLDER = "/tare/terasort"
_CHECKSUM = re.compile(r"^checksum\s+([0-9a-f]+)\s*$", re.MULTILINE)


class TerasortParameters(ProgramParameters):
    """How much is sorted, and by how many tasks."""

    size: Size = Field(
        default=64 << 20,
        ge=RECORD * 1000,
        description="Total size of the records, of 100 bytes each; li2013 has 5 to 25 GB.",
    )
    maps: int = Field(
        default=2, ge=1, le=10_000, description="Number of tasks that make the records."
    )
    reduces: int = Field(
        default=2, ge=1, le=10_000, description="Number of tasks that sort and write them."
    )
    output_replication: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Number of copies of the sorted output, as in the metric `copies`; TeraSort's "
        "own default is 1, whatever the cluster has.",
    )
    final_sync: bool = Field(
        default=True,
        description="End a reduce only when its output is on disk, as TeraSort does by default.",
    )

    @property
    def records(self) -> int:
        """The number of records."""
        return self.size // RECORD


class Terasort(EngineWorkload[TerasortParameters]):
    """Hadoop's TeraGen, TeraSort and TeraValidate; Spark sorts in TeraSort's place."""

    name = "terasort"
    summary = "TeraSort on a Hadoop cluster: records are generated, sorted and verified."
    parameters = TerasortParameters
    grows = ("size", "maps", "reduces")
    step = "sort"
    metrics = (
        Metric(
            "sort-time",
            "s",
            "lower",
            "Time of sorting, from the start of the client to its end, including YARN's overhead.",
            headline=True,
            may_be_zero=False,
        ),
        *step_metrics("sort"),
        Metric("generate-time", "s", "lower", "Time to generate the records (writing)."),
        *step_metrics("generate", ("map",)),
        Metric("validate-time", "s", "lower", "Time to verify their order (reading)."),
        *whole_metrics(),
    )

    def job(self, parameters: TerasortParameters) -> Job:
        """Return TeraGen, TeraSort and TeraValidate; the last checks order and checksum."""
        records, out = parameters.records, f"{_FOLDER}/out"
        gen = options({"mapreduce.job.maps": parameters.maps, **parameters.properties})
        steps = (
            JobStep(
                "generate",
                f"{_MAIN}.TeraGen",
                [*gen, str(records), f"{_FOLDER}/in"],
                measured=True,
                cold=True,
            ),
            _sort(parameters, [f"{_FOLDER}/in", out]),
            JobStep(
                "validate",
                f"{_MAIN}.TeraValidate",
                [out, f"{_FOLDER}/report"],
                measured=True,
                cold=True,
            ),
            JobStep("report", script=f'hdfs GET "{_FOLDER}/report/part-r-00000?op=OPEN"'),
            JobStep("parts", script=f'hdfs GET "{out}?op=LISTSTATUS"'),
        )

        def check(results: Mapping[str, Any]) -> str:
            return wrong_order(results, records)

        return Job(steps, check, (_FOLDER,), parameters.output_replication)

    def expected_s(self, parameters: TerasortParameters) -> float:
        """Estimate the seconds of one cell: three jobs, and the time for disks and sorting."""
        return 3 * 20.0 + 5 * parameters.size / 100e6

    def observe(
        self, parameters: TerasortParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics; see :class:`tare.workloads.contract.Workload`."""
        return {
            **{f"{step}-time": took(result, step) for step in ("generate", "sort", "validate")},
            **engine_values(result, "sort", parameters.engine),
            **step_values(result, "generate", ("map",)),
            **whole_values(result),
        }


def _sort(parameters: TerasortParameters, folders: list[str]) -> JobStep:
    copies, sync = parameters.output_replication, parameters.final_sync
    if parameters.engine == "spark":
        results = {
            **parameters.hadoop_properties,
            "spark.hadoop.dfs.replication": copies,
            "spark.hadoop.mapreduce.terasort.final.sync": sync,
        }
        return JobStep(
            "sort",
            "tare.spark.TeraSort",
            [*folders, str(parameters.reduces)],
            engine="spark",
            properties=results,
            measured=True,
            cold=True,
        )
    given = options(
        {
            "mapreduce.job.reduces": parameters.reduces,
            "mapreduce.terasort.output.replication": copies,
            "mapreduce.terasort.final.sync": sync,
            **parameters.properties,
        }
    )
    return JobStep("sort", f"{_MAIN}.TeraSort", [*given, *folders], measured=True, cold=True)


def wrong_order(results: Mapping[str, Any], records: int) -> str:
    """Describe the problem that TeraValidate or HDFS shows in a sorted output; empty: none.

    Args:
        results: The results of the steps.
        records: The expected number of records.
    """
    report = words(results["report"], "output")
    if "error" in report or "misorder" in report:
        return f"TeraValidate found the output out of order: {report.strip()[:300]}"
    found = _CHECKSUM.search(report)
    if found is None:
        return f"TeraValidate reported no checksum: {report.strip()[:300]}"
    made = mapping(mapping(results["generate"], "job"), "counters").get("checksum")
    if made is None or int(found[1], 16) != int(made):
        return f"the sorted records' checksum is {found[1]}, but {int(made or 0):x} was made"
    held = bytes_of_parts(words(results["parts"], "output"))
    if held != records * RECORD:
        return f"the sorted output has {held} bytes, not {records} records of {RECORD} bytes"
    return ""


def bytes_of_parts(listing: str) -> int:
    """Return the bytes of a job's output from HDFS's listing of its folder (LISTSTATUS).

    The folder also has an empty file for success, and TeraSort's file of partitions.
    """
    try:
        listed = json.loads(listing)["FileStatuses"]["FileStatus"]
        return sum(int(each["length"]) for each in listed if each["pathSuffix"].startswith("part-"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return 0
