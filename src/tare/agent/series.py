"""Binary series: put together from chunks, and read as columns of numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_BYTES = 8 << 30
"""A series longer than this is taken for nonsense."""

_TYPES = {
    **{f"{sign}{8 * width}": f"<{sign}{width}" for sign in "ui" for width in (1, 2, 4, 8)},
    "f32": "<f4",
    "f64": "<f8",
}


@dataclass(frozen=True)
class Series:
    """Equally long columns of numbers.

    Args:
        name: Unique within the workload.
        columns: Name to one-dimensional array, all of the same length.
    """

    name: str
    columns: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Chunk:
    """One series frame: which part of which series, and its bytes."""

    id: int
    name: str
    rows: int
    columns: tuple[tuple[str, str], ...]
    offset: int
    total: int
    data: memoryview


def read_chunk(payload: bytes) -> Chunk:
    """Read a series frame's payload.

    Raises:
        ValueError: It is not one, or its parts contradict each other.
    """
    line, separator, _ = payload.partition(b"\n")
    if not separator:
        raise ValueError("a series frame without a header line")
    header = json.loads(line)
    try:
        chunk = Chunk(
            id=int(header["id"]),
            name=str(header["name"]),
            rows=int(header["rows"]),
            columns=tuple((str(name), str(kind)) for name, kind in header["columns"]),
            offset=int(header["offset"]),
            total=int(header["total"]),
            data=memoryview(payload)[len(line) + 1 :],
        )
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"a series frame with a header that cannot be read: {error!r}") from None
    unknown = [kind for _, kind in chunk.columns if kind not in _TYPES]
    if unknown:
        raise ValueError(f"series {chunk.name} has columns of unknown type {unknown[0]!r}")
    width = sum(int(kind[1:]) // 8 for _, kind in chunk.columns)
    if chunk.rows < 0 or chunk.total != chunk.rows * width or chunk.total > MOST_BYTES:
        raise ValueError(f"series {chunk.name}: {chunk.total} bytes are not {chunk.rows} rows")
    if not 0 <= chunk.offset <= chunk.total - len(chunk.data):
        raise ValueError(f"series {chunk.name}: a chunk lies outside of it")
    return chunk


class Assembler:
    """Puts the chunks of one run's series together."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}

    def add(self, chunk: Chunk) -> None:
        """Take a chunk; chunks of a series come in order.

        Raises:
            ValueError: It contradicts the earlier ones.
        """
        part = self._parts.get(chunk.name)
        if part is None:
            part = self._parts[chunk.name] = _Part(chunk)
        part.add(chunk)

    def finish(self) -> tuple[Series, ...]:
        """Return all series.

        Raises:
            ValueError: One is not whole.
        """
        return tuple(part.finish() for part in self._parts.values())


class _Part:
    def __init__(self, first: Chunk) -> None:
        self._first = first
        self._data = bytearray()

    def add(self, chunk: Chunk) -> None:
        first = self._first
        same = (chunk.rows, chunk.columns, chunk.total) == (first.rows, first.columns, first.total)
        if not same or chunk.offset != len(self._data):
            raise ValueError(f"series {first.name}: its chunks do not fit together")
        self._data += chunk.data

    def finish(self) -> Series:
        first = self._first
        if len(self._data) != first.total:
            raise ValueError(f"series {first.name}: {len(self._data)} of {first.total} bytes came")
        # Loaded here: a machine should not wait for it to boot.
        import numpy as np

        columns = {}
        offset = 0
        for name, kind in first.columns:
            columns[name] = np.frombuffer(self._data, _TYPES[kind], first.rows, offset)
            offset += columns[name].nbytes
        return Series(first.name, columns)
