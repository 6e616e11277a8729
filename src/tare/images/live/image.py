"""Make a live image: ``tare image live``.

It boots Debian's signed kernel and an initramfs through Debian's signed boot loaders.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images import cpio
from tare.images.live.disc import DiscLayout, make_disc, require_tools, source_date
from tare.images.live.drivers import ALWAYS, NAMED, OPTIONAL, REQUIRED, find_drivers
from tare.images.modules import ModuleTree
from tare.images.packages import Package, distribution, download, find_package, kernel_packages
from tare.images.toolbox.extended import extended_toolbox
from tare.images.toolbox.recipe import Kind
from tare.images.toolbox.toolbox import Toolbox, prepare_toolbox
from tare.workloads.additions import NOTHING, Additions

FORMAT = 1
"""Increase it when the same inputs must give other bytes."""

_UNPACK_S = 300.0
_GZIP_LEVEL = 9

LOADERS: Mapping[str, Mapping[str, str]] = {
    "isolinux": {
        "isolinux.bin": "usr/lib/ISOLINUX/isolinux.bin",
        "isohdpfx.bin": "usr/lib/ISOLINUX/isohdpfx.bin",
    },
    "syslinux-common": {"ldlinux.c32": "usr/lib/syslinux/modules/bios/ldlinux.c32"},
    "shim-signed": {"shim.efi": "usr/lib/shim/shimx64.efi.signed"},
    "grub-efi-amd64-signed": {"grub.efi": "usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed"},
}
"""Maps each package to its files that the image uses: the name here, and the path in the package.
The first two packages start computers with BIOS; the others start those with UEFI, also with Secure
Boot."""


@dataclass(frozen=True)
class LiveParts:
    """The files of a live image, in a folder of the cache.

    Args:
        folder: Holds ``vmlinuz``, ``initrd.img`` and the names of :data:`LOADERS`.
        digest: SHA-256 (hex) of all inputs.
        kernel_version: The release that ``uname -r`` will show.
        versions: The version of each package, by name.
        cached: Whether they were in the cache already.
        notes: Notes about the cache for the user, one sentence each.
    """

    folder: Path
    digest: str
    kernel_version: str
    versions: Mapping[str, str]
    cached: bool
    notes: tuple[str, ...] = ()


async def live_parts(host: Host, kernel: str, *, agent: Path, cache: Path) -> LiveParts:
    """Find the parts in the cache, or make them from the distribution's packages.

    Args:
        host: The computer that builds, with Debian or Ubuntu on amd64.
        kernel: ``generic``, or the name of a package with another signed kernel.
        agent: The static agent program.
        cache: The cache folder.

    Raises:
        InputError: A package is not available or lacks a required file, or the cache cannot be
            written.
    """
    if (system := await distribution(host)).arch != "amd64":
        raise InputError(
            f"the live image starts computers of amd64, and {system.name} here is {system.arch}",
            "make it on a computer of that kind: it boots on any other of it",
        )
    linux = await kernel_packages(host, kernel)
    loaders = [await find_package(host, name) for name in LOADERS]
    agent_digest = await asyncio.to_thread(store.file_digest, agent)
    digest = store.key_of(
        {
            "format": FORMAT,
            "packages": sorted(part.sha256 for part in (*linux, *loaders)),
            "modules": [ALWAYS, NAMED, REQUIRED, OPTIONAL],
            "agent": agent_digest,
        }
    )
    folder = cache / "live" / digest

    async def build(draft: Path) -> dict[str, Any]:
        for package in (*linux, *loaders):
            await _unpack(host, package, draft)
        facts = await asyncio.to_thread(_make, draft / "root", draft / "kept", agent)
        facts["versions"] = {part.name: part.version for part in (*linux, *loaders)}
        await asyncio.to_thread(store.publish, draft / "kept", folder, facts)
        return facts

    facts, cached, rebuilt = await store.load_or_build(cache, folder, build)
    return LiveParts(folder, digest, str(facts["kernel"]), dict(facts["versions"]), cached, rebuilt)


async def _unpack(host: Host, package: Package, draft: Path) -> None:
    deb = await download(host, package, draft)
    done = await host.run(["dpkg-deb", "-x", str(deb), str(draft / "root")], timeout_s=_UNPACK_S)
    if not done.ok:
        store.require_disk(done.words(), draft)
        raise InputError(
            f"{deb.name} could not be unpacked: {done.words().splitlines()[-1:]}",
            "free some space in the cache directory",
        )
    deb.unlink()


def _make(root: Path, kept: Path, agent: Path) -> dict[str, Any]:
    kept.mkdir()
    for package, files in LOADERS.items():
        for name, path in files.items():
            if not (root / path).is_file():
                raise InputError(f"the package {package} has no /{path} (any more)")
            shutil.copyfile(root / path, kept / name)
    images = sorted(root.glob("boot/vmlinuz-*"))
    if not images:
        raise InputError("there is no kernel in the packages", "name a linux-image package")
    version = images[0].name.partition("-")[2]
    shutil.copyfile(images[0], kept / "vmlinuz")
    trees = (root / part / "modules" / version for part in ("lib", "usr/lib"))
    modules = next((path for path in trees if path.is_dir()), root)
    drivers = find_drivers(ModuleTree(modules), version)
    held = cpio.archive(
        [
            cpio.file("init", agent.read_bytes(), executable=True),
            cpio.character_device("dev/console", 5, 1),
            *(cpio.directory(name) for name in ("proc", "sys", "dev", "run", "tmp", "toolbox")),
            *drivers.entries(),
        ]
    )
    # Boot loaders read through the BIOS, which is slow, so a compressed file loads sooner.
    (kept / "initrd.img").write_bytes(gzip.compress(held, _GZIP_LEVEL, mtime=0))
    return {"kernel": version}


@dataclass(frozen=True)
class LiveImage:
    """A live image.

    Args:
        file: The image file.
        digest: SHA-256 (hex) of its bytes.
        kernel_version: The release that ``uname -r`` will show.
        toolbox: The kind of its toolbox; None: it has none.
    """

    file: Path
    digest: str
    kernel_version: str
    toolbox: str | None


async def make_live_image(
    host: Host,
    out: Path,
    *,
    kernel: str,
    toolbox: Kind | None,
    additions: Additions = NOTHING,
    words: tuple[str, ...],
    agent: Path,
    cache: Path,
    say: Callable[[str], None],
) -> LiveImage:
    """Make a live image; an existing file is replaced only when the new image is complete.

    Args:
        host: This computer.
        out: The file to write.
        kernel: ``generic``, or the name of a package with another signed kernel.
        toolbox: The kind of toolbox to include; None: none.
        additions: Packages and files that are added to that toolbox.
        words: Further words for the kernel's command line.
        agent: The static agent program.
        cache: The cache folder, which holds the image's parts.
        say: Called with a sentence at each stage.

    Raises:
        InputError: A program or a package is missing, or the file cannot be written.
    """
    require_tools()
    epoch = source_date(os.environ)
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}", "make it, or name another one")
    for word in words:
        if not word.isprintable() or any(each in word for each in " \t\"'\\${};"):
            raise InputError(
                f"{word!r} is not a word for a kernel's command line",
                "name words without blanks and quotes, each by an `--append` of its own",
            )
    say("finding the packages of kernel and boot loaders")
    parts = await live_parts(host, kernel, agent=agent, cache=cache)
    for note in parts.notes:
        say(note)
    box = (
        await prepare_toolbox(host, toolbox, agent=agent, cache=cache, say=say) if toolbox else None
    )
    if box is not None and additions:
        box = await extended_toolbox(host, box, additions, agent=agent, cache=cache, say=say)
    say("putting the image together")
    layout = _layout(parts, box, words, epoch)
    try:
        with tempfile.TemporaryDirectory(prefix=".tare-live-", dir=out.parent) as folder:
            draft = Path(folder) / "disc"
            await make_disc(host, layout, Path(folder), draft)
            draft.replace(out)
    except OSError as error:
        raise InputError(
            f"{out} cannot be written: {error.strerror or error}", "free some space there"
        ) from error
    return LiveImage(out, store.file_digest(out), parts.kernel_version, toolbox)


def _layout(
    parts: LiveParts, box: Toolbox | None, words: tuple[str, ...], epoch: int
) -> DiscLayout:
    inputs = {
        "parts": parts.digest,
        "toolbox": box.digest if box is not None else None,
        "words": words,
        "epoch": epoch,
    }
    image = box.image if box is not None else None
    return DiscLayout(parts.folder, store.key_of(inputs), image, words, epoch)
