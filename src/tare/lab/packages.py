"""The packages of the lab host's system, resolved and fetched by apt, and never installed here."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.archives import OWN, Archive
from tare.images.packages import renewed

_RESOLVE_S = 120.0
_FETCH_S = 1800.0
_UPDATE_S = 300.0

SYSTEM = (
    # Packages for a shell over SSH, and for the agent that runs behind it.
    *("base-files", "bash", "bsdutils", "busybox-static", "coreutils", "dash", "findutils"),
    *("gawk", "grep", "hostname", "mount", "openssh-server", "procps", "sed", "tar", "util-linux"),
    # Packages that drivers of hypervisors use: disks, networks, CPUs.
    *("bridge-utils", "e2fsprogs", "iproute2", "iputils-ping", "iptables", "openvswitch-switch"),
)
"""Packages that every lab host has."""

HYPERVISORS = ("qemu-system-x86", "xen-system-amd64", "xenstore-utils", "qemu-system-xen")
"""Packages of the hypervisors: one installation holds them all, and boots with either."""

_NOT_NEEDED = re.compile(
    r"(lib)?python3.*|perl.*|libperl.*|debconf|adduser|passwd|udev|ucf|init-system-helpers|dpkg"
    r"|grub.*|xen-hypervisor-common|media-types|openssh-client|runit-helper|lsb-base"
    r"|sysvinit-utils|systemd|tzdata|ca-certificates|openssl|libllvm.*|ipxe-qemu|logsave"
    r"|libpam-runtime|mesa.*|cpp.*|readline-common|sensible-utils|libdbus.*|dbus.*"
    r"|kmod|netbase|uuid-runtime|usrmerge|iso-codes|lib.*-perl|libasound2-data|libdrm-common|gcc-.*-base|libgdbm.*|libpam-mod.*"
)
"""Dependencies that serve installation, or uses that labs do not have."""

_URI = re.compile(r"^'[^']+' (?P<file>\S+) \d+ ?(?P<digest>\S*)$")


@dataclass(frozen=True)
class PackageFile:
    """A package that apt can fetch: its file name, and its digest if apt lists one."""

    file: str
    digest: str

    @property
    def name(self) -> str:
        """The package's name."""
        return self.file.partition("_")[0]

    @property
    def version(self) -> str:
        """The package's version, as apt wrote it into the file name."""
        return self.file.split("_")[1].replace("%3a", ":")


def needed(packages: Sequence[PackageFile], named: Collection[str] = ()) -> tuple[PackageFile, ...]:
    """Return the packages for a lab's disk; those that labs do not need only if they are named."""
    return tuple(
        part for part in packages if part.name in named or not _NOT_NEEDED.fullmatch(part.name)
    )


async def resolve(
    host: Host, names: Sequence[str], folder: Path, archive: Archive = OWN
) -> tuple[PackageFile, ...]:
    """Return the packages and all they depend on, as apt chooses them for an empty system.

    Args:
        host: The computer whose package lists are used.
        names: The packages wanted.
        folder: An empty folder for apt.
        archive: The archive of the packages.

    Raises:
        InputError: apt is missing, or cannot find or combine the packages; with apt's message.
    """
    argv = _install(names, folder, archive)
    listed = await host.run(argv, timeout_s=_RESOLVE_S)
    if not listed.ok and archive.release is None and await _update(host):
        listed = await host.run(argv, timeout_s=_RESOLVE_S)
    if not listed.ok:
        raise InputError(
            f"apt cannot put the lab's system together: {_last(listed.words())}",
            f"{renewed(archive)}; the lab needs the packages of Debian 12 or newer",
        )
    return parse_uris(listed.stdout.decode(errors="replace"))


def parse_uris(listed: str) -> tuple[PackageFile, ...]:
    """Return the packages that ``apt-get --print-uris`` lists, sorted by name."""
    found = (_URI.match(line.strip()) for line in listed.splitlines())
    files = {match["file"]: match["digest"] for match in found if match}
    return tuple(PackageFile(file, files[file]) for file in sorted(files))


async def fetch(
    host: Host, packages: Sequence[PackageFile], folder: Path, archive: Archive = OWN
) -> tuple[Path, ...]:
    """Fetch packages; apt verifies their signatures and digests.

    Returns:
        Their files in ``folder``, in the order of ``packages``.

    Raises:
        InputError: They could not be fetched; with apt's message.
    """
    wanted = [f"{part.name}={part.version}" for part in packages]
    apt = ["apt-get", "-qq", *_private(archive), "download", "--", *wanted]
    argv = ["env", "-C", os.fspath(folder), *apt]
    got = await host.run(argv, timeout_s=_FETCH_S)
    files = tuple(folder / part.file for part in packages)
    missing = [file.name for file in files if not file.is_file()]
    if not got.ok or missing:
        raise InputError(
            f"apt cannot fetch the lab's packages: {_last(got.words()) or missing[0]}",
            f"check the network and the disk's free space, and {renewed(archive)}",
        )
    return files


def _private(archive: Archive) -> tuple[str, ...]:
    """Return apt's options to read an archive without its lock, as the current user."""
    return (*archive.options, "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root")


def _install(names: Sequence[str], folder: Path, archive: Archive) -> list[str]:
    # An empty system, with an empty package cache, makes apt list every package.
    status = folder / "status"
    status.touch()
    (folder / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    return [
        *("apt-get", "-qq", "-y", "--no-install-recommends", "--print-uris"),
        *_private(archive),
        *("-o", f"Dir::State::status={status}"),
        *("-o", f"Dir::Cache::archives={folder / 'archives'}/"),
        *("install", *names),
    ]


async def _update(host: Host) -> bool:
    if (await host.run(["id", "-u"], timeout_s=30)).stdout.strip() != b"0":
        return False
    return (await host.run(["apt-get", "update", "-q"], timeout_s=_UPDATE_S)).ok


def _last(words: str) -> str:
    lines = [line for line in words.splitlines() if not line.startswith("W:")]
    return lines[-1].removeprefix("E: ") if lines else ""
