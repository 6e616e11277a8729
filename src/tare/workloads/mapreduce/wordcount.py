"""Word count: how often each word is in a text, by MapReduce and by the toolbox's own programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.workloads.contract import Metric
from tare.workloads.mapreduce.job import Job, Step, options
from tare.workloads.mapreduce.metrics import (
    step_metrics,
    step_values,
    took,
    whole_metrics,
    whole_values,
)
from tare.workloads.mapreduce.workload import ClusterParameters, ClusterWorkload
from tare.workloads.values import words

TEXT = "/usr/share/tare/inputs/text.txt"
TEXT_BYTES = 8 << 20
"""Of the toolbox's text (tare.images.toolbox.inputs)."""
_MAIN = "org.apache.hadoop.examples.WordCount"
_FOLDER = "/tare/wordcount"
# Counted by programs that know nothing of Hadoop, as often as the text is there.
_EXPECT = f"""tr -s ' \\t\\n\\r\\f' '\\n' <{TEXT} | grep -v '^$' | sort | uniq -c |
awk -v copies=$TARE_COPIES '{{ print $2 "\\t" $1 * copies }}' | sort | sha256sum
"""
_COUNTED = """for part in $(seq 0 $((TARE_REDUCES - 1))); do
  hdfs GET "/tare/wordcount/out/part-r-$(printf %05d $part)?op=OPEN" || exit 1
done >/tmp/hadoop/counted && sort /tmp/hadoop/counted | sha256sum; rm -f /tmp/hadoop/counted
"""
_PUT = """for copy in $(seq $TARE_COPIES); do
  hdfs PUT "/tare/wordcount/in/text-$copy?op=CREATE&overwrite=true" -T $TARE_TEXT || exit 1
done
"""


class WordcountParameters(ClusterParameters):
    """How much is counted, and by how many tasks."""

    copies: int = Field(
        default=8,
        ge=1,
        le=100_000,
        description="How often the toolbox's text of 8 MiB is there, each a file that one map "
        "counts.",
    )
    reduces: int = Field(default=1, ge=1, le=1000, description="Tasks that add up what maps found.")


class Wordcount(ClusterWorkload[WordcountParameters]):
    """Hadoop's WordCount."""

    name = "wordcount"
    summary = "Word count on a cluster of Hadoop, over a text of the toolbox."
    parameters = WordcountParameters
    metrics = (
        Metric(
            "count-time",
            "s",
            "lower",
            "From the start of the client to its end, with all that YARN takes.",
            headline=True,
        ),
        *step_metrics("count"),
        *whole_metrics(),
    )

    def job(self, parameters: WordcountParameters) -> Job:
        """Return the job, with the text put to HDFS before and the counts compared after."""
        copies, reduces = parameters.copies, parameters.reduces
        given = options({"mapreduce.job.reduces": reduces, **parameters.properties})
        said = f"TARE_COPIES={copies} TARE_REDUCES={reduces} TARE_TEXT={TEXT}\n"
        steps = (
            Step("put", script=said + _PUT),
            Step(
                "count",
                _MAIN,
                [*given, f"{_FOLDER}/in", f"{_FOLDER}/out"],
                measured=True,
                cold=True,
            ),
            Step("expected", script=said + _EXPECT),
            Step("counted", script=said + _COUNTED),
        )
        return Job(steps, wrong_counts, (_FOLDER,))

    def expected_s(self, parameters: WordcountParameters) -> float:
        """Estimate the seconds of one cell: a job, and a second for a map's start and text each."""
        return 20.0 + 1.5 * parameters.copies

    def observe(
        self, parameters: WordcountParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics; see :class:`tare.workloads.contract.Workload`."""
        return {
            "count-time": took(result, "count"),
            **step_values(result, "count"),
            **whole_values(result),
        }


def wrong_counts(told: Mapping[str, Any]) -> str:
    """Return how the counted words differ from what they must be, by both sums; or nothing."""
    sums = [
        re.findall(r"\b[0-9a-f]{64}\b", words(told[step], "output"))
        for step in ("expected", "counted")
    ]
    if any(len(found) != 1 for found in sums):
        return "the counts could not be compared: one of their checksums is missing"
    (expected,), (counted,) = sums
    if expected != counted:
        return f"the words are counted wrongly: the counts' SHA-256 is {counted}, not {expected}"
    return ""
