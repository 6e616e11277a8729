"""A camera's raw picture, written by Tare: an uncompressed DNG with a Bayer pattern.

Source of the tags: Adobe's "Digital Negative Specification" 1.4, on top of TIFF 6.0 and TIFF/EP.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 10: 8}
_BYTE, _TEXT, _SHORT, _LONG, _RATIONAL, _SIGNED_RATIONAL = 1, 2, 3, 4, 5, 10
_HEADER = 8
BLACK, WHITE = 256, 15_871
"""What the sensor gives for no light and for all it can hold, of 14 bits."""

_XYZ_TO_CAMERA = (7034, -804, -1014, -4420, 12564, 2058, -851, 1994, 5758)
"""Ten-thousandths: a made-up camera whose channels overlap like those of real ones."""


@dataclass(frozen=True)
class _Tag:
    number: int
    kind: int
    count: int
    data: bytes


def bayer_scene(width: int, height: int) -> np.ndarray:
    """Return what a sensor sees of gradients, discs and shot noise; integer arithmetic only.

    Args:
        width: Columns, even.
        height: Rows, even.

    Returns:
        Array (height, width) of uint16, red in the even rows and columns (RGGB).
    """
    y, x = np.mgrid[0:height, 0:width].astype(np.int64)
    light = (x * 6000) // width + (y * 4000) // height
    for number in range(12):
        cx, cy = (number * 2_654_435_761) % width, (number * 40_503 * 97) % height
        radius = height // 16 + (number * height) // 96
        inside = (x - cx) ** 2 + (y - cy) ** 2 < radius**2
        light = np.where(inside, light // 2 + number * 500, light)
    colour = np.where(y % 2 == x % 2, np.where(y % 2 == 0, 7, 5), 10)
    noise = ((x * 73_856_093) ^ (y * 19_349_663)) % 4093 % 257 - 128
    seen: np.ndarray = np.clip(BLACK + light * colour // 8 + noise, 0, WHITE).astype("<u2")
    return seen


def dng(pixels: np.ndarray) -> bytes:
    """Return a DNG file of a Bayer picture.

    Args:
        pixels: Array (height, width) of uint16, RGGB.
    """
    height, width = pixels.shape
    data = pixels.astype("<u2").tobytes()
    tags = [
        _longs(254, 0),
        _longs(256, width),
        _longs(257, height),
        _shorts(258, 16),
        _shorts(259, 1),
        _shorts(262, 32_803),
        _text(271, "Tare"),
        _text(272, "Tare Synthetic"),
        _longs(273, _HEADER),
        _shorts(274, 1),
        _shorts(277, 1),
        _longs(278, height),
        _longs(279, len(data)),
        _shorts(284, 1),
        _shorts(33_421, 2, 2),
        _bytes(33_422, 0, 1, 1, 2),
        _bytes(50_706, 1, 4, 0, 0),
        _bytes(50_707, 1, 1, 0, 0),
        _text(50_708, "Tare Synthetic"),
        _shorts(50_714, BLACK),
        _longs(50_717, WHITE),
        _rationals(50_721, _SIGNED_RATIONAL, *((value, 10_000) for value in _XYZ_TO_CAMERA)),
        _rationals(50_728, _RATIONAL, (8, 14), (1, 1), (8, 10)),
        _shorts(50_778, 21),
    ]
    return _file(data, tags)


def _file(data: bytes, tags: list[_Tag]) -> bytes:
    directory_at = _HEADER + len(data)
    beyond_at = directory_at + 2 + 12 * len(tags) + 4
    entries, beyond = b"", b""
    for tag in tags:
        if len(tag.data) <= 4:
            value = tag.data.ljust(4, b"\0")
        else:
            value = struct.pack("<I", beyond_at + len(beyond))
            beyond += tag.data + bytes(len(tag.data) % 2)
        entries += struct.pack("<HHI", tag.number, tag.kind, tag.count) + value
    header = b"II*\0" + struct.pack("<I", directory_at)
    return header + data + struct.pack("<H", len(tags)) + entries + bytes(4) + beyond


def _tag(number: int, kind: int, data: bytes) -> _Tag:
    return _Tag(number, kind, len(data) // _TYPE_BYTES[kind], data)


def _shorts(number: int, *values: int) -> _Tag:
    return _tag(number, _SHORT, struct.pack(f"<{len(values)}H", *values))


def _longs(number: int, *values: int) -> _Tag:
    return _tag(number, _LONG, struct.pack(f"<{len(values)}I", *values))


def _bytes(number: int, *values: int) -> _Tag:
    return _tag(number, _BYTE, bytes(values))


def _text(number: int, text: str) -> _Tag:
    return _tag(number, _TEXT, text.encode() + b"\0")


def _rationals(number: int, kind: int, *values: tuple[int, int]) -> _Tag:
    return _tag(number, kind, b"".join(struct.pack("<ii", *value) for value in values))
