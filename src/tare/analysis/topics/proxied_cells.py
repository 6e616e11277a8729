"""Cells of a load balancer, and their values relative to the baseline's in the same block."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.results import Interval
from tare.analysis.statistics.logratio import mean_interval
from tare.events.cell_facts import ProxyAccount, ProxyFacts
from tare.events.results import CellResult

HOST = "host"
LEAST = "-at-least"
COST, OFFERED = "cpu-per-request", "response-offered-median"
_LINE = re.compile(r"^(\w+):\s*(\d{1,9})\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Against:
    """A value relative to the baseline's in the same block.

    Args:
        ratio: Geometric mean of the ratios over blocks; None: no block has both.
        interval: Student's t over their logarithms; None with fewer than two blocks.
    """

    ratio: float | None = None
    interval: Interval | None = None


NOTHING = Against()


@dataclass(frozen=True)
class Proxys:
    """HAProxy's own report through its socket, at full load.

    Args:
        idle: Share of the last second in which the answering thread waited, mean over cells.
        threads: The number of its threads, from the first cell.
    """

    idle: float
    threads: int


@dataclass(frozen=True)
class ProxiedCell:
    """One cell: what was measured (``values`` by metric), and its record (``about``)."""

    cell: CellResult
    values: Mapping[str, float]
    about: ProxyFacts

    @property
    def block(self) -> tuple[str, int]:
        """The run and its block, in which arms are compared."""
        return self.cell.run, self.cell.block

    @property
    def limited(self) -> bool:
        """Whether something other than the proxy may have been the limit."""
        return bool(self.about.get("limits"))

    @property
    def account(self) -> ProxyAccount:
        """CPU time by owner."""
        return self.about.get("account", {})

    @property
    def requests(self) -> float:
        """Requests per second, or a lower bound of them."""
        return self.values.get("requests", self.values.get(f"requests{LEAST}", 0.0))

    @property
    def offered(self) -> float | None:
        """The requests per second that all arms are offered; None: none, or not recorded."""
        rate = self._offered.get("per_s")
        return float(rate) if isinstance(rate, int | float) else None

    @property
    def overloaded(self) -> bool:
        """Whether the offered rate is more than this arm carries."""
        return bool(self._offered.get("overloaded"))

    def cost(self) -> float | None:
        """Return the host's CPU seconds for a request."""
        return self.values.get(COST)

    def latency(self) -> float | None:
        """Return the median time at the offered rate, in seconds; None if that overloads it."""
        return None if self.overloaded else self.values.get(OFFERED)

    @property
    def _offered(self) -> Mapping[str, Any]:
        part = self.about.get("offered")
        return part if isinstance(part, Mapping) else {}


def named(runs: Iterable[RunData]) -> dict[tuple[str, str], str]:
    """Return the name of the workload of each proxied cell that counts, by run and cell.

    If a workload's cells differ in more than the size of objects, the name has the differences.
    """
    cells = [
        cell for run in runs for cell in run.cells if cell.status == "ok" and "proxy" in cell.facts
    ]
    given = {(cell.run, cell.cell): _other_parameters(cell.parameters) for cell in cells}
    seen: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        for name, value in given[cell.run, cell.cell].items():
            seen.setdefault((cell.workload, name), set()).add(value)
    found = {}
    for cell in cells:
        parameters = given[cell.run, cell.cell]
        apart = [
            f"{name}={parameters[name]}"
            for name in parameters
            if len(seen[cell.workload, name]) > 1
        ]
        found[cell.run, cell.cell] = " ".join([cell.workload, *apart])
    return found


def _other_parameters(parameters: str) -> dict[str, str]:
    """Return a cell's parameters except the size, by their names in a study."""
    given = json.loads(parameters)
    return {
        name.replace("_", "-"): value if isinstance(value, str) else json.dumps(value)
        for name, value in (given.items() if isinstance(given, Mapping) else ())
        if name != "size"
    }


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean of the values above 0, or 0 if there are none."""
    above = [value for value in values if value > 0]
    return math.exp(statistics.fmean(map(math.log, above))) if above else 0.0


def mean(values: Iterable[Any]) -> float | None:
    """Return the mean of the values that are numbers; None if there are none."""
    known = [float(value) for value in values if isinstance(value, int | float)]
    return statistics.fmean(known) if known else None


def compare_within_blocks(
    cells: Sequence[ProxiedCell],
    others: Sequence[ProxiedCell],
    value: Callable[[ProxiedCell], float | None],
    confidence: float,
) -> Against:
    """Return a value relative to that of other cells in the same block.

    Args:
        cells: An arm's cells.
        others: The baseline's.
        value: Returns a cell's value; None or 0: the cell is left out.
        confidence: Nominal coverage of the interval.
    """
    own, base = _block_logs(cells, value), _block_logs(others, value)
    logs = [own[block] - base[block] for block in own if block in base]
    if not logs:
        return NOTHING
    ratio = math.exp(statistics.fmean(logs))
    if len(logs) < 2:
        return Against(ratio)
    ends = mean_interval(logs, confidence)
    interval = Interval(math.exp(ends.low), math.exp(ends.high), "student-t", confidence)
    return Against(ratio, interval)


def _block_logs(
    cells: Sequence[ProxiedCell], value: Callable[[ProxiedCell], float | None]
) -> dict[tuple[str, int], float]:
    """Return each block's mean logarithm of a value; the block is the unit, not the cell."""
    logs: dict[tuple[str, int], list[float]] = {}
    for each in cells:
        if found := value(each):
            logs.setdefault(each.block, []).append(math.log(found))
    return {block: statistics.fmean(found) for block, found in logs.items()}


def haproxys_own(cells: Sequence[ProxiedCell]) -> Proxys | None:
    """Return HAProxy's own report (its management guide, 9.3, ``show info``), or None."""
    found = []
    for each in cells:
        stored = each.about.get("said")
        text = str(stored.get("show info", "")) if isinstance(stored, Mapping) else ""
        figures = dict(_LINE.findall(text))
        if "Idle_pct" in figures and "Nbthread" in figures:
            found.append((int(figures["Idle_pct"]) / 100, int(figures["Nbthread"])))
    if not found:
        return None
    return Proxys(statistics.fmean(idle for idle, _ in found), found[0][1])
