"""Libraries that jobs on Hadoop bring, for the toolbox ``analytics``: Mahout and Hive.

Each lies in a folder of its own and is found by the jobs alone that name it, behind Hadoop's own
archives: what a library depends on is often another version of what Hadoop has.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tare.hosts import Host
from tare.images.toolbox import maven
from tare.images.toolbox.hadoop import list_classes

HOME = "opt"
_HIVE = "org.apache.hive"
_LOG4J = "org.apache.logging.log4j"
_JACKSON = "org.codehaus.jackson"
_MAHOUT = "org.apache.mahout"


@dataclass(frozen=True)
class Library:
    """One library.

    Args:
        name: What it is called, with its version.
        folder: Where it is in the toolbox, below :data:`HOME`; ``FOLDER.jar`` next to it names
            its archives, and ``FOLDER.sha256`` here has their sums.
        parts: What Maven is asked for.
    """

    name: str
    folder: str
    parts: tuple[maven.Dependency, ...]

    @property
    def sums(self) -> Path:
        """The list of the SHA-256 of its archives."""
        return Path(__file__).with_name(f"{self.folder}.sha256")

    def fetched(self, folder: Path) -> Path:
        """Return where its archives go that Maven fetches, next to a folder."""
        return folder.with_name(f"{folder.name}-{self.folder}")


MAHOUT = Library(
    "Mahout 0.13.0",
    "mahout",
    # Only what K-Means loads. All of what they name would bring another Hadoop, and Lucene.
    (
        *(
            maven.Dependency(_MAHOUT, f"mahout-{part}", "0.13.0", alone=True)
            for part in ("hdfs", "integration", "math", "mr")
        ),
        maven.Dependency(f"{_MAHOUT}.commons", "commons-cli", "2.0-mahout", alone=True),
        maven.Dependency("com.tdunning", "t-digest", "3.1", alone=True),
        maven.Dependency("it.unimi.dsi", "fastutil", "7.0.12", alone=True),
        *(
            maven.Dependency(_JACKSON, f"jackson-{one}-asl", "1.9.13", alone=True)
            for one in ("core", "mapper")
        ),
    ),
)
HIVE = Library(
    "Hive 4.0.1",
    "hive",
    # Only what its client and its tasks load: the whole of it is twice as large.
    tuple(
        maven.Dependency(group, name, version, alone=True)
        for group, names, version in (
            (_HIVE, ("hive-cli", "hive-common", "hive-exec"), "4.0.1"),
            # The one that Hive names for others is too old for its own plans.
            ("org.antlr", ("antlr-runtime",), "3.5.2"),
            ("com.esri.geometry", ("esri-geometry-api",), "2.2.4"),
            ("com.github.ben-manes.caffeine", ("caffeine",), "2.8.4"),
            ("com.jayway.jsonpath", ("json-path",), "2.9.0"),
            ("com.lmax", ("disruptor",), "3.3.7"),
            ("commons-collections", ("commons-collections",), "3.2.2"),
            ("javax.transaction", ("javax.transaction-api",), "1.3"),
            ("jline", ("jline",), "2.14.6"),
            ("org.apache.commons", ("commons-dbcp2",), "2.9.0"),
            ("org.apache.commons", ("commons-pool2",), "2.11.1"),
            ("org.apache.derby", ("derby",), "10.14.2.0"),
            (_LOG4J, ("log4j-1.2-api", "log4j-api", "log4j-core", "log4j-web"), "2.18.0"),
            ("org.codehaus.janino", ("commons-compiler", "janino"), "3.0.11"),
            ("org.datanucleus", ("datanucleus-api-jdo",), "5.2.8"),
            ("org.datanucleus", ("datanucleus-core", "datanucleus-rdbms"), "5.2.10"),
            ("org.datanucleus", ("javax.jdo",), "3.2.0-release"),
            ("org.javassist", ("javassist",), "3.28.0-GA"),
            ("org.reflections", ("reflections",), "0.10.2"),
        )
        for name in names
    ),
)
LIBRARIES = (MAHOUT, HIVE)


async def fetch_libraries(host: Host, cache: Path, folder: Path) -> None:
    """Let Maven fetch all libraries, and check every file.

    Args:
        host: The computer that builds.
        cache: Where Maven's files are kept, below ``maven``.
        folder: Each library's archives go to a folder of its own next to this one.

    Raises:
        InputError: There is no Maven, it fails, or a file is not what it should be.
    """
    for each in LIBRARIES:
        pom, sums = maven.project(each.folder, each.parts), maven.read_sums(each.sums)
        await maven.fetch(host, cache, each.fetched(folder), each.name, pom, sums)


async def add_libraries(
    tree: Path, folder: Path, libraries: Iterable[Library] = LIBRARIES
) -> tuple[Path, ...]:
    """Put libraries into a toolbox's tree.

    Args:
        tree: The tree.
        folder: As it was given to :func:`fetch_libraries`; the archives are moved.
        libraries: Which ones.

    Returns:
        Where they lie.
    """
    homes = []
    for each in libraries:
        home = tree / HOME / each.folder
        await asyncio.to_thread(shutil.move, each.fetched(folder), home)
        await asyncio.to_thread(list_classes, home)
        homes.append(home)
    return tuple(homes)


def parts_of_digest() -> Iterator[bytes]:
    """Yield what decides which libraries a toolbox holds."""
    yield Path(__file__).read_bytes()
    for each in LIBRARIES:
        yield hashlib.sha256(each.sums.read_bytes()).digest()
