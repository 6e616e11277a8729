"""Binary series: assembled from chunks, and read as columns of numbers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from tare.agent.expected_series import MOST_BYTES, ExpectedSeries, require_numbers
from tare.agent.message import check_whole_number, column, name, read_json

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_SERIES = 64
HELD_BYTES = 4 << 20
"""Bytes; a longer series is stored in a file, because a machine must not fill the host's memory."""
_MOST_HEADER_VALUES = 200_000
"""On a computer with many CPUs, counters have thousands of columns, of three values each."""

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_ON_DISK = Path("/var/tmp")
_MOUNTS = Path("/proc/self/mounts")

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
    """One series frame: a part of a series, with its place and its bytes."""

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
    header = read_json(line, _MOST_HEADER_VALUES)
    if not isinstance(header, dict):
        raise ValueError("a series frame whose header is not an object")
    chunk = Chunk(
        id=check_whole_number(header.get("id"), "series: id"),
        name=name(header.get("name"), "series: name"),
        rows=check_whole_number(header.get("rows"), "series: rows"),
        columns=_columns(header.get("columns")),
        offset=check_whole_number(header.get("offset"), "series: offset"),
        total=check_whole_number(header.get("total"), "series: total"),
        data=memoryview(payload)[len(line) + 1 :],
    )
    unknown = [kind for _, kind in chunk.columns if kind not in _TYPES]
    if unknown:
        raise ValueError(f"series {chunk.name} has columns of unknown type {unknown[0]!r}")
    width = sum(int(kind[1:]) // 8 for _, kind in chunk.columns)
    if chunk.total != chunk.rows * width or chunk.total > MOST_BYTES:
        raise ValueError(f"series {chunk.name}: {chunk.total} bytes are not {chunk.rows} rows")
    if not 0 <= chunk.offset <= chunk.total - len(chunk.data):
        raise ValueError(f"series {chunk.name}: a chunk is outside of it")
    return chunk


def _columns(pairs: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(pairs, list) or not all(isinstance(pair, list) for pair in pairs):
        raise ValueError("a series frame whose columns are not a list of pairs")
    if any(len(pair) != 2 or not isinstance(pair[1], str) for pair in pairs):
        raise ValueError("a series frame whose columns are not pairs of a name and a type")
    columns = tuple((column(pair[0], "series: columns"), pair[1]) for pair in pairs)
    if not columns or len(dict(columns)) != len(columns):
        raise ValueError("a series frame without columns, or with two of one name")
    return columns


class Assembler:
    """Assembles the series of one run from chunks.

    Args:
        most_bytes: The maximum size of all series together, in bytes, if ``expected`` is None.
        expected: The series that may arrive, and their maximum size; None: any series.
    """

    def __init__(
        self, most_bytes: int = MOST_BYTES, expected: ExpectedSeries | None = None
    ) -> None:
        self._parts: dict[str, _Part] = {}
        self._expected = expected
        self._most_bytes = most_bytes if expected is None else expected.most_bytes
        self._promised = 0

    def add(self, chunk: Chunk) -> None:
        """Add a chunk; the chunks of a series arrive in order.

        Raises:
            ValueError: The chunk contradicts earlier ones; or the series are not expected, too
                many, or too large.
            OSError: There is no space to store it.
        """
        part = self._parts.get(chunk.name)
        if part is None:
            if self._expected is not None:
                self._expected.require(chunk.name, chunk.columns)
            self._promised += chunk.total
            if len(self._parts) >= MOST_SERIES or self._promised > self._most_bytes:
                raise ValueError(
                    f"its series are more than {MOST_SERIES}, or than "
                    f"{self._most_bytes >> 20} MiB together"
                )
            part = self._parts[chunk.name] = _Part(chunk)
        part.add(chunk)

    def finish(self) -> tuple[Series, ...]:
        """Return all series.

        Raises:
            ValueError: One is incomplete, or has implausible values.
        """
        return tuple(part.finish() for part in self._parts.values())

    def close(self) -> None:
        """Discard incomplete series; finished ones stay valid."""
        for part in self._parts.values():
            part.close()


class _Part:
    def __init__(self, first: Chunk) -> None:
        self._first = first
        self._got = 0
        self._data = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            max_size=HELD_BYTES, dir=spool_folder()
        )

    def add(self, chunk: Chunk) -> None:
        first = self._first
        same = (chunk.rows, chunk.columns, chunk.total) == (first.rows, first.columns, first.total)
        if not same or chunk.offset != self._got:
            raise ValueError(f"series {first.name}: its chunks do not fit together")
        self._data.write(chunk.data)
        self._got += len(chunk.data)

    def finish(self) -> Series:
        first = self._first
        if self._got != first.total:
            raise ValueError(f"series {first.name}: {self._got} of {first.total} bytes came")
        # Imported late: booting a machine should not wait for it.
        import numpy as np

        held: Any
        if first.total > HELD_BYTES:
            self._data.flush()
            # Mapped pages of a file can be evicted, so they do not use up memory.
            held = np.memmap(cast("IO[bytes]", self._data), "u1", "r")
        else:
            self._data.seek(0)
            held = self._data.read()
        columns = {}
        offset = 0
        for name_, kind in first.columns:
            columns[name_] = np.frombuffer(held, _TYPES[kind], first.rows, offset)
            offset += columns[name_].nbytes
            require_numbers(first.name, name_, columns[name_])
        return Series(first.name, columns)

    def close(self) -> None:
        self._data.close()


def spool_folder() -> str:
    """Return the folder for long series: ``TMPDIR`` if set, else one on a disk.

    Many systems keep ``/tmp`` in memory, so its file system is checked."""
    usual = Path(tempfile.gettempdir())
    if os.environ.get("TMPDIR"):
        return str(usual)
    for place in (usual, _ON_DISK):
        if os.access(place, os.W_OK) and kind_of(place) not in _IN_MEMORY:
            return str(place)
    return str(usual)


def kind_of(place: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of a folder's file system; empty if it is unknown.

    Args:
        place: The folder.
        mounts: The list of mounts, in the format of ``/proc/self/mounts`` (proc(5)).
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    found, deepest = "", -1
    for line in lines:
        words = line.split(" ")
        if len(words) < 3:
            continue
        at = Path(_unescape(words[1]))
        # The later of two mounts at one path hides the other.
        if place.resolve().is_relative_to(at) and len(at.parts) >= deepest:
            found, deepest = words[2], len(at.parts)
    return found


def _unescape(path: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escape, character)
    return path
