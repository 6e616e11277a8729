"""How things are called in the analysis' sentences, and what it sums up in words."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tare.analysis.results import ArmVerdict, Effect, Key
from tare.analysis.rundata import RunData
from tare.analysis.verdict import percent, significant
from tare.events.results import PlatformResult


def described(key: Key) -> str:
    """Return what a key means to a reader: ``switch latency [threads=100] (pinned)``."""
    parameters = json.loads(key.parameters) if key.parameters else {}
    inside = ", ".join(f"{name}={value}" for name, value in parameters.items())
    role = "" if key.role == "subject" else f" of {key.role}"
    brackets = f" [{inside}]" if inside else ""
    return f"{key.workload} {key.metric}{brackets}{role} ({key.scenario})"


def marked(arm: str, *, emulated: bool) -> str:
    """Return an arm's name with its mark if it is emulated."""
    return f"{arm} (emulated)" if emulated else arm


def arm_verdict(
    arm: str, baseline: str, effects: Sequence[Effect], *, emulated: bool
) -> ArmVerdict:
    """Sum up the headline effects of one arm.

    Args:
        arm: The arm.
        baseline: What it was compared with.
        effects: Its headline effects.
        emulated: Whether the arm is emulated.
    """
    worse = [e for e in effects if e.verdict == "worse"]
    better = [e for e in effects if e.verdict == "better"]
    even = [e for e in effects if e.verdict in ("dead heat", "not distinguishable")]
    open_ones = len(effects) - len(worse) - len(better) - len(even)
    parts = []
    if worse:
        parts.append(f"worse in {_count(worse, effects)}{_extreme(worse)}")
    if better:
        parts.append(f"better in {_count(better, effects)}{_extreme(better)}")
    if even:
        parts.append(f"even in {_count(even, effects)}")
    if open_ones:
        parts.append(f"undecided in {open_ones} of {len(effects)}")
    name = marked(arm, emulated=emulated)
    said = ", ".join(parts) if parts else "no headline metric was measured in shared blocks"
    return ArmVerdict(
        arm=arm,
        emulated=emulated,
        sentence=f"{name} against {baseline}: {said}.",
        worse=len(worse),
        better=len(better),
        even=len(even),
        undecided=open_ones,
    )


def _count(some: Sequence[Effect], every: Sequence[Effect]) -> str:
    return f"all {len(every)}" if len(some) == len(every) > 1 else f"{len(some)} of {len(every)}"


def _extreme(effects: Sequence[Effect]) -> str:
    """Name the farthest of several effects."""
    with_cost = [(abs(e.overhead), e) for e in effects if e.overhead is not None]
    if not with_cost:
        return ""
    _, most = max(with_cost, key=lambda pair: pair[0])
    cost = most.overhead or 0.0
    size = f"{percent(abs(cost))} {'more' if cost > 0 else 'less'} cost"
    if cost >= 9:
        size = f"{significant(1 + cost)} times the cost"
    lead = "at most " if len(effects) > 1 else ""
    return f" ({lead}{size}: {described(most.key)})"


def notes_on(runs: Sequence[RunData], blocks: int, least: int) -> tuple[str, ...]:
    """Return what a reader must know about the whole comparison.

    Args:
        runs: The runs.
        blocks: Blocks in which anything counted.
        least: Blocks that a test needs to reach p < 0.01.
    """
    notes = []
    if blocks < least:
        notes.append(
            f"Only {_blocks(blocks)}: a paired permutation test needs {least} to reach p < 0.01."
        )
    for run in runs:
        name = f"Run {run.run}" if len(runs) > 1 else "The run"
        if run.ended is None:
            notes.append(f"{name} has not ended; `tare resume {run.folder}` goes on with it.")
        elif run.ended != "complete":
            because = f": {run.end_reason}" if run.end_reason else ""
            notes.append(f"{name} {run.ended} before it was complete{because}.")
        if run.resumed:
            notes.append(
                f"{name} was resumed {run.resumed} time{'s' if run.resumed > 1 else ''}: its "
                "blocks were not measured in one go."
            )
        for status in ("failed", "withheld"):
            lost = sum(cell.status == status for cell in run.cells)
            if lost:
                notes.append(
                    f"{name} has {lost} {status} cell{'s' if lost > 1 else ''} of "
                    f"{len(run.cells)}; what they observed does not count."
                )
        notes += [
            _elsewhere(platform, run.baseline)
            for platform in run.platforms
            if platform.usable and platform.mark
        ]
        notes += [
            f"{platform.arm} is a machine that exists, measured as it was found: what was not "
            f"controlled of it is listed under what ran."
            for platform in run.platforms
            if platform.usable and platform.uncontrolled
        ]
        notes += [
            f"{arm} ran on {host}, where the baseline {run.baseline} could not run: what the arm "
            "costs and what the host is cannot be told apart."
            for arm, host in run.apart_from_baseline.items()
        ]
    if any(run.emulated_arms for run in runs):
        notes.append(
            "Emulated arms show behaviour and relative instruction cost, not hardware speed."
        )
    return (*notes, *_between(runs))


def _elsewhere(platform: PlatformResult, baseline: str) -> str:
    if platform.arm != baseline:
        return f"{platform.arm} ran {platform.mark}."
    return f"The baseline {baseline} ran {platform.mark}; all ratios are to that."


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


def _between(runs: Sequence[RunData]) -> list[str]:
    notes = []
    if len({run.study_sha256 for run in runs}) > 1:
        notes.append("The runs are of different study files; only what they share is compared.")
    hosts = {str(run.host.get("hostname", run.host.get("name", run.host))) for run in runs}
    if len(hosts) > 1:
        notes.append(
            "The runs were made on different hosts: pairs are within blocks, so ratios hold, but "
            "intervals now cover the hosts' differences as well."
        )
    return notes
