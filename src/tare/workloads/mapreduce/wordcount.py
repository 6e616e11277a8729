"""Word count: count each word of a text by MapReduce or Spark, and verify with other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.workloads.contract import Metric
from tare.workloads.mapreduce.job import Job, JobStep, options
from tare.workloads.mapreduce.metrics import (
    engine_values,
    step_metrics,
    took,
    whole_metrics,
    whole_values,
)
from tare.workloads.mapreduce.verifying import EXPECTED, MADE, differing, made_sum
from tare.workloads.mapreduce.workload import EngineWorkload, ProgramParameters

TEXT = "/usr/share/tare/inputs/text.txt"
TEXT_BYTES = 8 << 20
"""Size of the toolbox's text (tare.images.toolbox.inputs)."""
_MAIN = "org.apache.hadoop.examples.WordCount"
_SPARK = "tare.spark.WordCount"
_FOLDER = "/tare/wordcount"
# Count one text with programs that do not use Hadoop, and multiply by the number of copies.
_EXPECT = f"""tr -s ' \\t\\n\\r\\f' '\\n' <{TEXT} | grep -v '^$' | sort | uniq -c |
awk -v copies=$TARE_COPIES '{{ print $2 "\\t" $1 * copies }}' | sort | sha256sum
"""
_PUT = """for copy in $(seq $TARE_COPIES); do
  hdfs PUT "/tare/wordcount/in/text-$copy?op=CREATE&overwrite=true" -T $TARE_TEXT || exit 1
done
"""


class WordcountParameters(ProgramParameters):
    """How much is counted, and by how many tasks."""

    copies: int = Field(
        default=8,
        ge=1,
        le=100_000,
        description="Number of copies of the toolbox's text of 8 MiB, each a file that one map "
        "counts.",
    )
    reduces: int = Field(
        default=1, ge=1, le=1000, description="Number of reduces, which add up the maps' counts."
    )


class Wordcount(EngineWorkload[WordcountParameters]):
    """Hadoop's WordCount, or the same by Spark."""

    name = "wordcount"
    summary = "Word count on a Hadoop cluster, over a text from the toolbox."
    parameters = WordcountParameters
    grows = ("copies", "reduces")
    step = "count"
    metrics = (
        Metric(
            "count-time",
            "s",
            "lower",
            "From the start of the client to its end, including YARN's overhead.",
            headline=True,
            may_be_zero=False,
        ),
        *step_metrics("count"),
        *whole_metrics(),
    )

    def job(self, parameters: WordcountParameters) -> Job:
        """Return the steps: put the text into HDFS, count the words, and verify the counts."""
        folders = [f"{_FOLDER}/in", f"{_FOLDER}/out"]
        text = f"TARE_COPIES={parameters.copies} TARE_TEXT={TEXT}\n"
        steps = (
            JobStep("put", script=text + _PUT),
            _count(parameters, folders),
            JobStep(EXPECTED, script=text + _EXPECT),
            JobStep(MADE, script=made_sum(folders[1])),
        )
        return Job(steps, wrong_counts, (_FOLDER,), parameters.replication)

    def expected_s(self, parameters: WordcountParameters) -> float:
        """Estimate the seconds of one cell: a job, and 1.5 s for each map."""
        return 20.0 + 1.5 * parameters.copies

    def observe(
        self, parameters: WordcountParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics; see :class:`tare.workloads.contract.Workload`."""
        return {
            "count-time": took(result, "count"),
            **engine_values(result, "count", parameters.engine),
            **whole_values(result),
        }


def wrong_counts(results: Mapping[str, Any]) -> str:
    """Return how the counted words differ from the expected ones; empty if they do not."""
    return differing(results, "the words are counted wrongly")


def _count(parameters: WordcountParameters, folders: list[str]) -> JobStep:
    reduces = parameters.reduces
    if parameters.engine == "spark":
        return JobStep(
            "count",
            _SPARK,
            [*folders, str(reduces)],
            engine="spark",
            properties=parameters.hadoop_properties,
            measured=True,
            cold=True,
        )
    given = options({"mapreduce.job.reduces": reduces, **parameters.properties})
    return JobStep("count", _MAIN, [*given, *folders], measured=True, cold=True)
