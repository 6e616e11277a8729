"""Queries by MapReduce, Spark or Hive: sums by group, over one table or two joined tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field

from tare.workloads.contract import Metric
from tare.workloads.mapreduce import hive
from tare.workloads.mapreduce.job import Job, JobStep, options
from tare.workloads.mapreduce.metrics import (
    engine_values,
    step_metrics,
    took,
    whole_metrics,
    whole_values,
)
from tare.workloads.mapreduce.tables import PAGES, ROW_BYTES, VISITS, Tables, columns
from tare.workloads.mapreduce.verifying import EXPECTED, MADE, differing, made_sum
from tare.workloads.mapreduce.workload import (
    ClusterWorkload,
    EngineParameters,
    EngineWorkload,
    metrics_of_spark,
)

_SPARK = "tare.spark.Query"
_MAPREDUCE = "tare.mapreduce.Aggregate"
_SUMS = r"SELECT concat_ws('\t', source, CAST(SUM(cents) AS STRING)) FROM visits GROUP BY source"
_JOINED = (
    r"SELECT concat_ws('\t', source, CAST(SUM(cents) AS STRING), CAST(SUM(rank) AS STRING)) "
    "FROM visits JOIN pages ON visits.page = pages.page GROUP BY source"
)
BROADCAST = 10 << 20
"""The size in bytes up to which Spark sends a table to all executors instead of shuffling both
tables; Spark's own default."""


class QueryParameters(EngineParameters):
    """How large the tables are, and how they are queried."""

    rows: int = Field(
        default=400_000,
        ge=1,
        le=10**11,
        description="Total number of visits, of about 20 bytes each; equally many in each file.",
    )
    files: int = Field(default=4, ge=1, le=10_000, description="Number of files.")
    sources: int = Field(
        default=10_000,
        ge=1,
        le=10**8,
        description="Number of sources of visits, which equals the number of groups.",
    )
    pages: int = Field(default=10_000, ge=1, le=10**8, description="Number of visited pages.")
    reduces: int = Field(
        default=2,
        ge=1,
        le=1000,
        description="Number of reduces of each MapReduce job, and of partitions of Spark's "
        "shuffles.",
    )
    adaptive: bool = Field(
        default=True,
        description="Let Spark adapt its plan at run time (adaptive query execution), as it does "
        "by default: it may make fewer partitions than `reduces`.",
    )

    @property
    def tables(self) -> Tables:
        """The tables to generate."""
        return Tables(max(1, self.rows // self.files), self.files, self.sources, self.pages)

    @property
    def spark_properties(self) -> dict[str, object]:
        """Spark's properties for a query."""
        return {
            **self.hadoop_properties,
            "spark.sql.shuffle.partitions": self.reduces,
            "spark.sql.adaptive.enabled": self.adaptive,
            "spark.sql.autoBroadcastJoinThreshold": BROADCAST,
        }


def _metrics() -> tuple[Metric, ...]:
    return (
        Metric(
            "query-time",
            "s",
            "lower",
            "From the start of the client to its end, including YARN's overhead.",
            headline=True,
            may_be_zero=False,
        ),
        *step_metrics("query"),
        *whole_metrics(),
    )


Q = TypeVar("Q", bound=QueryParameters)


class _Query(EngineWorkload[Q]):
    """What both queries have in common."""

    step = "query"
    grows = ("rows", "files", "reduces")
    needs = ClusterWorkload.needs | {"toolbox-analytics"}
    metrics = _metrics()

    def expected_s(self, parameters: Q) -> float:
        """Estimate the seconds of one cell: a job, and making and verifying the rows."""
        # Hive's client alone takes longer than a small job, and it starts twice.
        starting = 60.0 if parameters.engine == "hive" else 25.0
        return starting + parameters.rows * (ROW_BYTES / 20e6 + 4e-6)

    def observe(self, parameters: Q, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; see :class:`tare.workloads.contract.Workload`."""
        return {
            "query-time": took(result, "query"),
            **engine_values(result, "query", parameters.engine),
            **whole_values(result),
        }


class Aggregate(_Query[QueryParameters]):
    """Sums by group, by MapReduce, by Spark's SQL or by Hive."""

    name = "aggregate"
    summary = "Sums by group on a Hadoop cluster, by MapReduce, Spark or Hive."
    parameters = QueryParameters

    def job(self, parameters: QueryParameters) -> Job:
        """Return the steps: put the table into HDFS, run the query, and verify its answer."""
        folder, tables = "/tare/aggregate", parameters.tables
        steps = (
            JobStep("put", script=tables.put(folder)),
            *_aggregated(parameters, folder),
            JobStep(EXPECTED, script=tables.sums),
            JobStep(MADE, script=made_sum(f"{folder}/out")),
        )
        return Job(steps, wrong_answer, (folder,), parameters.replication)


class JoinParameters(QueryParameters):
    """How large the tables are, and who joins them."""

    engine: Literal["spark", "hive"] = Field(
        default="spark",
        description="The engine: Spark's SQL on the cluster's YARN, or `hive`: Hive 4.0.1 with "
        "MapReduce.",
    )


class Join(_Query[JoinParameters]):
    """Sums by group over two tables joined, by Spark's SQL or by Hive."""

    name = "join"
    summary = "Joins two tables and sums by group on a Hadoop cluster, by Spark or Hive."
    parameters = JoinParameters
    metrics = metrics_of_spark("query", _metrics())

    def metrics_for(self, parameters: JoinParameters) -> tuple[Metric, ...]:
        """Return the metrics of a cell; with Spark, those that its event log has."""
        return self.metrics if parameters.engine == "spark" else _metrics()

    def job(self, parameters: JoinParameters) -> Job:
        """Return the steps: put the tables into HDFS, run the query, and verify its answer."""
        folder, tables = "/tare/join", parameters.tables
        steps = (
            JobStep("put", script=tables.put(folder)),
            *_asked(parameters, folder, _JOINED, VISITS, PAGES),
            JobStep(EXPECTED, script=tables.joined),
            JobStep(MADE, script=made_sum(f"{folder}/out")),
        )
        return Job(steps, wrong_answer, (folder,), parameters.replication)


def _aggregated(parameters: QueryParameters, folder: str) -> tuple[JobStep, ...]:
    if parameters.engine != "mapreduce":
        return _asked(parameters, folder, _SUMS, VISITS)
    given = options({"mapreduce.job.reduces": parameters.reduces, **parameters.properties})
    folders = [f"{folder}/{VISITS}", f"{folder}/out"]
    return (JobStep("query", _MAPREDUCE, [*given, *folders], measured=True, cold=True),)


def _asked(
    parameters: QueryParameters, folder: str, query: str, *tables: str
) -> tuple[JobStep, ...]:
    if parameters.engine == "hive":
        return (
            JobStep("forget", script=hive.FORGET),
            hive.tables(folder, parameters.reduces, tables),
            hive.query(folder, parameters.reduces, query, parameters.properties),
        )
    given = [word for name in tables for word in (name, columns(name), f"{folder}/{name}")]
    step = JobStep(
        "query",
        _SPARK,
        [f"{folder}/out", query, *given],
        engine="spark",
        properties=parameters.spark_properties,
        measured=True,
        cold=True,
    )
    return (step,)


def wrong_answer(results: Mapping[str, Any]) -> str:
    """Return how a query's answer differs from the expected one; empty if it does not."""
    return differing(results, "the query is answered wrongly")
