"""SciMark 2 for the JVM, which no Debian package holds: one file from Maven Central.

Source: Pozo & Miller, "SciMark 2.0", NIST, https://math.nist.gov/scimark2/ (public domain).
"""

from __future__ import annotations

import os
from pathlib import Path

from tare.errors import InputError, MachineFault
from tare.hosts import Host
from tare.images.cache import file_digest

ARTIFACT = ("gov.nist.math", "scimark", "2.0")
SHA256 = "6f84f949c3167b385da1a9957ecd53fe0111b42e981e0c481be53dba0504305f"
_FETCH_S = 300.0
_HINT = "apt-get install --no-remove maven, then run `tare image build`"


async def fetch_scimark(host: Host, cache: Path) -> tuple[Path | None, str]:
    """Find SciMark's archive in the cache, or let Maven fetch it, once.

    Args:
        host: The computer that builds.
        cache: Where Maven's files are kept, below ``maven``.

    Returns:
        The archive and an empty string; or None and the reason why it is not to be had, in which
        case the toolbox goes without it.
    """
    group, name, version = ARTIFACT
    repository = cache / "maven"
    jar = repository.joinpath(*group.split("."), name, version, f"{name}-{version}.jar")
    if not jar.is_file():
        argv = [
            *("mvn", "-q", "-B", "dependency:get", "-Dtransitive=false"),
            f"-Dmaven.repo.local={repository}",
            f"-Dartifact={group}:{name}:{version}",
        ]
        repository.mkdir(parents=True, exist_ok=True)
        try:
            got = await host.run(argv, timeout_s=_FETCH_S, env={"HOME": os.fspath(Path.home())})
        except InputError:
            return None, f"SciMark is left out, since there is no Maven to fetch it: {_HINT}"
        except MachineFault as fault:
            return None, f"SciMark is left out: {fault.message}"
        if not got.ok or not jar.is_file():
            lines = got.words().splitlines()
            return None, f"SciMark is left out: Maven says {lines[0] if lines else 'nothing'}"
    if file_digest(jar) != SHA256:
        return None, f"SciMark is left out: {jar} is not what it should be; remove it"
    return jar, ""
