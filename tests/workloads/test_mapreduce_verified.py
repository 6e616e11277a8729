"""Outputs of TeraSort and TestDFSIO that are wrong, and caches that are to stay warm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.workloads.mapreduce.dfsio import MIB
from tare.workloads.mapreduce.job import Job
from tare.workloads.mapreduce.terasort import RECORD, bytes_of_parts, wrong_order
from workloads.workload_kinds import JOBS

RECORDS, CHECKSUM = 10_000, 0x1388F1BBCB7C5
FILES, EACH = 3, 5


def listed(**lengths: int) -> str:
    """Return what HDFS says of a folder: files with their bytes; ``_`` for every hyphen."""
    files = [
        {"pathSuffix": name.replace("part_", "part-"), "length": length}
        for name, length in lengths.items()
    ]
    return json.dumps({"FileStatuses": {"FileStatus": files}})


def sorted_result(
    report: str = f"checksum\t{CHECKSUM:x}\n", made: int | None = CHECKSUM, size: int = RECORDS
) -> dict[str, Any]:
    parts = listed(_SUCCESS=0, part_1=size * RECORD - 700, part_2=700, **{"_partition.lst": 129})
    counters = {} if made is None else {"checksum": made}
    return {
        "generate": {"job": {"counters": counters}},
        "report": {"output": report},
        "parts": {"output": parts},
    }


def test_records_that_are_in_order_and_all_there_are_right() -> None:
    assert wrong_order(sorted_result(), RECORDS) == ""
    assert job_of("terasort", size=RECORDS * RECORD).check(sorted_result()) == ""


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (sorted_result("error\tmisorder in part-00001 between 'b' and 'a'\n"), "out of order"),
        (sorted_result("misorder\n"), "out of order"),
        (sorted_result(""), "reported no checksum"),
        (sorted_result(f"checksums {CHECKSUM:x}\n"), "reported no checksum"),
        (sorted_result(f"checksum\t{CHECKSUM + 1:x}\n"), f"but {CHECKSUM:x} was made"),
        (sorted_result(made=None), "but 0 was made"),
        (sorted_result(size=RECORDS - 1), f"{(RECORDS - 1) * RECORD} bytes, not {RECORDS} records"),
        (sorted_result(size=RECORDS + 1), f"not {RECORDS} records"),
    ],
)
def test_a_wrong_sorted_output_is_refused(result: dict[str, Any], words: str) -> None:
    assert words in wrong_order(result, RECORDS)


@given(st.lists(st.integers(0, 1 << 40), max_size=6), st.integers(0, 1 << 40))
def test_only_what_reduces_wrote_counts_as_output(parts: list[int], other: int) -> None:
    files = {f"part_r_{number}": length for number, length in enumerate(parts)}
    assert bytes_of_parts(listed(_SUCCESS=other, **files)) == sum(parts)


@given(st.text() | st.from_regex(r'\{"FileStatuses": .*\}'))
def test_an_invalid_answer_of_hdfs_counts_no_bytes(text: str) -> None:
    assert bytes_of_parts(text) == 0


def job_of(name: str, **given: Any) -> Job:
    return JOBS[name].job(JOBS[name].parameters.model_validate(given))


def moved(
    write: str | None = "15", read: str | None = "15", length: int | None = FILES * EACH * MIB
) -> dict[str, Any]:
    def client(mib: str | None) -> dict[str, str]:
        line = "" if mib is None else f"Total MBytes processed: {mib}\n"
        return {"output": f"----- TestDFSIO -----\n{line}"}

    files = "" if length is None else json.dumps({"ContentSummary": {"length": length}})
    # json.dumps writes a blank behind a colon, which HDFS does not.
    numbers = files.replace(": ", ":")
    return {"write": client(write), "read": client(read), "files": {"output": numbers}}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (moved(), ""),
        (moved(write="15.0"), ""),
        (moved(write="10"), "TestDFSIO -write reports 10 MiB, not 15 MiB"),
        (moved(read="20"), "TestDFSIO -read reports 20 MiB, not 15 MiB"),
        (moved(read=None), "TestDFSIO -read reports nothing"),
        (moved(length=FILES * EACH * MIB - 1), f"of the {FILES * EACH * MIB} bytes"),
        (moved(length=None), "HDFS holds nothing"),
    ],
)
def test_bytes_that_testdfsio_or_hdfs_lack_are_reported(result: dict[str, Any], words: str) -> None:
    job = job_of("dfsio", size=FILES * EACH * MIB, files=FILES).check(result)
    assert words in job and bool(job) == bool(words)


@pytest.mark.parametrize("warm", [False, True])
def test_caches_stay_warm_for_reading_alone_and_where_a_study_says_so(warm: bool) -> None:
    cold = {step.name: step.cold for step in job_of("dfsio", warm=warm).steps if step.measured}
    assert cold == {"write": True, "read": not warm}


def test_sync_and_copies_of_a_sorted_output_reach_mapreduce() -> None:
    job = job_of("terasort", output_replication=2, final_sync=False, replication=3)
    by_name = {step.name: list(step.arguments) for step in job.steps}
    assert "-Dmapreduce.terasort.output.replication=2" in by_name["sort"]
    assert "-Dmapreduce.terasort.final.sync=false" in by_name["sort"]
    assert "-Ddfs.replication=3" in by_name["generate"]
