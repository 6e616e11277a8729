"""What an agent may say: every frame goes through here before anything is made of it.

A machine is hostile until shown otherwise. So what it says is bounded in depth, length and count,
its numbers are finite and small enough to reckon with, its text is Unicode, and each field is of
the kind that ``docs/protocol.md`` names. Whatever is not costs the machine, and with it a cell.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from tare.plaintext import plain_line

MOST_DEPTH = 24
"""Of objects and lists within each other; an environment proof has four."""
MOST_VALUES = 50_000
"""In one message: a result of fio has some hundred, and the proof of 1024 CPUs some thousand."""
LONGEST_KEY = 256
LONGEST_WORD = 256
GREATEST_WHOLE = 1 << 64
"""The agent counts in 64 bits."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,127}")
"""Of workloads and series: they become names of files."""
_HALF = re.compile("[\ud800-\udfff]")
_LONGEST_SHOWN = 60


class Nonsense(ValueError):
    """What an agent said is not what an agent says; the message says in what."""


def read_json(data: bytes, most_values: int = MOST_VALUES) -> Any:
    """Return the value that JSON in UTF-8 stands for.

    Args:
        data: The JSON.
        most_values: More values, within each other or side by side, are refused.

    Raises:
        Nonsense: It is no JSON, or beyond the bounds of this module.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
    except Nonsense:
        raise
    except UnicodeDecodeError:
        raise Nonsense("a message that is not UTF-8") from None
    except RecursionError:
        raise Nonsense(f"a message more than {MOST_DEPTH} levels deep") from None
    except ValueError:
        # Of JSON's syntax, and of numbers with more digits than Python reads.
        raise Nonsense("a message that is no JSON") from None
    _require_bounded(value, most_values)
    return value


def read_message(payload: bytes) -> dict[str, Any] | None:
    """Return the message that a frame holds; None for what is none, such as a terminal's echo.

    Raises:
        Nonsense: It is beyond the bounds of this module, or a field is of another kind.
    """
    message = read_json(payload)
    if not isinstance(message, dict):
        raise Nonsense(f"a message that is {_shown(message)}, no object")
    if "type" not in message:
        return None
    kind = message["type"]
    if not isinstance(kind, str):
        raise Nonsense(f"a message of the type {_shown(kind)}")
    if message.get("id") is not None:
        whole(message["id"], "id")
    for name, check in _FIELDS.get(kind, {}).items():
        if message.get(name) is not None:
            check(message[name], f"{kind}: {name}")
    return message


def whole(value: Any, what: str) -> int:
    """Return a whole number from 0 to 2^64 - 1.

    Raises:
        Nonsense: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < GREATEST_WHOLE:
        raise Nonsense(f"{what} is {_shown(value)}, no whole number of 64 bits")
    return value


def number(value: Any, what: str) -> float:
    """Return a number.

    Raises:
        Nonsense: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Nonsense(f"{what} is {_shown(value)}, no number")
    return float(value)


def name(value: Any, what: str) -> str:
    """Return a name of letters, digits and ``_.:+-``, at most 128 of them.

    Raises:
        Nonsense: It is none.
    """
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise Nonsense(f"{what} is {_shown(value)}, no name")
    return value


def column(value: Any, what: str) -> str:
    """Return the name of a column: up to 128 visible characters; a counter has that of a device.

    Raises:
        Nonsense: It is none.
    """
    if not isinstance(value, str) or not 0 < len(value) <= 128 or not value.isprintable():
        raise Nonsense(f"{what} is {_shown(value)}, no name of a column")
    return value


def _refuse_constant(word: str) -> float:
    raise Nonsense(f"a message with the number {word}")


def _require_bounded(value: Any, most: int) -> None:
    """Look at every value once, without recursion."""
    level, depth, seen = [value], 0, 0
    while level:
        depth, seen = depth + 1, seen + len(level)
        if seen > most:
            raise Nonsense(f"a message of more than {most} values")
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
            raise Nonsense(f"a message more than {MOST_DEPTH} levels deep")
        level = inner


def _require_key(key: str) -> None:
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise Nonsense(f"a message with the key {_shown(key)}")


def _require_single(value: Any) -> None:
    if isinstance(value, str):
        # Only an escape such as \ud800 can have made one that is not Unicode.
        if _HALF.search(value) is not None:
            raise Nonsense("a message with half a character")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Nonsense("a message with a number beyond all bounds")
    elif isinstance(value, int) and abs(value) >= GREATEST_WHOLE:
        raise Nonsense("a message with a whole number of more than 64 bits")


def _word(value: Any, what: str) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_WORD or not value.isprintable():
        raise Nonsense(f"{what} is {_shown(value)}, no word")


def _text(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise Nonsense(f"{what} is {_shown(value)}, no text")


def _object(value: Any, what: str) -> None:
    if not isinstance(value, dict):
        raise Nonsense(f"{what} is {_shown(value)}, no object")


def _names(value: Any, what: str) -> None:
    for each in _listed(value, what):
        name(each, what)


def _wholes(value: Any, what: str) -> None:
    for each in _listed(value, what):
        whole(each, what)


def _times(value: Any, what: str) -> None:
    _object(value, what)
    for key, each in value.items():
        whole(each, f"{what}: {key}")


def _listed(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise Nonsense(f"{what} is {_shown(value)}, no list")
    return value


def _result(value: Any, what: str) -> None:
    """A result's own keys are its workload's; what every cell asks of any of them is checked."""
    _object(value, what)
    for each in _listed(value.get("warnings") or [], f"{what}: warnings"):
        _text(each, f"{what}: warnings")
    for each in _listed(value.get("phases") or [], f"{what}: phases"):
        _object(each, f"{what}: phases")
        _word(each.get("name"), f"{what}: phases: name")
        for moment in ("begin_s", "end_s"):
            number(each.get(moment), f"{what}: phases: {moment}")


def _shown(value: Any) -> str:
    # The beginning is enough, and the whole may be long.
    if isinstance(value, str):
        return repr(plain_line(value, _LONGEST_SHOWN))
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return plain_line(str(value), _LONGEST_SHOWN)


_FIELDS: Mapping[str, Mapping[str, Callable[[Any, str], Any]]] = {
    "hello": {
        "protocol": whole,
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
