"""Combine skipped arms and workloads into one line for each reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LeftOut:
    """An arm, or a scenario or workload of an arm, that does not run.

    Args:
        arm: The arm.
        scenario: The scenario; None or empty: all.
        workload: The workload; None or empty: all.
        reason: Why it does not run.
        hint: What to do about it; may be empty.
    """

    arm: str
    scenario: str | None
    workload: str | None
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class SkipReason:
    """Everything that is skipped for one reason.

    Args:
        what: The skipped parts, such as ``kvm, kvm-em`` or ``gvisor: fio, bonnie``.
        reason: Why they are skipped.
        hint: What to do about it; may be empty.
    """

    what: str
    reason: str
    hint: str


def lines_of(parts: Iterable[LeftOut], between: str = "/") -> list[SkipReason]:
    """Return a line for each reason, in the order of their first occurrence.

    Reasons that differ only in the workload's name at their beginning share a line.

    Args:
        parts: The skipped parts; repeated ones count once.
        between: The text between the names of an arm, a scenario and a workload.
    """
    shared: dict[tuple[str, str], list[LeftOut]] = {}
    for part in dict.fromkeys(parts):
        shared.setdefault((_nameless(part), part.hint), []).append(part)
    return [_line(reason, hint, found, between) for (reason, hint), found in shared.items()]


def _nameless(part: LeftOut) -> str:
    return part.reason.removeprefix(f"{part.workload} ") if part.workload else part.reason


def _line(reason: str, hint: str, parts: list[LeftOut], between: str) -> SkipReason:
    if len({part.reason for part in parts}) == 1:
        what = ", ".join(_named(part, between) for part in parts)
        return SkipReason(what, parts[0].reason, hint)
    workloads: dict[str, list[str]] = {}
    for part in parts:
        place = between.join(filter(None, (part.arm, part.scenario)))
        workloads.setdefault(place, []).append(part.workload or "")
    places: dict[tuple[str, ...], list[str]] = {}
    for place, names in workloads.items():
        places.setdefault(tuple(names), []).append(place)
    what = "; ".join(f"{', '.join(found)}: {', '.join(names)}" for names, found in places.items())
    return SkipReason(what, reason, hint)


def _named(part: LeftOut, between: str) -> str:
    return between.join(filter(None, (part.arm, part.scenario, part.workload)))
