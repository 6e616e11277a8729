"""Kernels from the distribution's own packages, downloaded by apt and never installed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError, NotAvailable
from tare.hosts import Host
from tare.images.archives import OWN, Archive, os_release
from tare.images.cache import require_disk
from tare.study.model.releases import release_words

_UPDATE_S = 300.0
_DOWNLOAD_S = 900.0

_ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "debian": {
        "rt": ("linux-image-rt-{arch}",),
        "cloud": ("linux-image-cloud-{arch}",),
        "generic": ("linux-image-{arch}",),
    },
    "ubuntu": {
        "rt": ("linux-image-realtime", "linux-image-realtime-hwe"),
        "cloud": ("linux-image-virtual", "linux-image-kvm"),
        "generic": ("linux-image-generic",),
    },
}
NO_APT = (
    "pip install hypertare-images, or bring a bundle from a computer with Debian or Ubuntu "
    "(`tare image export FILE` there, `tare image import FILE` here); `kernel: host` needs neither"
)
"""The hint for a host without apt."""
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
"""A package's name, as Debian Policy 5.6.1 defines it."""
_KERNEL_PART = re.compile(r"^linux-(image|modules)-")


@dataclass(frozen=True)
class Package:
    """A package that apt can download: name, version, the SHA-256 of its file, its source."""

    name: str
    version: str
    sha256: str
    depends: tuple[str, ...]
    installed_bytes: int
    source: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Distribution:
    """The distribution of a host: ``ID`` of os-release, and dpkg's name of the architecture."""

    id: str
    name: str
    arch: str


async def distribution(host: Host, archive: Archive = OWN) -> Distribution:
    """Return the distribution that the host runs, or that an archive's packages are for.

    Raises:
        InputError: The host has no dpkg, so there are no packages with a kernel.
    """
    fields = await os_release(host)
    name = fields.get("PRETTY_NAME", "this distribution")
    try:
        arch = (await host.run(["dpkg", "--print-architecture"], timeout_s=30)).stdout
    except InputError as error:
        raise NotAvailable(
            f"{name} has no apt, from whose packages Tare takes kernels and toolboxes",
            NO_APT,
        ) from error
    if archive.release is not None:
        return Distribution("debian", release_words(archive.release), arch.decode().strip())
    family = fields.get("ID", "")
    if family not in _ALIASES:
        like = fields.get("ID_LIKE", "").split()
        family = next((known for known in like if known in _ALIASES), "debian")
    return Distribution(family, name, arch.decode().strip())


async def kernel_packages(host: Host, kernel: str, archive: Archive = OWN) -> tuple[Package, ...]:
    """Find the packages that hold a kernel and its modules.

    Args:
        host: The computer whose package lists are used.
        kernel: ``rt``, ``cloud``, ``generic``, or a package's name.
        archive: The archive whose packages are searched.

    Returns:
        The packages to unpack, without meta-packages.

    Raises:
        InputError: There is no such package; the hint lists the available kernels.
    """
    system = await distribution(host, archive)
    names = tuple(
        name.format(arch=system.arch) for name in _ALIASES[system.id].get(kernel, (kernel,))
    )
    found = await _first(host, names, archive)
    if found is None and await _update(host, archive):
        found = await _first(host, names, archive)
    if found is None:
        kind = NotAvailable if kernel in _ALIASES[system.id] else InputError
        raise kind(
            f"{system.name} has no package {' or '.join(names)} for the kernel {kernel!r}",
            await _choices(host, system, archive),
        )
    return await _parts(host, found, archive)


async def has_kernel(host: Host, alias: str, archive: Archive = OWN) -> bool:
    """Return whether the package lists have a kernel; also True if there are no lists yet.

    Args:
        host: The computer whose package lists are used.
        alias: ``rt``, ``cloud`` or ``generic``.
        archive: The archive whose packages are searched.

    Raises:
        InputError: There is no apt.
    """
    system = await distribution(host, archive)
    names = tuple(name.format(arch=system.arch) for name in _ALIASES[system.id][alias])
    return not archive.state() or await _first(host, names, archive) is not None


async def require_kernel(host: Host, kernel: str, archive: Archive = OWN) -> None:
    """Check with the current package lists that a kernel is available; download nothing.

    Args:
        host: The computer whose package lists are used.
        kernel: An alias or a package's name; see :func:`kernel_packages`.
        archive: The archive whose packages are searched.

    Raises:
        InputError: The kernel is not an alias, and the lists, if there are any, have no such
            package.
    """
    if any(kernel in aliases for aliases in _ALIASES.values()):
        return
    if not _PACKAGE.fullmatch(kernel) or (
        archive.state() and await _show(host, kernel, archive) is None
    ):
        system = await distribution(host, archive)
        raise InputError(
            f"{system.name} has no package for the kernel {kernel!r}",
            await _choices(host, system, archive),
        )


async def find_package(host: Host, name: str) -> Package:
    """Find a package by its name.

    Args:
        host: The computer whose package lists are used.
        name: The package's name.

    Raises:
        InputError: There is none of that name.
    """
    found = await _first(host, (name,))
    if found is None and await _update(host):
        found = await _first(host, (name,))
    if found is None:
        system = await distribution(host)
        raise InputError(
            f"{system.name} has no package {name}", "run `apt-get update` as root, then try again"
        )
    return found


async def _first(host: Host, names: tuple[str, ...], archive: Archive = OWN) -> Package | None:
    for name in names:
        if (package := await _show(host, name, archive)) is not None:
            return package
    return None


async def _parts(host: Host, package: Package, archive: Archive) -> tuple[Package, ...]:
    """Follow the dependencies from a package without content to those with the kernel."""
    parts: dict[str, Package] = {}
    waiting = [package]
    while waiting:
        current = waiting.pop()
        if current.name in parts:
            continue
        parts[current.name] = current
        for name in current.depends:
            if not _KERNEL_PART.match(name):
                continue
            if (needed := await _show(host, name, archive)) is not None:
                waiting.append(needed)
    # A meta-package installs only its own documentation, some kilobytes.
    return tuple(part for part in parts.values() if part.installed_bytes > 1 << 20)


async def _show(host: Host, name: str, archive: Archive) -> Package | None:
    argv = ["apt-cache", *archive.options, "show", "--no-all-versions", "--", name]
    try:
        shown = await host.run(argv, timeout_s=60)
    except InputError:
        return None
    if not shown.ok:
        return None
    return next(described(shown.stdout.decode(errors="replace")), None)


def described(stanzas: str) -> Iterator[Package]:
    """Yield the packages that ``apt-cache show`` describes, without those that have no file.

    Args:
        stanzas: The output of ``apt-cache show``.
    """
    # Loaded only here: most commands read no list of packages.
    from debian import deb822

    # Pass lines, because a single text might be taken for the name of a file.
    lines = stanzas.splitlines()
    for stanza in deb822.Packages.iter_paragraphs(lines, use_apt_pkg=False):
        if not {"Package", "Version", "SHA256"} <= set(stanza.keys()):
            continue
        needed = [
            choices[0]["name"]
            for field in ("Pre-Depends", "Depends")
            if stanza.get(field)
            for choices in deb822.PkgRelation.parse_relations(stanza[field])
        ]
        yield Package(
            stanza["Package"],
            stanza["Version"],
            stanza["SHA256"],
            tuple(needed),
            int(stanza.get("Installed-Size", "0")) << 10,
            _source(stanza),
        )


def _source(stanza: Mapping[str, str]) -> tuple[str, str]:
    """Return name and version of a package's source (Debian Policy 5.6.1, ``Source``)."""
    name, _, version = stanza.get("Source", stanza["Package"]).partition(" (")
    return name, version.rstrip(")") or stanza["Version"]


async def source_packages(host: Host, packages: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the name and version of the source that each package was built from.

    Args:
        host: The computer whose package lists are used.
        packages: The version of each package, by name. Packages that the lists no longer have are
            missing in the result.
    """
    asked = [f"{name}={version}" for name, version in sorted(packages.items())]
    try:
        shown = await host.run(["apt-cache", "show", "--", *asked], timeout_s=_UPDATE_S)
    except InputError:
        return {}
    found = described(shown.stdout.decode(errors="replace"))
    return {each.name: each.source for each in found if packages.get(each.name) == each.version}


async def _update(host: Host, archive: Archive = OWN) -> bool:
    """Fetch this computer's package lists if Tare runs as root; return whether that succeeded."""
    if archive.release is not None:
        return False
    if (await host.run(["id", "-u"], timeout_s=30)).stdout.strip() != b"0":
        return False
    try:
        return (await host.run(["apt-get", "update", "-q"], timeout_s=_UPDATE_S)).ok
    except InputError:
        return False


async def _choices(host: Host, system: Distribution, archive: Archive) -> str:
    argv = ["apt-cache", *archive.options, "search", "--names-only", "^linux-image-"]
    found = await host.run(argv, timeout_s=60)
    names = [line.split(" ")[0] for line in found.stdout.decode(errors="replace").splitlines()]
    # Leave out names with a version: the other packages depend on these.
    plain = sorted(name for name in names if not re.search(r"-\d|-dbg$|-unsigned$", name))
    if not plain:
        return "run `apt-get update` as root, then try again; or name a kernel file"
    aliases = ", ".join(sorted(_ALIASES[system.id]))
    return f"use {aliases}, a kernel file, or one of {', '.join(plain[:12])}"


async def download(host: Host, package: Package, folder: Path, archive: Archive = OWN) -> Path:
    """Download one package; apt verifies its signature and digest.

    Returns:
        The package's file, in ``folder``.

    Raises:
        InputError: It could not be downloaded; the message has the last line that apt printed.
    """
    wanted = f"{package.name}={package.version}"
    got = await host.run(
        [
            *("env", "-C", os.fspath(folder)),
            *("apt-get", "-q", *archive.options, "download", "--", wanted),
        ],
        timeout_s=_DOWNLOAD_S,
    )
    files = sorted(folder.glob(f"{package.name}_*.deb"))
    if not got.ok or not files:
        require_disk(got.words(), folder)
        output = got.words().splitlines()
        raise NotAvailable(
            f"the package {wanted} could not be downloaded: {output[-1] if output else 'no file'}",
            f"check the network, and {renewed(archive)}",
        )
    return files[0]


def renewed(archive: Archive) -> str:
    """Return the part of a hint that explains how to fetch an archive's lists again."""
    if archive.release is None:
        return "run `apt-get update` as root"
    return f"remove {archive.lists.parent}, so that its lists are fetched again"
