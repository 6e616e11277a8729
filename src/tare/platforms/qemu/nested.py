"""A machine in a machine: an outer KVM guest runs QEMU, whose guest is measured.

The outer machine boots the same kernel as the inner one. Its initramfs contains KVM's modules, this
computer's QEMU with its libraries and firmware, and the image of the inner machine. Its first
program starts QEMU and becomes QEMU. The inner machine's agent uses a port of the inner QEMU, which
is connected to a port of the outer machine. So Tare reaches it like any other agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.hosts.programs import find_program, install_command_for
from tare.images import cache as store
from tare.images import cpio
from tare.images.guest_image import GuestImage
from tare.platforms.contract import Shape
from tare.platforms.qemu.options import QemuOptions
from tare.programs import QEMU

FORMAT = 1
"""Increase it if the same inputs are to give other bytes, so that old images are not reused."""
NEEDS = frozenset({"virtio", "outer"})
"""The modules of the outer machine's kernel, as `tare.images.modules` names them."""
OUTER_MEMORY = 512 << 20
"""Bytes that the outer machine has in addition to the inner one's, for its initramfs and QEMU."""
FIRMWARE = ("bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin")
PROGRAMS = ("sh", "mount", "insmod", "sleep")
SETTINGS = tuple(f"/sys/module/{module}/parameters/nested" for module in ("kvm_amd", "kvm_intel"))
_LIBRARY = re.compile(r"(?:=>\s+)?(/\S+)\s+\(0x")


async def lacking_nesting(host: Host, options: QemuOptions) -> tuple[str, str] | None:
    """Return why KVM on a host cannot run nested machines, and what to do; None if it can.

    Args:
        host: The host.
        options: The arm's options.
    """
    if not options.nested:
        return None
    found = {}
    for path in SETTINGS:
        with contextlib.suppress(OSError):
            found[path] = (await host.read(path)).decode(errors="replace").strip()
    if not found:
        return (
            "KVM does not say whether its guests can run guests: neither kvm_amd nor kvm_intel is "
            "loaded",
            "modprobe kvm_amd, or kvm_intel",
        )
    if any(word in ("1", "Y") for word in found.values()):
        return None
    path = next(iter(found))
    module = Path(path).parts[3]
    return (
        f"KVM does not let guests run guests: {path} is {found[path]}",
        f"end all virtual machines, then run: modprobe -r {module} && modprobe {module} nested=1",
    )


def outer_shape(shape: Shape) -> Shape:
    """Return the size of the outer machine."""
    return replace(shape, memory=shape.memory + OUTER_MEMORY)


def outer_arguments(outer: Sequence[str], inner: Sequence[str], shape: Shape) -> tuple[str, ...]:
    """Return the outer kernel's command line.

    Args:
        outer: The arguments of every guest's kernel; those for the agent are left out.
        inner: All arguments of the inner kernel, which the outer one passes to its first program.
        shape: The size of the inner machine.
    """
    own = [word for word in outer if not word.startswith("tare.")]
    return (*own, "--", str(shape.vcpus), f"{shape.memory >> 10}K", *inner)


async def outer_image(
    builder: Host, outer: GuestImage, inner: GuestImage, cache: Path
) -> GuestImage:
    """Find the image of the outer machine in the cache, or build it.

    Args:
        builder: This computer, whose QEMU runs in the outer machine.
        outer: An image with the modules of `NEEDS`.
        inner: The image of the inner machine.
        cache: The cache; see :func:`tare.images.cache.default_cache`.

    Raises:
        InputError: A program or a file of QEMU is missing here, or the cache cannot be written.
    """
    began = time.monotonic()
    parts = await _system(builder)
    digests = await asyncio.to_thread(
        lambda: {path: store.file_digest(source) for path, source in parts.items()}
    )
    digest = store.key_of(
        {
            "format": FORMAT,
            "init": _init().hex(),
            "outer": outer.digest,
            "inner": inner.digest,
            "files": digests,
        }
    )
    folder = cache / "nested" / digest
    facts = await asyncio.to_thread(store.load, folder)
    cached = facts is not None
    if facts is None:
        async with store.exclusive(cache) as draft:
            if await asyncio.to_thread(store.load, folder) is None:
                await asyncio.to_thread(_build, outer, inner, parts, draft / "initramfs")
                await asyncio.to_thread(store.publish, draft, folder, {})
    return replace(
        outer,
        initramfs=folder / "initramfs",
        digest=digest,
        cached=cached,
        took_s=time.monotonic() - began,
        notes=inner.notes,
    )


def _build(outer: GuestImage, inner: GuestImage, parts: dict[str, Path], draft: Path) -> None:
    # The kernel unpacks concatenated archives in order; this later /init replaces the agent's.
    added = cpio.archive(
        [
            cpio.file("init", _init(), executable=True),
            # The kernel stays compressed, because the image is copied to hosts over SSH.
            cpio.file("inner/kernel", inner.kernel.read_bytes()),
            cpio.file("inner/initramfs", inner.initramfs.read_bytes()),
            *(cpio.file(path, file.read_bytes(), executable=True) for path, file in parts.items()),
        ]
    )
    draft.write_bytes(outer.initramfs.read_bytes() + added)


def _init() -> bytes:
    return files("tare.platforms.qemu").joinpath("nested.sh").read_bytes()


async def _system(builder: Host) -> dict[str, Path]:
    """Map the outer machine's files: the path in that machine to the file on this computer."""
    found: dict[str, Path] = {}
    qemu = await find_program(builder, QEMU)
    if qemu is None:
        raise InputError(
            "this computer has no QEMU, which the outer machine of a nested arm runs",
            await install_command_for(builder, QEMU),
        )
    programs = {"bin/qemu": qemu, **{f"bin/{name}": name for name in PROGRAMS}}
    for place, program in programs.items():
        file = await _path_of(builder, program)
        found[place] = file
        found |= {str(path).lstrip("/"): path for path in await _libraries(builder, file)}
    return found | await _firmware(builder, qemu)


async def _path_of(builder: Host, program: str) -> Path:
    done = await builder.run(["sh", "-c", 'command -v "$1"', "sh", program], timeout_s=30)
    path = done.stdout.decode().strip()
    if not done.ok or not path.startswith("/"):
        raise InputError(f"this computer has no {program}, which the outer machine needs")
    return Path(path)


async def _libraries(builder: Host, program: Path) -> Iterable[Path]:
    done = await builder.run(["ldd", str(program)], timeout_s=30)
    if not done.ok:
        raise InputError(f"the libraries of {program} cannot be listed: {done.words()}")
    return [Path(path) for path in _LIBRARY.findall(done.stdout.decode())]


async def _firmware(builder: Host, qemu: str) -> dict[str, Path]:
    done = await builder.run([qemu, "-L", "help"], timeout_s=30)
    folders = [Path(line) for line in done.stdout.decode().splitlines()]
    found = {}
    for name in FIRMWARE:
        places = [folder / name for folder in folders if (folder / name).is_file()]
        if not places:
            raise InputError(f"this computer's QEMU has no {name}", "install its firmware")
        found[f"firmware/{name}"] = places[0]
    return found
