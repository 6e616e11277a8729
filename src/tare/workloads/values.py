"""Take numbers and texts out of an agent's result, or say which is missing or wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_SHOWN = 80


def number(result: Mapping[str, Any], path: str | Sequence[str]) -> float:
    """Return the finite number at a path such as ``duration.p99_s``.

    Args:
        result: The answer of the agent, or of a program that it ran.
        path: Keys with dots between them; or one by one, where a key holds a dot itself.

    Raises:
        KeyError: There is no such key; it names the whole path.
        ValueError: What is there is not a finite number.
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
    """Return a number, or a text that was found to be one, unless it is beyond all bounds.

    Args:
        value: A number, or its decimal notation.
        name: What it is, for the message.

    Raises:
        ValueError: It is not a finite number.
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
        KeyError: There is none.
        ValueError: What is there is no text.
    """
    value = result[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {shortened(value)}, not a text")
    return value


def mapping(result: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the keys with values under ``key``.

    Raises:
        KeyError: There are none.
        ValueError: What is there is something else.
    """
    value = result[key]
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} is {shortened(value)}, not keys with values")
    return value


def listed(result: Mapping[str, Any], key: str) -> Sequence[Any]:
    """Return the list under ``key``.

    Raises:
        KeyError: There is none.
        ValueError: What is there is something else.
    """
    value = result[key]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{key} is {shortened(value)}, not a list")
    return value


def per_second(amount: float, result: Mapping[str, Any], path: str) -> float:
    """Return how much was done in each second.

    Args:
        amount: How much was done, in any unit.
        result: The agent's answer.
        path: The path of the seconds in it.

    Raises:
        KeyError: There are none.
        ValueError: They are not a finite number above 0, or too few for a finite rate.
    """
    seconds = number(result, path)
    if seconds <= 0:
        raise ValueError(f"{path} is {seconds}, not above 0")
    return finite(amount / seconds, f"{amount} / {path}")


def at_least_one(result: Mapping[str, Any], path: str) -> float:
    """Return how many times longer something took than undisturbed.

    Raises:
        KeyError: There is no such key.
        ValueError: What is there is not a finite number, or one below 1, which cannot be.
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
        # Python does not print whole numbers of more than some thousand digits.
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= MOST_SHOWN else f"{shown[: MOST_SHOWN - 3]}..."


def numbers(result: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, float]:
    """Return the number at each path, by metric name.

    Args:
        result: The agent's result.
        paths: Metric name to dotted path.

    Raises:
        KeyError: A path is missing.
        ValueError: A value is not a finite number.
    """
    return {metric: number(result, path) for metric, path in paths.items()}
