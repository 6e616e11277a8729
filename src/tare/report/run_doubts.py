"""What of two runs speaks against comparing them, or against one of them, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.analysis.model import Comparison, RunData
from tare.analysis.proofs import changes_told
from tare.report.svg import legible
from tare.report.words import counted, joined

FACTS = ("name", "hostname", "machine", "cpu_model", "cpus")
"""What tells hosts apart."""


def doubts_of(before: Comparison, after: Comparison) -> tuple[str, ...]:
    """Return what a reader of the comparison has to know first; empty where there is nothing."""
    first, second = before.runs[0], after.runs[0]
    found = []
    if first.study_sha256 != second.study_sha256:
        found.append("The runs are of different versions of the study, or of different studies.")
    found += _hosts(first, second)
    for when, one, other in (("first", before, after), ("second", after, before)):
        run = one.runs[0]
        if not run.complete:
            found.append(f"The {when} run is not complete.")
        found += [f"The {when} run: {legible(doubt)}" for doubt in run.doubts]
        found += [
            f"The {when} run: {legible(told[:1].lower() + told[1:])}"
            for told in changes_told(one.environment_changes)
        ]
        found += _alone(when, one, other)
    return tuple(found)


def _hosts(first: RunData, second: RunData) -> list[str]:
    """Return that the runs were on different computers, which no interval of two runs covers."""
    if not first.host or not second.host or _same(first.host, second.host):
        return []
    return [
        "The runs were made on different hosts. What a host does to all arms alike cancels; what "
        "an arm costs there may differ, and two runs do not tell that from a change: their "
        "intervals do not cover it."
    ]


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether what is known of two hosts is alike, so far as another start leaves it so."""
    if any(one.get(name) != other.get(name) for name in FACTS):
        return False
    sizes = [float(host.get("memory_bytes") or 0) for host in (one, other)]
    # Kernels leave a little more or less of the same memory.
    return not all(sizes) or max(sizes) <= 1.02 * min(sizes)


def _alone(when: str, one: Comparison, other: Comparison) -> list[str]:
    """Return of which arms one run alone has headline results, and of how many."""
    there = {(effect.arm, effect.key) for effect in other.effects}
    lost: dict[str, int] = {}
    for effect in one.headlines:
        if (effect.arm, effect.key) not in there:
            lost[effect.arm] = lost.get(effect.arm, 0) + 1
    if not lost:
        return []
    told = [
        f"{counted(number, 'headline result')} of {legible(arm)}" for arm, number in lost.items()
    ]
    return [f"The {when} run alone has {joined(told)}: how these changed is not known."]
