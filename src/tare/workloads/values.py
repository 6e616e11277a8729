"""Take numbers out of an agent's result, or say which is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from tare.workloads.base import Parameters

P = TypeVar("P", bound=Parameters)


def own(model: type[P], parameters: Parameters) -> P:
    """Return ``parameters`` as the workload's own model.

    Raises:
        TypeError: They are another workload's.
    """
    if not isinstance(parameters, model):
        raise TypeError(f"{type(parameters).__name__} given where {model.__name__} belongs")
    return parameters


def number(result: Mapping[str, Any], path: str) -> float:
    """Return the finite number at a dotted ``path`` such as ``duration.p99_s``.

    Raises:
        KeyError: There is no such key; it names the whole path.
        ValueError: What is there is no finite number.
    """
    value: Any = result
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise KeyError(path)
        value = value[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{path} is {value!r}, not a finite number")
    return float(value)


def numbers(result: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, float]:
    """Return the number at each path, by metric name.

    Args:
        result: The agent's result.
        paths: Metric name to dotted path.

    Raises:
        KeyError: A path is missing.
        ValueError: A value is no finite number.
    """
    return {metric: number(result, path) for metric, path in paths.items()}
