"""The targets of links from marks in figures: an effect, or one block of it and its cells."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.model import ArmSummary, Comparison, Effect, Key
from tare.report.page.words import Part

AT = "@"
"""Separates an effect's name from a block in the target of a link."""


def links_of(effects: Sequence[Effect], summaries: Sequence[ArmSummary]) -> dict[str, str]:
    """Return by arm the name of an effect that lists the arm's blocks, cells and logs.

    Every effect lists the baseline's too, so the baseline gets the first one.
    """
    found = {effect.arm: anchor_of(effect.key, effect.arm) for effect in reversed(effects)}
    first = next(iter(reversed(found.values())), "")
    return {summary.arm: found.get(summary.arm, first) for summary in summaries}


def block_target(effect: str, run: int, block: int) -> str:
    """Return the target of a link to one block of an effect; empty if ``effect`` is empty.

    Args:
        effect: The effect's name in links.
        run: The index of the run among those of the page.
        block: The block's number in the run.
    """
    return f"{effect}{AT}{run}.{block}" if effect else ""


class OfCell(Protocol):
    """The attributes of a cell that identify its part."""

    @property
    def scenario(self) -> str:
        """The cell's scenario."""

    @property
    def workload(self) -> str:
        """The cell's workload."""

    @property
    def parameters(self) -> str:
        """The cell's parameters as canonical JSON."""


def part_of(cell: OfCell) -> Part:
    """Return the part that a cell of the subject (the measured machine) belongs to."""
    return Part(cell.scenario, cell.workload, cell.parameters, SUBJECT)


class Links:
    """Find the link target for any cell of a comparison.

    Args:
        comparison: The comparison, whose effects are on the page.
    """

    def __init__(self, comparison: Comparison) -> None:
        self._runs: Mapping[str, int] = {run.run: n for n, run in enumerate(comparison.runs)}
        self._arms: dict[tuple[Part, str], str] = {}
        self._first: dict[Part, str] = {}
        self._own: dict[tuple[Key, str], str] = {}
        self._any: dict[Key, str] = {}
        # Headline effects come first: the page always lists their blocks.
        for effect in sorted(comparison.effects, key=lambda effect: not effect.headline):
            part, name = Part.of(effect.key), anchor_of(effect.key, effect.arm)
            self._arms.setdefault((part, effect.arm), name)
            self._first.setdefault(part, name)
            self._own[effect.key, effect.arm] = name
            self._any.setdefault(effect.key, name)

    def effect(self, key: Key, arm: str) -> str:
        """Return the link name of an arm's effect on a metric; without one, the result of `part`.

        The baseline's values are listed with the effects of every arm.
        """
        own = self._own.get((key, arm)) or self._any.get(key)
        return own or self.part(Part.of(key), arm)

    def part(self, part: Part, arm: str) -> str:
        """Return the name of the first effect that lists an arm's blocks; empty without one."""
        return self._arms.get((part, arm), self._first.get(part, ""))

    def cell(self, part: Part, arm: str, run: str, block: int) -> str:
        """Return the link target of one cell of an arm; empty if no effect lists it."""
        return block_target(self.part(part, arm), self._runs.get(run, 0), block)


def anchor_of(key: Key, arm: str, baseline: str = "") -> str:
    """Return an effect's name in links, which contains only letters and digits.

    Args:
        key: The metric, its workload, parameters and scenario.
        arm: The arm.
        baseline: The arm to compare with; empty for the comparison's baseline.
    """
    text = "\0".join((*key, arm, baseline))
    return f"e{hashlib.blake2b(text.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
