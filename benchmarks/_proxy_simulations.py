"""Losses of a load balancer in studies of known truth, with cells that the client limited."""

from __future__ import annotations

import math
import statistics

import numpy as np

from tare.analysis.effects.results import Interval
from tare.analysis.topics.load_balancer import Throughput
from tare.analysis.topics.proxied_cells import ProxiedCell, compare_within_blocks
from tare.analysis.topics.proxied_losses import Loss, capacity_losses
from tare.events.results import CellResult
from tare.report.sections.load_balancer_findings import findings

CONFIDENCE, MARGIN = 0.95, 0.02
Study = list[tuple[list[ProxiedCell], list[ProxiedCell]]]
"""The cells of the arm and of the baseline, for each size of objects."""


def draw(
    rng: np.random.Generator,
    loss: float,
    sizes: int,
    blocks: int = 8,
    ceiling: float = math.inf,
    *,
    lag: float = 0.0,
    slow: float = 0.0,
) -> Study:
    """Return a study whose arm loses a share at every size.

    Args:
        rng: Draws the noise, of 3 % a cell.
        loss: The share that is lost.
        sizes: How many sizes of objects there are.
        blocks: How many blocks there are.
        ceiling: What the client can ask for, of the baseline's typical capacity.
        lag: Correlation of each boot's noise with that of the block before.
        slow: The share of the arm's boots that are three times slower, at all sizes.
    """
    slow_ones = rng.random(blocks) < slow

    def cells(arm: str, capacity: float) -> list[ProxiedCell]:
        noise = rng.normal(0.0, 0.03, blocks)
        for block in range(1, blocks if lag else 0):
            noise[block] = lag * noise[block - 1] + math.sqrt(1 - lag**2) * noise[block]
        if arm == "kvm":
            noise -= np.log(3.0) * slow_ones
        true = capacity * np.exp(noise)
        return [_cell(arm, block, value, ceiling) for block, value in enumerate(true.tolist())]

    return [(cells("kvm", 1 - loss), cells("bare", 1.0)) for _ in range(sizes)]


def _cell(arm: str, block: int, capacity: float, ceiling: float) -> ProxiedCell:
    limited = capacity > ceiling
    result = CellResult(
        f"b{block}/{arm}", "r", block, arm, "s", "proxy", "{}", 1, "ok", "", (), (), 1.0, {}, 1
    )
    values = {"requests-at-least" if limited else "requests": min(capacity, ceiling)}
    return ProxiedCell(result, values, {"limits": ["the client"]} if limited else {})


def present(study: Study) -> list[Loss]:
    """Return the losses as a report has them."""
    return [loss for loss in capacity_losses(study, CONFIDENCE, MARGIN) if loss is not None]


def shown(size: int, lost: Loss | None, blocks: int = 8) -> Throughput:
    """Return an arm's row at one size, with a loss and nothing else."""
    return Throughput(
        scenario="s",
        workload="proxy",
        arm="kvm",
        emulated=False,
        size=size,
        requests=1e4,
        limited=False,
        limits=(),
        direct=3e4,
        straight=None,
        bandwidth=0.0,
        cpu_s=None,
        lost=lost,
        spent=(),
        blocks=blocks,
    )


def sentence(study: Study) -> str:
    """Return the finding on the page."""
    return findings([shown(1024 * n, loss) for n, loss in enumerate(present(study))])[0]


def claims_loss(study: Study) -> bool:
    """Return whether the page says that the arm lost anything."""
    return " it lost " in sentence(study)


def former(study: Study) -> list[tuple[float, Interval]]:
    """Return the former losses: limited cells dropped, Student's t over the rest."""
    found = []
    for arm, base in study:
        kept = compare_within_blocks(
            arm, base, lambda each: None if each.limited else each.requests, CONFIDENCE
        )
        if kept.ratio is not None and kept.interval is not None:
            found.append((1 - kept.ratio, kept.interval))
    return found


def shares_claimed(
    studies: int, sizes: int, seed: int = 1, *, lag: float = 0.0
) -> tuple[float, float]:
    """Return in which share of studies without a loss one was claimed, before and after."""
    rng = np.random.default_rng(seed)
    drawn = [draw(rng, 0.0, sizes, lag=lag) for _ in range(studies)]
    before = statistics.fmean(any(loss > 0 for loss, _ in former(study)) for study in drawn)
    return before, statistics.fmean(map(claims_loss, drawn))


def shares_covered(studies: int, loss: float, ceiling: float, seed: int = 1) -> tuple[float, float]:
    """Return in which share of studies the interval holds the true loss, before and after."""
    rng = np.random.default_rng(seed)
    before, after = [], []
    for _ in range(studies):
        study = draw(rng, loss, 1, 12, ceiling)
        before += [interval.holds(1 - loss) for _, interval in former(study)]
        for found in present(study):
            least = -math.inf if found.least is None else found.least
            most = math.inf if found.most is None else found.most
            after.append(least <= loss <= most)
    return statistics.fmean(before), statistics.fmean(after)
