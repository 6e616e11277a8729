"""The part of the blocks' variance that is between hosts, or between rounds of sessions.

Hosts and rounds are levels above boots. The study's interval over all blocks holds for the hosts
that were measured. An interval for other hosts of their kind needs a term for the host, and is wide
if there are few hosts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.data.grouping import BlockId
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Effect
from tare.analysis.runs.sessions import InSessions, session_blocks, values_by_round
from tare.analysis.statistics.logratio import deviation
from tare.analysis.statistics.meta_analysis import PooledEffect, pool
from tare.events.session_progress import SessionResult

LEAST_BLOCKS = 2
"""The least blocks of a host, or of a round, for an estimate of the variance within it."""


@dataclass(frozen=True)
class OverHosts:
    """One effect, host by host and over hosts.

    Args:
        effect: The effect over all blocks.
        ratios: The geometric mean of each host's blocks, by the host's name.
        together: The mean over a population of such hosts, in logarithms.
        share: The part of a block's variance that is between hosts, 0 to 1.
    """

    effect: Effect
    ratios: Mapping[str, float]
    together: PooledEffect
    share: float


def effects_over_hosts(comparison: Comparison, hosts: Mapping[int, str]) -> tuple[OverHosts, ...]:
    """Return the effects of a shared run that at least two hosts have.

    Args:
        comparison: The comparison of the one run.
        hosts: The host that measured each block.
    """
    found = []
    for effect in comparison.effects:
        if effect.scale != "ratio" or effect.kind != "typical" or not effect.headline:
            continue
        logs = _logs_by_host(effect, hosts)
        if len(logs) > 1:
            found.append(_effect_over_hosts(effect, logs, comparison.confidence))
    return tuple(found)


def _logs_by_host(effect: Effect, hosts: Mapping[int, str]) -> dict[str, list[float]]:
    logs: dict[str, list[float]] = {}
    for block in effect.block_effects:
        if block.block in hosts:
            logs.setdefault(hosts[block.block], []).append(math.log(block.value))
    return {host: logs[host] for host in sorted(logs) if len(logs[host]) >= LEAST_BLOCKS}


def _effect_over_hosts(
    effect: Effect, logs: Mapping[str, Sequence[float]], confidence: float
) -> OverHosts:
    means = [math.fsum(values) / len(values) for values in logs.values()]
    errors = [deviation(values) / math.sqrt(len(values)) for values in logs.values()]
    mean = pool(means, errors, confidence)
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
    # All groups get the same variance: otherwise two blocks that happen to agree would weigh most.
    errors = [math.sqrt(within / len(values)) for values in samples]
    between = pool(means, errors, 0.95).between
    whole = between**2 + within
    return between**2 / whole if whole > 0 else 0.0


def _within(samples: Sequence[Sequence[float]]) -> float:
    """Return the variance of values about the mean of their group, pooled over groups."""
    degrees = sum(len(values) - 1 for values in samples)
    squares = (deviation(values) ** 2 * (len(values) - 1) for values in samples)
    return math.fsum(squares) / degrees


@dataclass(frozen=True)
class OverSessions:
    """One effect between arms of different boots.

    Args:
        effect: The effect over rounds.
        arm_first: The geometric mean of the rounds in which the arm's session came first; None
            if there is none.
        baseline_first: The same for the rounds in which the baseline's session came first.
        share: The part of a block's variance that is between rounds, 0 to 1; None if sessions
            have one block each, so that the two cannot be separated.
    """

    effect: Effect
    arm_first: float | None
    baseline_first: float | None
    share: float | None


def effects_over_sessions(comparison: Comparison) -> tuple[OverSessions, ...]:
    """Return the effects of a run in sessions whose arms are of different boots."""
    sessions = comparison.runs[0].sessions if len(comparison.runs) == 1 else ()
    if not sessions:
        return ()
    known = session_blocks(comparison.runs, {})
    return tuple(
        _effect_over_rounds(effect, known, sessions)
        for effect in comparison.effects
        if effect.each == "round"
        and effect.headline
        and effect.scale == "ratio"
        and effect.kind == "typical"
    )


def _effect_over_rounds(
    effect: Effect, known: InSessions, sessions: Sequence[SessionResult]
) -> OverSessions:
    first = _first_boots(known, sessions)
    by_boot: dict[str, list[float]] = {}
    for block in effect.block_effects:
        by_boot.setdefault(first.get((block.run, block.block), ""), []).append(
            math.log(block.value)
        )
    return OverSessions(
        effect,
        _mean(by_boot.get(known.boots[effect.arm], ())),
        _mean(by_boot.get(known.boots[effect.baseline], ())),
        _share(effect, known),
    )


def _mean(logs: Sequence[float]) -> float | None:
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _first_boots(known: InSessions, sessions: Sequence[SessionResult]) -> Mapping[BlockId, str]:
    """Return the boot that was measured first in each round, except rounds that count as one."""
    began: dict[int, list[tuple[float, str]]] = {}
    for each in sessions:
        began.setdefault(each.round, []).append((each.goes[0].began, each.boot))
    of_round: dict[BlockId, set[int]] = {}
    for each in sessions:
        for run, block in known.rounds:
            if block in each.blocks:
                of_round.setdefault(known.rounds[run, block], set()).add(each.round)
    return {
        name: min(began[next(iter(rounds))])[1]
        for name, rounds in of_round.items()
        if len(rounds) == 1
    }


def _share(effect: Effect, known: InSessions) -> float | None:
    over = {(b.run, b.block): b.value for b in effect.arm_summary.blocks}
    under = {(b.run, b.block): b.value for b in effect.baseline_summary.blocks}
    ratios = ((block, math.log(over[block] / under[block])) for block in over if block in under)
    logs = values_by_round(ratios, known.rounds)
    samples = [values for values in logs.values() if len(values) >= LEAST_BLOCKS]
    return share_between(samples) if len(samples) > 1 else None
