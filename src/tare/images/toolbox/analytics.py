"""What else runs on Hadoop than its own jobs, for the toolbox: Spark, Mahout, Hive, and own jobs.

Spark comes from Maven Central as its own project names it, but with the client of the very Hadoop
that the toolbox has. Tare's jobs are some small classes of Java. A compiler that is itself a
program of Java makes them, so that a Java runtime is all that a build needs.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.toolbox import maven
from tare.images.toolbox.hadoop import HOME as HADOOP
from tare.images.toolbox.hadoop import VERSION as HADOOP_VERSION
from tare.images.toolbox.hadoop import list_classes
from tare.images.toolbox.libraries import add_libraries, fetch_libraries, parts_of_digest

VERSION = "3.5.6"
HOME = "opt/spark"
"""Where Spark is in the toolbox; all of it is in ``jars``."""
SUMS = Path(__file__).with_name("analytics.sha256")
JOBS = Path(__file__).with_name("jobs")
ARCHIVE = "tare-jobs.jar"
RELEASE = "11"
"""The Java that the jobs are written in: Hadoop and Spark both run on it, and on newer ones."""
_SCALA = "2.13"
_SPARK = "org.apache.spark"
_HADOOP = "org.apache.hadoop"
_COMPILE_S = 300.0
_COMPILER = "ecj-"
_PARTS = (
    maven.Dependency(_SPARK, f"spark-yarn_{_SCALA}", VERSION),
    maven.Dependency(_SPARK, f"spark-sql_{_SCALA}", VERSION),
    # Named here, they go before the older ones that Spark names.
    maven.Dependency(_HADOOP, "hadoop-client-api", HADOOP_VERSION),
    maven.Dependency(_HADOOP, "hadoop-client-runtime", HADOOP_VERSION),
    # Hadoop names an older one, with which Spark's logs go nowhere.
    maven.Dependency("org.slf4j", "slf4j-api", "2.0.7"),
    # TeraSort's records are read and written by its own classes.
    maven.Dependency(_HADOOP, "hadoop-mapreduce-examples", HADOOP_VERSION, alone=True),
    maven.Dependency("org.eclipse.jdt", "ecj", "3.26.0", alone=True),
)


def project() -> str:
    """Return the project (pom.xml) whose dependencies Maven is to resolve."""
    return maven.project("analytics", _PARTS)


def sources_digest() -> str:
    """Return the SHA-256 (hex) of what decides what of it a toolbox holds."""
    digest = hashlib.sha256()
    for path in (SUMS, Path(__file__), *sorted(JOBS.glob("*.java"))):
        digest.update(path.read_bytes())
    for part in parts_of_digest():
        digest.update(part)
    return digest.hexdigest()


async def fetch_analytics(host: Host, cache: Path, folder: Path) -> None:
    """Let Maven fetch Spark with all it depends on, and the libraries; check every file.

    Args:
        host: The computer that builds.
        cache: Where Maven's files are kept, below ``maven``.
        folder: Where Spark's archives go; it is made, and the libraries' folders next to it.

    Raises:
        InputError: There is no Maven, it fails, or a file is not what it should be.
    """
    sums = maven.read_sums(SUMS)
    await maven.fetch(host, cache, folder, f"Spark {VERSION}", project(), sums)
    await fetch_libraries(host, cache, folder)


async def add_analytics(host: Host, tree: Path, folder: Path) -> None:
    """Put Spark, the libraries and Tare's jobs into a toolbox's tree.

    Args:
        host: The computer that builds; its Java runtime, which Maven needs too, compiles.
        tree: The tree, with Hadoop in it.
        folder: What Maven brought, which is moved.

    Raises:
        InputError: The jobs cannot be compiled.
    """
    jars = tree / HOME / "jars"
    jars.mkdir(parents=True)
    compiler = next(folder.glob(f"{_COMPILER}*.jar"))
    for archive in sorted(folder.iterdir()):
        if archive != compiler:
            shutil.move(archive, jars / archive.name)
    classes = folder.with_name("classes")
    await _compile(host, compiler, (jars, *await add_libraries(tree, folder)), classes)
    await asyncio.to_thread(_pack, classes, jars / ARCHIVE)
    # Where a cluster's own tasks find it (tare.workloads.mapreduce.daemons.CLASSPATH).
    tests = tree / HADOOP / "tests"
    shutil.copyfile(jars / ARCHIVE, tests / ARCHIVE)
    list_classes(tests)


async def _compile(host: Host, compiler: Path, folders: Iterable[Path], classes: Path) -> None:
    named = ":".join(str(jar) for folder in folders for jar in sorted(folder.glob("*.jar")))
    sources = sorted(map(str, JOBS.glob("*.java")))
    argv = [
        *("java", "-jar", str(compiler), "-source", RELEASE, "-target", RELEASE, "-nowarn"),
        *("-g:none", "-cp", named, "-d", str(classes)),
        *sources,
    ]
    done = await host.run(argv, timeout_s=_COMPILE_S)
    if not done.ok:
        raise InputError(
            f"the toolbox's jobs cannot be compiled: {done.words()[-500:]}",
            "`apt-get install --no-remove default-jre-headless`, then run "
            "`tare image build analytics`",
        )


def _pack(classes: Path, archive: Path) -> None:
    """Put compiled classes into an archive that is the same whenever it is made."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as jar:
        for path in sorted(classes.rglob("*.class")):
            # Its time is fixed.
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix())
            jar.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
