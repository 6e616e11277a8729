"""Read numbers and texts from an agent's result; errors name the missing or wrong one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_SHOWN = 80


def number(result: Mapping[str, Any], path: str | Sequence[str]) -> float:
    """Return the finite number at a path such as ``duration.p99_s``.

    Args:
        result: The answer of the agent, or of a program that it ran.
        path: Keys joined by dots; or a sequence of keys, if a key itself contains a dot.

    Raises:
        KeyError: There is no such key; the error names the whole path.
        ValueError: The value is not a finite number.
    """
    keys = path.split(".") if isinstance(path, str) else path
    whole = ".".join(keys)
    value: Any = result
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            raise KeyError(whole)
        value = value[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{whole} is {shortened(value)}, not a finite number")
    return finite(value, whole)


def finite(value: float | str, name: str) -> float:
    """Return a finite number, from a number or from a text.

    Args:
        value: A number, or its decimal notation.
        name: The name of the value, for the message.

    Raises:
        ValueError: The value is not a finite number.
    """
    try:
        found = float(value)
    except (OverflowError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{name} is {shortened(value)}, not a finite number")
    return found


def words(result: Mapping[str, Any], key: str) -> str:
    """Return the text under ``key``: a program's output.

    Raises:
        KeyError: The key is missing.
        ValueError: The value is not a text.
    """
    value = result[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {shortened(value)}, not a text")
    return value


def mapping(result: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under ``key``.

    Raises:
        KeyError: The key is missing.
        ValueError: The value is not a mapping.
    """
    value = result[key]
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} is {shortened(value)}, not keys with values")
    return value


def listed(result: Mapping[str, Any], key: str) -> Sequence[Any]:
    """Return the list under ``key``.

    Raises:
        KeyError: The key is missing.
        ValueError: The value is not a list.
    """
    value = result[key]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{key} is {shortened(value)}, not a list")
    return value


def per_second(amount: float, result: Mapping[str, Any], path: str) -> float:
    """Return an amount of work per second.

    Args:
        amount: The amount of work, in any unit.
        result: The agent's answer.
        path: The path of the seconds in it.

    Raises:
        KeyError: There is no such key.
        ValueError: The seconds are not a finite number above 0, or too few for a finite rate.
    """
    seconds = number(result, path)
    if seconds <= 0:
        raise ValueError(f"{path} is {seconds}, not above 0")
    return finite(amount / seconds, f"{amount} / {path}")


def at_least_one(result: Mapping[str, Any], path: str) -> float:
    """Return a slowdown: a duration divided by the undisturbed duration.

    Raises:
        KeyError: There is no such key.
        ValueError: The value is not a finite number, or is below 1, which is impossible.
    """
    found = number(result, path)
    if found < 1:
        raise ValueError(f"{path} is {found}, and nothing is faster than undisturbed")
    return found


def shortened(value: object) -> str:
    """Return a value for a message, in at most 80 characters."""
    try:
        shown = repr(value)
    except ValueError:
        # Python does not convert whole numbers of more than a few thousand digits to text.
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= MOST_SHOWN else f"{shown[: MOST_SHOWN - 3]}..."


def numbers(result: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, float]:
    """Return the number at each path, by metric name.

    Args:
        result: The agent's result.
        paths: Maps each metric's name to the dotted path of its number.

    Raises:
        KeyError: A path is missing.
        ValueError: A value is not a finite number.
    """
    return {metric: number(result, path) for metric, path in paths.items()}
