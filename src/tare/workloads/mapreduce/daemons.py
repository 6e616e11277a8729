"""Commands that start Hadoop's daemons without its scripts, and the options of their JVMs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tare.workloads.mapreduce.sizes import Sizes

HOME = "/opt/hadoop"
"""Hadoop's folder in the toolbox (tare.images.toolbox.hadoop)."""
CONF = "/tmp/hadoop/conf"
OWN_CONF = "/tmp/hadoop/own"
"""The configuration of one step, for a client with archives of its own."""
HOSTS = "/tmp/hadoop/hosts"
LOGS = "/scratch/hadoop/logs"
# The benchmarks' archives hold configuration for tests, so they come after a cluster's own.
# Each archive lists the files of its folder in a fixed order
# (tare.images.toolbox.hadoop.list_classes).
LIBRARIES = f"{HOME}/lib.jar"
CLASSPATH = f"{LIBRARIES}:{CONF}:{HOME}/tests.jar"
CLASSES = f"{HOME}/daemons.jsa"
"""The archive of the daemons' classes, built from :data:`LIBRARIES` with the toolbox
(tare.images.toolbox.class_archive). If it does not match, Java starts without it."""
ENVIRONMENT = {"JAVA_HOME": f"{HOME}/java", "HADOOP_CONF_DIR": CONF, "MALLOC_ARENA_MAX": "2"}
_OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio", "java.io")
_OPENED_WIDE = (
    *_OPENED,
    "java.lang.invoke",
    "java.lang.reflect",
    "java.time",
    "java.util.concurrent.atomic",
    "java.util.regex",
    "java.util.zip",
)
_CLASSES, _CLASSES_WIDE = 128, 192
"""Maximum MiB of class metadata, without and with libraries in addition to Hadoop's own."""


@dataclass(frozen=True)
class Daemon:
    """One of Hadoop's daemons.

    Args:
        name: The name of the daemon and of its log.
        main: Its Java class.
        heap: The field of :class:`tare.workloads.mapreduce.sizes.Sizes` with its heap.
        moves_data: Whether data pass through it, so that the speed of its code matters.
        arguments: Its command-line arguments.
    """

    name: str
    main: str
    heap: Literal["daemon", "master"]
    moves_data: bool = False
    arguments: tuple[str, ...] = ()


NAMENODE = Daemon("namenode", "org.apache.hadoop.hdfs.server.namenode.NameNode", "master")
DATANODE = Daemon(
    "datanode",
    "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "daemon",
    moves_data=True,
    # A DataNode starts before its NameNode. By default it retries ten times and then pauses for
    # 5 s (BPServiceActor.retrieveNamespaceInfo). So it retries without pause, until the cluster's
    # own time limit.
    arguments=("-D", "ipc.client.connect.max.retries=1000000"),
)
MANAGER = Daemon(
    "resourcemanager",
    "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "master",
)
NODEMANAGER = Daemon(
    "nodemanager", "org.apache.hadoop.yarn.server.nodemanager.NodeManager", "daemon"
)
HISTORY = Daemon("historyserver", "org.apache.hadoop.mapreduce.v2.hs.JobHistoryServer", "daemon")
OF_MASTER = (NAMENODE, MANAGER, HISTORY)
OF_SLAVE = (DATANODE, NODEMANAGER)
DAEMONS = (*OF_MASTER, *OF_SLAVE)


def jvm(heap: int, processors: int, *, brief: bool, wide: bool = False) -> list[str]:
    """Return the options of a JVM; they leave no default that depends on its machine.

    Args:
        heap: Size of the heap in MiB.
        processors: The number of CPUs given to it.
        brief: Use only the fast compiler, for programs that wait more than they compute. This
            halves the CPU time of a daemon's start.
        wide: Reserve more room for libraries' classes, and open Java's own packages to them.
    """
    packages = _OPENED_WIDE if wide else _OPENED
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in packages]
    classes = _CLASSES_WIDE if wide else _CLASSES
    return [
        "-XX:+UseSerialGC",
        *(f"-Xms{heap}m", f"-Xmx{heap}m", "-Xss512k"),
        f"-XX:ActiveProcessorCount={processors}",
        *(["-XX:TieredStopAtLevel=1"] if brief else []),
        *("-XX:ReservedCodeCacheSize=64m", f"-XX:MaxMetaspaceSize={classes}m"),
        *("-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError"),
        "-Djava.net.preferIPv4Stack=true",
        f"-Djdk.net.hosts.file={HOSTS}",
        *opened,
    ]


def java(
    heap: int,
    processors: int,
    main: str,
    arguments: Sequence[str] = (),
    *,
    brief: bool = True,
    archives: str = "",
    shared: bool = False,
) -> list[str]:
    """Return the command that runs one of Hadoop's classes; see :func:`jvm`.

    Args:
        heap: Size of the heap in MiB.
        processors: The number of CPUs given to it.
        main: The class.
        arguments: The command-line arguments.
        brief: Whether to use only the fast compiler.
        archives: Archives for the class path, after Hadoop's; such a client reads the configuration
            in :data:`OWN_CONF` first.
        shared: Whether it loads classes from the archive :data:`CLASSES`.
    """
    options = jvm(heap, processors, brief=brief, wide=bool(archives))
    if shared:
        options.append(f"-XX:SharedArchiveFile={CLASSES}")
    path = f"{LIBRARIES}:{OWN_CONF}:{CONF}:{HOME}/tests.jar:{archives}"
    return [
        *(f"{HOME}/java/bin/java", *options),
        *("-cp", path if archives else CLASSPATH, main, *arguments),
    ]


def daemon(which: Daemon, sizes: Sizes, processors: int) -> list[str]:
    """Return the command that runs a daemon, with its log in the folder :data:`LOGS`."""
    heap = sizes.master if which.heap == "master" else sizes.daemon
    brief = not which.moves_data
    command = java(heap, processors, which.main, which.arguments, brief=brief, shared=True)
    return ["sh", "-c", f'exec "$@" >{LOGS}/{which.name}.log 2>&1', "sh", *command]


def format_command(sizes: Sizes, processors: int) -> list[str]:
    """Return the command that makes a new file system for the NameNode."""
    arguments = ["-format", "-nonInteractive"]
    return java(sizes.master, processors, NAMENODE.main, arguments, shared=True)
