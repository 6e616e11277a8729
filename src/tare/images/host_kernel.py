"""Find the kernel that a host runs, whatever its distribution calls the files, and its modules.

The host needs only a POSIX shell, ``find``, ``head`` and ``tail``: no package manager, no systemd,
no network. The names that distributions use:

- Debian, Ubuntu, Proxmox VE: ``/boot/vmlinuz-VERSION``
- Fedora, RHEL, SUSE: ``/usr/lib/modules/VERSION/vmlinuz``, also ``/boot/vmlinuz-VERSION``
- Arch, Alpine, Slackware: ``/boot/vmlinuz-linux``, ``vmlinuz-lts``, ``vmlinuz-generic``
- Gentoo: ``/boot/kernel-VERSION``, ``/boot/kernel-genkernel-x86_64-VERSION``
- Boot Loader Specification: ``/boot/MACHINE-ID/VERSION/linux``, also below ``/efi``
- unified kernel images: the section ``.linux`` of ``/efi/EFI/Linux/*.efi``
- NixOS: ``/run/booted-system/kernel``, with modules in ``/run/booted-system/kernel-modules``

Modules are in ``/lib/modules/VERSION`` or ``/usr/lib/modules/VERSION``, compressed or not.

A name alone proves nothing (Arch replaces ``/boot/vmlinuz-linux`` while an older kernel runs), so
the version inside the image decides.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.kernels import Kernel, cached_kernel, needs_digest, version_of
from tare.images.modules import NEEDS, dependencies, plain_module_name
from tare.images.vmlinux import NotExtractable
from tare.study.planning.guest_kernels import HOST

__all__ = ["HOST", "HostImage", "find_host_image", "host_kernel", "running_release"]

_ASK_S = 60.0
_READ_S = 300.0
_HEAD = 1 << 16
"""Bytes from the start of an image that include its version, and a UKI's section table."""
_AT_ONCE = 8
_MOST_IMAGE = 256 << 20

# One line for each file that may be the image: whether it can be read, and its path. The named
# places come first. $1: the version.
_CANDIDATES = r"""
v=$1
seen() {
    for f; do
        [ -f "$f" ] || continue
        if [ -r "$f" ]; then printf 'r %s\n' "$f"; else printf 'u %s\n' "$f"; fi
    done
}
seen "/usr/lib/modules/$v/vmlinuz" "/lib/modules/$v/vmlinuz" "/usr/lib/modules/$v/bzImage" \
    "/boot/vmlinuz-$v" "/boot/vmlinux-$v" "/boot/kernel-$v" "/boot/Image-$v" "/boot/bzImage-$v" \
    /boot/*-"$v" /boot/*/"$v"/linux /efi/*/"$v"/linux /boot/efi/*/"$v"/linux \
    /usr/lib/kernel/*"$v"* /run/booted-system/kernel /boot/vmlinuz* /boot/bzImage* /boot/kernel* \
    /boot/linux* /boot/Image* /boot/*/vmlinuz* /boot/efi/vmlinuz* /efi/vmlinuz* \
    /boot/efi/EFI/*/vmlinuz* /efi/EFI/*/vmlinuz* \
    /efi/EFI/Linux/*.efi /boot/EFI/Linux/*.efi /boot/efi/EFI/Linux/*.efi
for d in /boot /boot/efi /efi; do
    [ ! -d "$d" ] || { [ -r "$d" ] && [ -x "$d" ]; } || printf 'd %s\n' "$d"
done
"""

# Print the modules' folder, then the modules' files in it. `build` and `source` are left out: they
# lead to whole source trees. $1: the version.
_MODULES = r"""
for root in "/lib/modules/$1" "/usr/lib/modules/$1" \
    "/run/booted-system/kernel-modules/lib/modules/$1"; do
    [ -d "$root/kernel" ] || [ -f "$root/modules.builtin" ] || continue
    cd "$root/" || continue
    printf '%s\n' "$root"
    for part in kernel extra updates; do
        [ ! -d "$part" ] || find -L "$part/" -name '*.ko*' -type f
    done
    exit 0
done
"""


@dataclass(frozen=True)
class HostImage:
    """The location of the image of the kernel that a host runs.

    Args:
        release: The version of the running kernel, as ``uname -r`` prints it.
        path: The file.
        offset: The kernel's offset in the file, in bytes: 0 except in a unified kernel image.
        size: The kernel's size in bytes; None: the rest of the file.
    """

    release: str
    path: str
    offset: int = 0
    size: int | None = None


async def running_release(host: Host) -> str:
    """Return the version of the kernel that a host runs.

    Raises:
        InputError: The host has no ``/proc``.
    """
    try:
        return (await host.read("/proc/sys/kernel/osrelease")).decode(errors="replace").strip()
    except OSError as error:
        raise InputError(
            f"{host.name}: the version of the running kernel cannot be read: {error.strerror}",
            "mount /proc there",
        ) from error


async def find_host_image(host: Host) -> HostImage:
    """Find the image of the kernel that a host runs.

    Raises:
        InputError: There is no image, or only root can read it; the message names the file.
    """
    release = await running_release(host)
    listed = await host.run(["sh", "-c", _CANDIDATES, "sh", release], timeout_s=_ASK_S)
    lines = dict.fromkeys(listed.stdout.decode(errors="surrogateescape").splitlines())
    marked = [(line[:1], line[2:]) for line in lines]
    for path in (path for mark, path in marked if mark == "r"):
        head = await _part(host, path, 0, _HEAD)
        if version_of(head) == release:
            return HostImage(release, path)
        if path.endswith(".efi") and (found := await _unified_kernel(host, path, head, release)):
            return found
        if head.startswith(b"\x7fELF") and path.endswith(release):
            return HostImage(release, path)
    raise _not_found(release, marked)


def _not_found(release: str, marked: list[tuple[str, str]]) -> InputError:
    closed = [path for mark, path in marked if mark == "u"]
    named = [path for path in closed if path.endswith(release) or f"/{release}/" in path]
    other = "or write `kernel: generic` for the distribution's package"
    if file := next(iter(named or closed), ""):
        return InputError(
            f"only root can read the host's kernel {file}",
            f"let others read it (sudo chmod a+r {file}), or run Tare as root; {other}",
        )
    if folders := [path for mark, path in marked if mark == "d"]:
        return InputError(
            f"the host runs Linux {release}, and only root can look for its image in "
            f"{' and '.join(folders)}",
            f"run Tare as root; {other}",
        )
    return InputError(
        f"the host runs Linux {release}, and there is no image of it in /boot, /efi or "
        f"/usr/lib/modules/{release}",
        "reboot if the kernel was updated or removed since the host was booted; in a container or "
        f"a cloud VM the image may be outside; {other}",
    )


async def _part(host: Host, path: str, offset: int, size: int) -> bytes:
    script = 'tail -c "+$2" -- "$1" | head -c "$3"'
    argv = ["sh", "-c", script, "sh", path, str(offset + 1), str(size)]
    return (await host.run(argv, timeout_s=_READ_S)).stdout


async def _unified_kernel(host: Host, path: str, head: bytes, release: str) -> HostImage | None:
    """Return the kernel in a unified kernel image; None if there is none of this version."""
    sections = unified_sections(head)
    if ".linux" not in sections:
        return None
    offset, size = sections[".linux"]
    if size > _MOST_IMAGE or version_of(await _part(host, path, offset, _HEAD)) != release:
        return None
    return HostImage(release, path, offset, size)


def unified_sections(head: bytes) -> dict[str, tuple[int, int]]:
    """Return a PE file's sections: name to offset and size in the file; empty for other files.

    Source: PE Format (Microsoft), "COFF File Header" and "Section Table"; the UAPI Group's
    specification of unified kernel images names the sections.
    """
    found: dict[str, tuple[int, int]] = {}
    try:
        if head[:2] != b"MZ":
            return {}
        (at,) = struct.unpack_from("<I", head, 0x3C)
        if head[at : at + 4] != b"PE\0\0":
            return {}
        count, optional = struct.unpack_from("<xxH12xH", head, at + 4)
        for index in range(count):
            name, virtual, _, raw, offset = struct.unpack_from(
                "<8sIIII", head, at + 24 + optional + 40 * index
            )
            # The size in the file is rounded up; the size in memory is the content's.
            found[name.rstrip(b"\0").decode(errors="replace")] = (offset, min(virtual or raw, raw))
    except struct.error:
        return {}
    return found


async def host_kernel(host: Host, cache: Path) -> Kernel:
    """Return the kernel that a host runs, with the modules any image may need, from the cache.

    The host's files are read once. Later calls use the copy in the cache until the image, the
    modules' folder or the running kernel changes.

    Args:
        host: The host, here or over SSH.
        cache: The cache folder for the copy, on this computer.

    Raises:
        InputError: The image is not there, or cannot be read; or the cache cannot be written.
    """
    image = await find_host_image(host)
    listed = await host.run(["sh", "-c", _MODULES, "sh", image.release], timeout_s=_ASK_S)
    root, *files = listed.stdout.decode(errors="surrogateescape").splitlines() or [""]
    seen = await _state(host, image, root)
    folder = cache / "kernels"
    remembered = folder / f"host-{re.sub(r'[^A-Za-z0-9._+-]', '_', host.name)}.json"
    if (key := _recall(remembered, seen)) and (found := cached_kernel(folder / key)):
        return _noted(found, image, root)
    async with store.exclusive(cache) as draft:
        kept = draft / "kept"
        digests = await _copy(host, image, root, files, kept)
        key = store.key_of({"host": image.release, "files": digests, "needs": needs_digest()})
        if (found := cached_kernel(folder / key)) is None:
            facts = {"version": image.release, "origin": "the host's own", "packages": {}}
            await asyncio.to_thread(store.publish, kept, folder / key, facts)
            found = cached_kernel(folder / key)
        note = draft / "note"
        note.write_text(json.dumps({"seen": seen, "needs": needs_digest(), "key": key}))
        note.replace(remembered)
    if found is None:
        raise InputError(f"the cache {cache} does not keep what is written to it")
    return _noted(found, image, root)


def _noted(kernel: Kernel, image: HostImage, root: str) -> Kernel:
    if root:
        return kernel
    note = (
        f"There are no modules of {image.release} in /lib/modules: every driver must be built in. "
        "If the kernel's package was updated since the host was booted, reboot."
    )
    return Kernel(kernel.file, None, kernel.version, kernel.digest, (note,))


async def _state(host: Host, image: HostImage, root: str) -> str:
    """Return the sizes and times of the host's files, as text to detect changes of them."""
    paths = [image.path, *([root, f"{root}/kernel", f"{root}/modules.builtin"] if root else [])]
    stat = await host.run(["stat", "-L", "-c", "%n %s %Y %i", "--", *paths], timeout_s=_ASK_S)
    return f"{image}\n{stat.stdout.decode(errors='replace')}"


def _recall(remembered: Path, seen: str) -> str | None:
    try:
        note = json.loads(remembered.read_bytes())
        fits = note["seen"] == seen and note["needs"] == needs_digest()
        return str(note["key"]) if fits else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def _copy(
    host: Host, image: HostImage, root: str, files: list[str], kept: Path
) -> dict[str, str]:
    """Copy image and modules to this computer; return each copied file's digest, by path."""
    target = kept / "modules" / image.release
    target.mkdir(parents=True)
    if image.size is None:
        content = await _read(host, image.path)
    else:
        content = await _part(host, image.path, image.offset, image.size)
    if version_of(content) != image.release:
        raise InputError(
            f"{image.path} is no longer the kernel {image.release}",
            "try again once the update of the kernel has ended, or reboot",
        )
    (kept / "vmlinuz").write_bytes(content)
    builtin = await host.run(["cat", f"{root}/modules.builtin"], timeout_s=_ASK_S)
    (target / "modules.builtin").write_bytes(builtin.stdout if root else b"")
    await _copy_modules(host, root, files, target)
    return {
        path.relative_to(kept).as_posix(): store.file_digest(path)
        for path in sorted(kept.rglob("*"))
        if path.is_file()
    }


async def _copy_modules(host: Host, root: str, files: list[str], target: Path) -> None:
    """Copy the modules that an image may need, and their dependencies."""
    # If two files have one name, use the later, as ModuleTree does: `updates` replaces others.
    known = {plain_module_name(file): file for file in sorted(_within(files))}
    turn = asyncio.Semaphore(_AT_ONCE)

    async def fetch(file: str) -> tuple[str, ...]:
        async with turn:
            data = await _read(host, f"{root}/{file}")
        copy = target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        try:
            return await asyncio.to_thread(dependencies, copy)
        except NotExtractable as error:
            raise InputError(f"{root}/{file} cannot be used: {error}") from error

    done: set[str] = set()
    waiting = {plain_module_name(name) for need in NEEDS.values() for name in need}
    while wanted := sorted((waiting & known.keys()) - done):
        done |= set(wanted)
        found = await asyncio.gather(*(fetch(known[name]) for name in wanted))
        waiting = {name for names in found for name in names}


def _within(files: list[str]) -> Iterator[str]:
    # Use only paths below the host's folder of modules, whatever the host lists.
    for file in files:
        path = PurePosixPath(file)
        if not path.is_absolute() and ".." not in path.parts:
            yield file


async def _read(host: Host, path: str) -> bytes:
    try:
        return await host.read(path)
    except PermissionError as error:
        raise InputError(
            f"only root can read {path}",
            f"let others read it (sudo chmod a+r {path}), or run Tare as root",
        ) from error
    except OSError as error:
        raise InputError(f"{host.name}: {path} cannot be read: {error.strerror}") from error
