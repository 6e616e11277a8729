"""Renamed options: accepted for one version, and reported with their new name.

A study's file, the study that a run stored, and the studies that reports read pass through here, so
that only this module knows former names. The next version removes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.plaintext import plain_line
from tare.units import parse_duration

XEN = {
    "timeslice": "slice",
    "quantum": "slice",
    "weight": "weight",
    "cap": "cap",
    "period": "period",
    "budget": "reservation",
}
"""Former options of the platform ``xen``, each with its name in ``scheduling``."""
METHODS = {"anytime": "sequential"}
"""Former names of ``blocks.method``."""
_SCHEDULING = "scheduling"
_WEIGHTS = 100 / 256
"""The default weight in ``scheduling``, relative to Xen's default."""
_PERIOD_S, _BUDGET, _LEAST_S = 10e-3, 0.4, 10e-6
"""RTDS's default, 4 ms in each 10 ms, and its least budget (xen/common/sched/rt.c)."""


@dataclass(frozen=True)
class Renamed:
    """An arm's options under their current names.

    Args:
        options: The options.
        notice: The renamed options, in one sentence; empty if there are none.
        faults: Options that are given under both names, or have no meaning, each with a sentence.
    """

    options: Mapping[str, Any]
    notice: str = ""
    faults: tuple[tuple[str, str], ...] = ()


def renamed(platform: object, options: Mapping[str, Any], vcpus: int) -> Renamed:
    """Return an arm's options under their current names.

    Args:
        platform: The arm's platform.
        options: Its options as written or stored, together with other keys of the arm.
        vcpus: Number of vCPUs of its machines: RTDS had one budget for each.
    """
    former = {name: each for name, each in options.items() if name in XEN and each is not None}
    present = options.get(_SCHEDULING) or {}
    if platform != "xen" or not former or not isinstance(present, Mapping):
        return Renamed(options)
    faults = [
        (name, f"was renamed to `{_SCHEDULING}: {{{XEN[name]}: …}}`, which is set too; remove it")
        for name in former
        if XEN[name] in present or (name == "quantum" and "timeslice" in former)
    ]
    moved = {new: former[old] for old, new in XEN.items() if old in former and old != "budget"}
    weight = former.get("weight")
    if isinstance(weight, int | float) and not isinstance(weight, bool):
        moved["weight"] = max(1, round(weight * _WEIGHTS))
    try:
        moved |= _reservation(former, present, vcpus)
    except ValueError as error:
        faults.append(("budget" if "budget" in former else "period", str(error)))
    kept = {name: value for name, value in options.items() if name not in XEN}
    notice = (
        f"`{_words(former)}` is now written `{_SCHEDULING}: {{{_words(moved)}}}`"
        + (", where the default weight is 100, not 256" if "weight" in former else "")
        + "; the next version no longer accepts the former names"
    )
    return Renamed({**kept, _SCHEDULING: {**present, **moved}}, notice, tuple(faults))


def _reservation(
    former: Mapping[str, Any], present: Mapping[str, Any], vcpus: int
) -> dict[str, float]:
    """Return RTDS's budget as a share, divided among the vCPUs; raise ValueError if invalid."""
    if "budget" not in former and ("period" not in former or "reservation" in present):
        return {}
    period_s = parse_duration(former.get("period") or present.get("period") or _PERIOD_S)
    if period_s <= 0:
        raise ValueError("the period must be more than 0 s")
    budget_s = parse_duration(former.get("budget", _BUDGET * period_s))
    if budget_s < _LEAST_S:
        raise ValueError("the budget is less than 10 µs; raise it")
    if budget_s > period_s:
        raise ValueError("the budget is longer than its period; lower it, or raise `period`")
    # Rounding keeps 3 ms of 10 ms at 0.3 exactly.
    return {"reservation": round(budget_s / period_s * vcpus, 9)}


def with_present_names(study: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored study with its method and its arms' options under their current names."""
    study, _ = with_present_method(study)
    arms = study.get("arms")
    if not isinstance(arms, Mapping):
        return study
    shape = study.get("shape")
    return {**study, "arms": {name: _arm(arm, shape) for name, arm in arms.items()}}


def with_present_method(study: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return a study with its ``blocks.method`` under the current name, and a notice of it."""
    blocks = study.get("blocks")
    former = blocks.get("method") if isinstance(blocks, Mapping) else None
    if not isinstance(former, str) or former not in METHODS or not isinstance(blocks, Mapping):
        return study, ""
    present = METHODS[former]
    notice = (
        f"blocks.method: `{former}` is now `{present}`, which needs fewer blocks; the next version "
        "no longer accepts the former name"
    )
    return {**study, "blocks": {**blocks, "method": present}}, notice


def _arm(arm: Any, shape: Any) -> Any:
    options = arm.get("options") if isinstance(arm, Mapping) else None
    if not isinstance(options, Mapping):
        return arm
    vcpus = vcpus_of(arm.get("shape"), shape)
    return {**arm, "options": dict(renamed(arm.get("platform"), options, vcpus).options)}


def present_options(
    study: Mapping[str, Any], arm: str, platform: str, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return an arm's recorded options under their current names."""
    arms = study.get("arms")
    own = arms.get(arm) if isinstance(arms, Mapping) else None
    shape = own.get("shape") if isinstance(own, Mapping) else None
    return renamed(platform, options, vcpus_of(shape, study.get("shape"))).options


def vcpus_of(*shapes: Any) -> int:
    """Return the number of vCPUs of the first shape that sets it, as written or stored."""
    for shape in shapes:
        count = shape.get("vcpus") if isinstance(shape, Mapping) else None
        if isinstance(count, int) and count > 0:
            return count
    return 1


def _words(options: Mapping[str, Any]) -> str:
    return plain_line(", ".join(f"{name}: {value}" for name, value in options.items()), 200)
