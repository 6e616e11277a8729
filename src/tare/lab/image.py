"""The image of a lab host: Linux, Xen, and a disk with the system, built from Debian's packages.

No root is needed: packages are unpacked, not installed, and the file system is made from a folder.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.archives import Archive, archive_of
from tare.images.kernels import Kernel, find_kernel, is_file_name
from tare.images.modules import ModuleTree
from tare.images.packages import Package, download, kernel_packages
from tare.images.vmlinux import NotExtractable, extract
from tare.lab.packages import HYPERVISORS, SYSTEM, PackageFile, fetch, needed, resolve
from tare.lab.tree import add_modules, unpack
from tare.study.model.releases import Release

FORMAT = 6
"""To be increased whenever the same packages shall give another image."""

EARLY = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "overlay", "virtio_net")
"""Modules that the lab's initramfs loads, for its disk and its network."""

LATE = (
    *("virtio_console", "virtio_rng", "loop", "erofs", "squashfs", "tun", "tap", "bridge", "veth"),
    *("vxlan", "openvswitch", "iptable_filter", "xt_conntrack", "nf_conntrack", "macvtap"),
    *("kvm_amd", "kvm_intel", "vhost_net", "vhost_vsock", "msr"),
    *("xen_evtchn", "xen_gntdev", "xen_gntalloc", "xen_privcmd", "xenfs"),
    *("xen_netback", "xen_blkback", "xen_acpi_processor"),
    *("sch_tbf", "sch_netem", "br_netfilter", "e1000", "ahci", "sd_mod", "dm_mod"),
)
"""Modules that are loaded on demand."""

_MIB = 1 << 20
_MAKE_S = 300.0
# mkfs is in /sbin, which is not on every user's PATH.
SBIN = {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}


_RECIPE = {"format": FORMAT, "modules": [*EARLY, *LATE]}
"""What an image depends on in addition to its packages."""


@dataclass(frozen=True)
class LabImage:
    """The image that a lab host boots.

    Args:
        folder: The folder of its files.
        digest: SHA-256 (hex) of all its inputs.
        kernel_version: The version of its Linux.
        xen_version: The version of its Xen.
        versions: Package to version, for the packages that can affect results.
        early: Modules of the initramfs, in the order in which they load.
        cached: Whether it was in the cache.
        took_s: Seconds spent finding or building it.
        notes: Notes about the cache for its user, one sentence each.
        own_xen: The Xen that is booted in place of the packages'.
        built: Facts that identify that Xen.
    """

    folder: Path
    digest: str
    kernel_version: str
    xen_version: str
    versions: Mapping[str, str]
    early: tuple[str, ...]
    cached: bool
    took_s: float
    own_xen: Path | None = None
    notes: tuple[str, ...] = ()
    built: Mapping[str, Any] | None = None

    @property
    def kernel(self) -> Path:
        """The uncompressed ELF kernel, which starts fastest in QEMU and in Xen."""
        return self.folder / "vmlinux"

    @property
    def xen(self) -> Path:
        """The uncompressed ELF of Xen."""
        return self.own_xen or self.folder / "xen"

    @property
    def disk(self) -> Path:
        """The disk: an ext4 file system, never written to."""
        return self.folder / "disk"

    @property
    def busybox(self) -> Path:
        """The static shell of the initramfs."""
        return self.folder / "busybox"

    def module(self, name: str) -> Path:
        """Return the file of a module of the initramfs."""
        return self.folder / "early" / f"{name}.ko"


async def build_lab_image(
    host: Host,
    kernel: str,
    cache: Path,
    release: Release | None = None,
    packages: tuple[str, ...] = (),
) -> LabImage:
    """Find the lab's image in the cache, or build it.

    Args:
        host: This computer; its distribution provides the packages.
        kernel: ``generic``, ``rt``, a package's name, or a file with its modules next to it.
        cache: The cache; see :func:`tare.images.cache.default_cache`.
        release: The release of its packages; None for this computer's own.
        packages: Further packages; all of their files are kept.

    Raises:
        InputError: apt cannot find or fetch the packages, mkfs.ext4 is missing, or the cache
            cannot be written.
    """
    began = time.monotonic()
    own = await find_kernel(host, kernel, cache) if is_file_name(kernel) else None
    archive = await archive_of(host, release, cache)
    called = f"file-{own.digest}" if own is not None else kernel
    if packages:
        called += f"+{store.key_of({'packages': sorted(packages)})[:16]}"
    remembered = cache / "labs" / archive.note(called)
    digest = _recall(remembered, archive.state())
    facts = await _load(cache, digest) if digest else None
    cached = facts is not None
    rebuilt: tuple[str, ...] = ()
    if digest is None or facts is None:
        system, linux = await _packages(host, kernel if own is None else None, archive, packages)
        digest = _digest(system, linux, own, packages)
        facts = await _load(cache, digest)
        cached = facts is not None
        async with store.exclusive(cache) as draft:
            if facts is None and (facts := await _load(cache, digest)) is None:
                rebuilt = store.rebuilding(cache / "labs" / digest)
                work = draft / "work"
                if own is not None:
                    await asyncio.to_thread(_stage, own, work / "linux")
                parts = _Parts(system, linux, packages)
                facts = await _build(host, parts, work, draft / "kept", archive)
                await asyncio.to_thread(
                    store.publish, draft / "kept", cache / "labs" / digest, facts
                )
            note = draft / "note"
            known = {"lists": archive.state(), "recipe": _RECIPE, "key": digest}
            note.write_text(json.dumps(known))
            remembered.parent.mkdir(exist_ok=True)
            note.replace(remembered)
    return LabImage(
        folder=cache / "labs" / digest,
        digest=digest,
        kernel_version=str(facts["kernel"]),
        xen_version=str(facts["xen"]),
        versions=dict(facts["versions"]),
        early=tuple(facts["early"]),
        cached=cached,
        took_s=time.monotonic() - began,
        notes=rebuilt,
    )


def _recall(remembered: Path, lists: int) -> str | None:
    try:
        note = json.loads(remembered.read_bytes())
        same = note["recipe"] == _RECIPE and (not lists or note["lists"] == lists)
        return str(note["key"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def _load(cache: Path, digest: str) -> dict[str, Any] | None:
    return await asyncio.to_thread(store.load, cache / "labs" / digest)


def _stage(own: Kernel, root: Path) -> None:
    """Lay out a user's own kernel as a package does."""
    if own.modules is None:
        raise InputError(
            f"next to the lab's kernel {own.file} there are no modules of {own.version}",
            "put them into modules/ next to it, or use `kernel: generic`",
        )
    boot = root / "boot"
    boot.mkdir(parents=True)
    shutil.copyfile(own.file, boot / f"vmlinuz-{own.version}")
    place = root / "lib" / "modules" / own.version
    place.parent.mkdir(parents=True)
    place.symlink_to(own.modules.absolute(), target_is_directory=True)


async def _packages(
    host: Host, kernel: str | None, archive: Archive, named: tuple[str, ...]
) -> tuple[tuple[PackageFile, ...], tuple[Package, ...]]:
    linux = await kernel_packages(host, kernel, archive) if kernel is not None else ()
    with tempfile.TemporaryDirectory(prefix="tare-apt-") as folder:
        try:
            wanted = (*SYSTEM, *HYPERVISORS, *named)
            system = await resolve(host, wanted, Path(folder), archive)
        except InputError as error:
            if "there is no command" in error.message:
                raise InputError(
                    "there is no apt here, and the lab is built from Debian's packages",
                    "use a computer with Debian or Ubuntu",
                ) from error
            if named:
                hint = f"correct `packages` ({', '.join(named)}), or {error.hint}"
                raise InputError(error.message, hint) from error
            raise
    return needed(system, named), linux


def _digest(
    system: tuple[PackageFile, ...],
    linux: tuple[Package, ...],
    own: Kernel | None,
    named: tuple[str, ...] = (),
) -> str:
    return store.key_of(
        {
            **_RECIPE,
            **({"named": sorted(named)} if named else {}),
            "packages": {part.file: part.digest for part in system},
            "linux": sorted(part.sha256 for part in linux) if own is None else [own.digest],
        }
    )


@dataclass(frozen=True)
class _Parts:
    """The packages of an image, and the names of those whose files are all kept."""

    system: tuple[PackageFile, ...]
    linux: tuple[Package, ...]
    named: tuple[str, ...]


async def _build(
    host: Host, parts: _Parts, work: Path, kept: Path, archive: Archive
) -> dict[str, Any]:
    for folder in (work / "debs", work / "linux", kept / "early"):
        folder.mkdir(parents=True, exist_ok=True)
    tree = work / "tree"
    debs = await fetch(host, parts.system, work / "debs", archive)
    await unpack(host, debs, tree, parts.named)
    for package in parts.linux:
        deb = await download(host, package, work / "debs", archive)
        done = await host.run(["dpkg-deb", "-x", str(deb), str(work / "linux")], timeout_s=_MAKE_S)
        if not done.ok:
            raise InputError(f"{deb.name} could not be unpacked: {done.words()}", "free some space")
    hypervisor = next(
        deb for deb in (work / "debs").glob("xen-hypervisor-*.deb") if "common" not in deb.name
    )
    await host.run(["dpkg-deb", "-x", str(hypervisor), str(work / "xen")], timeout_s=_MAKE_S)
    version, xen, early = await asyncio.to_thread(_keep, work, tree, kept)
    await make_file_system(host, kept / "disk", tree=tree)
    versions = {
        part.name: part.version
        for part in parts.system
        if part.name in parts.named or _matters(part.name)
    }
    versions |= {part.name: part.version for part in parts.linux}
    return {"kernel": version, "xen": xen, "early": early, "versions": versions}


def _matters(name: str) -> bool:
    return name.startswith(("xen-", "qemu-system-", "seabios"))


def _keep(work: Path, tree: Path, kept: Path) -> tuple[str, str, list[str]]:
    images = sorted((work / "linux").glob("boot/vmlinuz-*"))
    xens = sorted((work / "xen").glob("boot/xen-*.gz"))
    if not images or not xens:
        raise InputError("the packages of the kernel or of Xen hold none", "use `kernel: generic`")
    version = images[-1].name.partition("-")[2]
    try:
        (kept / "vmlinux").write_bytes(extract(images[-1].read_bytes()))
    except NotExtractable as error:
        raise InputError(f"the lab's kernel cannot be used: {error}") from error
    (kept / "xen").write_bytes(gzip.decompress(xens[-1].read_bytes()))
    shutil.copyfile(tree / "usr" / "bin" / "busybox", kept / "busybox")
    modules = ModuleTree(next((work / "linux").glob(f"**/modules/{version}")))
    if missing := modules.missing(EARLY):
        raise InputError(
            f"the kernel {version} has no module {', '.join(missing)}", "use `kernel: generic`"
        )
    add_modules(tree, modules, version, (*EARLY, *LATE))
    # Where Debian has it, for machines that boot their host's kernel.
    boot = tree / "boot"
    boot.mkdir(exist_ok=True)
    shutil.copyfile(images[-1], boot / images[-1].name)
    early = modules.sort_by_dependency(EARLY)
    for module in early:
        (kept / "early" / f"{module.name}.ko").write_bytes(module.data)
    xen = xens[-1].name.removeprefix("xen-").removesuffix(".gz")
    return version, xen, [module.name for module in early]


async def make_file_system(
    host: Host, file: Path, *, tree: Path | None = None, size: int = 0
) -> None:
    """Make an ext4 file system in a sparse file.

    Args:
        host: This computer.
        file: The file.
        tree: The content of the file system; None for an empty one.
        size: Its size in bytes; with a tree, the size that the tree needs.

    Raises:
        InputError: mkfs.ext4 is missing, or the disk is full.
    """
    if tree is not None:
        size = await asyncio.to_thread(_room, tree)
    source = ("-d", str(tree)) if tree is not None else ()
    argv = [
        *("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode"),
        *("-E", "lazy_itable_init=1,nodiscard,root_owner=0:0"),
        *("-U", "11111111-2222-3333-4444-555555555555"),
        *(*source, str(file), f"{size >> 10}k"),
    ]
    made = await host.run(argv, timeout_s=_MAKE_S, env=SBIN)
    if not made.ok:
        raise InputError(
            f"the lab's disk cannot be made: {made.words().splitlines()[-1:]}",
            f"free some space in {file.parent}",
        )


def _room(tree: Path) -> int:
    """Return a size in bytes that holds a tree: its blocks, and a tenth for metadata."""
    total = 0
    for folder, _, files in os.walk(tree):
        total += 4096
        for name in files:
            status = (Path(folder) / name).lstat()
            total += 4096 if stat.S_ISLNK(status.st_mode) else -(-status.st_size // 4096) * 4096
    return (total * 11 // 10 + 16 * _MIB) // _MIB * _MIB
