"""Parse the pages of the kernel's trace buffer, from ``trace_pipe_raw``.

A page starts with a time and the length of the rest; then follow the events,
each with a word of 5 bits (its type or length) and 27 bits (nanoseconds since the one before).
Source: the kernel's include/linux/ring_buffer.h and kernel/trace/ring_buffer.c; the layout of each
event's own fields is in its ``format`` file (Documentation/trace/events.rst).
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.hosts.contract import Host

_PADDING = 29
_TIME_EXTEND = 30
_TIME_STAMP = 31
_LENGTH_BITS = 0x3FFFFFFF
_WORD = struct.Struct("<I")
_HEADER = struct.Struct("<QQ")
_FIELD = re.compile(
    r"field:(?P<declared>[^;]+);\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);"
    r"\s*signed:(?P<signed>\d);"
)
_NAME = re.compile(r"(\w+)\s*(?:\[[^\]]*\])?\s*$")


@dataclass(frozen=True)
class Field:
    """The position of a number or a text in an event, in bytes from the event's start."""

    offset: int
    size: int
    signed: bool

    def number(self, data: bytes, start: int) -> int:
        """Return this field's number in the event at ``start``."""
        at = start + self.offset
        return int.from_bytes(data[at : at + self.size], "little", signed=self.signed)

    def text(self, data: bytes, start: int) -> str:
        """Return this field's text, which ends with a zero byte."""
        at = start + self.offset
        return data[at : at + self.size].partition(b"\0")[0].decode(errors="replace")

    def located_text(self, data: bytes, start: int) -> str:
        """Return the text whose position (low 16 bits) and length it holds (``__data_loc``)."""
        word = self.number(data, start) & 0xFFFFFFFF
        at = start + (word & 0xFFFF)
        return data[at : at + (word >> 16)].partition(b"\0")[0].decode(errors="replace")


@dataclass(frozen=True)
class Format:
    """The layout of one event.

    Args:
        name: The event's name.
        id: The number at the start of the event's records.
        fields: The event's fields by name.
    """

    name: str
    id: int
    fields: Mapping[str, Field]


def parse_format(text: str) -> Format:
    """Parse an event's ``format`` file.

    Raises:
        ValueError: The text is not such a file.
    """
    name = re.search(r"^name: (\S+)", text, re.MULTILINE)
    number = re.search(r"^ID: (\d+)", text, re.MULTILINE)
    if name is None or number is None:
        raise ValueError("not an event format")
    fields = {}
    for match in _FIELD.finditer(text):
        declared = _NAME.search(match["declared"])
        if declared:
            fields[declared[1]] = Field(
                int(match["offset"]), int(match["size"]), match["signed"] == "1"
            )
    return Format(name[1], int(number[1]), fields)


def parse_data_offset(header_page: str) -> int:
    """Return the offset of a page's events, from ``events/header_page``.

    Raises:
        ValueError: The layout is not the known one.
    """
    fields = {match["declared"].split()[-1]: match for match in _FIELD.finditer(header_page)}
    try:
        time, commit, data = (fields[name] for name in ("timestamp", "commit", "data"))
    except KeyError as missing:
        raise ValueError(f"pages without {missing}") from None
    if int(time["offset"]) != 0 or int(commit["offset"]) != 8 or int(data["offset"]) < 16:
        raise ValueError("pages of another layout, as on a 32-bit kernel")
    return int(data["offset"])


def page_events(page: bytes, data_offset: int = 16) -> Iterator[tuple[int, int, int]]:
    """Iterate over the events of one page.

    Args:
        page: The result of one read of ``trace_pipe_raw``.
        data_offset: The offset of the first event.

    Yields:
        Time in nanoseconds, the event's offset in ``page``, and its length in bytes.
    """
    if len(page) < data_offset:
        return
    time, commit = _HEADER.unpack_from(page)
    high = time & ~((1 << 59) - 1)
    at = data_offset
    end = min(data_offset + (commit & _LENGTH_BITS), len(page))
    while at + 4 <= end:
        (word,) = _WORD.unpack_from(page, at)
        kind, delta = word & 31, word >> 5
        if kind == _PADDING and delta == 0:
            return
        if kind == 0 or kind >= _PADDING:
            if at + 8 > end:
                return
            (more,) = _WORD.unpack_from(page, at + 4)
        if kind == _TIME_EXTEND:
            time += (more << 27) + delta
            at += 8
        elif kind == _TIME_STAMP:
            time = high | ((more << 27) + delta)
            at += 8
        elif kind == _PADDING:
            time += delta
            at += max(4, more) + 4
        else:
            time += delta
            length = kind * 4 if kind else more - 4
            start = at + (4 if kind else 8)
            if length < 0 or start + length > end:
                return
            yield time, start, length
            at = start + length


PAGE = 4096
_READ_S = 120.0


def local_pages(path: Path) -> Iterator[bytes]:
    """Yield the pages of the buffer, and remove them from it."""
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while page := _next_page(source):
            yield page
    finally:
        os.close(source)


def _next_page(source: int) -> bytes:
    try:
        return os.read(source, PAGE)
    except BlockingIOError:
        return b""


async def remote_pages(host: Host, path: Path) -> Sequence[bytes]:
    """Return the pages of a buffer on another host, and remove them from it.

    Raises:
        OSError: The host has no tool to read the buffer.
    """
    # At the end, the kernel returns EAGAIN, which dd reports as an error: the bytes before it
    # count.
    argv = ["dd", f"if={path}", f"bs={PAGE}", "iflag=nonblock", "status=none"]
    done = await host.run(argv, timeout_s=_READ_S)
    if not done.ok and not done.stdout and b"temporarily unavailable" not in done.stderr:
        raise OSError(f"{host.name} cannot read {path}: {done.words()}")
    return [done.stdout[at : at + PAGE] for at in range(0, len(done.stdout), PAGE)]
