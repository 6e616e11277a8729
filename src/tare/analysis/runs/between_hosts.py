"""A run that several hosts share: how much of the blocks' variance is between the hosts.

Hosts are a level above boots. What holds for these hosts is the study's interval over all blocks;
what holds for hosts like them needs a term for the host, which few hosts leave wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Effect
from tare.analysis.statistics.logratio import deviation
from tare.analysis.statistics.meta_analysis import Together, together

LEAST_BLOCKS = 2
"""So many blocks of a host say how far its own differ."""


@dataclass(frozen=True)
class OverHosts:
    """One effect, host by host and over hosts.

    Args:
        effect: Over all blocks.
        ratios: The geometric mean of each host's blocks, by the host's name.
        together: The mean over hosts as they might have been, in logarithms.
        share: The part of a block's variance that is between hosts, 0 to 1.
    """

    effect: Effect
    ratios: Mapping[str, float]
    together: Together
    share: float


def over_hosts(comparison: Comparison, hosts: Mapping[int, str]) -> tuple[OverHosts, ...]:
    """Return the effects of a shared run that at least two hosts have.

    Args:
        comparison: The comparison of the one run.
        hosts: The host that measured each block.
    """
    found = []
    for effect in comparison.effects:
        if effect.scale != "ratio" or effect.kind != "typical" or not effect.headline:
            continue
        logs = _by_host(effect, hosts)
        if len(logs) > 1:
            found.append(_over(effect, logs, comparison.confidence))
    return tuple(found)


def _by_host(effect: Effect, hosts: Mapping[int, str]) -> dict[str, list[float]]:
    logs: dict[str, list[float]] = {}
    for block in effect.block_effects:
        if block.block in hosts:
            logs.setdefault(hosts[block.block], []).append(math.log(block.value))
    return {host: logs[host] for host in sorted(logs) if len(logs[host]) >= LEAST_BLOCKS}


def _over(effect: Effect, logs: Mapping[str, Sequence[float]], confidence: float) -> OverHosts:
    means = [math.fsum(values) / len(values) for values in logs.values()]
    errors = [deviation(values) / math.sqrt(len(values)) for values in logs.values()]
    mean = together(means, errors, confidence)
    within = _within(list(logs.values()))
    whole = mean.between**2 + within
    ratios = {host: math.exp(value) for host, value in zip(logs, means, strict=True)}
    return OverHosts(effect, ratios, mean, mean.between**2 / whole if whole > 0 else 0.0)


def share_between(samples: Sequence[Sequence[float]]) -> float:
    """Return the part of the variance that is between groups, 0 to 1.

    Args:
        samples: The values of each group, two or more, of two or more groups.
    """
    within = _within(samples)
    means = [math.fsum(values) / len(values) for values in samples]
    # All groups are taken to scatter alike, or two blocks that happen to agree would weigh most.
    errors = [math.sqrt(within / len(values)) for values in samples]
    between = together(means, errors, 0.95).between
    whole = between**2 + within
    return between**2 / whole if whole > 0 else 0.0


def _within(samples: Sequence[Sequence[float]]) -> float:
    """Return the variance of a host's blocks about their mean, pooled over hosts."""
    degrees = sum(len(values) - 1 for values in samples)
    squares = (deviation(values) ** 2 * (len(values) - 1) for values in samples)
    return math.fsum(squares) / degrees
