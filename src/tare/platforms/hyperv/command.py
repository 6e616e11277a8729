"""Cmdlets with parameters, and the objects that they return; values are never put into text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

_DURATION = re.compile(r"^(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$")


@dataclass(frozen=True)
class Cmdlet:
    """One command of a pipeline.

    Args:
        name: The cmdlet's name. For a script, its text, which is the same each time.
        parameters: The parameters' values by name; True sets a switch.
        is_script: Whether it is a script block instead of a cmdlet.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    is_script: bool = False


@dataclass(frozen=True)
class Long:
    """A number that may not fit into 32 bits, such as a size in bytes."""

    value: int


def cmdlet(name: str, **parameters: Any) -> Cmdlet:
    """Return a cmdlet with its parameters by name."""
    return Cmdlet(name, parameters)


def script(text: str, **parameters: Any) -> Cmdlet:
    """Return a script block that receives its values as parameters (``param(…)``)."""
    return Cmdlet(text, parameters, is_script=True)


def chosen(*names: str) -> Cmdlet:
    """Return a cmdlet that keeps only these properties of objects."""
    return cmdlet("Select-Object", Property=list(names))


def named(value: str, by: str = "Name") -> Cmdlet:
    """Return a cmdlet that keeps the objects with exactly this value of a property."""
    return cmdlet("Where-Object", Property=by, EQ=True, Value=value)


class PsObject:
    """An object that PowerShell returned, with its properties by name.

    Args:
        properties: The values of the properties by name; an enumeration's value prints as its name.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties

    def text(self, name: str) -> str:
        """Return a property as text; empty if the object lacks it."""
        value = self._properties.get(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> int | None:
        """Return a property as a whole number; None if it is missing or not a number."""
        try:
            return int(str(self._properties.get(name)))
        except ValueError:
            return None

    def count(self, name: str) -> int:
        """Return the number of items of a list property; 0 if it is missing or not a list."""
        value = self._properties.get(name)
        return len(value) if isinstance(value, list | tuple) else 0

    def truth(self, name: str) -> bool | None:
        """Return a property that is true or false; None if it is missing or has another type."""
        value = self._properties.get(name)
        return value if isinstance(value, bool) else None

    def seconds(self, name: str) -> float | None:
        """Return a time span in seconds; None if it is missing or not a time span."""
        return seconds_of(self.text(name))

    def moment(self, name: str) -> float | None:
        """Return a point in time in seconds since 1970; None if it is missing or has no zone."""
        try:
            time = datetime.fromisoformat(self.text(name))
        except ValueError:
            return None
        return None if time.tzinfo is None else time.timestamp()


def seconds_of(span: str) -> float | None:
    """Convert a serialised TimeSpan (``P1DT2H3M4.5S``, XML Schema) to seconds; None: invalid.

    Args:
        span: The serialised text.
    """
    found = _DURATION.match(span)
    if found is None or span in ("P", "-P", "PT"):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups()[1:])
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return -total if found[1] else total
