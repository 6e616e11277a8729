"""Fetch a source package of the distribution by apt, also if apt's lists name no sources.

Most computers' lists name binary packages only, but the same archives hold the sources. So Tare
makes lists of its own from the computer's lists, which stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host

_UPDATE_S = 600.0
_FETCH_S = 900.0
_ASK_S = 120.0
_APT = Path("/etc/apt")
_TYPES = re.compile(r"^(Types:.*)$", re.MULTILINE)
_LINE = re.compile(r"^deb(?=\s)", re.MULTILINE)


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
