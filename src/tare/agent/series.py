"""Binary series: put together from chunks, and read as columns of numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from tare.agent.forms import MOST_BYTES, Forms, require_numbers
from tare.agent.message import column, name, read_json, whole
from tare.agent.spool import spool_folder

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_SERIES = 64
HELD_BYTES = 4 << 20
"""A longer series waits in a file for its end; a machine must not fill the host's memory."""
_MOST_HEADER_VALUES = 200_000
"""The counters of a computer with many CPUs are thousands of columns, of three values each."""

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
    header = read_json(line, _MOST_HEADER_VALUES)
    if not isinstance(header, dict):
        raise ValueError("a series frame whose header is no object")
    chunk = Chunk(
        id=whole(header.get("id"), "series: id"),
        name=name(header.get("name"), "series: name"),
        rows=whole(header.get("rows"), "series: rows"),
        columns=_columns(header.get("columns")),
        offset=whole(header.get("offset"), "series: offset"),
        total=whole(header.get("total"), "series: total"),
        data=memoryview(payload)[len(line) + 1 :],
    )
    unknown = [kind for _, kind in chunk.columns if kind not in _TYPES]
    if unknown:
        raise ValueError(f"series {chunk.name} has columns of unknown type {unknown[0]!r}")
    width = sum(int(kind[1:]) // 8 for _, kind in chunk.columns)
    if chunk.total != chunk.rows * width or chunk.total > MOST_BYTES:
        raise ValueError(f"series {chunk.name}: {chunk.total} bytes are not {chunk.rows} rows")
    if not 0 <= chunk.offset <= chunk.total - len(chunk.data):
        raise ValueError(f"series {chunk.name}: a chunk lies outside of it")
    return chunk


def _columns(told: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(told, list) or not all(isinstance(pair, list) for pair in told):
        raise ValueError("a series frame whose columns are no list of pairs")
    if any(len(pair) != 2 or not isinstance(pair[1], str) for pair in told):
        raise ValueError("a series frame whose columns are no pairs of a name and a type")
    columns = tuple((column(pair[0], "series: columns"), pair[1]) for pair in told)
    if not columns or len(dict(columns)) != len(columns):
        raise ValueError("a series frame without columns, or with two of one name")
    return columns


class Assembler:
    """Puts the chunks of one run's series together.

    Args:
        most_bytes: Bytes that all of them together may have.
        forms: What may come, and how much of it; None: any series.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, forms: Forms | None = None) -> None:
        self._parts: dict[str, _Part] = {}
        self._forms = forms
        self._most_bytes = most_bytes if forms is None else forms.most_bytes
        self._promised = 0

    def add(self, chunk: Chunk) -> None:
        """Take a chunk; chunks of a series come in order.

        Raises:
            ValueError: It contradicts the earlier ones, or it is of a series too many.
            OSError: There is no room to keep it.
        """
        part = self._parts.get(chunk.name)
        if part is None:
            if self._forms is not None:
                self._forms.require(chunk.name, chunk.columns)
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
            ValueError: One is not whole, or holds what cannot be.
        """
        return tuple(part.finish() for part in self._parts.values())

    def close(self) -> None:
        """Give up what is held of series that nobody will read; those finished stay."""
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
        # Loaded here: a machine should not wait for it to boot.
        import numpy as np

        held: Any
        if first.total > HELD_BYTES:
            self._data.flush()
            # Its pages are the file's: they need no memory that others could not have.
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
