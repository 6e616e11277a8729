"""K-Means: find the centres of points with Mahout's MapReduce jobs, as HiBench does.

Source: HiBench's workload *K-means* (Huang et al., 2010). The options of Mahout's driver are
HiBench's, and so are the defaults of 20 dimensions, 5 clusters and 5 iterations.

Coordinates are whole numbers, so that sums do not depend on their order. Each coordinate of a point
of cluster *n* is at most SPREAD from ``n × APART``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tare.workloads.contract import Metric
from tare.workloads.mapreduce.configuration import DATA
from tare.workloads.mapreduce.job import Job, JobStep
from tare.workloads.mapreduce.metrics import (
    step_metrics,
    step_values,
    took,
    whole_metrics,
    whole_values,
)
from tare.workloads.mapreduce.verifying import EXPECTED, MADE, differing, made_sum
from tare.workloads.mapreduce.workload import ClusterParameters, ClusterWorkload
from tare.workloads.values import listed, mapping

ARCHIVES = "/opt/mahout.jar"
"""The toolbox's archive that lists Mahout's archives (tare.images.toolbox.analytics)."""
NEVER = -1.0
"""A limit below every movement of a centre, so that Mahout does not stop early."""
_INPUT = "org.apache.mahout.clustering.conversion.InputDriver"
_DRIVER = "org.apache.mahout.clustering.kmeans.KMeansDriver"
_CENTRES = "tare.mahout.Centres"
_VECTOR = "org.apache.mahout.math.DenseVector"
_DISTANCE = "org.apache.mahout.common.distance.EuclideanDistanceMeasure"
_FOLDER = "/tare/kmeans"


class KmeansParameters(ClusterParameters):
    """How many points there are, and how long their centres are searched for."""

    vectors: int = Field(
        default=40_000,
        ge=1000,
        le=10**10,
        description="Total number of points, which Mahout calls vectors: about 5 bytes for each "
        "dimension, equally many in each file.",
    )
    files: int = Field(default=2, ge=1, le=10_000, description="Number of files.")
    dimensions: int = Field(
        default=20, ge=1, le=1000, description="Number of dimensions of each point."
    )
    clusters: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Number of clusters in the points, and of centres to search for.",
    )
    iterations: int = Field(
        default=5,
        ge=1,
        le=20,
        description="Maximum number of iterations, each a job that moves the centres.",
    )
    convergence: float | None = Field(
        default=None,
        ge=0,
        description="Movement below which a centre counts as found, in a space where clusters are "
        "1000 apart in each dimension; HiBench has 0.5. By default all iterations run, so that all "
        "cells do the same work.",
    )

    @property
    def made(self) -> Points:
        """The points to generate."""
        each = max(1, self.vectors // self.files)
        return Points(each, self.files, self.dimensions, self.clusters)


class Kmeans(ClusterWorkload[KmeansParameters]):
    """Mahout's K-Means."""

    name = "kmeans"
    summary = "K-Means on a Hadoop cluster, by Mahout's MapReduce jobs."
    parameters = KmeansParameters
    grows = ("vectors", "files")
    needs = ClusterWorkload.needs | {"toolbox-analytics"}
    metrics = (
        Metric(
            "cluster-time",
            "s",
            "lower",
            "From the start of Mahout's driver to its end, including YARN's overhead: one job for "
            "each iteration, and one that assigns each point to its centre.",
            headline=True,
            may_be_zero=False,
        ),
        *step_metrics("cluster"),
        Metric("jobs", "1", "neither", "Number of jobs. All other values are sums over them."),
        *whole_metrics(),
    )

    def job(self, parameters: KmeansParameters) -> Job:
        """Return the steps: put points and first centres into HDFS, run Mahout, and verify."""
        made = parameters.made
        first = (made.clusters, made.dimensions, APART, ASIDE)
        steps = (
            JobStep("put", script=made.put(f"{_FOLDER}/points")),
            _mahout_step(
                parameters,
                "convert",
                _INPUT,
                {"-i": f"{_FOLDER}/points", "-o": f"{_FOLDER}/vectors", "-v": _VECTOR},
            ),
            _own_step("begin", ["write", f"{_FOLDER}/first/part-0", *map(str, first)]),
            _searched(parameters),
            _own_step("tell", ["tell", f"{_FOLDER}/found", f"{_FOLDER}/told"]),
            JobStep(EXPECTED, script=made.centres),
            JobStep(MADE, script=made_sum(f"{_FOLDER}/told")),
        )

        def check(results: Mapping[str, Any]) -> str:
            return wrong_centres(results, parameters)

        return Job(steps, check, (_FOLDER,), parameters.replication)

    def expected_s(self, parameters: KmeansParameters) -> float:
        """Estimate the seconds of one cell: a job for each iteration, two more, and the points."""
        passes = 2 + parameters.iterations
        values = parameters.vectors * parameters.dimensions
        return 15.0 * passes + values * (passes * parameters.clusters * 20e-9 + 1e-6)

    def observe(self, parameters: KmeansParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics; see :class:`tare.workloads.contract.Workload`."""
        job = mapping(mapping(mapping(result, "steps"), "cluster"), "job")
        return {
            "cluster-time": took(result, "cluster"),
            **step_values(result, "cluster"),
            "jobs": float(len(listed(job, "jobs"))),
            **whole_values(result),
        }


def wrong_centres(results: Mapping[str, Any], parameters: KmeansParameters) -> str:
    """Describe how centres and their points differ from the expected ones; empty if they do not.

    Args:
        results: The results of the steps.
        parameters: The parameters. Unless they let Mahout stop early, all iterations must have run.
    """
    jobs, wanted = len(results["cluster"]["job"]["jobs"]), parameters.iterations + 1
    if jobs > wanted or (jobs < wanted and parameters.convergence is None):
        return f"the centres took {jobs} jobs, and not {wanted}"
    return differing(results, "the centres are found wrongly")


def _searched(parameters: KmeansParameters) -> JobStep:
    least = NEVER if parameters.convergence is None else parameters.convergence
    given = {
        "-i": f"{_FOLDER}/vectors",
        "-c": f"{_FOLDER}/first",
        "-o": f"{_FOLDER}/found",
        "-x": parameters.iterations,
        "-cd": least,
        "-dm": _DISTANCE,
        "-xm": "mapreduce",
    }
    return _mahout_step(parameters, "cluster", _DRIVER, given, "-ow", "-cl", measured=True)


def _mahout_step(
    parameters: KmeansParameters,
    name: str,
    main: str,
    given: Mapping[str, object],
    *more: str,
    measured: bool = False,
) -> JobStep:
    return JobStep(
        name,
        main,
        [*(word for pair in given.items() for word in map(str, pair)), *more],
        properties=parameters.properties,
        archives=ARCHIVES,
        measured=measured,
        cold=measured,
    )


def _own_step(name: str, given: list[str]) -> JobStep:
    return JobStep(name, _CENTRES, given, archives=ARCHIVES, alone=True)


APART = 1000
SPREAD = 100
ASIDE = 200
"""The distance of a first centre from the middle of its cluster, in each dimension. The first
centres of other clusters are at least ``APART - ASIDE - SPREAD`` from the cluster's points: farther
than its own."""
# Pseudorandom numbers: x -> 16807 x mod (2^31 - 1) (Park and Miller, 1988), exact in awk's numbers.
_POINTS = f"""points() {{ awk -v points=$TARE_POINTS -v dimensions=$TARE_DIMENSIONS \\
  -v clusters=$TARE_CLUSTERS -v seed=$1 '
  function next_one() {{ state = (state * 16807) % 2147483647; return state }}
  BEGIN {{
    state = (seed * 104729) % 2147483646 + 1; next_one()
    for (point = 0; point < points; point++) {{
      middle = next_one() % clusters * {APART} - {SPREAD}
      for (place = 1; place <= dimensions; place++)
        printf "%d%s", middle + next_one() % {2 * SPREAD + 1}, place < dimensions ? " " : "\\n"
    }}
  }}'
}}
"""
_PUT = f"""for file in $(seq $TARE_FILES); do
  points $file >{DATA}/points || exit 1
  hdfs PUT "$TARE_FOLDER/$file?op=CREATE&overwrite=true" -T {DATA}/points || exit 1
done
rm -f {DATA}/points
"""
# Assign each point to the cluster that it was made for, whatever its distances to the centres.
_SUM_CENTRES = f"""for file in $(seq $TARE_FILES); do points $file; done |
awk '{{
  cluster = int(($1 + {APART // 2}) / {APART}); count[cluster]++
  for (place = 1; place <= NF; place++) sum[cluster, place] += $place
  dimensions = NF
}}
END {{ for (cluster in count) {{
  printf "%.0f\\t%.0f", count[cluster], count[cluster]
  for (place = 1; place <= dimensions; place++) printf "\\t%.0f", sum[cluster, place]
  print ""
}} }}' | sort | sha256sum
"""


@dataclass(frozen=True)
class Points:
    """The number and kind of the points.

    Args:
        each: The number of points in each file.
        files: The number of files.
        dimensions: The number of coordinates of a point.
        clusters: The number of clusters.
    """

    each: int
    files: int
    dimensions: int
    clusters: int

    def put(self, folder: str) -> str:
        """Return a shell script that makes the points and puts them into a folder of HDFS."""
        return f"TARE_FOLDER={folder} {self._made}{_PUT}"

    @property
    def centres(self) -> str:
        """A shell script that prints the SHA-256 of sorted lines, one for each cluster.

        A line has the number of the cluster's points twice, and the sum of their coordinates in
        each dimension. A search reports two numbers: the points from which it calculated the
        centre, and those that it assigned to the centre at the end.
        """
        return self._made + _SUM_CENTRES

    @property
    def _made(self) -> str:
        return (
            f"TARE_POINTS={self.each} TARE_FILES={self.files} "
            f"TARE_DIMENSIONS={self.dimensions} TARE_CLUSTERS={self.clusters}\n{_POINTS}"
        )
