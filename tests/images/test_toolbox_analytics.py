"""The toolbox has Spark exactly as pinned, and Tare's own jobs exactly as written here."""

from __future__ import annotations

import asyncio
import re
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

from tare.images.toolbox import analytics
from tare.images.toolbox.analytics import JOBS, SUMS, VERSION, project, sources_digest
from tare.images.toolbox.hadoop import VERSION as HADOOP_VERSION
from tare.images.toolbox.libraries import LIBRARIES, Library, add_libraries
from tare.images.toolbox.maven import Dependency, read_sums
from tare.images.toolbox.maven import project as project_of
from workloads import workload_kinds

SPACE = "{http://maven.apache.org/POM/4.0.0}"


def test_every_file_is_pinned_by_a_checksum() -> None:
    sums = read_sums(SUMS)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in sums.values())
    assert f"spark-yarn_2.13-{VERSION}.jar" in sums
    # One client of Hadoop, and that of the very Hadoop that the cluster is.
    clients = {name for name in sums if name.startswith("hadoop-client-")}
    assert clients == {f"hadoop-client-{part}-{HADOOP_VERSION}.jar" for part in ("api", "runtime")}
    # Without this one Spark's logs go nowhere, and a failed job gives no reason.
    assert [name for name in sums if name.startswith("slf4j-api")] == ["slf4j-api-2.0.7.jar"]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.folder)
def test_every_file_of_a_library_is_pinned_and_found_in_one_order(
    library: Library, tmp_path: Path
) -> None:
    sums = read_sums(library.sums)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in sums.values())
    # No archive of Hadoop's own: Spark must find the cluster's version.
    assert not [name for name in sums if re.match(r"hadoop-(common|hdfs|mapreduce|yarn)", name)]
    fetched = library.fetched(tmp_path / "analytics")
    fetched.mkdir()
    for name in sums:
        (fetched / name).write_bytes(b"")
    (tmp_path / "tree/opt").mkdir(parents=True)
    (home,) = asyncio.run(add_libraries(tmp_path / "tree", tmp_path / "analytics", (library,)))
    with zipfile.ZipFile(home.with_suffix(".jar")) as archive:
        lines = archive.read("META-INF/MANIFEST.MF").decode().replace("\n ", "")
    (line,) = (each for each in lines.splitlines() if each.startswith("Class-Path: "))
    assert line.split()[1:] == [f"{library.folder}/{name}" for name in sorted(sums)]


def test_every_dependency_names_its_version() -> None:
    found = list(ET.fromstring(project()).iter(f"{SPACE}dependency"))
    assert len(found) > 5
    assert all(one.findtext(f"{SPACE}version") for one in found)


def test_maven_gets_the_list_of_excluded_artifacts() -> None:
    text = project_of(
        "a", [Dependency("g", "n", "1", without=("x:y",)), Dependency("g", "m", "2", alone=True)]
    )
    left_out = [
        (one.findtext(f"{SPACE}groupId"), one.findtext(f"{SPACE}artifactId"))
        for one in ET.fromstring(text).iter(f"{SPACE}exclusion")
    ]
    assert left_out == [("x", "y"), ("*", "*")]


def test_every_class_that_a_job_names_is_there() -> None:
    classes = set()
    for source in JOBS.glob("*.java"):
        package = re.search(r"^package (\S+);", source.read_text(), re.MULTILINE)
        assert package is not None
        classes.add(f"{package[1]}.{source.stem}")
    named = set()
    for name in ("terasort", "wordcount", "aggregate", "join"):
        kind = workload_kinds.JOBS[name]
        for engine in ("mapreduce", "spark")[name == "join" :]:
            job = kind.job(kind.parameters.model_validate({"engine": engine}))
            named |= {step.main for step in job.steps if step.main.startswith("tare.")}
    kmeans = workload_kinds.JOBS["kmeans"]
    job = kmeans.job(kmeans.parameters())
    named |= {step.main for step in job.steps if step.main.startswith("tare.")}
    assert named == classes


def test_an_archive_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    classes = tmp_path / "classes" / "tare"
    classes.mkdir(parents=True)
    for name in ("B.class", "A.class", "left.out"):
        (classes / name).write_bytes(name.encode())
    made = []
    for place in ("one.jar", "two.jar"):
        analytics._pack(tmp_path / "classes", tmp_path / place)
        made.append((tmp_path / place).read_bytes())
        (classes / "A.class").touch()
    assert made[0] == made[1]
    with zipfile.ZipFile(tmp_path / "one.jar") as jar:
        assert jar.namelist() == ["tare/A.class", "tare/B.class"]


def test_another_job_is_another_toolbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sources_digest()
    (tmp_path / "Other.java").write_text("class Other {}")
    monkeypatch.setattr(analytics, "JOBS", tmp_path)
    assert sources_digest() != before
