"""A fault of a cluster is named in Hadoop's own words, with the lines of the log that show it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.run.topologies.cluster.faults import FAULTS, Fault, fault_in, fault_in_logs, lines_of

# Messages of Hadoop's source (3.4.2), filled in as a small cluster would.
RECORDED = {
    "a slave's disk is full": (
        "java.io.IOException: File /tare/dfsio/io_data/test_io_0 could only be written to 0 of the "
        "1 minReplication nodes. There are 1 datanode(s) running and 1 node(s) are excluded in "
        "this operation."
    ),
    "the job was killed": (
        "INFO org.apache.hadoop.mapreduce.Job: Job job_1_0003 failed with state KILLED due to: "
        "Application application_1_0003 was killed by user root at 10.0.0.1"
    ),
    "a NodeManager was lost": "Container released on a *lost* node",
    "HDFS lost blocks": (
        "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1:blk_2 "
        "file=/tare/dfsio/io_data/test_io_0"
    ),
}


@pytest.mark.parametrize("words", RECORDED)
def test_a_fault_is_named_by_hadoops_own_words(words: str) -> None:
    fault = fault_in(f"INFO before\n{RECORDED[words]}\nINFO after")
    assert fault is not None and fault.words == words
    assert lines_of(fault, f"one\n{RECORDED[words]}\nlast") == RECORDED[words][:300]


def test_a_fault_that_its_client_does_not_know_is_found_in_the_logs() -> None:
    words = "a slave's disk is full"
    logs = {"slave-1-datanode.log": RECORDED[words], "master-namenode.log": "INFO all is well"}
    fault = fault_in_logs(logs)
    assert fault is not None and fault.words == words
    assert fault_in_logs({"master-namenode.log": "INFO all is well"}) is None


def test_an_unknown_fault_gets_no_name() -> None:
    assert fault_in("java.lang.NullPointerException\n\tat a.b(C.java:1)") is None


@pytest.mark.fuzz
@given(st.text(), st.sampled_from(FAULTS))
def test_any_log_gives_a_few_short_lines(log: str, fault: Fault) -> None:
    assert len(lines_of(fault, log)) <= 2 * 300 + 3
    assert fault_in(log) is None or any(sign in log for each in FAULTS for sign in each.signs)
