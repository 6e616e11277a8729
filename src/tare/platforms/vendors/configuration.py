"""The image that carries a machine's configuration: one file on a tiny ISO 9660, label TARE-CFG.

The image is a CD, or a raw disk on a platform without CDs; the agent finds it by its label. The
format is ECMA-119 (ISO 9660), level 1: sectors of 2048 bytes; the first 16 are unused.
"""

from __future__ import annotations

import json
import struct
from typing import Any

LABEL = "TARE-CFG"
FILE = "TARE.JSN"
SECTOR = 2048
DESCRIPTOR, TERMINATOR, LITTLE, BIG, ROOT, CONTENT = range(16, 22)
"""The sectors: volume descriptor, its end, the two path tables, the root directory, the file."""
REPORT_NETWORK = {"given": True}
"""The part of a configuration that makes an agent report the interface over which it dials."""
MOST_BYTES = 1 << 20
LEAST_SECTORS = 512
"""One mebibyte: some platforms accept no smaller disk and pad smaller images."""
_TIME = bytes(7)


def configuration_image(configuration: dict[str, Any]) -> bytes:
    """Return the image that holds a configuration as JSON.

    Args:
        configuration: Plain values; at most :data:`MOST_BYTES` of JSON.
    """
    content = json.dumps(configuration, sort_keys=True).encode()
    if len(content) > MOST_BYTES // 2:
        raise ValueError("the configuration is too long")
    sectors = max(LEAST_SECTORS, CONTENT + -(-len(content) // SECTOR))
    root = _entry(b"\0", ROOT, SECTOR, directory=True)
    listing = root + _entry(b"\1", ROOT, SECTOR, directory=True)
    listing += _entry(f"{FILE};1".encode(), CONTENT, len(content), directory=False)
    image = bytearray(sectors * SECTOR)
    _put(image, DESCRIPTOR, _descriptor(sectors, root))
    _put(image, TERMINATOR, b"\xffCD001\x01")
    _put(image, LITTLE, struct.pack("<BBIH", 1, 0, ROOT, 1) + bytes(2))
    _put(image, BIG, struct.pack(">BBIH", 1, 0, ROOT, 1) + bytes(2))
    _put(image, ROOT, listing)
    _put(image, CONTENT, content)
    return bytes(image)


def read_configuration(image: bytes) -> dict[str, Any] | None:
    """Return the configuration on an image; None if the image has another label.

    Raises:
        ValueError: The image has the label and is damaged.
    """
    volume = image[DESCRIPTOR * SECTOR :][:SECTOR]
    if volume[1:6] != b"CD001" or volume[40:72].decode("ascii", "replace").rstrip() != LABEL:
        return None
    (at,), (size,) = struct.unpack_from("<I", volume, 158), struct.unpack_from("<I", volume, 166)
    listing = image[at * SECTOR :][: min(size, SECTOR)]
    while listing and listing[0]:
        entry, listing = listing[: listing[0]], listing[listing[0] :]
        if len(entry) < 34:
            break
        if entry[33 : 33 + entry[32]].split(b";")[0] == FILE.encode():
            (at,), (size,) = struct.unpack_from("<I", entry, 2), struct.unpack_from("<I", entry, 10)
            found = json.loads(image[at * SECTOR :][: min(size, MOST_BYTES)])
            if isinstance(found, dict):
                return found
    raise ValueError(f"the image is labelled {LABEL} and holds no {FILE}")


def _put(image: bytearray, sector: int, content: bytes) -> None:
    image[sector * SECTOR : sector * SECTOR + len(content)] = content


def _both_endian_u32(number: int) -> bytes:
    return struct.pack("<I", number) + struct.pack(">I", number)


def _both_endian_u16(number: int) -> bytes:
    return struct.pack("<H", number) + struct.pack(">H", number)


def _entry(name: bytes, sector: int, size: int, *, directory: bool) -> bytes:
    """Return a directory's record, ECMA-119 section 9.1."""
    body = (
        b"\0"
        + _both_endian_u32(sector)
        + _both_endian_u32(size)
        + _TIME
        + bytes([2 if directory else 0, 0, 0])
    )
    body += _both_endian_u16(1) + bytes([len(name)]) + name
    body += b"" if len(name) % 2 else b"\0"
    return bytes([len(body) + 1]) + body


def _descriptor(sectors: int, root: bytes) -> bytes:
    """Return the primary volume descriptor, ECMA-119 section 8.4."""
    blank = b" " * 128
    date = b"0" * 16 + b"\0"
    return b"".join(
        (
            b"\x01CD001\x01\0",
            b" " * 32,
            LABEL.encode().ljust(32),
            bytes(8),
            _both_endian_u32(sectors),
            bytes(32),
            _both_endian_u16(1) + _both_endian_u16(1) + _both_endian_u16(SECTOR),
            _both_endian_u32(10),
            struct.pack("<II", LITTLE, 0),
            struct.pack(">II", BIG, 0),
            root,
            blank * 4,
            b" " * 37 * 3,
            date * 4,
            b"\x01\0",
        )
    )
