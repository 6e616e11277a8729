"""The toolbox has Hadoop exactly as pinned, file by file, or its build fails."""

from __future__ import annotations

import hashlib
import re
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

from tare.errors import InputError
from tare.images.toolbox.hadoop import SUMS, VERSION, add_hadoop, list_classes, project
from tare.images.toolbox.maven import read_sums, require_sums


def archives(folder: Path, *names: str) -> dict[str, str]:
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(name.encode())
    return {name: hashlib.sha256(name.encode()).hexdigest() for name in names}


def test_every_file_is_pinned_by_a_checksum() -> None:
    sums = read_sums(SUMS)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in sums.values())
    assert {f"hadoop-{part}-{VERSION}.jar" for part in ("common", "hdfs")} <= set(sums)
    assert any("tests" in name for name in sums)


def test_every_dependency_names_its_version() -> None:
    space = "{http://maven.apache.org/POM/4.0.0}"
    found = ET.fromstring(project()).iter(f"{space}dependency")
    versions = [
        (one.findtext(f"{space}artifactId"), one.findtext(f"{space}version")) for one in found
    ]
    assert len(versions) > 5
    assert all(version == VERSION for name, version in versions if name and "hadoop" in name)
    assert all(version for _, version in versions)


def test_archives_with_pinned_sums_are_accepted(tmp_path: Path) -> None:
    wanted = archives(tmp_path / "lib", "a.jar", "b.jar")
    require_sums(tmp_path / "lib", wanted, "Hadoop")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lib: (lib / "a.jar").unlink(), "did not bring a.jar"),
        (lambda lib: (lib / "c.jar").write_bytes(b""), "brought c.jar"),
        (lambda lib: (lib / "b.jar").write_bytes(b"else"), "b.jar is not what it should be"),
    ],
)
def test_archives_with_other_sums_are_refused(tmp_path: Path, change: object, words: str) -> None:
    wanted = archives(tmp_path / "lib", "a.jar", "b.jar")
    change(tmp_path / "lib")  # type: ignore[operator]
    with pytest.raises(InputError, match=words):
        require_sums(tmp_path / "lib", wanted, "Hadoop")


def test_benchmarks_are_kept_apart_from_hadoop_itself(tmp_path: Path) -> None:
    archives(tmp_path / "lib", "hadoop-common-3.jar", "hadoop-common-3-tests.jar", "junit-4.jar")
    java = tmp_path / "tree/usr/lib/jvm/java-17/bin/java"
    java.parent.mkdir(parents=True)
    java.touch()
    add_hadoop(tmp_path / "tree", tmp_path / "lib")
    home = tmp_path / "tree/opt/hadoop"
    assert sorted(path.name for path in (home / "lib").iterdir()) == [
        "hadoop-common-3.jar",
        "webapps.jar",
    ]
    assert {path.name for path in (home / "tests").iterdir()} == {
        "hadoop-common-3-tests.jar",
        "junit-4.jar",
    }
    assert str((home / "java").readlink()) == "/usr/lib/jvm/java-17"
    with zipfile.ZipFile(home / "lib/webapps.jar") as pages:
        assert "webapps/hdfs/" in pages.namelist()


def test_classes_come_in_the_order_of_their_archives_names(tmp_path: Path) -> None:
    names = [f"part-{number:03}-of-a-name-that-is-long.jar" for number in range(40)]
    archives(tmp_path / "lib", *reversed(names))
    list_classes(tmp_path / "lib")
    with zipfile.ZipFile(tmp_path / "lib.jar") as archive:
        lines = archive.read("META-INF/MANIFEST.MF").split(b"\n")
    assert max(map(len, lines)) <= 72
    text = b"\n".join(lines).replace(b"\n ", b"").split(b"\n")
    value = next(line for line in text if line.startswith(b"Class-Path: "))
    assert value.decode().split()[1:] == [f"lib/{name}" for name in names]


def test_a_toolbox_without_java_is_refused(tmp_path: Path) -> None:
    archives(tmp_path / "lib")
    (tmp_path / "tree").mkdir()
    with pytest.raises(InputError, match="no Java runtime"):
        add_hadoop(tmp_path / "tree", tmp_path / "lib")
