"""What is skipped for one reason, as one line: however many arms and workloads share it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LeftOut:
    """An arm, or a scenario or workload of it, that does not run.

    Args:
        arm: The arm.
        scenario: The scenario; None or empty: all.
        workload: The workload; None or empty: all.
        reason: Why.
        hint: What to do about it; may be empty.
    """

    arm: str
    scenario: str | None
    workload: str | None
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class SkipReason:
    """All that is skipped for one reason.

    Args:
        what: In words, such as ``kvm, kvm-em`` or ``gvisor: fio, bonnie``.
        reason: Why.
        hint: What to do about it; may be empty.
    """

    what: str
    reason: str
    hint: str


def lines_of(parts: Iterable[LeftOut], between: str = "/") -> list[SkipReason]:
    """Return a line for each reason, in the order in which reasons first come.

    A reason that begins with its workload's name is one with the same reason of another workload.

    Args:
        parts: What is skipped; what comes twice counts once.
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
