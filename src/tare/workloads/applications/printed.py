"""Find figures in a program's output, by a regular expression or by a field of its JSON.

A program may print anything. Tare therefore uses Rust's regular expressions (through polars), whose
time is proportional to the length of the text, and matches line by line. Only the last
`MOST_CHARACTERS` characters are searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tare.workloads.values import finite, shortened

MOST_CHARACTERS = 1 << 20
LINES_QUOTED = 5
_BARE = re.compile(r"[^.\[\]]+")
_INDEX = re.compile(r"\[([0-9]{1,9})\]")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_HOW = (
    "write keys separated by dots, indices in brackets, and a key that contains dots in quotes, "
    'like `runs[0].latency.p99` or `jobs[0].read.percentile."99.000000"`'
)


@dataclass(frozen=True)
class PathStep:
    """One step of a path into a JSON document.

    Args:
        key: A key of an object; None if the step is an index.
        index: An index of a list, from 0; None if the step is a key.
        quoted: Whether the key is taken literally, including its dots.
    """

    key: str | None = None
    index: int | None = None
    quoted: bool = False


def require_pattern(pattern: str, *, groups: int | None = None) -> None:
    """Check that a regular expression can be used.

    Args:
        pattern: The expression, in Rust's syntax: https://docs.rs/regex/latest/regex/#syntax
        groups: The required number of capturing groups; None for any.

    Raises:
        ValueError: It cannot be used; the message gives the reason.
    """
    import polars
    from polars.exceptions import PolarsError

    try:
        found = len(polars.Series([""]).str.extract_groups(pattern).struct.fields)
    except PolarsError as error:
        why = str(error).strip().splitlines()[-1].removeprefix("error: ")
        raise ValueError(f"not a regular expression: {why}") from None
    if groups is not None and found != groups:
        raise ValueError(
            f"there are {found} pairs of parentheses instead of {groups}: put one around the "
            "number, and write `(?:…)` for others"
        )


def text_by_pattern(text: str, pattern: str) -> str:
    """Return the text that the parentheses of ``pattern`` match in the last matching line.

    Raises:
        KeyError: No line matches.
    """
    import polars

    found = polars.Series(_lines(text), dtype=polars.String).str.extract(pattern, 1).drop_nulls()
    if found.is_empty():
        raise KeyError(pattern)
    return str(found[-1])


def matches(text: str, pattern: str) -> bool:
    """Return whether any line of ``text`` matches ``pattern``."""
    import polars

    return bool(polars.Series(_lines(text), dtype=polars.String).str.contains(pattern).any())


def steps_of(path: str) -> tuple[PathStep, ...]:
    """Return the steps of a field's path.

    Keys are separated by dots, indices are in brackets. A key in quotes, also in brackets, is taken
    literally: ``percentile."99.000000"``, ``percentile["99.000000"]``.

    Raises:
        ValueError: It is not such a path.
    """
    steps: list[PathStep] = []
    at = 0
    while at < len(path):
        begins = at == 0
        if path[at] == "." and not begins:
            at += 1
            step, at = _key(path, at)
        elif path[at] == "[":
            step, at = _bracketed(path, at)
        elif begins:
            step, at = _key(path, at)
        else:
            raise _no_path(path, at)
        steps.append(step)
    if not steps:
        raise _no_path(path, 0)
    return tuple(steps)


def _key(path: str, at: int) -> tuple[PathStep, int]:
    if quoted := _QUOTED.match(path, at):
        end = quoted.end()
        if end == len(path) or path[end] in ".[":
            return PathStep(key=_unquoted(quoted[0], path, at), quoted=True), end
    bare = _BARE.match(path, at)
    if bare is None:
        raise _no_path(path, at)
    return PathStep(key=bare[0]), bare.end()


def _bracketed(path: str, at: int) -> tuple[PathStep, int]:
    if index := _INDEX.match(path, at):
        return PathStep(index=int(index[1])), index.end()
    quoted = _QUOTED.match(path, at + 1)
    if quoted is None or path[quoted.end() : quoted.end() + 1] != "]":
        raise _no_path(path, at)
    return PathStep(key=_unquoted(quoted[0], path, at), quoted=True), quoted.end() + 1


def _unquoted(text: str, path: str, at: int) -> str:
    if text.startswith("'"):
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError:
        raise _no_path(path, at) from None


def _no_path(path: str, at: int) -> ValueError:
    return ValueError(f"{shortened(path)} is not a field's path from character {at + 1} on: {_HOW}")


def require_field(path: str) -> None:
    """Check that a field's path can be used; raise ValueError as :func:`steps_of` does."""
    steps_of(path)


def text_by_field(document: Any, path: str) -> str:
    """Return the number at ``path`` in a JSON document as text, with its unit if it has one.

    Args:
        document: The document that `json_of` returned.
        path: A path as :func:`steps_of` reads it. If the document lacks a key without quotes, the
            key is joined with the next ones by dots: ``percentile.99.000000``.

    Raises:
        KeyError: There is no such field.
        ValueError: The field is neither a number nor a text.
    """
    value, steps = document, list(steps_of(path))
    while steps:
        value, taken = _follow(value, steps, path)
        del steps[:taken]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{path} is {shortened(value)}, not a finite number")
    if isinstance(value, str):
        return value
    finite(value, path)
    return repr(value)


def _follow(value: Any, steps: Sequence[PathStep], path: str) -> tuple[Any, int]:
    """Return the value one step into ``value``, and the number of steps that were used.

    More than one step is used if several keys, joined by dots, are one key of the document.
    """
    first = steps[0]
    if first.index is not None:
        if isinstance(value, list) and first.index < len(value):
            return value[first.index], 1
        raise KeyError(path)
    if isinstance(value, dict):
        name = first.key or ""
        if name in value:
            return value[name], 1
        for count, step in enumerate(() if first.quoted else steps[1:], start=2):
            if step.key is None or step.quoted:
                break
            name = f"{name}.{step.key}"
            if name in value:
                return value[name], count
    raise KeyError(path)


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
    """Return the last lines a program printed, joined in one line, to be appended to a message."""
    lines = [line.strip() for line in _lines(text[-4096:]) if line.strip()]
    return f"; the last lines of the output: {' / '.join(lines[-LINES_QUOTED:])}" if lines else ""


def _lines(text: str) -> list[str]:
    # The agent's JSON may contain single surrogates, which UTF-8 cannot encode.
    whole = text[-MOST_CHARACTERS:].encode("utf-8", "replace").decode()
    return whole.splitlines()
