"""The configuration files of one Hadoop cluster, made only from the values in this module.

Nothing is left at a default that a result depends on. Sources: Hadoop's core-default.xml,
hdfs-default.xml, yarn-default.xml and mapred-default.xml, version 3.4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tare.workloads.mapreduce.daemons import CLASSPATH, CONF, HOME, HOSTS, LOGS, jvm
from tare.workloads.mapreduce.sizes import Sizes

DATA = "/scratch/hadoop"
"""Where a cluster keeps all it writes: on the machine's own disk."""
NAMENODE_PORT, NAMENODE_WEB, DATANODE_WEB = 8020, 9870, 9864
MANAGER_WEB, HISTORY_WEB = 8088, 19888
TASK_CORES, MASTER_CORES = 2, 1
"""YARN's own measure. A machine has just too little of it for one task more than it is to run."""
POLL_MS = 200
"""How often a client asks whether its job has ended, which by default is every 5 s, and a daemon
whether the one that it needs is up."""
HEARTBEAT_MS = 250
COUNTED_MS = 100
"""How old a DataNode's counters may be when they are asked for (MetricsSourceAdapter)."""
LOST_MS = 600_000
"""How long nothing is heard of a machine or a task before Hadoop counts it as lost; by default ten
minutes, too.

Tare sees by itself when a daemon or a machine ends, and a cell has a deadline. What is only slow,
as emulated machines are, must not be given up: see :attr:`Layout.slower`. YARN takes less than a
third of the time for which its keys last, which is a day (NMTokenSecretManagerInRM,
RMContainerTokenSecretManager)."""
SET_UP = (
    f"rm -rf {DATA} /tmp/hadoop && mkdir -p {CONF} {LOGS} {DATA}/tmp && "
    f'printf "%s" "$1" >{HOSTS} && printf "%s %s\\n" "$2" "$(hostname)" >>{HOSTS} && shift 2 && '
    f'while [ $# -gt 0 ]; do printf "%s" "$2" >"{CONF}/$1" || exit 1; shift 2; done'
)
"""A shell's script that makes a machine one of a cluster; its words are :func:`set_up_words`."""


@dataclass(frozen=True)
class ClusterLayout:
    """The machines of a cluster, and how it works.

    Args:
        addresses: Each machine's address by its name, the master's first.
        slaves: The names of the machines that hold data and run tasks.
        sizes: The heaps of the JVMs.
        processors: The number of CPUs given to each JVM.
        replication: How many copies of a block are wanted.
        block: Bytes of a block.
        sync: Whether a DataNode brings each block to its disk when it is complete.
        slow_start: Which share of the maps must have ended before reduces begin.
        slower: Factor by which all waits are longer than on hardware: until a daemon or a client
            asks or reports again, and until a silent one counts as lost.
    """

    addresses: Mapping[str, str]
    slaves: tuple[str, ...]
    sizes: Sizes
    processors: int
    replication: int
    block: int
    sync: bool
    slow_start: float
    slower: float = 1.0

    def scaled_wait_ms(self, milliseconds: int) -> str:
        """Return in milliseconds, as text, how long a wait is that is so long on hardware."""
        return str(round(milliseconds * self.slower))

    @property
    def master(self) -> str:
        """The name of the master."""
        return next(iter(self.addresses))

    @property
    def effective_replication(self) -> int:
        """How many copies there really are where a job says nothing else."""
        return self.copies(None)

    def copies(self, wanted: int | None) -> int:
        """Return how many copies there really are: no machine holds two.

        Args:
            wanted: How many a job asks for; None: it leaves that to the cluster.
        """
        return min(wanted or self.replication, len(self.slaves))


def files_for(layout: ClusterLayout, name: str) -> dict[str, str]:
    """Return the configuration files of one machine of a cluster: name to text."""
    return {
        "core-site.xml": as_xml(core(layout)),
        "hdfs-site.xml": as_xml(hdfs(layout, name)),
        "yarn-site.xml": as_xml(yarn(layout, name)),
        "mapred-site.xml": as_xml(mapred(layout)),
        "capacity-scheduler.xml": as_xml(CAPACITY),
        "log4j.properties": LOGGING,
        "hadoop-metrics2-datanode.properties": metrics(layout),
    }


def hosts_for(layout: ClusterLayout) -> str:
    """Return what names mean in a cluster, as ``/etc/hosts`` has it (hosts(5))."""
    lines = [f"{address} {name}" for name, address in layout.addresses.items()]
    return "\n".join(("127.0.0.1 localhost", *lines, ""))


def set_up_words(layout: ClusterLayout, name: str) -> list[str]:
    """Return the words that :data:`SET_UP` is given on one machine of a cluster."""
    files = [word for file in files_for(layout, name).items() for word in file]
    return [hosts_for(layout), layout.addresses[name], *files]


def as_xml(properties: Mapping[str, str]) -> str:
    """Return properties as Hadoop reads them.

    Raises:
        ValueError: A text holds what XML 1.0 cannot (its section 2.2), such as a null byte.
    """
    for text in (*properties, *properties.values()):
        if any(not _fits_xml(char) for char in text):
            raise ValueError(f"{text!r} cannot be written as XML")
    lines = (
        f"<property><name>{_plain(name)}</name><value>{_plain(value)}</value></property>"
        for name, value in properties.items()
    )
    return "\n".join(("<configuration>", *lines, "</configuration>", ""))


def _plain(text: str) -> str:
    # A parser turns the other two line ends into one (XML 1.0, section 2.11) unless escaped.
    return escape(text, {"\r": "&#13;"})


def _fits_xml(char: str) -> bool:
    code = ord(char)
    return char in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code > 0xFFFF


def core(layout: ClusterLayout) -> dict[str, str]:
    """Return ``core-site.xml``."""
    return {
        "fs.defaultFS": f"hdfs://{layout.master}:{NAMENODE_PORT}",
        "hadoop.tmp.dir": f"{DATA}/tmp",
        "ipc.client.connect.retry.interval": layout.scaled_wait_ms(POLL_MS),
    }


def hdfs(layout: ClusterLayout, name: str) -> dict[str, str]:
    """Return ``hdfs-site.xml`` of one machine."""
    return {
        "dfs.namenode.name.dir": f"file://{DATA}/name",
        "dfs.namenode.rpc-address": f"{layout.master}:{NAMENODE_PORT}",
        "dfs.namenode.http-address": f"{layout.master}:{NAMENODE_WEB}",
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.heartbeat.recheck-interval": layout.scaled_wait_ms(LOST_MS // 2),
        "dfs.heartbeat.interval": "1",
        "dfs.datanode.data.dir": f"file://{DATA}/data",
        # Otherwise a disk takes a block only if 1 GiB stays free.
        "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0",
        "dfs.datanode.hostname": name,
        "dfs.datanode.address": f"{name}:9866",
        "dfs.datanode.http.address": f"{name}:{DATANODE_WEB}",
        "dfs.datanode.ipc.address": f"{name}:9867",
        "dfs.datanode.synconclose": _word(layout.sync),
        "dfs.replication": str(layout.replication),
        "dfs.blocksize": str(layout.block),
        "dfs.namenode.fs-limits.min-block-size": "4096",
        "dfs.permissions.enabled": "false",
    }


def yarn(layout: ClusterLayout, name: str) -> dict[str, str]:
    """Return ``yarn-site.xml`` of one machine."""
    sizes = layout.sizes
    return {
        "yarn.resourcemanager.hostname": layout.master,
        "yarn.resourcemanager.webapp.address": f"{layout.master}:{MANAGER_WEB}",
        "yarn.resourcemanager.am.max-attempts": "1",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": layout.scaled_wait_ms(
            HEARTBEAT_MS
        ),
        # A NodeManager that is up before it would ask again after 30 s.
        "yarn.resourcemanager.connect.retry-interval.ms": layout.scaled_wait_ms(POLL_MS),
        "yarn.nm.liveness-monitor.expiry-interval-ms": layout.scaled_wait_ms(LOST_MS),
        "yarn.am.liveness-monitor.expiry-interval-ms": layout.scaled_wait_ms(LOST_MS),
        "yarn.resourcemanager.rm.container-allocation.expiry-interval-ms": layout.scaled_wait_ms(
            LOST_MS
        ),
        "yarn.nodemanager.hostname": name,
        "yarn.nodemanager.aux-services": "mapreduce_shuffle",
        "yarn.nodemanager.resource.memory-mb": str(sizes.node),
        "yarn.nodemanager.resource.cpu-vcores": str(sizes.tasks * TASK_CORES + MASTER_CORES),
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.local-dirs": f"{DATA}/local",
        "yarn.nodemanager.log-dirs": f"{DATA}/containers",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        "yarn.nodemanager.env-whitelist": "JAVA_HOME,MALLOC_ARENA_MAX",
        # What is asked for is rounded up to multiples of it, and would no longer fit.
        "yarn.scheduler.minimum-allocation-mb": "1",
        "yarn.scheduler.maximum-allocation-mb": str(sizes.node),
        "yarn.application.classpath": CLASSPATH,
        "yarn.log-aggregation-enable": "false",
    }


def mapred(layout: ClusterLayout, archives: str = "") -> dict[str, str]:
    """Return ``mapred-site.xml``; ``archives``: what tasks find behind Hadoop's own."""
    sizes = layout.sizes
    task = " ".join(jvm(sizes.task, layout.processors, brief=False, wide=bool(archives)))
    return {
        "mapreduce.framework.name": "yarn",
        "mapreduce.application.classpath": ":".join(filter(None, (CLASSPATH, archives))),
        "mapreduce.map.memory.mb": str(sizes.task_container),
        "mapreduce.reduce.memory.mb": str(sizes.task_container),
        "mapreduce.map.cpu.vcores": str(TASK_CORES),
        "mapreduce.reduce.cpu.vcores": str(TASK_CORES),
        "mapreduce.map.java.opts": task,
        "mapreduce.reduce.java.opts": task,
        "mapreduce.task.io.sort.mb": str(sizes.sort),
        # A second attempt would hide what went wrong in a longer time.
        "mapreduce.map.maxattempts": "1",
        "mapreduce.reduce.maxattempts": "1",
        "mapreduce.am.max-attempts": "1",
        "mapreduce.task.timeout": layout.scaled_wait_ms(LOST_MS),
        # For a task that has not reported yet.
        "mapreduce.task.stuck.timeout-ms": layout.scaled_wait_ms(LOST_MS),
        "mapreduce.map.speculative": "false",
        "mapreduce.reduce.speculative": "false",
        "mapreduce.job.ubertask.enable": "false",
        "mapreduce.job.reduce.slowstart.completedmaps": str(layout.slow_start),
        "mapreduce.client.completion.pollinterval": layout.scaled_wait_ms(POLL_MS),
        "mapreduce.client.progressmonitor.pollinterval": layout.scaled_wait_ms(POLL_MS),
        "mapreduce.jobhistory.address": f"{layout.master}:10020",
        "mapreduce.jobhistory.webapp.address": f"{layout.master}:{HISTORY_WEB}",
        "mapreduce.jobhistory.intermediate-done-dir": "/history/new",
        "mapreduce.jobhistory.done-dir": "/history/done",
        "yarn.app.mapreduce.am.staging-dir": "/staging",
        "yarn.app.mapreduce.am.resource.mb": str(sizes.manager_container),
        "yarn.app.mapreduce.am.resource.cpu-vcores": str(MASTER_CORES),
        "yarn.app.mapreduce.am.command-opts": " ".join(
            jvm(sizes.manager, layout.processors, brief=True)
        ),
        "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": layout.scaled_wait_ms(
            HEARTBEAT_MS
        ),
        "yarn.app.mapreduce.am.env": f"JAVA_HOME={HOME}/java",
    }


CAPACITY = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    # It counts cores too, by which a machine's tasks are kept to their number.
    "yarn.scheduler.capacity.resource-calculator": (
        "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
    ),
}
LOGGING = f"""log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{{ISO8601}} %p %c: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
# All of it goes to a file in {LOGS}.
"""


def metrics(layout: ClusterLayout) -> str:
    """Return how often a DataNode updates the counters of its JMX.

    By default it is every 10 s, in which jobs begin.
    """
    return f"*.periodMillis={layout.scaled_wait_ms(COUNTED_MS)}\n"


def _word(value: bool) -> str:
    return "true" if value else "false"
