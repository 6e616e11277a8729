"""What Maven fetches for a toolbox: resolved as any project's, and every file checked.

Maven resolves what a project depends on as it would for any user. What it brought must be, file by
file, what a list of SHA-256 says, so that every toolbox holds the same bits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.cache import file_digest

_FETCH_S = 1200.0
_HINT = "check the network, and `apt-get install --no-remove maven`"


@dataclass(frozen=True)
class Dependency:
    """One thing that a project depends on.

    Args:
        group: Who publishes it.
        name: What it is called; ``name:tests`` is the archive of its tests.
        version: Which version; nothing is left to Maven's choice.
        without: What it depends on and is left out, each as ``group:name``, where ``*`` is any.
        alone: Whether it comes without all that it depends on.
    """

    group: str
    name: str
    version: str
    without: tuple[str, ...] = ()
    alone: bool = False


def project(name: str, parts: Iterable[Dependency]) -> str:
    """Return the project (pom.xml) whose dependencies Maven is to resolve."""
    return "".join(
        (
            '<project xmlns="http://maven.apache.org/POM/4.0.0">',
            "<modelVersion>4.0.0</modelVersion><groupId>tare</groupId>",
            f"<artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>",
            "<dependencies>",
            *map(_dependency, parts),
            "</dependencies></project>\n",
        )
    )


def _dependency(part: Dependency) -> str:
    name, _, kind = part.name.partition(":")
    if kind == "tests":
        more = f"<type>test-jar</type><classifier>{kind}</classifier>"
    else:
        more = f"<classifier>{kind}</classifier>" if kind else ""
    left_out = "".join(map(_exclusion, ("*:*",) if part.alone else part.without))
    return (
        f"<dependency><groupId>{part.group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{part.version}</version>{more}"
        f"{f'<exclusions>{left_out}</exclusions>' if left_out else ''}</dependency>"
    )


def _exclusion(what: str) -> str:
    group, _, name = what.partition(":")
    return f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"


def read_sums(path: Path) -> Mapping[str, str]:
    """Return the SHA-256 (hex) that each file must have, by its name, out of such a list."""
    lines = (line.split("  ", 1) for line in path.read_text().splitlines())
    return {name: digest for digest, name in lines}


async def fetch(
    host: Host, cache: Path, folder: Path, what: str, pom: str, sums: Mapping[str, str]
) -> None:
    """Let Maven fetch all that a project depends on, and check every file.

    Args:
        host: The computer that builds.
        cache: Where Maven's files are kept, below ``maven``.
        folder: Where the archives go; it is made.
        what: What they are together, for messages.
        pom: The project; see :func:`project`.
        sums: The SHA-256 (hex) of each archive, by name.

    Raises:
        InputError: There is no Maven, it fails, or a file is not what it should be.
    """
    folder.mkdir(parents=True)
    repository = cache / "maven"
    repository.mkdir(parents=True, exist_ok=True)
    described = folder.with_name(f"{folder.name}-pom.xml")
    described.write_text(pom)
    argv = [
        *("mvn", "-q", "-B", "-f", str(described), f"-Dmaven.repo.local={repository}"),
        *("dependency:copy-dependencies", "-DincludeScope=runtime"),
        f"-DoutputDirectory={folder}",
    ]
    try:
        got = await host.run(argv, timeout_s=_FETCH_S, env={"HOME": os.fspath(Path.home())})
    except InputError as error:
        raise InputError(f"{what} needs Maven to fetch it: {error.message}", _HINT) from error
    if not got.ok:
        lines = [line for line in got.words().splitlines() if line.startswith("[ERROR]")]
        raise InputError(f"Maven cannot fetch {what}: {' '.join(lines[:2]) or got.words()}", _HINT)
    await asyncio.to_thread(require_sums, folder, sums, what)


def require_sums(folder: Path, wanted: Mapping[str, str], what: str) -> None:
    """See that a folder holds these files, and no others.

    Args:
        folder: Where they are.
        wanted: The SHA-256 (hex) of each, by name.
        what: What they are together, for messages.

    Raises:
        InputError: One is missing, is not what it should be, or does not belong there.
    """
    found = {path.name: file_digest(path) for path in folder.iterdir()}
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            raise InputError(f"Maven did not bring {name}, which {what} needs", _HINT)
        if name not in wanted:
            raise InputError(f"Maven brought {name}, which is no part of {what}", _HINT)
        if found[name] != wanted[name]:
            raise InputError(
                f"{name} is not what it should be: its SHA-256 is {found[name]}, "
                f"not {wanted[name]}",
                "remove it from the cache's folder `maven`, and build again",
            )
