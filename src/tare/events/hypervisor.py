"""A hypervisor's own figures of a machine during a cell, in one form for all platforms.

A platform fills it in; exports and reports show it without knowing the figures by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FACT: Final = "hypervisor"
"""The key of these figures in ``CellFinished.facts``."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MOST = 1e18
"""A greater number is not a valid figure of a machine, in any unit."""


@dataclass(frozen=True)
class HypervisorFigure:
    """One counted quantity.

    Args:
        name: Its name in exports, such as ``cpu-ready``: lower case, with hyphens.
        words: Its description for users.
        unit: The SI unit of its values, such as ``s``, ``B/s``, ``s/s``; ``1`` for shares.
        values: The hypervisor's values: one for each interval, or each vCPU.
        of: For each value the end of its interval (s, Unix time), or the vCPU's number.
        weights: The weight of each value in the mean, such as seconds or dispatches; empty: all
            are equal.

    Raises:
        ValueError: It does not have this form.
    """

    name: str
    words: str
    unit: str
    values: tuple[float, ...]
    of: tuple[float, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        numbers = (*self.values, *self.of, *self.weights)
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a figure's name: write it like cpu-ready")
        if not self.values or len(self.of) != len(self.values):
            raise ValueError(f"{self.name} has {len(self.values)} values of {len(self.of)} things")
        if self.weights and (len(self.weights) != len(self.values) or sum(self.weights) <= 0):
            raise ValueError(f"{self.name} has {len(self.values)} values, and other weights")
        if not all(abs(each) < _MOST for each in numbers) or min(self.weights, default=0) < 0:
            raise ValueError(f"{self.name} has a value that is not a number, or a negative weight")

    @property
    def mean(self) -> float:
        """The weighted mean of its values."""
        weights = self.weights or (1.0,) * len(self.values)
        both = zip(self.values, weights, strict=True)
        return math.fsum(value * weight for value, weight in both) / math.fsum(weights)


@dataclass(frozen=True)
class HypervisorFigures:
    """All figures of a machine that its hypervisor counted over a period.

    Args:
        source: The product and its name for the figures, for users.
        resolution_s: The seconds over which each value is a mean.
        each: Whether there is a value for each ``interval`` or each ``vCPU``.
        figures: The figures.
    """

    source: str
    resolution_s: float
    each: str
    figures: tuple[HypervisorFigure, ...]

    def fact(self) -> dict[str, Any]:
        """Return the figures as a fact that an event can hold."""
        about = {"source": self.source, "resolution_s": self.resolution_s, "each": self.each}
        return {**about, "figures": [_fact(figure) for figure in self.figures]}


def hypervisor_figures(facts: Mapping[str, Any]) -> HypervisorFigures | None:
    """Return the hypervisor's figures from a cell's facts; None if there are none.

    Runs from before 2026-11-24 have other forms, one for each platform, and return None as well.

    Args:
        facts: The facts from ``CellFinished.facts``.
    """
    fact = facts.get(FACT)
    if not isinstance(fact, Mapping) or not isinstance(fact.get("figures"), Sequence):
        return None
    try:
        figures = tuple(_figure(each) for each in fact["figures"])
        found = HypervisorFigures(
            str(fact["source"]), float(fact["resolution_s"]), str(fact["each"]), figures
        )
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    return found if figures and math.isfinite(found.resolution_s) else None


def _fact(figure: HypervisorFigure) -> dict[str, Any]:
    fact: dict[str, Any] = {"name": figure.name, "words": figure.words, "unit": figure.unit}
    fact |= {"values": list(figure.values), "of": list(figure.of)}
    return {**fact, "weights": list(figure.weights)} if figure.weights else fact


def _figure(fact: Mapping[str, Any]) -> HypervisorFigure:
    return HypervisorFigure(
        str(fact["name"]),
        str(fact["words"]),
        str(fact["unit"]),
        tuple(map(float, fact["values"])),
        tuple(map(float, fact["of"])),
        tuple(map(float, fact.get("weights", ()))),
    )
