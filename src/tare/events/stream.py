"""Append events to a file that survives a crash, and read them back."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from tare.errors import InputError, TareError
from tare.events.chain import NO_SEAL, Chain, Sealer, read_seal
from tare.events.model import (
    STREAM_VERSION,
    BlockFinished,
    CellFinished,
    Event,
    Interrupted,
    Record,
    RunFinished,
    RunStarted,
)
from tare.events.observations import ObservationReader, Seen, steers
from tare.events.session_events import SessionFinished, Waiting
from tare.plaintext import plain_json
from tare.refusals import message_of

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_ODD = re.compile(rb"[:\[,][ \t\r\n]*(?:-?(?:[0-9]{20}|[0-9.]+[eE]\+?[0-9]{3})|-?Infinity|NaN)")
"""Matches numbers that may be outside a machine's range, with the character before them (RFC 8259).

Hardly any line contains one. The character before the number is part of the pattern, because the
hash at the end of each line may otherwise look like such a number.
"""
_GREATEST_WHOLE = 1 << 64
DURABLE = (
    RunStarted,
    CellFinished,
    BlockFinished,
    SessionFinished,
    Waiting,
    Interrupted,
    RunFinished,
)


class UnreadableStream(InputError):
    """The events file is damaged other than by a torn last line; the message names the line."""


def read_events(path: Path) -> list[Record]:
    """Read all whole events of ``path``, leaving out a torn last line.

    Args:
        path: An ``events.jsonl`` file.

    Returns:
        The records in order.

    Raises:
        UnreadableStream: A line other than the last is not an event, the sequence is broken, or
            the stream was written by a newer version; the message names file and line.
    """
    return [read_line(path, number, line) for number, line in _whole_lines(path)]


def read_entries(path: Path, chain: Chain | None = None) -> Iterator[Record | Seen]:
    """Read the records of a file one by one, and observations without their model, which is fast.

    Args:
        path: An ``events.jsonl`` file.
        chain: Checks whether the lines are unchanged; None: no check.

    Yields:
        The records in order; observations as :class:`tare.events.observations.Seen`.

    Raises:
        UnreadableStream: See :func:`read_events`.
    """
    read = ObservationReader().read
    for number, line in _whole_lines(path):
        if chain is not None:
            chain.follow(line)
        seen = read(line)
        if seen is None:
            yield read_line(path, number, line)
        else:
            if seen.seq != number - 1:
                raise _misplaced(path, number, seen.seq)
            yield seen


class BeyondAllBounds(Exception):
    """A number is outside the range of a machine's numbers."""


def bounded(value: object) -> bool:
    """Return whether all numbers in a JSON value are finite, and integers have at most 64 bits."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, float):
            if not math.isfinite(each):
                return False
        elif isinstance(each, int) and abs(each) >= _GREATEST_WHOLE:
            return False
    return True


def _whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with numbers from 1, without line ends and without a torn last line."""
    number, torn = 0, False
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line[:-1]
            else:
                torn = True
    if number == int(torn):
        what = "holds no whole event" if torn else "is empty"
        raise UnreadableStream(
            f"{path}: {what}: the run was ended before it began",
            f"start it again in the same folder: tare run STUDY --out {path.parent}",
        )


def read_line(path: Path, number: int, line: bytes) -> Record:
    """Return the event of one line.

    Args:
        path: The file, for messages.
        number: The line's number, from 1.
        line: The line, without its newline.

    Raises:
        UnreadableStream: The line is not an event, has a wrong number, or is of a newer version of
            Tare.
    """
    try:
        record = _legible(line)
    except BeyondAllBounds:
        raise UnreadableStream(
            f"{path}: line {number}: a number beyond all bounds; the file is damaged there",
            repairing(path),
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        fault = f"{where}: {message_of(first)}" if where else f"the line {message_of(first)}"
        raise UnreadableStream(
            f"{path}: line {number}: {fault}; the file is damaged there", repairing(path)
        ) from error
    if record.seq != number - 1:
        raise _misplaced(path, number, record.seq)
    event = record.event
    if event.type == "run_started" and event.version > STREAM_VERSION:
        raise UnreadableStream(
            f"{path}: line {number}: written by stream version {event.version}, "
            f"this Tare reads up to {STREAM_VERSION}; use a newer Tare"
        )
    return record


def _legible(line: bytes) -> Record:
    """Return the record of a line, with all texts made safe to print."""
    odd = _ODD.search(line) is not None
    if not odd and not steers(line):
        return Record.model_validate_json(line)
    try:
        value = plain_json(json.loads(line.decode()))
    except (ValueError, RecursionError):
        # The model's error describes the fault.
        return Record.model_validate_json(line)
    if odd and not bounded(value):
        raise BeyondAllBounds
    return Record.model_validate(value)


def _misplaced(path: Path, number: int, seq: int) -> UnreadableStream:
    return UnreadableStream(
        f"{path}: line {number}: event {seq} where {number - 1} belongs; lines were lost or edited",
        repairing(path),
    )


def repairing(path: Path) -> str:
    """Return the command that recovers a damaged stream."""
    return f"recover all events before that: tare verify --repair {path.parent}"


class EventLog:
    """The append-only stream of one run; every subscriber sees each event once it is written.

    Args:
        path: The file.
        guard: Raises TareError once this process must not write there any more.

    Raises:
        UnreadableStream: The stream is damaged, or was changed.
    """

    def __init__(self, path: Path, guard: Callable[[], None] = lambda: None) -> None:
        self._guard = guard
        self._subscribers: list[Callable[[Record], None]] = []
        self._chain = _followed(path)
        _cut_torn_tail(path)
        self._file = path.open("ab", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size
        try:
            self._sealer = Sealer(path)
        except OSError:
            self._file.close()
            raise

    @property
    def digest(self) -> str:
        """The hash of the last event."""
        return self._chain.digest

    def subscribe(self, subscriber: Callable[[Record], None]) -> None:
        """Call ``subscriber`` with every record appended from now on."""
        self._subscribers.append(subscriber)

    def append(self, event: Event) -> Record:
        """Write ``event``; ends of cells, blocks and runs reach the disk before this returns.

        Raises:
            OSError: The disk is full or failed; then no part of the event counts.
            TareError: Another process writes to the stream; no part of the event is written.
        """
        self._guard()
        record, body = _written(Record(seq=self._chain.lines, time=time.time(), event=event))
        line, digest = self._chain.chaining(body)
        self._write_whole(line + b"\n")
        if isinstance(event, DURABLE):
            os.fsync(self._file.fileno())
            self._require_name()
        self._chain.add(digest)
        if isinstance(event, DURABLE):
            self._sealer.keep(record.seq, self._chain.digest)
        for subscriber in self._subscribers:
            subscriber(record)
        return record

    def _write_whole(self, line: bytes) -> None:
        start = self._file.seek(0, os.SEEK_END)
        if start != self._size:
            raise TareError(
                f"{self._file.name}: something else wrote to it: it has {start} bytes, and this "
                f"run left {self._size}",
                f"end the other run, then {repairing(Path(self._file.name))}",
            )
        whole = len(line)
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError:
            self._file.truncate(start)
            raise
        self._size += whole

    def _require_name(self) -> None:
        """Check that the open file still has a name: data written to a removed file are lost."""
        if not os.fstat(self._file.fileno()).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._file.name)

    def close(self) -> None:
        """Flush everything to the disk, and close the file."""
        os.fsync(self._file.fileno())
        self._file.close()
        if self._chain.chained:
            self._sealer.keep(self._chain.lines - 1, self._chain.digest)
        self._sealer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _followed(path: Path) -> Chain:
    """Return the chain of a former process's events, which must be unchanged."""
    chain = Chain(read_seal(path))
    if not path.exists() or not path.stat().st_size:
        return chain
    for _ in read_entries(path, chain):
        pass
    grave = [doubt for doubt in chain.doubts() if doubt != NO_SEAL]
    if grave:
        raise UnreadableStream(
            f"{path}: {grave[0]}",
            f"restore it from a copy; or {repairing(path)}",
        )
    return chain


def _written(record: Record) -> tuple[Record, bytes]:
    """Return a record with all texts safe to print, and its line without a hash."""
    try:
        line = record.model_dump_json(exclude={"chain"}).encode()
        if not steers(line):
            return record, line
        shown = _legible(line)
    except PydanticSerializationError:
        # A text has half a character, such as a file name that is not UTF-8.
        shown = Record.model_validate(plain_json(record.model_dump()))
    return shown, shown.model_dump_json(exclude={"chain"}).encode()


def _cut_torn_tail(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def canonical_json(value: object) -> str:
    """Return ``value`` as JSON with sorted keys and no spaces, for digests and identities."""
    return _CANONICAL.encode(value)
