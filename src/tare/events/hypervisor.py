"""What a hypervisor counted of its machine while a cell was measured, in the form of all of them.

A platform fills it in, and exports and reports show it: neither knows a platform's figures by name.
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
"""What is greater is no figure of a machine, in any unit."""


@dataclass(frozen=True)
class HypervisorFigure:
    """One thing that was counted.

    Args:
        name: What exports call it, such as ``cpu-ready``: lower case, with hyphens.
        words: What it is, for people.
        unit: The SI unit of its values, such as ``s``, ``B/s``, ``s/s``; ``1`` for shares.
        values: As the hypervisor told them: one for each interval, or each vCPU.
        of: What each value is of: when its interval ended (s, Unix time), or the vCPU's number.
        weights: What each counts for in their mean, such as seconds or dispatches; empty: all the
            same.

    Raises:
        ValueError: It is none of that form.
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
            raise ValueError(f"{self.name!r} is no figure's name: write it like cpu-ready")
        if not self.values or len(self.of) != len(self.values):
            raise ValueError(f"{self.name} has {len(self.values)} values of {len(self.of)} things")
        if self.weights and (len(self.weights) != len(self.values) or sum(self.weights) <= 0):
            raise ValueError(f"{self.name} has {len(self.values)} values, and other weights")
        if not all(abs(each) < _MOST for each in numbers) or min(self.weights, default=0) < 0:
            raise ValueError(f"{self.name} holds what is no number, or a negative weight")

    @property
    def mean(self) -> float:
        """The mean of its values, by their weights: no greatest one, and nothing in between."""
        weights = self.weights or (1.0,) * len(self.values)
        both = zip(self.values, weights, strict=True)
        return math.fsum(value * weight for value, weight in both) / math.fsum(weights)


@dataclass(frozen=True)
class HypervisorFigures:
    """All that a hypervisor counted of a machine in one while.

    Args:
        source: Whose account it is, for people: the product, and what the product calls it.
        resolution_s: Seconds that each value is a mean over.
        each: What there is a value of each: ``interval`` or ``vCPU``.
        figures: What was counted.
    """

    source: str
    resolution_s: float
    each: str
    figures: tuple[HypervisorFigure, ...]

    def fact(self) -> dict[str, Any]:
        """Return it as events hold it."""
        told = {"source": self.source, "resolution_s": self.resolution_s, "each": self.each}
        return {**told, "figures": [_fact(figure) for figure in self.figures]}


def hypervisor_figures(facts: Mapping[str, Any]) -> HypervisorFigures | None:
    """Return what a cell's facts hold of its hypervisor's figures.

    None where they hold none; so it is with runs of before 2026-11-24 too, of which each platform
    had a form of its own.

    Args:
        facts: Of ``CellFinished.facts``.
    """
    told = facts.get(FACT)
    if not isinstance(told, Mapping) or not isinstance(told.get("figures"), Sequence):
        return None
    try:
        figures = tuple(_figure(each) for each in told["figures"])
        found = HypervisorFigures(
            str(told["source"]), float(told["resolution_s"]), str(told["each"]), figures
        )
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    return found if figures and math.isfinite(found.resolution_s) else None


def _fact(figure: HypervisorFigure) -> dict[str, Any]:
    told: dict[str, Any] = {"name": figure.name, "words": figure.words, "unit": figure.unit}
    told |= {"values": list(figure.values), "of": list(figure.of)}
    return {**told, "weights": list(figure.weights)} if figure.weights else told


def _figure(told: Mapping[str, Any]) -> HypervisorFigure:
    return HypervisorFigure(
        str(told["name"]),
        str(told["words"]),
        str(told["unit"]),
        tuple(map(float, told["values"])),
        tuple(map(float, told["of"])),
        tuple(map(float, told.get("weights", ()))),
    )
