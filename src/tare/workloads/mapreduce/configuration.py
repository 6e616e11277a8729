"""The configuration files of one Hadoop cluster, made only from the values in this module.

Every setting on which a result depends is set explicitly. Sources: Hadoop's core-default.xml,
hdfs-default.xml, yarn-default.xml and mapred-default.xml, version 3.4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tare.workloads.mapreduce.daemons import CLASSPATH, CONF, HOME, HOSTS, LOGS, jvm
from tare.workloads.mapreduce.sizes import Sizes

DATA = "/scratch/hadoop"
"""The folder for everything that a cluster writes, on the machine's own disk."""
NAMENODE_PORT, NAMENODE_WEB, DATANODE_WEB = 8020, 9870, 9864
MANAGER_WEB, HISTORY_WEB = 8088, 19888
TASK_CORES, MASTER_CORES = 2, 1
"""YARN's virtual cores of a task and of an application master. A machine offers just enough of them
for its tasks and one application master, and too few for a further task."""
POLL_MS = 200
"""Milliseconds between a client's checks whether its job has ended (by default 5 s), and between a
daemon's attempts to connect to another daemon."""
HEARTBEAT_MS = 250
COUNTED_MS = 100
"""The maximum age of a DataNode's counters when they are read, in ms (MetricsSourceAdapter)."""
LOST_MS = 600_000
"""Milliseconds of silence after which Hadoop counts a machine or a task as lost; Hadoop's default
is ten minutes, too.

Tare itself detects when a daemon or a machine ends, and a cell has a deadline. Machines that are
only slow, such as emulated ones, must not be given up: see :attr:`ClusterLayout.slower`. YARN
accepts less than a third of the lifetime of its keys, which is a day (NMTokenSecretManagerInRM,
RMContainerTokenSecretManager)."""
SET_UP = (
    f"rm -rf {DATA} /tmp/hadoop && mkdir -p {CONF} {LOGS} {DATA}/tmp && "
    f'printf "%s" "$1" >{HOSTS} && printf "%s %s\\n" "$2" "$(hostname)" >>{HOSTS} && shift 2 && '
    f'while [ $# -gt 0 ]; do printf "%s" "$2" >"{CONF}/$1" || exit 1; shift 2; done'
)
"""The shell script that sets up a machine of a cluster; :func:`set_up_words` has its arguments."""


@dataclass(frozen=True)
class ClusterLayout:
    """The machines of a cluster, and its settings.

    Args:
        addresses: Each machine's address by its name, the master's first.
        slaves: The names of the machines that hold data and run tasks.
        sizes: The heaps of the JVMs.
        processors: The number of CPUs given to each JVM.
        replication: The requested number of copies of a block.
        block: Size of a block, in bytes.
        sync: Whether a DataNode syncs each complete block to its disk.
        slow_start: The share of the maps that must have ended before reduces begin.
        slower: The factor by which all waits are longer than on hardware: those between two
            requests or reports, and the silence after which a daemon or client counts as lost.
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
        """Return a wait in milliseconds, as text, scaled by :attr:`slower`.

        Args:
            milliseconds: The wait on hardware.
        """
        return str(round(milliseconds * self.slower))

    @property
    def master(self) -> str:
        """The name of the master."""
        return next(iter(self.addresses))

    @property
    def effective_replication(self) -> int:
        """The actual number of copies of a block if a job requests no number."""
        return self.copies(None)

    def copies(self, wanted: int | None) -> int:
        """Return the actual number of copies of a block: no machine holds two.

        Args:
            wanted: The number that a job requests; None: the cluster's.
        """
        return min(wanted or self.replication, len(self.slaves))


def files_for(layout: ClusterLayout, name: str) -> dict[str, str]:
    """Return the text of each configuration file of one machine of a cluster, by file name."""
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
    """Return a cluster's addresses and names in the format of ``/etc/hosts`` (hosts(5))."""
    lines = [f"{address} {name}" for name, address in layout.addresses.items()]
    return "\n".join(("127.0.0.1 localhost", *lines, ""))


def set_up_words(layout: ClusterLayout, name: str) -> list[str]:
    """Return the arguments of :data:`SET_UP` for one machine of a cluster."""
    files = [word for file in files_for(layout, name).items() for word in file]
    return [hosts_for(layout), layout.addresses[name], *files]


def as_xml(properties: Mapping[str, str]) -> str:
    """Return properties as the XML that Hadoop reads.

    Raises:
        ValueError: A text has a character that XML 1.0 does not allow (section 2.2), such as a
            null byte.
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
    """Return the properties of ``core-site.xml``."""
    return {
        "fs.defaultFS": f"hdfs://{layout.master}:{NAMENODE_PORT}",
        "hadoop.tmp.dir": f"{DATA}/tmp",
        "ipc.client.connect.retry.interval": layout.scaled_wait_ms(POLL_MS),
    }


def hdfs(layout: ClusterLayout, name: str) -> dict[str, str]:
    """Return the properties of ``hdfs-site.xml`` of one machine."""
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
    """Return the properties of ``yarn-site.xml`` of one machine."""
    sizes = layout.sizes
    return {
        "yarn.resourcemanager.hostname": layout.master,
        "yarn.resourcemanager.webapp.address": f"{layout.master}:{MANAGER_WEB}",
        "yarn.resourcemanager.am.max-attempts": "1",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": layout.scaled_wait_ms(
            HEARTBEAT_MS
        ),
        # By default, a NodeManager that starts before the ResourceManager retries after 30 s.
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
        # YARN rounds requests up to multiples of it, and rounded tasks would no longer fit.
        "yarn.scheduler.minimum-allocation-mb": "1",
        "yarn.scheduler.maximum-allocation-mb": str(sizes.node),
        "yarn.application.classpath": CLASSPATH,
        "yarn.log-aggregation-enable": "false",
    }


def mapred(layout: ClusterLayout, archives: str = "") -> dict[str, str]:
    """Return the properties of ``mapred-site.xml``.

    Args:
        layout: The cluster.
        archives: Further archives for the tasks' class path, after Hadoop's own.
    """
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
        # A second attempt would hide a failure: the job would only take longer.
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
    # It also counts cores, which limits the number of a machine's tasks.
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
    """Return the configuration of how often a DataNode updates its JMX counters.

    The default of 10 s is too long: jobs begin in the meantime.
    """
    return f"*.periodMillis={layout.scaled_wait_ms(COUNTED_MS)}\n"


def _word(value: bool) -> str:
    return "true" if value else "false"
