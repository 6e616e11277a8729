"""The CPUs and memory that a process's control group allows: cpusets of both versions.

:mod:`tare.hosts.topology` reads the files. Their meaning follows the kernel's
``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/cpusets.rst``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

_EFFECTIVE = ("cpuset.{}.effective", "cpuset.effective_{}", "effective_{}")
_CONFIGURED = ("cpuset.{}", "{}")
"""The configured values of the older hierarchy, whose effective values lag behind CPU hotplug."""
_NAMES = (*_EFFECTIVE, *_CONFIGURED)
CPUSET_FILES = (
    *(name.format(what) for what in ("cpus", "mems") for name in _NAMES),
    "cpuset.cpus.partition",
    "cpuset.cpus.isolated",
)


def cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers in a kernel CPU list such as ``0-3,8``.

    Raises:
        ValueError: The text is not such a list.
    """
    numbers: list[int] = []
    for part in filter(None, text.strip("\0 \t\r\n").split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


@dataclass(frozen=True)
class Cpuset:
    """The CPUs and memory that a process's control group allows; None if no group limits them."""

    cpus: tuple[int, ...] | None = None
    mems: tuple[int, ...] | None = None
    isolated: bool = False
    isolated_by_partition: tuple[int, ...] = ()

    @staticmethod
    def found(files: Mapping[str, str]) -> Cpuset:
        """Return the limits of this process's group in the hierarchy that has cpusets.

        If the unified hierarchy's controller is off in the process's own group, the nearest
        ancestor's setting applies.
        """
        parted: tuple[int, ...] = ()
        for mount, name, unified in hierarchies(files):
            cpus: tuple[int, ...] | None = None
            mems: tuple[int, ...] | None = None
            partition = ""
            for folder in folders(mount, name, unified=unified):
                cpus = cpus or _allowed(files, folder, "cpus", unified=unified)
                mems = mems or _allowed(files, folder, "mems", unified=unified)
                partition = partition or files.get(f"{folder}/cpuset.cpus.partition", "")
                parted = parted or _listed(files, folder, ("cpuset.cpus.isolated",)) or ()
            if cpus is not None:
                return Cpuset(cpus, mems, partition.strip() == "isolated", parted)
        return Cpuset(isolated_by_partition=parted)


def _allowed(
    files: Mapping[str, str], folder: str, what: Literal["cpus", "mems"], *, unified: bool
) -> tuple[int, ...] | None:
    """Return the CPUs or memory nodes of a group; None if its folder does not list them."""
    names = _NAMES if unified else (*_CONFIGURED, *_EFFECTIVE)
    return _listed(files, folder, (name.format(what) for name in names))


def _listed(files: Mapping[str, str], folder: str, names: Iterable[str]) -> tuple[int, ...] | None:
    for name in names:
        try:
            if numbers := cpu_list(files.get(f"{folder}/{name}", "").partition("\n")[0]):
                return numbers
        except ValueError:
            continue
    return None


def folders(mount: str, name: str, *, unified: bool) -> Iterator[str]:
    """Yield the folder of a group and, in the unified hierarchy, those of its ancestors."""
    at = PurePosixPath(name)
    for group in (at, *at.parents) if unified else (at,):
        yield f"{mount}/{str(group).strip('/')}".rstrip("/")


def hierarchies(files: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    """Yield hierarchies of groups, the most likely one for this process's cpuset first.

    Each is its mount point, the process's group there, and whether it is the unified hierarchy.
    """
    first: str | None = None
    unified: str | None = None
    for line in files.get("/proc/self/cgroup", "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if "cpuset" in controllers.split(","):
            first = name
        elif number == "0" and not controllers:
            unified = name
    mounts = [
        (words[1], words[2], words[3].split(","))
        for line in files.get("/proc/mounts", "").splitlines()
        if len(words := line.split(" ")) > 3
    ]
    older = [
        at for at, kind, how in mounts if kind == "cpuset" or (kind == "cgroup" and "cpuset" in how)
    ]
    newer = [at for at, kind, _ in mounts if kind == "cgroup2"]
    if not mounts:
        older, newer = ["/sys/fs/cgroup/cpuset", "/dev/cpuset"], ["/sys/fs/cgroup"]
    named = files.get("/proc/self/cpuset", "").strip()
    if first is not None:
        yield from ((at, first, False) for at in older)
    elif unified is not None:
        yield from ((at, named or unified, True) for at in newer)
    if named and first is None:
        yield from ((at, named, True) for at in newer)
        yield from ((at, named, False) for at in older)
