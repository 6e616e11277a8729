"""The toolbox's files: packages unpacked, what their installation would have set up, and inputs.

Nothing here needs root, and nothing of the host gets in: owners, times and permissions are made
uniform, so that the same packages give the same tree.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.cache import require_disk
from tare.images.toolbox.recipe import (
    INPUTS as INPUTS_AT,
)
from tare.images.toolbox.recipe import (
    KERNEL_KEPT,
    KERNEL_SOURCE,
    LEFT_OUT,
    PROGRAMS,
    Kind,
)

_UNPACK_S = 300.0
_AT_ONCE = 4
_MERGED = ("bin", "lib", "lib64", "sbin")
_MOUNT_POINTS = ("dev", "proc", "root", "run", "scratch", "sys", "tmp", "var/log", "var/tmp")
AGENT = "tare-agent"
"""A file for the agent to be mounted on, where the tree is a container's root."""

_FILES = {
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/passwd": "root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
    AGENT: "",
}
_LINKS = {
    "toolbox": ".",
    "var/run": "/run",
}
_ALTERNATIVES = {
    "usr/bin/awk": ("usr/bin/mawk",),
    "usr/bin/cc": ("usr/bin/gcc",),
    "usr/bin/java": ("usr/lib/jvm/java-*/bin/java",),
    "usr/bin/yacc": ("usr/bin/bison",),
    # Where Debian 12 has it; Debian 13 has moved it.
    "usr/games/gnugo": ("usr/bin/gnugo",),
}
_EXECUTABLE = 0o755
_PLAIN = 0o644


async def unpack(host: Host, debs: Sequence[Path], tree: Path) -> None:
    """Unpack packages into ``tree``, several at once, without what the toolbox leaves out.

    Raises:
        InputError: A package is damaged, or the disk is full.
    """
    for name in _MERGED:
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    excludes = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(deb: Path) -> None:
        script = (
            'deb=$1 tree=$2; shift 2; dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tree" '
            '--keep-directory-symlink --no-same-owner --anchored --wildcards "$@"'
        )
        async with turn:
            done = await host.run(
                ["sh", "-c", script, "sh", str(deb), str(tree), *excludes], timeout_s=_UNPACK_S
            )
        if not done.ok:
            require_disk(done.words(), tree)
            lines = done.words().splitlines()
            raise InputError(
                f"{deb.name} could not be unpacked: {lines[-1] if lines else 'no reason given'}",
                "free some space in the cache directory",
            )

    await asyncio.gather(*map(one, debs))


async def unpack_kernel(host: Host, tree: Path) -> None:
    """Unpack of the kernel's source what its smallest configuration compiles.

    Raises:
        InputError: There is no such source, or the disk is full.
    """
    archives = sorted((tree / "usr/src").glob("linux-source-*.tar.*"))
    if not archives:
        raise InputError("the package linux-source holds no source", "run `apt-get update` as root")
    target = tree / KERNEL_SOURCE
    target.mkdir()
    done = await host.run(
        ["tar", "-x", "-f", str(archives[0]), "-C", str(target), "--strip-components=1"],
        timeout_s=_UNPACK_S,
    )
    if not done.ok:
        require_disk(done.words(), tree)
        raise InputError(
            f"the kernel's source could not be unpacked: {done.words()[-200:]}",
            "free some space in the cache directory",
        )
    await asyncio.to_thread(_prune_kernel, target)
    for archive in (tree / "usr/src").glob("linux-*"):
        if archive.is_file() or archive.is_symlink():
            archive.unlink()


def _prune_kernel(source: Path) -> None:
    kept = [pattern for pattern in KERNEL_KEPT if "*" not in pattern]
    matched = [pattern for pattern in KERNEL_KEPT if "*" in pattern]
    for folder, _, names in os.walk(source):
        inside = Path(folder).relative_to(source).as_posix()
        if any(inside == part or inside.startswith(f"{part}/") for part in kept):
            continue
        for name in names:
            path = name if inside == "." else f"{inside}/{name}"
            same_depth = [p for p in matched if p.count("/") == path.count("/")]
            if (
                path in kept
                or name.startswith(("Kconfig", "Makefile", "Kbuild"))
                or any(fnmatch.fnmatchcase(path, pattern) for pattern in same_depth)
            ):
                continue
            (Path(folder) / name).unlink()


def settle(tree: Path) -> None:
    """Do what installing the packages would have done, as far as anything here needs it."""
    for name in _MOUNT_POINTS:
        (tree / name).mkdir(parents=True, exist_ok=True)
    for name, content in _FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    (tree / AGENT).chmod(_EXECUTABLE)
    for name, target in _LINKS.items():
        _link(tree / name, target)
    for name, patterns in _ALTERNATIVES.items():
        found = sorted(path for pattern in patterns for path in tree.glob(pattern))
        if found and not os.path.lexists(tree / name):
            _link(tree / name, f"/{found[0].relative_to(tree).as_posix()}")


def _link(path: Path, target: str) -> None:
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


def add_inputs(tree: Path) -> None:
    """Write the applications' inputs."""
    # Loaded only here, with NumPy: most commands build no toolbox.
    from tare.images.toolbox.inputs import INPUTS

    folder = tree / INPUTS_AT
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in INPUTS.items():
        (folder / name).write_bytes(make())


def require_programs(tree: Path, kind: Kind) -> None:
    """Check that every program is there.

    Raises:
        InputError: One is missing; the message names its package.
    """
    for name, program in PROGRAMS[kind].items():
        file = resolve_inside(tree, program.path)
        if not file.is_file() or not file.stat().st_mode & stat.S_IXUSR:
            raise InputError(
                f"the toolbox has no program {name} ({program.path}) after unpacking the package "
                f"{program.package}",
                "run `apt-get update` as root, then `tare image build`",
            )


def resolve_inside(tree: Path, path: str) -> Path:
    """Return the file that ``path`` names where ``tree`` is the root: links are followed in it."""
    current = tree
    waiting = [part for part in path.split("/") if part]
    for _ in range(10_000):
        if not waiting:
            break
        part = waiting.pop(0)
        if part in {".", ""}:
            continue
        if part == "..":
            current = current.parent if current != tree else tree
            continue
        step = current / part
        if step.is_symlink():
            target = str(step.readlink())
            waiting = [*target.split("/"), *waiting]
            current = tree if target.startswith("/") else current
        else:
            current = step
    return current


def make_uniform(tree: Path) -> None:
    """Give everything the same times and permissions, whoever unpacked it, and no special bits."""
    for folder, names, files in os.walk(tree):
        for name in (*names, *files):
            path = Path(folder) / name
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                path.chmod(_EXECUTABLE)
            elif stat.S_ISREG(mode):
                path.chmod(_EXECUTABLE if mode & stat.S_IXUSR else _PLAIN)
            elif not stat.S_ISLNK(mode):
                path.unlink()
    tree.chmod(_EXECUTABLE)
    for folder, names, files in os.walk(tree, topdown=False):
        for name in (*names, *files):
            os.utime(Path(folder) / name, ns=(0, 0), follow_symlinks=False)
    os.utime(tree, ns=(0, 0))


def remove(tree: Path) -> None:
    """Remove a tree, however far its making came."""
    shutil.rmtree(tree, ignore_errors=True)
