"""Queries by Hive on MapReduce: declare tables over files in HDFS, and run one query on them.

Hive runs in the client of the job, and the store of its tables (Derby) in the same process, with
its files on the master's own disk. Every setting on which a result depends is set here, or
`tare help mapreduce` names it. Source: Hive's page "Configuration Properties", version 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from tare.workloads.mapreduce.configuration import DATA
from tare.workloads.mapreduce.job import JobStep, worded
from tare.workloads.mapreduce.tables import columns

ARCHIVES = "/opt/hive.jar"
"""The toolbox's archive that lists Hive's archives (tare.images.toolbox.libraries)."""
HEAP = 400
"""Heap in MiB of the client, which compiles queries and contains Derby."""
_HOME = f"{DATA}/hive"
FORGET = f"rm -rf {_HOME} && mkdir -p {_HOME}\n"
"""A line of a shell script that removes the tables of another cell."""
_MAIN = "org.apache.hadoop.hive.cli.CliDriver"


def settings(folder: str, reduces: int) -> dict[str, object]:
    """Return Hive's settings.

    Args:
        folder: The job's folder in HDFS, for data between two jobs of a query.
        reduces: The number of reduces of each job of a query.
    """
    return {
        "hive.execution.engine": "mr",
        "mapreduce.job.reduces": reduces,
        # One map for each file, as with MapReduce: by default, small files share a map.
        "hive.input.format": "org.apache.hadoop.hive.ql.io.HiveInputFormat",
        # Shuffle both tables, instead of loading the smaller one into each map of the larger.
        "hive.auto.convert.join": False,
        "hive.merge.mapfiles": False,
        "hive.merge.mapredfiles": False,
        "hive.stats.autogather": False,
        "hive.support.concurrency": False,
        "hive.notification.event.poll.interval": "0s",
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={_HOME}/tables;create=true",
        "datanucleus.schema.autoCreateAll": True,
        "hive.metastore.schema.verification": False,
        "hive.metastore.warehouse.dir": f"{folder}/warehouse",
        "hive.metastore.warehouse.external.dir": f"{folder}/warehouse",
        "hive.exec.scratchdir": f"{folder}/between",
        "hive.exec.local.scratchdir": f"{_HOME}/local",
        "hive.downloaded.resources.dir": f"{_HOME}/resources",
        "hive.querylog.location": f"{_HOME}/log",
    }


def tables(folder: str, reduces: int, names: tuple[str, ...]) -> JobStep:
    """Return the step that declares tables to Hive, each in the folder of its name."""
    made = [
        f"CREATE EXTERNAL TABLE {name} ({columns(name)}) "
        f"ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' LOCATION '{folder}/{name}'"
        for name in names
    ]
    return JobStep(
        "tables", _MAIN, _script(folder, reduces, made), archives=ARCHIVES, heap=HEAP, alone=True
    )


def query(folder: str, reduces: int, question: str, properties: Mapping[str, object]) -> JobStep:
    """Return the step that runs a query, and writes its answer, one column of text, to HDFS."""
    asked = f"INSERT OVERWRITE DIRECTORY '{folder}/out' {question}"
    return JobStep(
        "query",
        _MAIN,
        _script(folder, reduces, [asked]),
        properties=properties,
        archives=ARCHIVES,
        heap=HEAP,
        measured=True,
        cold=True,
    )


def _script(folder: str, reduces: int, statements: list[str]) -> list[str]:
    options = worded(settings(folder, reduces))
    words = [word for name, value in options.items() for word in ("--hiveconf", f"{name}={value}")]
    return [*words, "-e", "; ".join(statements)]
