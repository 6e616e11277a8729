"""What the configuration of a cluster that exists says, and jobs that keep to another folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError
from tare.workloads.mapreduce.configuration import as_xml
from tare.workloads.mapreduce.job import Job, JobStep, moved
from tare.workloads.mapreduce.outside import SITES, properties_of, read_outside
from workloads.workload_kinds import JOBS

THEIRS = {
    "core-site.xml": {"fs.defaultFS": "hdfs://nn.example:8020"},
    "hdfs-site.xml": {"dfs.replication": "2", "dfs.namenode.http-address": "0.0.0.0:9871"},
    "mapred-site.xml": {"mapreduce.jobhistory.address": "jobs.example:10020"},
    "yarn-site.xml": {"yarn.resourcemanager.hostname": "rm.example"},
}


def written(folder: Path, **changes: dict[str, str]) -> Path:
    for name in SITES:
        more = changes.get(name.partition("-")[0], {})
        (folder / name).write_text(as_xml({**THEIRS[name], **more}))
    return folder


def test_a_cluster_is_found_by_its_own_configuration(tmp_path: Path) -> None:
    about = read_outside(written(tmp_path))
    # A server that is at all addresses of its computer is reached where HDFS is.
    assert (about.namenode, about.history) == ("nn.example:9871", "jobs.example:19888")
    assert about.copies == 2
    assert about.names == ("nn.example", "jobs.example")
    assert set(about.mentioned) == {"nn.example", "jobs.example", "rm.example"}
    moved_to = about.at({"nn.example": "10.0.0.1", "jobs.example": "10.0.0.2"})
    assert (moved_to.namenode, moved_to.history) == ("10.0.0.1:9871", "10.0.0.2:19888")
    assert set(about.files) == set(SITES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"core": {"hadoop.security.authentication": "kerberos"}}, "asks for kerberos"),
        ({"core": {"fs.defaultFS": "s3a://bucket"}}, "core-site.xml: fs.defaultFS is s3a://bucket"),
        ({"hdfs": {"dfs.nameservices": "a,b"}}, "HDFS is a,b, of several NameNodes"),
        ({"hdfs": {"dfs.replication": "many"}}, "dfs.replication is not a number"),
    ],
)
def test_unusable_configuration_is_reported(
    tmp_path: Path, changes: dict[str, dict[str, str]], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read_outside(written(tmp_path, **changes))


def test_folder_without_configuration_is_reported(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    with pytest.raises(InputError, match=r"yarn-site\.xml: this is not XML"):
        read_outside(tmp_path)
    (tmp_path / "yarn-site.xml").unlink()
    with pytest.raises(InputError, match=r"has no yarn-site\.xml"):
        read_outside(tmp_path)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = properties_of(text, Path("core-site.xml"))
    except InputError:
        return
    assert all(isinstance(value, str) for value in found.values())


@pytest.mark.parametrize("name", ["dfsio", "terasort", "wordcount", "aggregate"])
def test_a_job_keeps_to_the_folder_that_it_is_given(name: str) -> None:
    work = JOBS[name]
    job = work.job(work.parameters.model_validate({}))
    text = repr((moved(job, "/user/me/own").steps, moved(job, "/user/me/own").remove))
    assert f"/user/me/own/{name}" in text
    assert f"'/tare/{name}" not in text and f'"/tare/{name}' not in text


def test_the_toolboxs_own_files_stay_where_they_are() -> None:
    given = JobStep(
        "put", script="cat /usr/share/tare/inputs/text.txt >/tare/x", arguments=("/tare/",)
    )
    (step,) = moved(Job((given,), lambda _: ""), "/own").steps
    assert step.script == "cat /usr/share/tare/inputs/text.txt >/own/x"
    assert list(step.arguments) == ["/own/"]
