"""Package archives: those of the computer's own apt, or package lists of another release.

For another release, Tare keeps package lists in its cache. The computer's own lists stay unchanged,
and apt verifies both by the keys of Debian's archive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError, NotAvailable
from tare.hosts import Host
from tare.images import cache as store
from tare.study.model.releases import Release, release_words

APT_LISTS = Path("/var/lib/apt/lists")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = "TARE_DEBIAN_MIRROR"
"""The environment variable with the address of a Debian mirror: needed if apt lists none here, and
used instead of the mirror that apt lists."""

_UPDATE_S = 600.0
_ASK_S = 60.0
_TARGET = "$(CREATED_BY) $(CODENAME) $(COMPONENT) $(REPO_URI)"


@dataclass(frozen=True)
class Archive:
    """One set of package lists, and the options with which apt uses it.

    Args:
        release: The release that the lists describe; None for the computer's own lists.
        options: Options of apt-get and apt-cache.
        lists: The folder of the lists.
    """

    release: Release | None = None
    options: tuple[str, ...] = ()
    lists: Path = APT_LISTS

    def state(self) -> int:
        """Return a number that changes with the package lists; 0 if there are none."""
        with contextlib.suppress(OSError, ValueError):
            return max(path.stat().st_mtime_ns for path in self.lists.glob("*_*"))
        return 0

    def note(self, name: str) -> str:
        """Return the name of the file that records which packages these lists have for a name."""
        return f"{name}.json" if self.release is None else f"{name}@{self.release}.json"


OWN = Archive()
"""The computer's own lists."""


async def archive_of(host: Host, release: Release | None, cache: Path) -> Archive:
    """Return the archive of a release; fetch its lists if they are missing or over a month old.

    Args:
        host: This computer.
        release: None, or the computer's own release, for its own lists.
        cache: The cache, which holds the lists of another release.

    Raises:
        InputError: This computer has no apt, or lacks the keys of Debian's archive; or the lists
            cannot be fetched.
    """
    if (kept := await kept_archive(host, release, cache)) is not None:
        return kept
    assert release is not None
    archive = _separate(release, cache)
    async with store.exclusive(cache):
        # Another process may have been first.
        if not _young(archive):
            await _fetch_lists(host, release, archive)
    return archive


async def kept_archive(host: Host, release: Release | None, cache: Path) -> Archive | None:
    """Return a release's archive if the cache has recent lists; None if they must be fetched."""
    if release is None or release == await _codename(host):
        return OWN
    archive = _separate(release, cache)
    return archive if _young(archive) else None


def _separate(release: Release, cache: Path) -> Archive:
    folder = cache / "apt" / release
    return Archive(release, _options(folder), folder / "lists")


def _young(archive: Archive) -> bool:
    try:
        fetched = (archive.lists.parent / "fetched").stat().st_mtime
    except OSError:
        return False
    return time.time() - fetched < store.KEPT_DAYS * 86400


def _options(folder: Path) -> tuple[str, ...]:
    return (
        *("-o", f"Dir::Etc::SourceList={folder / 'sources.list'}", "-o", "Dir::Etc::SourceParts=-"),
        *("-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"),
        # Pins and a default release concern the computer's own packages.
        *("-o", "Dir::Etc::Preferences=-", "-o", "Dir::Etc::PreferencesParts=-"),
        *("-o", "APT::Default-Release=", "-o", "Dir::State::status=/dev/null"),
        *("-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"),
    )


async def _fetch_lists(host: Host, release: Release, archive: Archive) -> None:
    words, folder = release_words(release), archive.lists.parent
    if not KEYRING.is_file():
        raise NotAvailable(
            f"the keys by which packages of {words} are verified are not here ({KEYRING})",
            "run: apt-get install --no-remove debian-archive-keyring",
        )
    for made in (folder / "lists" / "partial", folder / "cache" / "archives" / "partial"):
        made.mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(await _sources(host, release))
    argv = ["apt-get", "-q", *archive.options, "-o", "Acquire::Languages=none", "update"]
    try:
        got = await host.run(argv, timeout_s=_UPDATE_S)
    except InputError as error:
        raise NotAvailable(
            f"there is no apt here, and `release` needs packages of {words}",
            "use a computer with Debian or Ubuntu",
        ) from error
    if not got.ok or not archive.state():
        lines = got.words().splitlines()
        raise NotAvailable(
            f"apt cannot fetch the package lists of {words}: {lines[-1] if lines else 'no lists'}",
            "check the network, or leave `release` out for this computer's own",
        )
    await asyncio.to_thread((folder / "fetched").touch)


async def _sources(host: Host, release: Release) -> str:
    """Return apt's sources of a release, at the mirrors that this computer uses."""
    own = await _codename(host)
    mirrors: dict[str, str] = {}
    with contextlib.suppress(InputError):
        listed = await host.run(["apt-get", "indextargets", "--format", _TARGET], timeout_s=_ASK_S)
        for line in listed.stdout.decode(errors="replace").splitlines():
            kind, suite, part, uri, *_ = [*line.split(), "", "", "", ""]
            if (kind, part) == ("Packages", "main") and suite in (own, f"{own}-security"):
                mirrors[suite.replace(own, release)] = uri
    if named := os.environ.get(MIRROR, ""):
        mirrors[release] = named
    if release not in mirrors:
        raise NotAvailable(
            f"apt here knows no mirror of Debian, for packages of {release_words(release)}",
            f"set {MIRROR} to the address of one",
        )
    return "".join(
        f"deb [signed-by={KEYRING}] {uri} {suite} main\n" for suite, uri in mirrors.items()
    )


async def _codename(host: Host) -> str:
    """Return the code name of the computer's release if it runs Debian; else an empty text."""
    fields = await os_release(host)
    return fields.get("VERSION_CODENAME", "") if fields.get("ID") == "debian" else ""


async def os_release(host: Host) -> Mapping[str, str]:
    """Return the fields of a host's os-release file (os-release(5)); empty if it has none."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            text = (await host.read(path)).decode(errors="replace")
        except OSError:
            continue
        pairs = (line.partition("=") for line in text.splitlines())
        return {key: value.strip("\"'") for key, equals, value in pairs if equals}
    return {}
