"""Sessions: arms that need one computer booted differently, measured in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tare.study.reading.checking import suggestion

if TYPE_CHECKING:
    from tare.study.model.study import Arm, Study, StudyFrame
    from tare.study.planning.plan import Plan
    from tare.study.planning.session_plan import Sessions
    from tare.study.reading.yamltext import Path


def boot_of(study: Study, arm: str) -> str:
    """Return the boot in whose sessions an arm is measured; empty for a study without sessions."""
    if study.sessions is None:
        return ""
    named = {name: boot for boot, each in study.sessions.boots.items() for name in each.arms}
    return named.get(arm) or named[study.arms[arm].twin_of or ""]


def part_of(study: Study, boot: str) -> Study:
    """Return the part of a study that is measured while its computer is booted in one way.

    It has the arms of that boot only, and not the hosts on which only other arms run. Its baseline
    may belong to another boot.

    Args:
        study: A study in sessions.
        boot: The name of the boot.
    """
    arms = {name: arm for name, arm in study.arms.items() if boot_of(study, name) == boot}
    ours = {study.host_of(name) for name in arms}
    others = {study.host_of(name) for name in study.arms} - ours
    hosts = {name: spec for name, spec in study.hosts.items() if name not in others}
    return study.model_copy(update={"arms": arms, "hosts": hosts})


def plan_in(plan: Plan, study: Study, boot: str) -> Plan:
    """Return the plan of the arms of one boot, as if there were no others.

    Args:
        plan: The plan of the whole study.
        study: The study.
        boot: The name of the boot.
    """
    arms = frozenset(name for name in study.arms if boot_of(study, name) == boot)
    return replace(
        plan,
        batches=tuple(batch for batch in plan.batches if batch.arm in arms),
        skipped=tuple(skip for skip in plan.skipped if skip.arm in arms),
        plain=tuple(arm for arm in plan.plain if arm in arms),
    )


def session_faults(frame: StudyFrame, arms: Mapping[str, Arm | None]) -> Iterator[tuple[Path, str]]:
    """Yield the reasons why a study cannot be measured in its sessions, each as a place and advice.

    Args:
        frame: The study's settings for all arms.
        arms: Its arms by name; None for those that are invalid.
    """
    if frame.sessions is None:
        return
    yield from _wrong_arms(frame.sessions, arms)
    for key, wanted in (("duet", frame.blocks.duet), ("turns", frame.blocks.turns)):
        if wanted:
            yield (
                ("blocks", key),
                f"`{key}` runs two arms at once; write either `{key}` or `sessions`",
            )
    if frame.blocks.method != "precision":
        yield (
            ("blocks", "method"),
            f"`{frame.blocks.method}` compares single blocks, but sessions are compared as a "
            "whole: remove `method`",
        )
    if frame.spread is not None:
        yield ("spread",), "sessions use one computer: write either `spread` or `sessions`"


def _wrong_arms(sessions: Sessions, arms: Mapping[str, Arm | None]) -> Iterator[tuple[Path, str]]:
    boots: dict[str, str] = {}
    for boot, each in sessions.boots.items():
        for index, name in enumerate(each.arms):
            here: Path = ("sessions", "boots", boot, "arms", index)
            if name not in arms:
                yield here, f"there is no arm {name!r}" + suggestion(name, arms)
            elif boots.setdefault(name, boot) != boot:
                yield here, f"{name} already belongs to the boot {boots[name]}: name it once"
            elif each.arms.index(name) < index:
                yield here, f"{name} is listed twice: name it once"
    for name, arm in arms.items():
        if arm is None:
            continue
        of = boots.get(arm.twin_of or "")
        if name not in boots and arm.twin_of is None:
            yield (
                ("arms", name),
                "is not in any session: add it to the `arms` of one of "
                + ", ".join(f"`sessions.boots.{boot}`" for boot in sessions.boots),
            )
        elif name in boots and of and boots[name] != of:
            at: Path = ("sessions", "boots", boots[name], "arms")
            yield (
                at,
                f"{name} is a twin of {arm.twin_of}, which is in the boot {of}: remove it here",
            )
