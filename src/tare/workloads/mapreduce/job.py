"""The job that a workload runs on a Hadoop cluster: a sequence of steps on its master."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tare.workloads.contract import Work

Engine = Literal["mapreduce", "spark", "hive"]
"""The engine that runs a job; Hive uses MapReduce."""
FOLDER = "/tare"
"""The folder in HDFS that all jobs use; see :func:`moved`."""
HDFS = """hdfs() {
  method=$1; path=$2; shift 2
  url="http://$TARE_NAMENODE/webhdfs/v1$path&user.name=$TARE_USER"
  curl -sS --stderr - --fail-with-body -L -X "$method" $TARE_RESOLVE "$@" "$url"
}
parts() {
  hdfs GET "$1?op=LISTSTATUS" >/tmp/hadoop/parts || return 1
  for part in $(grep -o '"pathSuffix":"[^"_.][^"]*"' /tmp/hadoop/parts | cut -d'"' -f4 | sort); do
    hdfs GET "$1/$part?op=OPEN" || return 1
  done
}
"""
"""Two shell functions. ``hdfs`` sends a request to HDFS by HTTP (WebHDFS). Its arguments are a
method, a path with ``?op=…``, and further arguments of curl. It follows redirections to the machine
that has the data. ``parts`` prints the files of a job's output, whatever its engine calls them."""
# Does not match the end of a longer path, such as that of the toolbox's inputs.
_OWN = re.compile(rf"(?<![\w.\-]){FOLDER}(?=/)")


@dataclass(frozen=True)
class JobStep:
    """One part of a job.

    Args:
        name: The name under which its results are kept.
        main: A Java class that runs as a client of the cluster.
        arguments: The arguments of the class.
        engine: The engine that runs it: Hadoop's MapReduce, or Spark.
        properties: For Spark, properties in addition to those of all Spark jobs. For MapReduce with
            ``archives``, properties that override the cluster's own configuration in the client.
        archives: An archive of the toolbox that lists further archives. The client and its tasks
            have them in their class path after Hadoop's own.
        heap: Heap in MiB of a MapReduce client that needs more than others; 0: the usual heap.
        alone: Whether the class starts no job, so that no job history has it.
        script: A shell script to run instead of a class; it can use :data:`HDFS`.
        measured: Whether the step is measured; other steps prepare or verify.
        cold: Whether all page caches are dropped before it.
    """

    name: str
    main: str = ""
    arguments: Sequence[str] = ()
    engine: Literal["mapreduce", "spark"] = "mapreduce"
    properties: Mapping[str, object] = field(default_factory=dict)
    archives: str = ""
    heap: int = 0
    alone: bool = False
    script: str = ""
    measured: bool = False
    cold: bool = False

    @property
    def brings_archives(self) -> bool:
        """Whether its tasks need files of the toolbox that a Hadoop cluster does not have."""
        return self.engine == "spark" or bool(self.archives)


@dataclass(frozen=True)
class Job(Work):
    """The work on a cluster for one cell.

    Args:
        steps: The steps, in order.
        check: Called with the result's ``steps``; returns the problem of the computed output, or
            an empty text.
        remove: Paths that are removed from HDFS before the first step and after the last.
        copies: The number of copies that it requests for each block of its output; None: the
            cluster's default.
    """

    steps: tuple[JobStep, ...]
    check: Callable[[Mapping[str, Any]], str]
    remove: tuple[str, ...] = ()
    copies: int | None = None


def moved(job: Job, folder: str) -> Job:
    """Return the same job with another folder of HDFS in place of :data:`FOLDER`."""

    def place(text: str) -> str:
        return _OWN.sub(folder, text)

    steps = tuple(
        replace(step, script=place(step.script), arguments=[*map(place, step.arguments)])
        for step in job.steps
    )
    return replace(job, steps=steps, remove=tuple(map(place, job.remove)))


def options(values: Mapping[str, object]) -> list[str]:
    """Return properties as command-line options of Hadoop's programs."""
    return [f"-D{name}={value}" for name, value in worded(values).items()]


def worded(values: Mapping[str, object]) -> dict[str, str]:
    """Return properties with their values as texts that Hadoop and Spark read."""
    return {name: _word(value) for name, value in values.items()}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
