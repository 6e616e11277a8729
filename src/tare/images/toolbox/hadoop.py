"""Hadoop for the toolbox: from Maven Central by Maven itself, every file checked by its SHA-256.

No package of Debian holds Hadoop. Maven resolves it as any user's project would; what it resolved
must be, file by file, what ``hadoop.sha256`` lists, so that every toolbox holds the same bits.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.toolbox import maven

VERSION = "3.4.2"
HOME = "opt/hadoop"
"""Where it is in the toolbox: ``lib`` for Hadoop, ``tests`` for its benchmarks, ``java``."""
FOLDERS = ("lib", "tests")
SUMS = Path(__file__).with_name("hadoop.sha256")
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
_MANIFEST_BYTES = 72
"""The longest line of a manifest (specification of JAR files, *Notes on Manifest*)."""
_WEB = ("hdfs", "datanode")
"""Daemons that do not start without a folder of their web pages, which Maven's archives lack."""


def project() -> str:
    """Return the project (pom.xml) whose dependencies Maven is to resolve."""
    parts = [maven.Dependency(_GROUP, part, VERSION) for part in _PARTS]
    return maven.project("hadoop", [*parts, *(maven.Dependency(*foreign) for foreign in _FOREIGN)])


async def fetch_hadoop(host: Host, cache: Path, folder: Path) -> None:
    """Let Maven fetch Hadoop with all it depends on, and check every file.

    Args:
        host: The computer that builds.
        cache: Where Maven's files are kept, below ``maven``.
        folder: Where the archives go; it is made.

    Raises:
        InputError: There is no Maven, it fails, or a file is not what it should be.
    """
    sums = maven.read_sums(SUMS)
    await maven.fetch(host, cache, folder, f"Hadoop {VERSION}", project(), sums)


def add_hadoop(tree: Path, folder: Path) -> None:
    """Put Hadoop into a toolbox's tree.

    Args:
        tree: The tree, with a Java runtime in it.
        folder: Hadoop's archives, which are moved.

    Raises:
        InputError: There is no Java runtime.
    """
    home = tree / HOME
    for name in FOLDERS:
        (home / name).mkdir(parents=True)
    for archive in sorted(folder.iterdir()):
        part = "tests" if any(word in archive.name for word in _BENCHMARKS) else "lib"
        shutil.move(archive, home / part / archive.name)
    with zipfile.ZipFile(home / "lib" / "webapps.jar", "w") as pages:
        for name in ("webapps", *(f"webapps/{daemon}" for daemon in _WEB)):
            # Its time is fixed, so that the same archive comes of it every time.
            pages.writestr(zipfile.ZipInfo(f"{name}/"), b"")
    for name in FOLDERS:
        list_classes(home / name)
    runtimes = sorted((tree / "usr/lib/jvm").glob("java-*/bin/java"))
    if not runtimes:
        raise InputError("the toolbox has no Java runtime for Hadoop", "tare image build hadoop")
    (home / "java").symlink_to(f"/{runtimes[0].parent.parent.relative_to(tree)}")


def list_classes(folder: Path) -> None:
    """Write an archive next to a folder that names all archives in it, in the order of their names.

    Java takes ``folder/*`` in the order in which the file system lists it. Where two archives hold
    a class of one name, a disk's file system and a container's would load different ones.

    Args:
        folder: ``lib``, say; the archive is ``lib.jar``.
    """
    names = sorted(path.name for path in folder.glob("*.jar"))
    value = " ".join(f"{folder.name}/{name}" for name in names)
    line = f"Class-Path: {value}".encode()
    first, rest = line[:_MANIFEST_BYTES], line[_MANIFEST_BYTES:]
    step = _MANIFEST_BYTES - 1
    more = [b" " + rest[at : at + step] for at in range(0, len(rest), step)]
    text = b"\n".join([b"Manifest-Version: 1.0", first, *more, b"", b""])
    with zipfile.ZipFile(folder.with_suffix(".jar"), "w") as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), text)


def sources_digest() -> str:
    """Return the SHA-256 (hex) of what decides what of Hadoop a toolbox holds."""
    archive = Path(__file__).with_name("class_archive.py")
    parts = (SUMS, Path(__file__), archive)
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
