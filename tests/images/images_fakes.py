"""Small stand-ins for kernels, modules and hosts; built byte by byte."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import lz4.block
import zstandard

from tare.hosts import Completed, LocalHost

VERSION = "9.9.9-tare"


def elf(sections: dict[bytes, bytes]) -> bytes:
    """Return a 64-bit ELF object that holds these sections, and a program header per note."""
    names = b"\0" + b"".join(name + b"\0" for name in (*sections, b".shstrtab"))
    held = {**sections, b".shstrtab": names}
    notes = [name for name in sections if name.startswith(b".note")]
    at = 64 + 56 * len(notes)
    offsets, body = {}, b""
    for name, data in held.items():
        offsets[name] = at + len(body)
        body += data + bytes(-len(data) % 8)
    table = at + len(body)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQI", 1, 62, 1, 0, 64 if notes else 0, table, 0)
    header += struct.pack("<HHHHHH", 64, 56, len(notes), 64, len(held) + 1, len(held))
    programs = b"".join(
        struct.pack("<IIQQQQQQ", 4, 4, offsets[name], 0, 0, *(2 * [len(held[name])]), 4)
        for name in notes
    )
    headers = bytes(64)
    for name, data in held.items():
        headers += struct.pack(
            "<IIQQQQIIQQ", names.index(b"\0" + name + b"\0") + 1, 1, 0, 0, offsets[name],
            len(data), 0, 0, 1, 0,
        )  # fmt: skip
    return header + programs + body + headers


def pvh_kernel(version: str = VERSION) -> bytes:
    """Return an ELF with the note that names a PVH entry, and a banner."""
    note = struct.pack("<III", 4, 8, 18) + b"Xen\0" + bytes(8)
    return elf({b".notes": note, b".rodata": f"Linux version {version} (tare)".encode() * 50})


def module(depends: Sequence[str] = ()) -> bytes:
    """Return an object file with the ``.modinfo`` of a module."""
    info = b"license=GPL\0depends=" + ",".join(depends).encode() + b"\0"
    return elf({b".modinfo": info, b".text": b"\x90" * 16})


def lz4_legacy(data: bytes) -> bytes:
    frame = struct.pack("<I", 0x184C2102)
    for start in range(0, len(data), 8 << 20):
        block = lz4.block.compress(data[start : start + (8 << 20)], store_size=False)
        frame += struct.pack("<I", len(block)) + block
    return frame


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "xz": lambda data: lzma.compress(data, lzma.FORMAT_XZ),
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "lz4": lz4_legacy,
    "zstd": zstandard.ZstdCompressor(level=22).compress,
}


def bzimage(payload: bytes, version: str = VERSION) -> bytes:
    """Return a bzImage whose protected-mode part is 32 bytes and then the payload."""
    setup = bytearray(4 * 512)
    setup[0x1F1] = 3
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", setup, 0x206, 0x20F)
    struct.pack_into("<H", setup, 0x20E, 0x300 - 0x200)
    text = f"{version} (tare) #1".encode() + b"\0"
    setup[0x300 : 0x300 + len(text)] = text
    struct.pack_into("<II", setup, 0x248, 32, len(payload))
    return bytes(setup) + bytes(32) + payload


def with_size(compressed: bytes, kernel: bytes) -> bytes:
    """Return the payload as the kernel's build makes it: with the uncompressed size behind it."""
    return compressed + struct.pack("<I", len(kernel))


def kernel_tree(root: Path, modules: Mapping[str, Sequence[str]]) -> Path:
    """Lay out an unpacked kernel package; return its kernel file."""
    kernel = pvh_kernel()
    boot = root / "boot" / f"vmlinuz-{VERSION}"
    boot.parent.mkdir(parents=True)
    boot.write_bytes(bzimage(with_size(lz4_legacy(kernel), kernel)))
    held = root / "lib" / "modules" / VERSION / "kernel"
    held.mkdir(parents=True)
    for name, depends in modules.items():
        (held / f"{name}.ko").write_bytes(module(depends))
    return boot


class FakeHost(LocalHost):
    """A host whose commands are answered by a function, and whose files may be replaced."""

    def __init__(
        self,
        answer: Callable[[Sequence[str]], Completed],
        files: dict[str, bytes] | None = None,
    ) -> None:
        super().__init__()
        self.answer = answer
        self.files = files or {}
        self.asked: list[list[str]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        self.asked.append(list(argv))
        return self.answer(argv)

    async def read(self, path: str | Path) -> bytes:
        if str(path) in self.files:
            return self.files[str(path)]
        raise FileNotFoundError(2, "No such file or directory", str(path))

    async def exists(self, path: str | Path) -> bool:
        return str(path) in self.files
