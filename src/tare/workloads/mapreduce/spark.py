"""Spark on a cluster's YARN: the sizes of its JVMs, and the submission of a job.

Every setting on which a result depends is set explicitly. Sources: Spark's pages "Configuration"
and "Running Spark on YARN", version 3.5.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.errors import InputError
from tare.units import format_size
from tare.workloads.mapreduce.configuration import (
    DATA,
    HEARTBEAT_MS,
    LOST_MS,
    POLL_MS,
    ClusterLayout,
)
from tare.workloads.mapreduce.daemons import CONF, jvm
from tare.workloads.mapreduce.daemons import HOME as HADOOP
from tare.workloads.mapreduce.sizes import BEYOND_HEAP, MIB, Sizes

HOME = "/opt/spark"
"""Spark's folder in the toolbox (tare.images.toolbox.analytics)."""
EVENTS = f"{DATA}/events"
"""The folder of the event logs that a job's client writes, on the master's own disk (not HDFS)."""
LEAST_HEAP = 450
"""Minimum heap in MiB of a driver and of an executor (Spark's UnifiedMemoryManager)."""
DRIVER_HEAP = 512
BEYOND_EXECUTOR = 256
"""MiB of an executor or a driver outside its heap: classes, code, and network buffers."""
CODE_MIB, CLASSES_MIB, BUFFERS_MIB = 96, 160, 64
LEAST_MEMORY = 1536 * MIB
"""Minimum memory, in bytes, of a slave with Spark's executor, or of the master with its driver."""
# The packages in org.apache.spark.launcher.JavaModuleOptions: a driver that Spark's scripts do not
# start needs them as arguments.
_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)


@dataclass(frozen=True)
class Executors:
    """Spark's executors on a cluster: one on each slave.

    Args:
        count: The number of executors.
        cores: The number of tasks that each runs at a time.
        heap: Heap of each in MiB.
        beyond: MiB that YARN counts for each in addition to its heap.
    """

    count: int
    cores: int
    heap: int
    beyond: int


def executors_for(slaves: int, sizes: Sizes) -> Executors:
    """Return the executors of a cluster: each replaces all tasks of its slave.

    Args:
        slaves: The number of slaves.
        sizes: The sizes of a slave's JVMs, as for MapReduce.

    Raises:
        InputError: A slave has too little memory.
    """
    heap = sizes.tasks * sizes.task_container - BEYOND_EXECUTOR
    if heap < LEAST_HEAP:
        raise InputError(
            f"{heap} MiB are left for the heap of Spark's executor on a slave, and it does not "
            f"start with less than {LEAST_HEAP} MiB",
            f"give slaves {format_size(LEAST_MEMORY)} of memory, and the master a machine of its "
            "own: `cluster: {memory: 1536MiB, master: apart}`",
        )
    return Executors(slaves, sizes.tasks, heap, BEYOND_EXECUTOR)


def executors_of(layout: ClusterLayout) -> dict[str, int]:
    """Return number and sizes of Spark's executors on a cluster, for the record; heaps in MiB."""
    executors = executors_for(len(layout.slaves), layout.sizes)
    return {
        "executors": executors.count,
        "cores": executors.cores,
        "heap_mib": executors.heap,
        "beside_heap_mib": executors.beyond,
        "driver_heap_mib": DRIVER_HEAP,
    }


def virtual_machine(heap: int, processors: int) -> list[str]:
    """Return the options of a driver's or executor's JVM; see :func:`..daemons.jvm`."""
    chosen = {
        "-XX:ReservedCodeCacheSize": f"={CODE_MIB}m",
        "-XX:MaxMetaspaceSize": f"={CLASSES_MIB}m",
    }
    kept = [
        word
        for word in jvm(heap, processors, brief=False)
        if word.partition("=")[0] not in chosen and not word.startswith("--add-opens")
    ]
    return [
        *kept,
        *(f"{name}{value}" for name, value in chosen.items()),
        f"-XX:MaxDirectMemorySize={BUFFERS_MIB}m",
        "-Djdk.reflect.useDirectMethodHandle=false",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    ]


def settings(layout: ClusterLayout) -> dict[str, str]:
    """Return the properties of every Spark job on a cluster."""
    executors = executors_for(len(layout.slaves), layout.sizes)
    wait = f"{layout.scaled_wait_ms(LOST_MS)}ms"
    # Spark sets the maximum heap itself, and rejects a job that sets it.
    own = [
        word
        for word in virtual_machine(executors.heap, layout.processors)
        if not word.startswith("-Xmx")
    ]
    manager = [
        word
        for word in jvm(layout.sizes.manager, layout.processors, brief=True)
        if not word.startswith("-Xmx")
    ]
    java = f"{HADOOP}/java"
    return {
        "spark.master": "yarn",
        "spark.submit.deployMode": "client",
        "spark.driver.host": layout.master,
        "spark.ui.enabled": "false",
        "spark.local.dir": f"{DATA}/tmp",
        # Each machine has them in its toolbox. By default, Spark copies them to HDFS for each job.
        "spark.yarn.jars": f"local:{HOME}/jars/*",
        "spark.yarn.populateHadoopClasspath": "false",
        "spark.yarn.am.memory": f"{layout.sizes.manager}m",
        "spark.yarn.am.memoryOverhead": f"{BEYOND_HEAP}m",
        "spark.yarn.am.cores": "1",
        "spark.yarn.am.extraJavaOptions": " ".join(manager),
        "spark.yarn.appMasterEnv.JAVA_HOME": java,
        "spark.executorEnv.JAVA_HOME": java,
        "spark.executor.instances": str(executors.count),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": f"{executors.heap}m",
        "spark.executor.memoryOverhead": f"{executors.beyond}m",
        "spark.executor.extraJavaOptions": " ".join(own),
        # As with MapReduce: the same tasks each time, no task twice, and all slaves together.
        "spark.dynamicAllocation.enabled": "false",
        "spark.shuffle.service.enabled": "false",
        "spark.speculation": "false",
        "spark.task.maxFailures": "1",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.yarn.maxAppAttempts": "1",
        "spark.executor.maxNumFailures": "1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": wait,
        # An executor does not start if one block could take more memory than all buffers may.
        "spark.network.maxRemoteBlockSizeFetchToMem": f"{BUFFERS_MIB // 2}m",
        "spark.reducer.maxSizeInFlight": f"{BUFFERS_MIB // 2}m",
        # Machines that are only slow, such as emulated ones, must not be given up.
        "spark.network.timeout": wait,
        "spark.yarn.am.waitTime": wait,
        "spark.yarn.scheduler.heartbeat.interval-ms": layout.scaled_wait_ms(HEARTBEAT_MS),
        "spark.yarn.report.interval": f"{layout.scaled_wait_ms(POLL_MS)}ms",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{EVENTS}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.serializer": "org.apache.spark.serializer.JavaSerializer",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
    }


def submission(
    layout: ClusterLayout, main: str, arguments: Sequence[str], properties: Mapping[str, object]
) -> list[str]:
    """Return the command that submits one of the toolbox's job classes to Spark.

    Args:
        layout: The cluster.
        main: The class.
        arguments: The arguments of the class.
        properties: The job's own properties, which override those of :func:`settings`.

    Raises:
        InputError: The cluster's machines are too small for Spark.
    """
    properties_of_job = {
        **settings(layout),
        **{name: _word(value) for name, value in properties.items()},
    }
    given = [
        word for name, value in properties_of_job.items() for word in ("--conf", f"{name}={value}")
    ]
    return [
        f"{HADOOP}/java/bin/java",
        *virtual_machine(DRIVER_HEAP, layout.processors),
        *("-cp", f"{CONF}:{HOME}/jars/*"),
        "org.apache.spark.deploy.SparkSubmit",
        *given,
        # The classes are in Spark's own archives, so no further archive is named.
        *("--class", main, "spark-internal"),
        *arguments,
    ]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
