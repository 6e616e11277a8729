"""Find figures in what a program printed: by a regular expression, or by a field of its JSON.

A program may print anything. So a regular expression is Rust's (through polars), which takes time
in proportion to the text whatever is in it, and matches line by line; and no more than
`MOST_CHARACTERS` are looked at, the last ones.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tare.workloads.values import finite, shortened

MOST_CHARACTERS = 1 << 20
LINES_TOLD = 5
_STEP = re.compile(r"([^.\[\]]+)|\[([0-9]{1,9})\]")
_FIELD = re.compile(r"(?:[^.\[\]]+|\[[0-9]{1,9}\])(?:\.[^.\[\]]+|\[[0-9]{1,9}\])*")


def require_pattern(pattern: str, *, groups: int | None = None) -> None:
    """See that a regular expression can be used.

    Args:
        pattern: In Rust's syntax: https://docs.rs/regex/latest/regex/#syntax
        groups: How many pairs of parentheses it must have that keep what they match; None: any.

    Raises:
        ValueError: It cannot, and why.
    """
    import polars
    from polars.exceptions import PolarsError

    try:
        found = len(polars.Series([""]).str.extract_groups(pattern).struct.fields)
    except PolarsError as error:
        why = str(error).strip().splitlines()[-1].removeprefix("error: ")
        raise ValueError(f"this is no regular expression: {why}") from None
    if groups is not None and found != groups:
        raise ValueError(
            f"there are {found} pairs of parentheses instead of {groups}: put one around the "
            "number, and write `(?:…)` for others"
        )


def number_by_pattern(text: str, pattern: str) -> float:
    """Return the number in the parentheses of ``pattern``, from the last line that matches.

    Raises:
        KeyError: No line matches.
        ValueError: What stands there is no finite number.
    """
    import polars

    found = polars.Series(_lines(text), dtype=polars.String).str.extract(pattern, 1).drop_nulls()
    if found.is_empty():
        raise KeyError(pattern)
    return finite(found[-1], f"what `{pattern}` finds")


def matches(text: str, pattern: str) -> bool:
    """Return whether any line of ``text`` matches ``pattern``."""
    import polars

    return bool(polars.Series(_lines(text), dtype=polars.String).str.contains(pattern).any())


def require_field(path: str) -> None:
    """See that a field's path can be used: keys with dots between, indices in brackets.

    Raises:
        ValueError: It cannot.
    """
    if not _FIELD.fullmatch(path):
        raise ValueError(
            f"{shortened(path)} is no path of a field: write keys with dots between and indices "
            "in brackets, like `runs[0].latency.p99`"
        )


def number_by_field(document: Any, path: str) -> float:
    """Return the number at ``path`` in a JSON document.

    Args:
        document: What `json_of` returned.
        path: Keys with dots between, from 0 counted indices in brackets: ``runs[0].latency.p99``.
            A key that itself holds a dot or a bracket cannot be named.

    Raises:
        KeyError: There is no such field.
        ValueError: It is no finite number.
    """
    value = document
    for step in _STEP.finditer(path):
        key, index = step[1], step[2]
        if index is not None and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif key is not None and isinstance(value, dict) and key in value:
            value = value[key]
        else:
            raise KeyError(path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{path} is {shortened(value)}, not a finite number")
    return finite(value, path)


def json_of(text: str) -> Any:
    """Return the JSON document that a program printed: all of its output, or else the last line.

    Raises:
        ValueError: Neither is JSON.
    """
    lines = [line for line in _lines(text) if line.strip()]
    for candidate in (text, lines[-1] if lines else ""):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    raise ValueError("neither its whole output nor the last line is JSON")


def last_lines(text: str) -> str:
    """Return the last lines a program printed, in one line, to go behind a sentence."""
    lines = [line.strip() for line in _lines(text[-4096:]) if line.strip()]
    return f"; it printed last: {' / '.join(lines[-LINES_TOLD:])}" if lines else ""


def _lines(text: str) -> list[str]:
    # JSON can bring halves of characters, which are none.
    whole = text[-MOST_CHARACTERS:].encode("utf-8", "replace").decode()
    return whole.splitlines()
