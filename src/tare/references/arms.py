"""Match the arms of a run with those of a source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tare.analysis.effects.comparison import Comparison
from tare.references.missing_values import why_it_did_not_run
from tare.references.published import PublishedArm, Reference
from tare.references.scenarios import mapping
from tare.units import format_quantity

TIMES = (".slice", ".period")
"""Suffixes of the names of options that are times in seconds."""


@dataclass(frozen=True)
class ArmMatch:
    """One of the source's arms, and the run's counterparts.

    Args:
        arm: The arm's name in the reference.
        label: The arm's name in the source.
        own: The run's arms that are like it and have values.
        why: Why there is none; empty if there is one.
    """

    arm: str
    label: str
    own: tuple[str, ...]
    why: str


def alike(comparison: Comparison, reference: Reference) -> tuple[ArmMatch, ...]:
    """Return each arm of the source with the run's counterparts, or the reason for having none."""
    return tuple(_match_arm(comparison, *each) for each in reference.arms.items())


def counterparts_of(
    comparison: Comparison, reference: Reference, names: Collection[str]
) -> tuple[tuple[str, ...], str]:
    """Return the run's counterparts of some of the source's arms, in the run's order.

    Args:
        comparison: The runs' comparison.
        reference: The source.
        names: The names of the source's arms.

    Returns:
        The run's arms, and the reasons why some of the source's arms have no counterpart.
    """
    likes = [like for like in alike(comparison, reference) if like.arm in names]
    own = {arm for like in likes for arm in like.own}
    return tuple(arm for arm in comparison.arms if arm in own), reasons_of(likes)


def reasons_of(likes: Iterable[ArmMatch]) -> str:
    """Return the reasons why some of the source's arms have no counterpart; empty if all have."""
    return "; ".join(f"{like.label}: {like.why}" for like in likes if like.why)


def bare_of(comparison: Comparison, reference: Reference) -> str | None:
    """Return the run's arm that is the denominator of its ratios next to a source's.

    It is a counterpart of the source's bare machine, if possible the run's baseline; None if the
    run
    has no counterpart. If the source has no bare machine, it is the run's baseline.
    """
    if reference.baseline is None:
        return comparison.baseline
    found = _found(comparison, reference.arms[reference.baseline])
    return comparison.baseline if comparison.baseline in found else next(iter(found), None)


def _found(comparison: Comparison, published: PublishedArm) -> list[str]:
    return [
        arm for arm in _measured(comparison) if is_counterpart(_spec(comparison, arm), published)
    ]


def _match_arm(comparison: Comparison, name: str, published: PublishedArm) -> ArmMatch:
    found = _found(comparison, published)
    own = tuple(arm for arm in found if not _spec(comparison, arm).get("twin_of"))
    if own:
        return ArmMatch(name, published.label, own, "")
    if left := _left(comparison, published):
        return ArmMatch(name, published.label, (), left)
    if published.none:
        return ArmMatch(name, published.label, (), published.none)
    wanted = "; or ".join(
        ", ".join(f"{k}: {_format(k, v)}" for k, v in each.items())
        for each in published.counterparts
    )
    return ArmMatch(
        name, published.label, (), f"this run has no arm with {wanted}" if wanted else ""
    )


def _left(comparison: Comparison, published: PublishedArm) -> str:
    """Return why the study's counterparts of an arm were not measured; empty without any."""
    named = dict.fromkeys(
        str(arm) for run in comparison.runs for arm in mapping(run.study.get("arms"))
    )
    reasons: dict[str, list[str]] = {}
    for arm in named:
        if is_counterpart(_spec(comparison, arm), published):
            why = why_it_did_not_run(comparison.runs, arm) or "none of its cells counts"
            reasons.setdefault(why, []).append(arm)
    return "; ".join(f"this run's {', '.join(arms)}: {why}" for why, arms in reasons.items())


def _measured(comparison: Comparison) -> Iterator[str]:
    having = {summary.arm for summary in comparison.summaries}
    return (arm for arm in comparison.arms if arm in having)


def _spec(comparison: Comparison, arm: str) -> Mapping[str, Any]:
    for run in comparison.runs:
        if arm in mapping(run.study.get("arms")):
            return mapping(mapping(run.study.get("arms"))[arm])
    return {}


def is_counterpart(spec: Mapping[str, Any], published: PublishedArm) -> bool:
    """Return whether an arm of a study, as recorded in a run's events, is like a published one."""
    options = mapping(spec.get("options"))

    def value_of(name: str) -> Any:
        if name == "platform":
            return spec.get(name)
        group, dot, option = name.partition(".")
        return mapping(options.get(group)).get(option) if dot else options.get(name)

    return any(
        all(value_of(name) == value for name, value in each.items())
        for each in published.counterparts
    )


def _format(name: str, value: str | float | bool | None) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if name.endswith(TIMES) and isinstance(value, float):
        return format_quantity(value, "s", digits=5, trim=True)
    return str(value)
