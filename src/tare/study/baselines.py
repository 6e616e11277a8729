"""The baseline on every host that has arms, so that each ratio stays within one host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.study.model import Arm, Study

AT = "@"
"""Between an arm's name and the host's, in the name of an arm that Tare added."""


def with_baselines(study: Study) -> Study:
    """Return a study with the baseline and its twin added on each host that has arms and no own.

    In a study in sessions none is added: its hosts are one computer, and a baseline of one boot
    may not be possible in another.

    The baseline ``bare`` is added on the host ``kvm1`` as the arm ``bare@kvm1``, and its twin
    ``bare-again`` as ``bare-again@kvm1``.
    """
    return study if study.sessions is not None else _with_twins(_with_baselines(study))


def _with_baselines(study: Study) -> Study:
    added = {
        f"{study.baseline}{AT}{host}": study.arms[study.baseline].model_copy(update={"on": host})
        for host in dict.fromkeys(study.host_of(arm) for arm in study.arms)
        if not any(study.host_of(arm) == host and alike(study, arm) for arm in study.arms)
    }
    return _with(study, added)


def _with_twins(study: Study) -> Study:
    """Add a twin of each host's baseline, where the study's baseline has one."""
    pair = study.aa
    if pair is None or pair[0] != study.baseline:
        return study
    baselines = dict.fromkeys(study.own_baselines.values())
    twinned = {one for one, _ in study.twins}
    added = {
        f"{pair[1]}{AT}{study.host_of(base)}": study.arms[base].model_copy(update={"twin_of": base})
        for base in baselines
        if base not in twinned
    }
    return _with(study, added)


def _with(study: Study, added: Mapping[str, Arm]) -> Study:
    return study.model_copy(update={"arms": {**study.arms, **added}}) if added else study


def alike(study: Study, arm: str) -> bool:
    """Return whether an arm is the baseline, on whichever host; a twin is no baseline."""
    without = {"on": None}
    one = study.arms[arm].model_copy(update=without)
    return one == study.arms[study.baseline].model_copy(update=without)


def as_stored(study: Study, stored: Mapping[str, Any]) -> Study:
    """Return a study with those of the added arms alone that a run was begun with."""
    known = stored.get("arms")
    if not isinstance(known, Mapping):
        return study
    arms = {name: arm for name, arm in study.arms.items() if AT not in name or name in known}
    return study.model_copy(update={"arms": arms})


def without_added(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored study without the arms that :func:`with_baselines` added."""
    arms = stored.get("arms")
    if not isinstance(arms, Mapping):
        return dict(stored)
    return {**stored, "arms": {name: arm for name, arm in arms.items() if AT not in str(name)}}
