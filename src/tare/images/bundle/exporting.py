"""Export kernels and toolboxes as a bundle, with the licences and sources of their packages."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.bundle.archive import (
    FORMAT,
    KERNELS,
    LICENCES,
    TOOLBOXES,
    BundleEntry,
    BundleMember,
    KernelPart,
    Manifest,
    ToolboxPart,
    write_bundle,
)
from tare.images.cache import file_digest
from tare.images.kernels import COPYRIGHT, find_kernel
from tare.images.packages import source_packages
from tare.images.toolbox.recipe import Kind
from tare.images.toolbox.scimark import ARTIFACT
from tare.images.toolbox.toolbox import TREE, prepare_toolbox, recipe_of

KERNEL_NAMES = ("rt", "generic")
"""The kernels that studies use by default."""


async def export_bundle(
    host: Host,
    out: Path,
    *,
    made_by: str,
    kernels: Sequence[str],
    toolboxes: Sequence[Kind],
    agent: Path,
    cache: Path,
    say: Callable[[str], None],
) -> Manifest:
    """Build kernels and toolboxes, or find them in the cache, and write them into one file.

    The file appears in one step. If the export fails or is interrupted, no part of it is left.

    Args:
        host: This computer, whose distribution provides the packages.
        out: The file to write.
        made_by: The version of Tare that makes it.
        kernels: Names of kernels, as a study writes them; files are not accepted.
        toolboxes: The kinds of toolboxes.
        agent: The agent program, with which a toolbox is tested.
        cache: The cache folder of kernels and toolboxes.
        say: Called with a sentence at each stage.

    Raises:
        InputError: A kernel or toolbox cannot be built, or the file cannot be written.
    """
    machine = (await host.run(["uname", "-m"], timeout_s=30)).stdout.decode().strip()
    members: list[BundleMember] = []
    packages: dict[str, str] = {}
    licences: dict[str, str] = {}
    found: dict[str, KernelPart] = {}
    for name in dict.fromkeys(kernels):
        say(f"kernel {name}: finding or downloading its packages")
        kernel = await find_kernel(host, name, cache)
        if not kernel.packages:
            raise InputError(
                f"the kernel {name!r} is not from a package of the distribution",
                "name rt, generic, cloud or a kernel's package",
            )
        part = KernelPart(key=kernel.digest, version=kernel.version, packages=kernel.packages)
        found[name] = part
        packages |= kernel.packages
        top = f"{KERNELS}/{part.key}"
        licences |= {package: f"{top}/{COPYRIGHT}/{package}" for package in kernel.packages}
        members += await asyncio.to_thread(_members, kernel.file.parent, top)
    boxes: dict[Kind, ToolboxPart] = {}
    for kind in dict.fromkeys(toolboxes):
        box = await prepare_toolbox(host, kind, agent=agent, cache=cache, say=say)
        boxes[kind] = ToolboxPart(
            key=box.key,
            recipe=recipe_of(kind),
            digest=box.digest,
            packages=dict(box.packages),
            notes=list(box.notes),
        )
        packages |= box.packages
        top = f"{TOOLBOXES}/{box.key}"
        docs = f"{top}/{TREE}/usr/share/doc"
        licences |= {package: f"{docs}/{package}/copyright" for package in box.packages}
        members += await asyncio.to_thread(_members, box.tree.parent, top)
    say("listing licences and sources")
    sources = await source_packages(host, packages)
    listed = {member.entry.path for member in members}
    notice = _notice(packages, sources, {n: p for n, p in licences.items() if p in listed})
    members = list({member.entry.path: member for member in members}.values())
    return await _write(out, made_by, machine, notice, found, boxes, members, say)


async def _write(
    out: Path,
    made_by: str,
    machine: str,
    notice: str,
    kernels: Mapping[str, KernelPart],
    boxes: Mapping[Kind, ToolboxPart],
    members: Sequence[BundleMember],
    say: Callable[[str], None],
) -> Manifest:
    draft, text = (out.with_name(f".{out.name}.{end}") for end in ("part", "licences"))
    try:
        text.write_text(notice)
        first = BundleMember(_file(LICENCES, text), text)
        manifest = Manifest(
            format=FORMAT,
            made_by=made_by,
            machine=machine,
            kernels=dict(kernels),
            toolboxes=dict(boxes),
            entries=[first.entry, *(member.entry for member in members)],
        )
        say(f"compressing {manifest.size >> 20} MiB, which takes some minutes")
        with draft.open("wb") as stream:
            reported = 0
            for done in write_bundle(stream, manifest, [first, *members]):
                # Ctrl-C is noticed here, between two pieces.
                await asyncio.sleep(0)
                if done - reported >= 100 << 20:
                    say(f"{done >> 20} of {manifest.size >> 20} MiB")
                    reported = done
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(out)
    except OSError as error:
        raise InputError(
            f"the bundle {out} cannot be written: {error.strerror or error}",
            "name a file in a folder that exists and has room",
        ) from error
    finally:
        for path in (draft, text):
            path.unlink(missing_ok=True)
    return manifest


def _members(folder: Path, top: str) -> list[BundleMember]:
    """Return the members of a kernel's or toolbox's folder, without files that can be rebuilt."""
    own = [path for path in _walk(folder) if _belongs(path.relative_to(folder))]
    members = [BundleMember(BundleEntry(path=top, kind="folder"))]
    first: dict[tuple[int, int], str] = {}
    for path in own:
        name = f"{top}/{path.relative_to(folder).as_posix()}"
        about = path.lstat()
        same = first.get((about.st_dev, about.st_ino))
        if same is not None:
            members.append(BundleMember(BundleEntry(path=name, kind="hardlink", target=same)))
            continue
        if stat.S_ISREG(about.st_mode):
            first[about.st_dev, about.st_ino] = name
        members.append(_member(path, name))
    return members


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _belongs(path: Path) -> bool:
    return path.parts[0] in (TREE, "vmlinuz", "modules", COPYRIGHT)


def _member(path: Path, name: str) -> BundleMember:
    if path.is_symlink():
        return BundleMember(BundleEntry(path=name, kind="link", target=str(path.readlink())))
    if path.is_dir():
        return BundleMember(BundleEntry(path=name, kind="folder"))
    return BundleMember(_file(name, path), path)


def _file(name: str, path: Path) -> BundleEntry:
    about = path.stat()
    return BundleEntry(
        path=name,
        executable=bool(about.st_mode & stat.S_IXUSR),
        size=about.st_size,
        sha256=file_digest(path),
    )


def _notice(
    packages: Mapping[str, str], sources: Mapping[str, tuple[str, str]], files: Mapping[str, str]
) -> str:
    rows = [
        f"{name} {version}\n"
        f"    source: {' '.join(sources.get(name, (name, version)))}\n"
        f"    licence: {files.get(name, 'in the source package, debian/copyright')}\n"
        for name, version in sorted(packages.items())
    ]
    return _NOTICE.format(scimark=" ".join(ARTIFACT)) + "\n".join(rows)


_NOTICE = """\
What this bundle holds, under which licences, and where the sources are.

The kernels (GPL-2.0) and all programs are files of the distribution's own packages, unchanged,
listed below with the version of each package and of the source package that it was built from. The
licence of each is the file that is named with it, in this bundle.

Sources: on the distribution that the bundle was made on, `apt-get source SOURCE=VERSION` fetches
each source package (with a deb-src line in apt's sources); the distribution's archive of snapshots
keeps the versions that were replaced since.

A toolbox also holds SciMark 2 ({scimark}; public domain, NIST), inputs that Tare makes by itself,
and configuration that Tare writes (Apache-2.0).

"""
