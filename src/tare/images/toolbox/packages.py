"""The packages of a toolbox: found and downloaded by apt, which checks every signature."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.cache import require_disk
from tare.images.packages import Package, described
from tare.images.toolbox.recipe import NOT_NEEDED

_RESOLVE_S = 120.0
_DOWNLOAD_S = 1800.0
# What apt would install on a computer that has nothing yet; it changes nothing, and needs no root.
_NOTHING_INSTALLED = (
    *("-o", "Dir::State::status=/dev/null"),
    *("-o", "Debug::NoLocking=true"),
    *("-o", "APT::Install-Recommends=false"),
)
_INSTALLED = re.compile(r"^Inst (\S+) \((\S+)[ )]", re.MULTILINE)
_NAMED = re.compile(r"^Package: (\S+)$", re.MULTILINE)
_HINT = "run `apt-get update` as root, and check the network"


async def toolbox_packages(
    host: Host, wanted: Sequence[str], unneeded: re.Pattern[str] = NOT_NEEDED
) -> tuple[Package, ...]:
    """Find the packages of a toolbox, with all they depend on, sorted by name.

    Args:
        host: The computer whose package lists are used.
        wanted: Names; in ``a | b`` the first that exists is taken.
        unneeded: What is left out although others depend on it, unless it is wanted itself.

    Raises:
        InputError: There is no apt, or no such package.
    """
    names = [await _existing(host, name) for name in wanted]
    printed = await _apt(host, ["apt-get", *_NOTHING_INSTALLED, "-s", "install", "--", *names])
    versions = {
        name.partition(":")[0]: version
        for name, version in _INSTALLED.findall(printed)
        if name.partition(":")[0] in names or not unneeded.fullmatch(name.partition(":")[0])
    }
    asked = [f"{name}={version}" for name, version in sorted(versions.items())]
    shown = await _apt(host, ["apt-cache", "show", "--no-all-versions", "--", *asked])
    found = {package.name: package for package in described(shown)}
    if missing := sorted(set(versions) - set(found)):
        raise InputError(f"apt says nothing of the package {missing[0]}", _HINT)
    return tuple(found[name] for name in sorted(versions))


async def unknown_packages(host: Host, names: Iterable[str]) -> tuple[str, ...]:
    """Return which of these packages there are none of, sorted; virtual ones are none.

    Args:
        host: The computer whose package lists are used.
        names: Names of packages.

    Raises:
        InputError: There is no apt.
    """
    asked = sorted(set(names))
    if not asked:
        return ()
    done = await host.run(
        ["apt-cache", "show", "--no-all-versions", "--", *asked],
        timeout_s=_RESOLVE_S,
        env={"LC_ALL": "C"},
    )
    known = set(_NAMED.findall(done.stdout.decode(errors="replace")))
    return tuple(name for name in asked if name not in known)


async def _existing(host: Host, name: str) -> str:
    choices = [choice.strip() for choice in name.split("|")]
    if len(choices) == 1:
        return name
    for choice in choices:
        done = await host.run(
            ["apt-cache", "show", "--no-all-versions", "--", choice], timeout_s=60
        )
        if done.ok and done.stdout:
            return choice
    raise InputError(f"apt knows no package {' or '.join(choices)} for the toolbox", _HINT)


async def _apt(host: Host, argv: list[str]) -> str:
    done = await host.run(argv, timeout_s=_RESOLVE_S, env={"LC_ALL": "C"})
    if not done.ok:
        lines = [line for line in done.words().splitlines() if line.startswith("E:")]
        raise InputError(
            f"apt cannot resolve the toolbox: {' '.join(lines) or done.words()}", _HINT
        )
    return done.stdout.decode(errors="replace")


async def download_all(host: Host, packages: Sequence[Package], folder: Path) -> tuple[Path, ...]:
    """Download packages; apt checks signatures and digests.

    Returns:
        The packages' files, in ``folder``, in the order of ``packages``.

    Raises:
        InputError: One could not be downloaded, with apt's own words.
    """
    wanted = [f"{package.name}={package.version}" for package in packages]
    got = await host.run(
        ["env", "-C", os.fspath(folder), "apt-get", "-q", "download", "--", *wanted],
        timeout_s=_DOWNLOAD_S,
        env={"LC_ALL": "C"},
    )
    files = {path.name.partition("_")[0]: path for path in folder.glob("*.deb")}
    missing = [package.name for package in packages if package.name not in files]
    if not got.ok or missing:
        require_disk(got.words(), folder)
        lines = [line for line in got.words().splitlines() if line.startswith("E:")]
        what = missing[0] if missing else "a package"
        raise InputError(
            f"{what} of the toolbox could not be downloaded: {' '.join(lines[:2]) or 'no file'}",
            _HINT,
        )
    return tuple(files[package.name] for package in packages)
