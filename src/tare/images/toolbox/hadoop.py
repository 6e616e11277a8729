"""Hadoop for the toolbox: from Maven Central by Maven itself, every file checked by its SHA-256.

No package of Debian holds Hadoop. Maven resolves it as any user's project would; what it resolved
must be, file by file, what ``hadoop.sha256`` lists, so that every toolbox holds the same bits.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.cache import file_digest

VERSION = "3.4.2"
HOME = "opt/hadoop"
"""Where it is in the toolbox: ``lib`` for Hadoop, ``tests`` for its benchmarks, ``java``."""
SUMS = Path(__file__).with_name("hadoop.sha256")
_FETCH_S = 1200.0
_HINT = "check the network, and `apt-get install -y maven`"
_GROUP = "org.apache.hadoop"
_PARTS = (
    "hadoop-common",
    "hadoop-common:tests",
    "hadoop-hdfs",
    "hadoop-mapreduce-client-hs",
    "hadoop-mapreduce-client-jobclient",
    "hadoop-mapreduce-client-jobclient:tests",
    "hadoop-mapreduce-client-shuffle",
    "hadoop-mapreduce-examples",
    "hadoop-yarn-server-nodemanager",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-timelineservice",
)
_FOREIGN = (("junit", "junit", "4.13.2"),)
"""TestDFSIO is among Hadoop's tests, and does not load without JUnit."""
_BENCHMARKS = ("-tests.jar", "junit-", "hamcrest-")
_WEB = ("hdfs", "datanode")
"""Daemons that do not start without a folder of their web pages, which Maven's archives lack."""


def project() -> str:
    """Return the project (pom.xml) whose dependencies Maven is to resolve."""
    return "".join(
        (
            '<project xmlns="http://maven.apache.org/POM/4.0.0">',
            "<modelVersion>4.0.0</modelVersion><groupId>tare</groupId>",
            "<artifactId>hadoop</artifactId><version>1</version><packaging>pom</packaging>",
            "<dependencies>",
            *(_dependency(_GROUP, part, VERSION) for part in _PARTS),
            *(_dependency(*foreign) for foreign in _FOREIGN),
            "</dependencies></project>\n",
        )
    )


def _dependency(group: str, part: str, version: str) -> str:
    name, _, kind = part.partition(":")
    more = f"<type>test-jar</type><classifier>{kind}</classifier>" if kind else ""
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{more}</dependency>"
    )


def known_sums() -> Mapping[str, str]:
    """Return the SHA-256 (hex) that each of Hadoop's files must have, by its name."""
    lines = (line.split("  ", 1) for line in SUMS.read_text().splitlines())
    return {name: digest for digest, name in lines}


async def fetch_hadoop(host: Host, cache: Path, folder: Path) -> None:
    """Let Maven fetch Hadoop with all it depends on, and check every file.

    Args:
        host: The computer that builds.
        cache: Where Maven's files are kept, below ``maven``.
        folder: Where the archives go; it is made.

    Raises:
        InputError: There is no Maven, it fails, or a file is not what it should be.
    """
    folder.mkdir(parents=True)
    repository = cache / "maven"
    repository.mkdir(parents=True, exist_ok=True)
    pom = folder.with_name("pom.xml")
    pom.write_text(project())
    argv = [
        *("mvn", "-q", "-B", "-f", str(pom), f"-Dmaven.repo.local={repository}"),
        *("dependency:copy-dependencies", "-DincludeScope=runtime"),
        f"-DoutputDirectory={folder}",
    ]
    try:
        got = await host.run(argv, timeout_s=_FETCH_S, env={"HOME": os.fspath(Path.home())})
    except InputError as error:
        raise InputError(f"Hadoop needs Maven to fetch it: {error.message}", _HINT) from error
    if not got.ok:
        lines = [line for line in got.words().splitlines() if line.startswith("[ERROR]")]
        raise InputError(f"Maven cannot fetch Hadoop: {' '.join(lines[:2]) or got.words()}", _HINT)
    await asyncio.to_thread(require_sums, folder, known_sums())


def require_sums(folder: Path, wanted: Mapping[str, str]) -> None:
    """See that a folder holds these files, and no others.

    Args:
        folder: Where they are.
        wanted: The SHA-256 (hex) of each, by name.

    Raises:
        InputError: One is missing, is not what it should be, or does not belong there.
    """
    found = {path.name: file_digest(path) for path in folder.iterdir()}
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            raise InputError(f"Maven did not bring {name}, which Hadoop needs", _HINT)
        if name not in wanted:
            raise InputError(f"Maven brought {name}, which is no part of Hadoop {VERSION}", _HINT)
        if found[name] != wanted[name]:
            raise InputError(
                f"{name} is not what it should be: its SHA-256 is {found[name]}, "
                f"not {wanted[name]}",
                "remove it from the cache's folder `maven`, and build again",
            )


def add_hadoop(tree: Path, folder: Path) -> None:
    """Put Hadoop into a toolbox's tree.

    Args:
        tree: The tree, with a Java runtime in it.
        folder: Hadoop's archives, which are moved.

    Raises:
        InputError: There is no Java runtime.
    """
    home = tree / HOME
    for name in ("lib", "tests"):
        (home / name).mkdir(parents=True)
    for archive in sorted(folder.iterdir()):
        part = "tests" if any(word in archive.name for word in _BENCHMARKS) else "lib"
        shutil.move(archive, home / part / archive.name)
    with zipfile.ZipFile(home / "lib" / "webapps.jar", "w") as pages:
        for name in ("webapps", *(f"webapps/{daemon}" for daemon in _WEB)):
            # Its time is fixed, so that the same archive comes of it every time.
            pages.writestr(zipfile.ZipInfo(f"{name}/"), b"")
    runtimes = sorted((tree / "usr/lib/jvm").glob("java-*/bin/java"))
    if not runtimes:
        raise InputError("the toolbox has no Java runtime for Hadoop", "tare image build hadoop")
    (home / "java").symlink_to(f"/{runtimes[0].parent.parent.relative_to(tree)}")
