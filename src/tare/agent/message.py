"""Validate an agent's messages: each one is checked here before it is used.

A machine is hostile until shown otherwise. Its messages are therefore limited in rate, depth,
length and count; their numbers are finite and small enough to calculate with, their text is
Unicode, and each field has the type that ``tare help protocol`` states. After a violation Tare
gives up the machine, and its cell is lost.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from tare.plaintext import plain_line

MOST_DEPTH = 24
"""The limit of nested objects and lists; an environment proof has four levels."""
MOST_VALUES = 50_000
"""The limit of values in one message: a result of fio has some hundreds, and the environment proof
of a machine with 1024 CPUs some thousands."""
LONGEST_KEY = 256
LONGEST_WORD = 256
GREATEST_WHOLE = 1 << 64
"""The agent counts in 64 bits."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,127}")
"""The names of workloads and series, which become file names."""
BURST_BYTES = 32 << 20
BYTES_PER_S = 1 << 20
BURST_MESSAGES = 20_000
MESSAGES_PER_S = 200
"""An agent reports progress about once a second, and answers requests."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST_SHOWN = 60


class InvalidMessage(ValueError):
    """A message that no correct agent sends; the text states what is wrong."""


class RateLimiter:
    """Limits the rate of an agent's messages: parsing them costs the host time.

    A token bucket for bytes and one for messages, each with its own burst size.

    Args:
        clock: Returns a monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bytes, self._messages = float(BURST_BYTES), float(BURST_MESSAGES)
        self._then = clock()

    def account(self, size: int) -> None:
        """Account for a message of ``size`` bytes.

        Raises:
            InvalidMessage: The rate is too high.
        """
        now = self._clock()
        passed_s, self._then = now - self._then, now
        self._bytes = min(self._bytes + passed_s * BYTES_PER_S, BURST_BYTES) - size
        self._messages = min(self._messages + passed_s * MESSAGES_PER_S, BURST_MESSAGES) - 1
        if self._bytes < 0 or self._messages < 0:
            raise InvalidMessage("so many messages that they are none")


def read_json(data: bytes, most_values: int = MOST_VALUES) -> Any:
    """Parse JSON in UTF-8.

    Args:
        data: The JSON.
        most_values: The maximum number of values, nested ones included.

    Raises:
        InvalidMessage: It is not JSON, or exceeds the limits of this module.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
    except InvalidMessage:
        raise
    except UnicodeDecodeError:
        raise InvalidMessage("a message that is not UTF-8") from None
    except RecursionError:
        raise InvalidMessage(f"a message more than {MOST_DEPTH} levels deep") from None
    except ValueError:
        # Raised for syntax errors, and for numbers with more digits than Python reads.
        raise InvalidMessage("a message that is not JSON") from None
    _require_bounded(value, most_values)
    return value


def read_message(payload: bytes) -> dict[str, Any] | None:
    """Return the message in a frame; None for other JSON objects, such as a terminal's echo.

    Raises:
        InvalidMessage: It exceeds the limits of this module, or a field has another type.
    """
    message = read_json(payload)
    if not isinstance(message, dict):
        raise InvalidMessage(f"a message that is {_describe(message)}, no object")
    if "type" not in message:
        return None
    kind = message["type"]
    if not isinstance(kind, str):
        raise InvalidMessage(f"a message of the type {_describe(kind)}")
    if message.get("id") is not None:
        check_whole_number(message["id"], "id")
    for name, check in _FIELDS.get(kind, {}).items():
        if message.get(name) is not None:
            check(message[name], f"{kind}: {name}")
    return message


def check_whole_number(value: Any, what: str) -> int:
    """Return a whole number from 0 to 2^64 - 1.

    Raises:
        InvalidMessage: It is not one.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < GREATEST_WHOLE:
        raise InvalidMessage(f"{what} is {_describe(value)}, no whole number of 64 bits")
    return value


def number(value: Any, what: str) -> float:
    """Return a number.

    Raises:
        InvalidMessage: It is not one.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidMessage(f"{what} is {_describe(value)}, no number")
    return float(value)


def name(value: Any, what: str) -> str:
    """Return a name of letters, digits and ``_.:+-``, at most 128 of them.

    Raises:
        InvalidMessage: It is not one.
    """
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidMessage(f"{what} is {_describe(value)}, no name")
    return value


def column(value: Any, what: str) -> str:
    """Return a column's name: up to 128 printable characters, as counters are named after devices.

    Raises:
        InvalidMessage: It is not one.
    """
    if not isinstance(value, str) or not 0 < len(value) <= 128 or not value.isprintable():
        raise InvalidMessage(f"{what} is {_describe(value)}, no name of a column")
    return value


def _refuse_constant(word: str) -> float:
    raise InvalidMessage(f"a message with the number {word}")


def _require_bounded(value: Any, most: int) -> None:
    """Check every value once, without recursion."""
    level, depth, seen = [value], 0, 0
    while level:
        depth, seen = depth + 1, seen + len(level)
        if seen > most:
            raise InvalidMessage(f"a message of more than {most} values")
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                for key in each:
                    _require_key(key)
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            else:
                _require_single(each)
        if inner and depth >= MOST_DEPTH:
            raise InvalidMessage(f"a message more than {MOST_DEPTH} levels deep")
        level = inner


def _require_key(key: str) -> None:
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise InvalidMessage(f"a message with the key {_describe(key)}")


def _require_single(value: Any) -> None:
    if isinstance(value, str):
        # Only an escape such as \ud800 produces text that is not Unicode.
        if _SURROGATE.search(value) is not None:
            raise InvalidMessage("a message with half a character")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidMessage("a message with a number beyond all bounds")
    elif isinstance(value, int) and abs(value) >= GREATEST_WHOLE:
        raise InvalidMessage("a message with a whole number of more than 64 bits")


def _word(value: Any, what: str) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_WORD or not value.isprintable():
        raise InvalidMessage(f"{what} is {_describe(value)}, no word")


def _text(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise InvalidMessage(f"{what} is {_describe(value)}, no text")


def _object(value: Any, what: str) -> None:
    if not isinstance(value, dict):
        raise InvalidMessage(f"{what} is {_describe(value)}, no object")


def _names(value: Any, what: str) -> None:
    for each in _listed(value, what):
        name(each, what)


def _wholes(value: Any, what: str) -> None:
    for each in _listed(value, what):
        check_whole_number(each, what)


def _times(value: Any, what: str) -> None:
    _object(value, what)
    for key, each in value.items():
        check_whole_number(each, f"{what}: {key}")


def _listed(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidMessage(f"{what} is {_describe(value)}, no list")
    return value


def _result(value: Any, what: str) -> None:
    """Check the keys that every cell uses; the others belong to the workload."""
    _object(value, what)
    for each in _listed(value.get("warnings") or [], f"{what}: warnings"):
        _text(each, f"{what}: warnings")
    for each in _listed(value.get("phases") or [], f"{what}: phases"):
        _object(each, f"{what}: phases")
        _word(each.get("name"), f"{what}: phases: name")
        for moment in ("begin_s", "end_s"):
            number(each.get(moment), f"{what}: phases: {moment}")


def _describe(value: Any) -> str:
    # The whole value may be long.
    if isinstance(value, str):
        return repr(plain_line(value, _LONGEST_SHOWN))
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return plain_line(str(value), _LONGEST_SHOWN)


_FIELDS: Mapping[str, Mapping[str, Callable[[Any, str], Any]]] = {
    "hello": {
        "protocol": check_whole_number,
        "agent": _word,
        "role": _word,
        "workloads": _names,
        "proof": _object,
        "boot": _times,
    },
    "progress": {"done": number},
    "result": {"value": _result, "timing": _times},
    "error": {"reason": _text},
    "fatal": {"reason": _text},
    "gone": {"seqs": _wholes},
}
