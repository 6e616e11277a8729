"""Extract the uncompressed ELF kernel from a bzImage.

If a hypervisor starts the ELF through its PVH entry, the guest need not run the bzImage's own
decompressor, which takes several seconds under emulation.

Source of the offsets: the Linux/x86 boot protocol (Documentation/arch/x86/boot.rst): magic
``HdrS`` at 0x202, version at 0x206, and ``setup_sects`` at 0x1f1. Since protocol 2.08 also
``payload_offset`` at 0x248, counted from the start of the protected-mode code, and
``payload_length`` at 0x24c.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Protocol

_ELF = b"\x7fELF"
_LZ4_LEGACY = 0x184C2102
_LZ4_BLOCK = 8 << 20
_MOST_KERNEL = 1 << 30
_MOST_WINDOW = 1 << 30
"""Bytes; more than any kernel needs: `zstd --ultra -22` has a window of 128 MiB."""
_DAMAGE = (
    lzma.LZMAError,
    zlib.error,
    OSError,
    ValueError,
    EOFError,
)


class NotExtractable(Exception):
    """The file has no ELF kernel that can be extracted; the text gives the reason."""


def extract(image: bytes) -> bytes:
    """Return the ELF kernel inside a bzImage, or the file itself if it is one already.

    Args:
        image: The whole kernel file.

    Raises:
        NotExtractable: It is not a bzImage, its compression is unknown, or it is damaged.
    """
    if image[:4] == _ELF:
        return image
    payload = _payload(image)
    for magic, name, decompress in _FORMATS:
        if payload.startswith(magic):
            try:
                kernel = decompress(payload)
            except NotExtractable:
                raise
            except _DAMAGE as error:
                raise NotExtractable(f"its {name} payload is damaged: {error}") from error
            if kernel[:4] != _ELF:
                raise NotExtractable(f"its {name} payload is not an ELF kernel")
            return kernel
    if payload.startswith(_ELF):
        return payload
    if payload.startswith(b"\x89LZO"):
        raise NotExtractable("its compression, lzo, cannot be undone here")
    raise NotExtractable(f"its compression (magic {payload[:4].hex()}) is not known")


def has_pvh_entry(kernel: bytes) -> bool:
    """Return whether an ELF kernel has the note with its PVH entry point.

    Source: Xen's public/elfnote.h: note type 18, ``XEN_ELFNOTE_PHYS32_ENTRY``, name ``Xen``.
    """
    if kernel[:5] != _ELF + b"\x02" or len(kernel) < 64:
        return False
    start, size, count = (
        struct.unpack_from("<Q", kernel, 0x20)[0],
        *struct.unpack_from("<HH", kernel, 0x36),
    )
    for index in range(count):
        at = start + index * size
        if at + 56 > len(kernel):
            return False
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", kernel, at)
        if kind == 4 and _note_types(kernel[offset : offset + length], b"Xen\0") & {18}:
            return True
    return False


def _note_types(notes: bytes, owner: bytes) -> set[int]:
    found: set[int] = set()
    at = 0
    while at + 12 <= len(notes):
        name_length, value_length, kind = struct.unpack_from("<III", notes, at)
        at += 12
        if notes[at : at + name_length] == owner:
            found.add(kind)
        at += -(-name_length // 4) * 4 + -(-value_length // 4) * 4
    return found


def _payload(image: bytes) -> bytes:
    if len(image) < 0x250 or image[0x202:0x206] != b"HdrS":
        raise NotExtractable("it is neither a bzImage nor an ELF kernel")
    (version,) = struct.unpack_from("<H", image, 0x206)
    if version < 0x208:
        raise NotExtractable(
            f"its boot protocol {version >> 8}.{version & 255:02d} names no payload"
        )
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[(sectors + 1) * 512 + offset :][:length]
    if not length or len(payload) < length:
        raise NotExtractable("it is cut short")
    return payload


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _decompress_all(decompressor: _Decompressor, payload: bytes) -> bytes:
    # The kernel's build appends the uncompressed size, so bytes after the stream's end are normal.
    kernel = decompressor.decompress(payload)
    if not decompressor.eof:
        raise EOFError("it ends too early")
    return kernel


def _xz(payload: bytes) -> bytes:
    return _decompress_all(lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_KERNEL), payload)


def _lzma(payload: bytes) -> bytes:
    return _decompress_all(lzma.LZMADecompressor(lzma.FORMAT_ALONE, _MOST_KERNEL), payload)


def _gzip(payload: bytes) -> bytes:
    return _decompress_all(zlib.decompressobj(wbits=31), payload)


def _bzip2(payload: bytes) -> bytes:
    return _decompress_all(bz2.BZ2Decompressor(), payload)


def _lz4(payload: bytes) -> bytes:
    """Decompress the legacy frame: magic, then blocks of at most 8 MiB, each with its length."""
    # Loaded only here: most commands unpack no kernel.
    import lz4.block

    blocks: list[bytes] = []
    total = 0
    at = 4
    while at + 4 <= len(payload):
        (length,) = struct.unpack_from("<I", payload, at)
        at += 4
        if length == _LZ4_LEGACY:
            continue
        if at == len(payload) and length == total:
            # The kernel's build appends the uncompressed size after the last block.
            return b"".join(blocks)
        if length == 0 or at + length > len(payload):
            break
        try:
            block = lz4.block.decompress(payload[at : at + length], uncompressed_size=_LZ4_BLOCK)
        except lz4.block.LZ4BlockError as error:
            raise ValueError(str(error)) from error
        blocks.append(block)
        total += len(block)
        if total > _MOST_KERNEL:
            raise NotExtractable("its lz4 payload is larger than any kernel")
        at += length
    raise EOFError("it ends too early")


def _zstd(payload: bytes) -> bytes:
    import zstandard

    limits = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
    try:
        return _decompress_all(limits.decompressobj(), payload)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def decompress_zstd(data: bytes) -> bytes:
    """Decompress one zstd frame; ignore bytes after it.

    Raises:
        NotExtractable: The data are damaged.
    """
    try:
        return _zstd(data)
    except (ValueError, EOFError) as error:
        raise NotExtractable(f"its zstd data are damaged: {error}") from error


_FORMATS: tuple[tuple[bytes, str, Callable[[bytes], bytes]], ...] = (
    (b"\xfd7zXZ\0", "xz", _xz),
    (struct.pack("<I", _LZ4_LEGACY), "lz4", _lz4),
    (b"\x1f\x8b", "gzip", _gzip),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd),
    (b"BZh", "bzip2", _bzip2),
    (b"\x5d\0\0", "lzma", _lzma),
)
