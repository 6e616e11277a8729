"""The baseline on every host that has arms, so that each ratio stays within one host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.study.model import Study

AT = "@"
"""Between an arm's name and the host's, in the name of an arm that Tare added."""


def with_baselines(study: Study) -> Study:
    """Return a study with the baseline added on each host that has arms and lacks it.

    The baseline ``bare`` is added on the host ``kvm1`` as the arm ``bare@kvm1``.
    """
    added = {
        f"{study.baseline}{AT}{host}": study.arms[study.baseline].model_copy(update={"on": host})
        for host in dict.fromkeys(study.host_of(arm) for arm in study.arms)
        if not any(study.host_of(arm) == host and alike(study, arm) for arm in study.arms)
    }
    return study.model_copy(update={"arms": {**study.arms, **added}}) if added else study


def alike(study: Study, arm: str) -> bool:
    """Return whether an arm is the baseline, on whichever host; a twin is no baseline."""
    without = {"on": None}
    one = study.arms[arm].model_copy(update=without)
    return one == study.arms[study.baseline].model_copy(update=without)


def without_added(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored study without the arms that :func:`with_baselines` added."""
    arms = stored.get("arms")
    if not isinstance(arms, Mapping):
        return dict(stored)
    return {**stored, "arms": {name: arm for name, arm in arms.items() if AT not in str(name)}}
