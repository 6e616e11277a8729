"""Import bundles into the cache: verify, unpack, make the toolboxes' images, and publish."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.bundle.archive import (
    KERNELS,
    LICENCES,
    TOOLBOXES,
    BundleEntry,
    BundleReader,
    KernelPart,
    Manifest,
    ToolboxPart,
)
from tare.images.bundle.index import INDEX, Index, read_index
from tare.images.kernels import cached_kernel, version_of
from tare.images.toolbox import tree as trees
from tare.images.toolbox.toolbox import IMAGE, TREE, make_image, publish_toolbox

_SPARE = 256 << 20


async def import_bundle(
    host: Host, file: Path, cache: Path, *, say: Callable[[str], None], installed: str = ""
) -> Manifest:
    """Verify a bundle and add its contents to the cache: either all of them, or none.

    Args:
        host: This computer.
        file: The bundle.
        cache: The cache.
        say: Called with a sentence at each stage.
        installed: The state of an installed package's bundle, which the :class:`Index` records;
            empty for other bundles.

    Raises:
        InputError: The bundle cannot be read, is damaged, is for another architecture, or comes
            from a newer Tare; or there is no room in the cache.
    """
    try:
        stream = file.open("rb")
    except OSError as error:
        raise InputError(
            f"the bundle {file} cannot be read: {error.strerror}",
            "name a file that `tare image export` made",
        ) from error
    machine = (await host.run(["uname", "-m"], timeout_s=30)).stdout.decode().strip()
    with stream:
        reader = BundleReader(stream, file.name)
        manifest = reader.manifest(machine)
        async with store.exclusive(cache) as draft:
            _require_room(cache, manifest)
            say(f"verifying and unpacking {manifest.size >> 20} MiB")
            try:
                await _unpack(reader, manifest, draft)
            except FileExistsError as error:
                raise InputError(f"the bundle {file.name} is refused: {error}") from error
            for kernel in manifest.kernels.values():
                _require_kernel(draft / KERNELS / kernel.key, kernel, file.name)
            for kind, box in manifest.toolboxes.items():
                say(f"toolbox {kind}: making its image")
                await _make_image(host, draft / TOOLBOXES / box.key, box, file.name)
            await _publish(manifest, draft, cache)
            _note(manifest, cache, draft, str(file) if installed else "", installed)
    return manifest


def _require_room(cache: Path, manifest: Manifest) -> None:
    # A toolbox becomes a tree and an image of about the same size.
    wanted = 2 * manifest.size + _SPARE
    if (free := shutil.disk_usage(cache).free) < wanted:
        raise InputError(
            f"importing needs {wanted >> 20} MiB in {cache}, and {free >> 20} MiB are free",
            "make room, or set XDG_CACHE_HOME to another directory",
        )


async def _unpack(reader: BundleReader, manifest: Manifest, draft: Path) -> None:
    for folder in (KERNELS, TOOLBOXES):
        (draft / folder).mkdir()
    for entry in manifest.entries:
        if entry.kind == "hardlink":
            os.link(draft / entry.target, draft / entry.path, follow_symlinks=False)
        _write(draft / entry.path, entry, pieces := reader.content(entry))
        # Read the rest: folders and links have no content, but reading checks their headers.
        for _ in pieces:
            pass
        await asyncio.sleep(0)
    reader.end()


def _write(path: Path, entry: BundleEntry, pieces: Iterator[bytes]) -> None:
    match entry.kind:
        case "folder":
            path.mkdir(mode=0o755)
        case "link":
            path.symlink_to(entry.target)
        case "file":
            # Never write to an existing file, and follow no link.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            mode = 0o755 if entry.executable else 0o644
            with os.fdopen(os.open(path, flags, mode), "wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                os.fchmod(stream.fileno(), mode)


def _require_kernel(folder: Path, part: KernelPart, name: str) -> None:
    file = folder / "vmlinuz"
    version = version_of(file.read_bytes()) if file.is_file() else None
    if version != part.version or not (folder / "modules" / part.version).is_dir():
        raise InputError(
            f"the bundle {name} is refused: its kernel {part.version} is not one", "export it again"
        )


async def _make_image(host: Host, folder: Path, part: ToolboxPart, name: str) -> None:
    """Make a toolbox's image with the tools in its tree, and compare it with the exporter's digest.

    A bundle does not hold the image: it repeats the tree's bytes, and would double the size.
    """
    tree = folder / TREE
    if not tree.is_dir():
        raise InputError(f"the bundle {name} is refused: its toolbox is empty", "export it again")
    await asyncio.to_thread(trees.make_uniform, tree)
    await make_image(host, tree, tree, folder / IMAGE)
    if await asyncio.to_thread(store.file_digest, folder / IMAGE) != part.digest:
        raise InputError(
            f"the toolbox of the bundle {name} gives another image here than where it was exported",
            "export it again",
        )


async def _publish(manifest: Manifest, draft: Path, cache: Path) -> None:
    """Move all parts to their places; if one cannot be moved, remove those that were moved."""
    made: list[Path] = []
    try:
        for kernel in manifest.kernels.values():
            place = cache / KERNELS / kernel.key
            if (draft / KERNELS / kernel.key).exists() and cached_kernel(place) is None:
                made.append(place)
                facts = {"version": kernel.version, "packages": dict(kernel.packages)}
                await asyncio.to_thread(store.publish, draft / KERNELS / kernel.key, place, facts)
        for kind, box in manifest.toolboxes.items():
            place = cache / TOOLBOXES / box.key
            made.append(place)
            facts = {"kind": kind, "packages": dict(box.packages), "notes": list(box.notes)}
            tree = draft / TOOLBOXES / box.key / TREE
            await asyncio.to_thread(publish_toolbox, tree, place, facts)
    except BaseException:
        for place in made:
            shutil.rmtree(place, ignore_errors=True)
        raise


def _note(manifest: Manifest, cache: Path, draft: Path, file: str, installed: str) -> None:
    old = read_index(cache)
    index = Index(
        kernels=old.kernels | {name: part.key for name, part in manifest.kernels.items()},
        toolboxes=old.toolboxes
        | {kind: (part.key, part.recipe) for kind, part in manifest.toolboxes.items()},
        installed=old.installed | ({file: installed} if installed else {}),
    )
    for folder in (KERNELS, TOOLBOXES):
        for marker in (cache / folder).glob(f"*/{store.KEPT}"):
            if marker.parent.name not in index.keys:
                marker.unlink()
    for key in index.keys:
        for folder in (KERNELS, TOOLBOXES):
            if (cache / folder / key).is_dir():
                (cache / folder / key / store.KEPT).touch()
    notice = draft / LICENCES
    if notice.is_file():
        notice.replace(cache / f"imported-{LICENCES}")
    note = draft / INDEX
    note.write_text(index.model_dump_json(indent=1))
    note.replace(cache / INDEX)
