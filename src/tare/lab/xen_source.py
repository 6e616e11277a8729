"""Unpack and build the source of the distribution's Xen, without installing packages."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.lab.packages import fetch, resolve
from tare.lab.sources import fetch_source

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
    """Return the source that was unpacked and configured in a folder before, or unpack it there.

    Args:
        host: This computer.
        work: A folder of the caller; anything else in it is removed.

    Raises:
        InputError: As :func:`unpack_xen` says.
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
