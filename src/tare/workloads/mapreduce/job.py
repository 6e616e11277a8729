"""What a workload asks of a cluster of Hadoop: steps in turn, on its master."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tare.workloads.contract import Work

Engine = Literal["mapreduce", "spark", "hive"]
"""The engine that runs a job; Hive runs it by MapReduce."""
FOLDER = "/tare"
"""The folder of HDFS that all jobs are written to keep to; see :func:`moved`."""
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
"""Two functions of a shell. ``hdfs`` asks HDFS by HTTP (WebHDFS): a method, a path with ``?op=…``,
and more of curl's words; it follows to the machine that holds the data. ``parts`` prints the files
of a job's output, whatever its engine calls them."""
# Not the end of a longer path, such as that of the toolbox's inputs.
_OWN = re.compile(rf"(?<![\w.\-]){FOLDER}(?=/)")


@dataclass(frozen=True)
class JobStep:
    """One part of a job.

    Args:
        name: What it is called; its results are kept under it.
        main: A Java class that is run, as a client of the cluster.
        arguments: What it is given.
        engine: What runs it: Hadoop's MapReduce, or Spark.
        properties: Spark's properties for it, in addition to those of all its jobs; for MapReduce,
            with ``archives``: what its client reads instead of the cluster's own configuration.
        archives: An archive of the toolbox that names more of them, which the client and its tasks
            find behind Hadoop's own.
        heap: MiB of such a client, where it needs more than others.
        alone: The class works by itself and starts no job, so no history has it.
        script: In place of a class: a shell's script, which has :data:`HDFS`.
        measured: Whether it is part of what is measured, and not of preparing or verifying that.
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
        """Whether its tasks need more of the toolbox than what any Hadoop has."""
        return self.engine == "spark" or bool(self.archives)


@dataclass(frozen=True)
class Job(Work):
    """What is done on a cluster for one cell.

    Args:
        steps: The steps, in order.
        check: Is given the result's ``steps``, and says what is wrong with what was computed; or
            nothing.
        remove: What is removed from HDFS before the first step and after the last.
        copies: How many copies of each block of its output it asks for; None: as many as the
            cluster makes where nobody says how many.
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
    """Return properties as Hadoop's programs take them on the command line."""
    return [f"-D{name}={value}" for name, value in worded(values).items()]


def worded(values: Mapping[str, object]) -> dict[str, str]:
    """Return properties with their values as Hadoop and Spark read them."""
    return {name: _word(value) for name, value in values.items()}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
