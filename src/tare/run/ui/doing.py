"""What one host of a run does at this moment, for those who watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Stage = Literal["measuring", "booting", "between two cells", "getting ready"]


@dataclass
class Doing:
    """What one host does at this moment.

    Args:
        now: In words.
        fraction: The share of the cell that is done, from 0 to 1.
        extra: How fast, and how long it takes yet, in words.
        cell_left_s: Seconds that the cell takes yet.
        stage: The same as ``now``, so that hosts can be counted by it.
    """

    now: str = "getting ready"
    fraction: float = 0.0
    extra: str = ""
    cell_left_s: float = 0.0
    stage: Stage = "getting ready"

    @property
    def words(self) -> str:
        """What is being done, how far it is, how fast, and how long it takes."""
        share = f" {self.fraction:.0%}" if self.fraction else ""
        return f"{self.now}{share}" + (f", {self.extra}" if self.extra else "")


def doing_lines(hosts: Mapping[str, Doing], most: int) -> list[str]:
    """Return what is being done, a line each host; what has no line of its own is summed up.

    Args:
        hosts: By the name of each host that shares the run; by no name where there is one.
        most: How many lines there may be.
    """
    named = [(host, doing) for host, doing in hosts.items() if host]
    if not named:
        return [hosts.get("", Doing()).words]
    own = len(named) if len(named) <= most else max(most - 1, 0)
    lines = [f"{host}: {doing.words}" for host, doing in named[:own]]
    if others := Counter(doing.stage for _, doing in named[own:]):
        sums = [f"{others[stage]} {stage}" for stage in get_args(Stage) if others[stage]]
        what = "more hosts" if own else "hosts"
        lines.append(f"{others.total()} {what}: {', '.join(sums)}")
    return lines
