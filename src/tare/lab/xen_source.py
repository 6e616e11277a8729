"""Fetch, unpack and build the source of the distribution's Xen, without installing packages.

Most computers' lists of apt name binary packages only, but the same archives hold the sources. So
Tare makes lists of its own from the computer's lists, which stay unchanged.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.lab.packages import fetch, resolve

TOOLS = ("flex", "bison")
"""Programs for Xen's build in addition to a compiler; unpacked from packages, not installed."""
_UNPACKED = ("flex", "bison", "m4", "libsigsegv2")
STAMP = {
    "XEN_BUILD_DATE": "-",
    "XEN_BUILD_TIME": "-",
    "XEN_BUILD_HOST": "tare",
    "XEN_WHOAMI": "tare",
    "XEN_DOMAIN": "local",
}
"""Variables that keep the date and the computer's name out, so that builds are reproducible."""
_SHORT_S = 300.0
_BUILD_S = 3600.0
_UPDATE_S = 600.0
_FETCH_S = 900.0
_ASK_S = 120.0
_APT = Path("/etc/apt")
_TYPES = re.compile(r"^(Types:.*)$", re.MULTILINE)
_LINE = re.compile(r"^deb(?=\s)", re.MULTILINE)


@dataclass(frozen=True)
class XenSource:
    """A tree of Xen's source.

    Args:
        host: This computer.
        dsc: The description file of the source package.
        tree: The hypervisor's folder in it.
        environment: Environment variables by which a build finds its tools.
    """

    host: Host
    dsc: Path
    tree: Path
    environment: Mapping[str, str]

    async def configure(self, lines: Sequence[str]) -> str:
        """Configure Xen with its defaults and some lines changed; return the configuration.

        Raises:
            InputError: It cannot be configured; with its message.
        """
        (self.tree / ".config").write_text("".join(f"{line}\n" for line in lines))
        await step(self.host, [*self._make(STAMP), "olddefconfig"], _SHORT_S, self.environment)
        return (self.tree / ".config").read_text()

    async def build(self, stamp: Mapping[str, str] = STAMP) -> Path:
        """Build Xen incrementally; return it as an uncompressed ELF.

        Args:
            stamp: The build's date and place, as variables of make.

        Raises:
            InputError: It does not build; with its message.
        """
        jobs = str(len(self.host.topology().online))
        await step(self.host, [*self._make(stamp), "-j", jobs], _BUILD_S, self.environment)
        return self.tree / "xen"

    def _make(self, stamp: Mapping[str, str]) -> list[str]:
        variables = [f"{name}={value}" for name, value in stamp.items()]
        return ["make", "-C", str(self.tree), "XEN_TARGET_ARCH=x86_64", *variables]


async def unpack_xen(host: Host, work: Path) -> XenSource:
    """Fetch the distribution's source of Xen, which apt verifies, and unpack it.

    Args:
        host: This computer.
        work: An empty folder.

    Raises:
        InputError: It cannot be fetched or unpacked; or gcc, make or dpkg-source is missing.
    """
    await require_compiler(host)
    for folder in (work / "source", work / "debs"):
        folder.mkdir(parents=True)
    environment = await _tools(host, work)
    dsc = await fetch_source(host, "xen", work / "source")
    await step(host, ["dpkg-source", "-x", str(dsc), str(work / "tree")], _SHORT_S)
    return XenSource(host, dsc, work / "tree" / "xen", environment)


async def xen_in(host: Host, work: Path) -> XenSource:
    """Return the source that a folder holds unpacked and configured, or unpack it there.

    Args:
        host: This computer.
        work: A folder of the caller; anything else in it is removed.

    Raises:
        InputError: The source cannot be unpacked, as in :func:`unpack_xen`.
    """
    found, tree = sorted((work / "source").glob("xen_*.dsc")), work / "tree" / "xen"
    if found and (tree / ".config").is_file():
        return XenSource(host, found[0], tree, _environment(work / "tools"))
    if work.exists():
        await asyncio.to_thread(shutil.rmtree, work)
    return await unpack_xen(host, work)


async def require_compiler(host: Host) -> None:
    """Check that the programs that build Xen are here.

    Raises:
        InputError: A compiler, make or dpkg-source is missing.
    """
    for program in ("gcc", "make", "dpkg-source"):
        found = await host.run(["sh", "-c", f"command -v {program}"], timeout_s=30)
        if not found.ok:
            raise InputError(
                f"Xen is to be built here, and there is no {program}",
                "apt-get install --no-remove build-essential dpkg-dev, or give a Xen: "
                "lab: {xen: FILE}",
            )


async def _tools(host: Host, work: Path) -> dict[str, str]:
    """Unpack the build's tools; return the environment variables by which it finds them."""
    root = work / "tools"
    (work / "lists").mkdir()
    wanted = [part for part in await resolve(host, TOOLS, work / "lists") if part.name in _UNPACKED]
    for deb in await fetch(host, wanted, work / "debs"):
        await step(host, ["dpkg-deb", "-x", str(deb), str(root)], _SHORT_S)
    return _environment(root)


def _environment(root: Path) -> dict[str, str]:
    """Return the environment variables by which a build finds tools unpacked into a folder."""
    programs = root / "usr" / "bin"
    return {
        "PATH": f"{programs}:{os.environ.get('PATH', '')}",
        "M4": str(programs / "m4"),
        "BISON_PKGDATADIR": str(root / "usr" / "share" / "bison"),
        "LD_LIBRARY_PATH": str(root / "usr" / "lib" / "x86_64-linux-gnu"),
    }


async def step(
    host: Host, argv: list[str], timeout_s: float, env: Mapping[str, str] | None = None
) -> None:
    """Run one step of a build.

    Raises:
        InputError: It failed; with its last lines.
    """
    done = await host.run(argv, timeout_s=timeout_s, env=env)
    if not done.ok:
        words = [line for line in done.words().splitlines() if line.strip()]
        raise InputError(
            f"Xen cannot be built: `{argv[0]}` says: {'; '.join(words[-3:])}",
            "free some space, or give a Xen that was built elsewhere: lab: {xen: FILE}",
        )


async def fetch_source(host: Host, package: str, folder: Path) -> Path:
    """Fetch the newest available source of a package; apt verifies it.

    Args:
        host: This computer.
        package: The source package's name.
        folder: An empty folder for its files.

    Returns:
        Its ``.dsc`` file, which is next to its other files.

    Raises:
        InputError: There is no apt, or no version can be fetched; with apt's message.
    """
    own = folder / "apt"
    options = private_lists(own)
    await host.run(["apt-get", "-q", *options, "update"], timeout_s=_UPDATE_S)
    listed = await host.run(
        ["apt-cache", *options, "showsrc", "--only-source", package], timeout_s=_ASK_S
    )
    versions = versions_of(listed.stdout.decode(errors="replace"))
    reason = listed.words()
    for version in versions:
        got = await host.run(
            [
                *("env", "-C", str(folder), "apt-get", "-q", *options),
                *("--download-only", "--only-source", "source", f"{package}={version}"),
            ],
            timeout_s=_FETCH_S,
        )
        # A mirror may list a source that it does not hold. Then it holds an older one.
        if got.ok and (found := sorted(folder.glob(f"{package}_*.dsc"))):
            return found[0]
        reason = got.words()
    last = reason.splitlines()[-1] if reason else ""
    raise InputError(
        f"apt cannot fetch the source package {package}: {last}",
        "check the network, or build Xen yourself and name its file: lab: {xen: FILE}",
    )


def private_lists(folder: Path) -> Sequence[str]:
    """Write lists that name the sources of the computer's archives; return apt's options."""
    parts = folder / "parts"
    for made in (parts, folder / "lists" / "partial", folder / "cache" / "archives" / "partial"):
        made.mkdir(parents=True)
    for number, file in enumerate(_named()):
        text = file.read_text(errors="replace")
        if file.suffix == ".sources":
            (parts / f"{number}.sources").write_text(_TYPES.sub("Types: deb-src", text))
        else:
            (parts / f"{number}.list").write_text(_LINE.sub("deb-src", text))
    return (
        *("-o", "Dir::Etc::SourceList=/dev/null", "-o", f"Dir::Etc::SourceParts={parts}"),
        *("-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"),
        *("-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"),
    )


def _named() -> list[Path]:
    folder = _APT / "sources.list.d"
    found = [
        _APT / "sources.list",
        *sorted(folder.glob("*.list")),
        *sorted(folder.glob("*.sources")),
    ]
    return [file for file in found if file.is_file()]


def versions_of(shown: str) -> tuple[str, ...]:
    """Return the versions in the output of ``apt-cache showsrc``, in its order, each once."""
    found = re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)
    return tuple(dict.fromkeys(found))
