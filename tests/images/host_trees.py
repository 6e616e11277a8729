"""Hosts whose kernels are where other distributions keep them: trees of files used as roots."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import zstandard

from images import images_fakes as fakes
from tare.hosts import Completed, LocalHost

PLACES = r"(?:boot|efi|usr/lib/modules|usr/lib/kernel|lib/modules|run/booted-system)"
DRIVERS: dict[str, list[str]] = {
    "virtio": [],
    "virtio_ring": ["virtio"],
    "virtio_pci": ["virtio_ring"],
    "virtio_console": ["virtio_ring"],
    "virtio_net": ["virtio_ring"],
    "virtio_blk": ["virtio_ring"],
}
PACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lambda data: lzma.compress(data, check=lzma.CHECK_CRC32),
    ".zst": lambda data: zstandard.ZstdCompressor(level=19).compress(data),
}


class TreeHost(LocalHost):
    """A host whose kernel and modules are those of a tree, and which has no package manager.

    Args:
        root: The tree.
        release: What the host's kernel says that it is.
        user: The id of the user who looks; None: the one who tests.
        agent: The agent, with which programs are started.
    """

    name = "far"

    def __init__(
        self,
        root: Path,
        release: str = fakes.VERSION,
        user: int | None = None,
        agent: Path | None = None,
    ) -> None:
        super().__init__(agent)
        self.root, self.release, self.user = root, release, user
        self.copied: list[str] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        inside = [re.sub(rf"(?<![\w/.-])/(?={PLACES})", f"{self.root}/", word) for word in argv]
        if self.user is not None and os.getuid() == 0:
            inside = ["setpriv", f"--reuid={self.user}", "--clear-groups", *inside]
        done = await super().run(inside, input=input, timeout_s=timeout_s, env=env)
        outside = done.stdout.replace(f"{self.root}/".encode(), b"/")
        return Completed(done.returncode, outside, done.stderr)

    async def read(self, path: str | Path) -> bytes:
        if str(path) == "/proc/sys/kernel/osrelease":
            return f"{self.release}\n".encode()
        if not re.match(rf"/{PLACES}", str(path)):
            return await super().read(path)
        self.copied.append(str(path))
        return (self.root / str(path)[1:]).read_bytes()


def image(version: str = fakes.VERSION) -> bytes:
    """Return a bzImage of a version."""
    kernel = fakes.pvh_kernel(version)
    return fakes.bzimage(fakes.with_size(fakes.lz4_legacy(kernel), kernel), version)


def unified(kernel: bytes, *, padded: bool = True) -> bytes:
    """Return a unified kernel image: a PE file with the kernel in its section ``.linux``."""
    sections = {b".osrel": b"ID=arch\n", b".linux": kernel, b".initrd": b"070701"}
    head = bytearray(b"MZ" + bytes(0x3A) + struct.pack("<I", 0x80) + bytes(0x40))
    head += b"PE\0\0" + struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0, 0, 16, 0) + bytes(16)
    at, body = 0x1000, b""
    for name, data in sections.items():
        raw = -(-len(data) // 512) * 512 if padded else len(data)
        head += struct.pack("<8sIIII16x", name, len(data), at, raw, at + len(body))
        body += data.ljust(raw, b"\0")
    return bytes(head).ljust(at, b"\0") + body


def tree(
    root: Path,
    path: str,
    content: bytes | None = None,
    *,
    modules: str = "usr/lib/modules",
    packed: str = "",
    version: str = fakes.VERSION,
    drivers: Mapping[str, Sequence[str]] = DRIVERS,
) -> Path:
    """Lay out a host: its image at ``path``, its modules below ``modules``, so compressed."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(image(version) if content is None else content)
    held = root / modules / version / "kernel" / "drivers"
    held.mkdir(parents=True, exist_ok=True)
    for name, depends in drivers.items():
        (held / f"{name}.ko{packed}").write_bytes(PACKED[packed](fakes.module(depends)))
    (held.parent.parent / "modules.builtin").write_text("kernel/lib/crc32c_generic.ko\n")
    return file
