"""Packages and files that a workload adds to the toolbox."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tare.errors import InputError


@dataclass(frozen=True)
class Additions:
    """Packages and files that a workload adds to the toolbox.

    Args:
        packages: Names of packages of the distribution.
        files: Maps the path of each file or folder in the toolbox to its path on this computer.
            Relative paths start at the study's folder.
    """

    packages: frozenset[str] = frozenset()
    files: Mapping[str, Path] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.packages or self.files)

    def relative_to(self, folder: Path) -> Additions:
        """Return a copy whose relative paths on this computer start at ``folder``."""
        files = {place: folder / source for place, source in self.files.items()}
        return Additions(self.packages, files)

    def each_file(self) -> dict[str, Path]:
        """Map the toolbox path of each single file to its path here; expand folders, and sort.

        Raises:
            InputError: Something is neither a file nor a folder, or cannot be read.
        """
        found: dict[str, Path] = {}
        for place, source in self.files.items():
            found |= _files_of(place, source)
        return dict(sorted(found.items()))


NOTHING = Additions()
PROXY_TOOLBOX = "proxy"
"""The toolbox of a live image that is the toolbox `base` with the additions :data:`PROXIED`."""
PROXIED = Additions(frozenset({"haproxy"}))


def live_toolbox(needs: Iterable[str], additions: Additions) -> str:
    """Return the toolbox of the live image that a study needs; empty if no live image has it.

    Args:
        needs: The needs of the study's workloads.
        additions: The packages and files that these workloads add to the toolbox.
    """
    kinds = ("build", "analytics", "hadoop")
    wanted = next((kind for kind in kinds if f"toolbox-{kind}" in needs), "")
    if additions and (wanted or additions.files or not additions.packages <= PROXIED.packages):
        return ""
    return PROXY_TOOLBOX if additions else wanted or "base"


def merge_additions(additions: Iterable[Additions]) -> Additions:
    """Return the additions of several workloads, for the toolbox that they share.

    Raises:
        InputError: Two add different things at the same path.
    """
    packages: frozenset[str] = frozenset()
    files: dict[str, Path] = {}
    for each in additions:
        packages |= each.packages
        for place, source in each.files.items():
            if files.setdefault(place, source) != source:
                raise InputError(
                    f"{files[place]} and {source} are both added as {place} in the toolbox",
                    "give one of them another place",
                )
    for place in files:
        inside = [other for other in files if other.startswith(f"{place}/")]
        if inside:
            raise InputError(
                f"{inside[0]} in the toolbox is inside {place}, which is added too",
                "give one of them another place",
            )
    return Additions(packages, files)


def _files_of(place: str, source: Path) -> dict[str, Path]:
    try:
        mode = source.stat().st_mode
        if stat.S_ISREG(mode):
            return {place: source}
        if not stat.S_ISDIR(mode):
            raise InputError(f"{source} is neither a file nor a folder")
        found: dict[str, Path] = {}
        for inner in source.iterdir():
            if inner.is_symlink():
                raise InputError(
                    f"{inner} is a link; links in an added folder are not supported",
                    "put the file itself there",
                )
            found |= _files_of(f"{place}/{inner.name}", inner)
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from error
    return found
