"""What one host of a run does at this moment, for those who watch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Doing:
    """What one host does at this moment.

    Args:
        now: In words.
        fraction: The share of the cell that is done, from 0 to 1.
        extra: How fast, and how long it takes yet, in words.
        cell_left_s: Seconds that the cell takes yet.
    """

    now: str = "getting ready"
    fraction: float = 0.0
    extra: str = ""
    cell_left_s: float = 0.0

    @property
    def words(self) -> str:
        """What is being done, how far it is, how fast, and how long it takes."""
        share = f" {self.fraction:.0%}" if self.fraction else ""
        return f"{self.now}{share}" + (f", {self.extra}" if self.extra else "")
