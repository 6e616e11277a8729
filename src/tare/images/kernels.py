"""Find the kernel that a study names (an alias, a package, or a file), and its modules."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.archives import Archive, archive_of, kept_archive
from tare.images.bundle.index import damaged, read_index
from tare.images.modules import NEEDS, ModuleTree
from tare.images.packages import Package, download, has_kernel, kernel_packages
from tare.images.vmlinux import NotExtractable, extract
from tare.study.model.releases import Release
from tare.study.planning.guest_kernels import GENERAL, REALTIME, GuestKernels

COPYRIGHT = "copyright"
"""The folder in a kept kernel's folder that has the licence of each of its packages."""
_BANNER = re.compile(rb"Linux version (\S{3,64}) \(")


@dataclass(frozen=True)
class Kernel:
    """A kernel to boot.

    Args:
        file: The bzImage or ELF.
        modules: The directory of its modules; None when there is none.
        version: The release that ``uname -r`` will show in the guest.
        digest: SHA-256 (hex) of its inputs: the file or packages, and the modules' selection.
        notes: Notes for a reader of the results, one sentence each.
        packages: The versions of its packages, by name; empty if it is not from packages.
    """

    file: Path
    modules: Path | None
    version: str
    digest: str
    notes: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)


def is_file_name(kernel: str | Path) -> bool:
    """Return whether a study's ``kernel`` names a file rather than an alias or a package."""
    return isinstance(kernel, Path) or "/" in kernel or Path(kernel).is_file()


async def find_kernel(
    host: Host, kernel: str | Path, cache: Path, release: Release | None = None
) -> Kernel:
    """Find a kernel: a file, a bundle's kernel, or packages, which are downloaded if needed.

    Args:
        host: The computer that builds, whose distribution names the packages.
        kernel: ``rt``, ``cloud``, ``generic``, a package's name, or a file.
        cache: The cache folder of kernels.
        release: The release whose packages are meant; None: the computer's own.

    Raises:
        InputError: There is no such file or package, or it is not a kernel.
    """
    if is_file_name(kernel):
        return await asyncio.to_thread(_from_file, Path(kernel))
    if release is None and (key := read_index(cache).kernels.get(str(kernel))):
        if (imported := cached_kernel(cache / "kernels" / key)) is None:
            raise damaged(cache, f"kernel {kernel}")
        return imported
    return await _from_packages(host, str(kernel), cache, await archive_of(host, release, cache))


def _from_file(file: Path) -> Kernel:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(
            f"the kernel file {file} cannot be read: {error.strerror}",
            "write the path of a kernel's image, such as `kernel: /boot/vmlinuz-6.1.0`, or "
            "`kernel: host` for the kernel that runs here",
        ) from error
    version = version_of(content)
    if version is None:
        raise InputError(f"{file} is not a Linux kernel", "name a vmlinuz (bzImage) or vmlinux")
    modules = _modules_near(file, version)
    notes = () if modules else (f"No modules of {version} were found: all must be built in.",)
    digest = store.key_of({"file": store.file_digest(file), "modules": str(modules)})
    return Kernel(file.absolute(), modules, version, digest, notes)


def version_of(content: bytes) -> str | None:
    """Return the version of a bzImage or ELF kernel, or None if the bytes are neither.

    Source: Documentation/arch/x86/boot.rst, ``kernel_version`` at 0x20e: the offset, less
    0x200, of a string that begins with the version.
    """
    if content[0x202:0x206] == b"HdrS" and len(content) > 0x210:
        (offset,) = struct.unpack_from("<H", content, 0x20E)
        text = content[offset + 0x200 :][:256].split(b"\0")[0].split(b" ")[0]
        return text.decode(errors="replace") or None
    if content[:4] == b"\x7fELF" and (match := _BANNER.search(content)):
        return match[1].decode(errors="replace")
    return None


def _modules_near(file: Path, version: str) -> Path | None:
    """Look next to the file (an unpacked package, a build tree's install) and in /lib/modules."""
    folder = file.absolute().parent
    roots = (folder.parent, folder, Path("/"))
    places = (
        *(root / part / "modules" / version for root in roots for part in ("lib", "usr/lib")),
        folder / "modules" / version,
        folder / "modules",
    )
    return next((place for place in places if any(place.glob("kernel/**/*.ko*"))), None)


async def _from_packages(host: Host, kernel: str, cache: Path, archive: Archive) -> Kernel:
    folder = cache / "kernels"
    remembered = _note(cache, kernel, archive)
    if (key := _recall(remembered, archive.state())) and (found := cached_kernel(folder / key)):
        return found
    packages = await kernel_packages(host, kernel, archive)
    key = store.key_of(
        {
            "debs": sorted(part.sha256 for part in packages),
            "needs": sorted(NEEDS.items()),
            "with": COPYRIGHT,
        }
    )
    if (found := cached_kernel(folder / key)) is None:
        async with store.exclusive(cache) as draft:
            # Another builder may have been first.
            if (found := cached_kernel(folder / key)) is None:
                rebuilt = store.rebuilding(folder / key)
                await _unpack(host, packages, draft, folder / key, archive)
                if found := cached_kernel(folder / key):
                    found = replace(found, notes=(*found.notes, *rebuilt))
    if found is None:
        raise InputError(f"the cache {cache} does not keep what is written to it")
    async with store.exclusive(cache) as draft:
        note = draft / "note"
        note.write_text(json.dumps({"lists": archive.state(), "needs": needs_digest(), "key": key}))
        note.replace(remembered)
    return found


def needs_digest() -> str:
    """Return a digest that changes when images may need modules that were not kept."""
    return store.key_of({"needs": sorted(NEEDS.items())})


def _note(cache: Path, kernel: str, archive: Archive) -> Path:
    """Return the file that records which kernel an archive has for a name."""
    return cache / "kernels" / archive.note(re.sub(r"[^A-Za-z0-9._+-]", "_", kernel))


def _remembered(note: Path) -> Mapping[str, object]:
    try:
        found = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _recall(note: Path, lists: int) -> str | None:
    found = _remembered(note)
    fits = found.get("needs") == needs_digest() and (not lists or found.get("lists") == lists)
    return str(found["key"]) if fits and "key" in found else None


def cached_kernel(folder: Path) -> Kernel | None:
    """Return the kernel in a folder of the cache, or None if it is missing or damaged."""
    facts = store.load(folder)
    if facts is None:
        return None
    version = str(facts["version"])
    packages = {str(name): str(part) for name, part in facts.get("packages", {}).items()}
    modules = folder / "modules" / version
    return Kernel(folder / "vmlinuz", modules, version, folder.name, (), packages)


async def _unpack(
    host: Host,
    packages: tuple[Package, ...],
    draft: Path,
    destination: Path,
    archive: Archive,
) -> None:
    """Download and unpack, keep the kernel and the modules any image may need, and publish."""
    root = draft / "root"
    kept = draft / "kept"
    for part in packages:
        deb = await download(host, part, draft, archive)
        done = await host.run(["dpkg-deb", "-x", str(deb), str(root)], timeout_s=300)
        if not done.ok:
            store.require_disk(done.words(), draft)
            raise InputError(
                f"{deb.name} could not be unpacked: {done.words().splitlines()[-1:]}",
                "free some space in the cache directory",
            )
        deb.unlink()
    names = ", ".join(part.name for part in packages)
    await asyncio.to_thread(_keep, root, kept, names)
    (version,) = (path.name for path in (kept / "modules").iterdir())
    facts = {"version": version, "packages": {part.name: part.version for part in packages}}
    await asyncio.to_thread(store.publish, kept, destination, facts)


def _keep(root: Path, kept: Path, names: str) -> None:
    images = sorted(root.glob("boot/vmlinu[xz]-*"))
    if not images:
        raise InputError(f"there is no kernel in {names}", "name a linux-image package")
    version = images[0].name.partition("-")[2]
    modules = next(
        (
            path
            for part in ("lib", "usr/lib")
            if (path := root / part / "modules" / version).is_dir()
        ),
        root,
    )
    target = kept / "modules" / version
    target.mkdir(parents=True)
    shutil.copyfile(images[0], kept / "vmlinuz")
    (kept / COPYRIGHT).mkdir()
    for licence in sorted(root.glob("usr/share/doc/*/copyright")):
        shutil.copyfile(licence, kept / COPYRIGHT / licence.parent.name)
    if (modules / "modules.builtin").is_file():
        shutil.copyfile(modules / "modules.builtin", target / "modules.builtin")
    tree = ModuleTree(modules)
    for module in tree.sort_by_dependency(name for need in NEEDS.values() for name in need):
        copy = target / module.path.relative_to(modules)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module.path, copy)


def elf_kernel(kernel: Kernel) -> tuple[bytes | None, str]:
    """Return the uncompressed kernel and an empty text, or None and the reason."""
    try:
        return extract(kernel.file.read_bytes()), ""
    except NotExtractable as error:
        return None, f"The bzImage boots as it is, since {error}."


async def missing_kernels(host: Host, cache: Path, release: Release | None) -> GuestKernels:
    """Return the default kernels that are not available, each with the reason.

    Nothing is downloaded. A kernel counts as available if the package lists name it, or if these
    lists have not been fetched yet.

    Args:
        host: The computer that builds images.
        cache: The cache folder of imported bundles.
        release: The release of the kernels' packages; None: the computer's own release.
    """
    imported = read_index(cache).kernels if release is None else {}
    missing: dict[str, str] = {}
    remedy = ""
    archive = await kept_archive(host, release, cache)
    lists = archive.state() if archive is not None else 0
    for name in (REALTIME, GENERAL):
        if name in imported or archive is None:
            continue
        if lists and _remembered(_note(cache, name, archive)).get("lists") == lists:
            # When this kernel was last found, these same lists named its packages.
            continue
        try:
            if not await has_kernel(host, name, archive):
                missing[name] = f"the distribution's packages have no kernel {name!r}"
        except InputError as error:
            missing[name] = error.message
            remedy = error.hint
    return GuestKernels(missing=missing, remedy=remedy)
