"""A fast reader for lines of observations, which are most of a stream.

It accepts only the form in which :class:`tare.events.stream.EventLog` writes them. Any other line,
including a damaged one, is read by the model of all events, which reports its errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tare.events.metric import Metric
from tare.events.model import CellFinished, CellStatus, Observed
from tare.events.results import IMPOSSIBLE, Observation

_UNSAFE = re.compile(
    rb"\\[ubfr]|\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
    rb"|\xef\xbb\xbf|\xf3\xa0[\x80\x81]"
)
"""Matches characters that :mod:`tare.plaintext` removes from texts, in UTF-8 or escaped as in JSON.
"""

_TEXT = rb'"[^"\\\x00-\x1f]*"'
_NUMBER = rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_LINE = re.compile(
    rb'\{"seq":(0|[1-9]\d{0,17}),"time":%(number)s,"event":\{"type":"observation",'
    rb'"cell":(%(text)s),'
    rb'("role":%(text)s,"metric":%(text)s,"unit":%(text)s,"better":"(?:higher|lower|neither)",'
    rb'"kind":"(?:typical|tail|maximum)","headline":(?:true|false)'
    rb'(?:,"resource":(?:null|"[a-z]{1,16}"))?),'
    rb'"value":(%(number)s)\}(?:,"chain":"[0-9a-f]{64}")?\}' % {b"number": _NUMBER, b"text": _TEXT}
)


class Seen(NamedTuple):
    """An observation with its place in the stream and its cell."""

    seq: int
    cell: str
    observation: Observation


@dataclass
class ObservationReader:
    """Reads lines, and keeps a single copy of equal cell names and metrics."""

    _cells: dict[bytes, str] = field(default_factory=dict)
    _metrics: dict[bytes, tuple[str, Metric]] = field(default_factory=dict)

    def read(self, line: bytes) -> Seen | None:
        """Return the observation in ``line``; None if the model of all events has to read it."""
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        seq, cell_text, metric_text, number = match.groups()
        value = float(number)
        if not math.isfinite(value):
            return None
        try:
            cell = self._cells.get(cell_text) or self._cell(cell_text)
            metric = self._metrics.get(metric_text) or self._metric(metric_text)
        except ValueError:
            return None
        return Seen(int(seq), cell, Observation(*metric, value))

    def _cell(self, text: bytes) -> str:
        _require_plain(text)
        return self._cells.setdefault(text, text[1:-1].decode())

    def _metric(self, text: bytes) -> tuple[str, Metric]:
        _require_plain(text)
        event = Observed.model_validate_json(f'{{"cell":"","value":0,{text.decode()}}}')
        return self._metrics.setdefault(text, (event.role, event.described))


def steers(line: bytes) -> bool:
    """Return whether a line of JSON may contain text that is unsafe to print unchanged."""
    # Nearly every line is ASCII without a backslash; this test is faster than an expression.
    if line.isascii() and b"\\" not in line and b"\x7f" not in line:
        return False
    return _UNSAFE.search(line) is not None


def _require_plain(text: bytes) -> None:
    if steers(text):
        raise ValueError("the model reads it")


def possible(event: CellFinished, observed: Iterable[Observation]) -> tuple[CellStatus, str]:
    """Return a cell's status and reason; withheld if one of its values is impossible."""
    beyond = next((seen for seen in observed if not abs(seen.value) < IMPOSSIBLE), None)
    if beyond is None or event.status != "ok":
        return event.status, event.reason
    return (
        "withheld",
        f"{beyond.metric.name} is {beyond.value:,.15g}, which no machine can have had",
    )
