"""A cluster's configuration: what is written is what Hadoop reads, and memory is shared out."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tare.errors import InputError
from tare.run.topologies.cluster.cluster import EMULATED, UP_S
from tare.workloads.mapreduce.configuration import (
    MASTER_CORES,
    TASK_CORES,
    ClusterLayout,
    as_xml,
    files_for,
    hosts_for,
    yarn,
)
from tare.workloads.mapreduce.daemons import (
    CLASSES,
    CLASSPATH,
    DAEMONS,
    DATANODE,
    LIBRARIES,
    OF_SLAVE,
    daemon,
    format_command,
    java,
    jvm,
)
from tare.workloads.mapreduce.sizes import (
    BEYOND_HEAP,
    DAEMON_HEAP,
    LEAST_TASK_HEAP,
    MIB,
    needed,
    sizes_for,
)

ADDRESSES = {"master": "10.0.0.3", "slave-1": "10.0.0.4", "slave-2": "10.0.0.5"}


def layout(**changes: object) -> ClusterLayout:
    made = ClusterLayout(
        addresses=ADDRESSES,
        slaves=("slave-1", "slave-2"),
        sizes=sizes_for(1 << 30, 2),
        processors=1,
        replication=3,
        block=32 << 20,
        sync=False,
        slow_start=1.0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def read(text: str) -> dict[str, str]:
    found = ET.fromstring(text).findall("property")
    return {one.findtext("name", ""): one.findtext("value", "") for one in found}


# XML cannot hold some characters at all (XML 1.0, section 2.2).
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=40)


@given(st.dictionaries(TEXTS.filter(str.strip), TEXTS, max_size=5))
def test_written_configuration_is_read_back(properties: dict[str, str]) -> None:
    assume(not any("\ufffe" <= char <= "\uffff" for text in properties for char in text))
    assume(not any("\ufffe" <= c <= "\uffff" for text in properties.values() for c in text))
    assert read(as_xml(properties)) == properties


def test_a_line_end_of_its_own_kind_is_kept() -> None:
    assert read(as_xml({"a": "x\r\ny\rz\n"})) == {"a": "x\r\ny\rz\n"}


@pytest.mark.parametrize("char", ["\0", "\x0b", "\ufffe", "\ud800"])
def test_values_that_xml_cannot_hold_are_refused(char: str) -> None:
    with pytest.raises(ValueError, match="XML"):
        as_xml({"a": char})


@given(st.integers(0, 1 << 40), st.integers(1, 64))
def test_no_more_memory_is_given_than_there_is(memory: int, tasks: int) -> None:
    try:
        sizes = sizes_for(memory, tasks)
    except InputError as error:
        assert memory < needed(tasks, master=False)
        assert "memory" in error.message
        return
    assert sizes.task >= LEAST_TASK_HEAP
    daemons = 2 * (DAEMON_HEAP + BEYOND_HEAP)
    assert (sizes.node + daemons) * MIB <= memory


@given(st.integers(1, 8))
def test_master_next_to_a_slave_leaves_the_slave_what_it_needs(tasks: int) -> None:
    least = needed(tasks, master=True)
    assert sizes_for(least, tasks, master=True).task >= LEAST_TASK_HEAP
    with pytest.raises(InputError):
        sizes_for(least - MIB, tasks, master=True)


@given(st.integers(1, 16), st.integers(4 << 30, 64 << 30))
def test_a_machine_has_room_for_its_tasks_and_a_master_and_for_no_task_more(
    tasks: int, space: int
) -> None:
    sizes = sizes_for(space, tasks)
    settings = yarn(layout(sizes=sizes), "slave-1")
    cores = int(settings["yarn.nodemanager.resource.cpu-vcores"])
    assert cores - MASTER_CORES == tasks * TASK_CORES
    assert cores < (tasks + 1) * TASK_CORES
    memory = int(settings["yarn.nodemanager.resource.memory-mb"])
    step = int(settings["yarn.scheduler.minimum-allocation-mb"])
    task, manager = (
        -(-asked // step) * step for asked in (sizes.task_container, sizes.manager_container)
    )
    assert memory >= tasks * task + manager


def test_copies_do_not_exceed_the_number_of_machines() -> None:
    assert layout().effective_replication == 2
    assert layout(replication=1).effective_replication == 1


def test_every_machine_has_all_files_and_its_own_name_in_them() -> None:
    for name in ADDRESSES:
        files = files_for(layout(), name)
        assert read(files["core-site.xml"])["fs.defaultFS"] == "hdfs://master:8020"
        assert read(files["hdfs-site.xml"])["dfs.datanode.hostname"] == name
        assert read(files["yarn-site.xml"])["yarn.nodemanager.hostname"] == name
        assert read(files["hdfs-site.xml"])["dfs.replication"] == "3"


def test_a_small_disk_is_used_to_its_end() -> None:
    hdfs = read(files_for(layout(), "slave-1")["hdfs-site.xml"])
    spared = "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space"
    assert hdfs[spared] == "0"


def test_nothing_that_a_result_depends_on_is_left_at_a_default() -> None:
    mapred = read(files_for(layout(slow_start=0.5), "slave-1")["mapred-site.xml"])
    assert mapred["mapreduce.job.reduce.slowstart.completedmaps"] == "0.5"
    assert mapred["mapreduce.map.speculative"] == mapred["mapreduce.reduce.speculative"] == "false"
    assert mapred["mapreduce.job.ubertask.enable"] == "false"
    for part in ("mapreduce.map.java.opts", "yarn.app.mapreduce.am.command-opts"):
        for word in ("-XX:+UseSerialGC", "-Xmx", "-XX:ActiveProcessorCount=1"):
            assert word in mapred[part], (part, word)


def test_jvm_arguments_have_heap_collector_and_cpus() -> None:
    settings = jvm(100, 3, brief=False)
    assert {"-Xms100m", "-Xmx100m", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=3"} <= {*settings}


def test_daemons_start_from_an_archive_of_classes_and_tasks_as_users_have_them() -> None:
    archive = f"-XX:SharedArchiveFile={CLASSES}"
    assert all(archive in daemon(each, layout().sizes, 1) for each in DAEMONS)
    assert archive in format_command(layout().sizes, 1)
    assert archive not in java(96, 1, "org.apache.hadoop.examples.WordCount")
    assert "SharedArchiveFile" not in str(files_for(layout(), "slave-1"))
    # Java takes it only if the archives that it was built from come first.
    assert CLASSPATH.split(":")[0] == LIBRARIES


def test_only_what_works_on_data_is_compiled_well() -> None:
    mapred = read(files_for(layout(), "slave-1")["mapred-site.xml"])
    quick = "-XX:TieredStopAtLevel=1"
    assert quick in mapred["yarn.app.mapreduce.am.command-opts"]
    assert quick not in mapred["mapreduce.map.java.opts"]
    brief = {each.name: quick in daemon(each, layout().sizes, 1) for each in OF_SLAVE}
    assert brief == {"datanode": False, "nodemanager": True}


def test_no_daemon_of_a_slave_pauses_where_it_is_up_before_its_master() -> None:
    """By default a NodeManager asks for 2 s and then waits 30 s, and a DataNode waits 5 s."""
    files = files_for(layout(), "slave-1")
    assert read(files["core-site.xml"])["ipc.client.connect.retry.interval"] == "200"
    assert read(files["yarn-site.xml"])["yarn.resourcemanager.connect.retry-interval.ms"] == "200"
    *_, main, option, limit = daemon(DATANODE, layout().sizes, 1)
    assert (main, option) == (DATANODE.main, "-D")
    name, tries = limit.split("=")
    assert name == "ipc.client.connect.max.retries"
    assert int(tries) * 0.2 > EMULATED * UP_S


def test_all_waits_are_longer_on_emulated_machines_and_nothing_else_changes() -> None:
    fast, slow = (files_for(layout(slower=times), "slave-1") for times in (1.0, 15.0))
    name = "hadoop-metrics2-datanode.properties"
    assert (fast.pop(name), slow.pop(name)) == ("*.periodMillis=100\n", "*.periodMillis=1500\n")
    changed = {
        name: (value, read(slow[file])[name])
        for file in fast
        if file.endswith(".xml")
        for name, value in read(fast[file]).items()
        if read(slow[file])[name] != value
    }
    assert all(int(late) == 15 * int(early) for early, late in changed.values())
    asked = {name for name, (early, _) in changed.items() if int(early) < 1000}
    lost = {name: late for name, (_, late) in changed.items() if name not in asked}
    assert (len(asked), len(lost)) == (6, 6)
    assert lost["mapreduce.task.timeout"] == lost["mapreduce.task.stuck.timeout-ms"] == "9000000"
    # YARN does not start where one of these is a third of a day or more.
    assert max(map(int, lost.values())) < 8 * 3_600_000


def test_names_mean_the_addresses_of_the_network() -> None:
    lines = hosts_for(layout()).splitlines()
    assert "127.0.0.1 localhost" in lines
    assert {f"{address} {name}" for name, address in ADDRESSES.items()} <= {*lines}
